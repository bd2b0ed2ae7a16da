//! The support code of the tests, the demo and the benchmarks, by subject.

// === Envoy ===

// A client of Envoy's admin interface.
pub mod admin;
// A builder of Envoy's bootstrap configuration, and of its listeners.
pub mod bootstrap;
pub mod listener;
// A real Envoy, and the versions to test with.
pub mod envoy;
pub mod envoy_versions;
// The server behind the Envoys.
pub mod upstream;

// === The product's programs ===

// The binaries, built from the current tree.
pub mod binaries;
// A drainer process, and the hooks that call it.
pub mod drainer;
// The webhook's server in the test's process.
#[cfg(feature = "webhook")]
pub mod webhook;
// The webhook as a process whose memory and CPU time are measured.
pub mod webhook_process;
// AdmissionReviews and their responses.
#[cfg(feature = "webhook")]
pub mod review;
// Manifests and their injection, and YAML in many styles.
#[cfg(feature = "webhook")]
pub mod manifest;
#[cfg(feature = "webhook")]
pub mod yaml_generator;

// === Kubernetes ===

// A fake API server, and the tokens of drainers that it reviews.
pub mod api_server;
#[cfg(feature = "webhook")]
pub mod drainer_token;
// A fake kubelet, which runs the containers of a pod as processes.
pub mod kubelet;
// A fake Service, which balances connections over pods.
pub mod service;
// Helm and the rendered chart, and a check of its objects.
#[cfg(feature = "webhook")]
pub mod helm;
pub mod kubernetes;
// Prometheus and promtool.
pub mod prometheus;

// === Clients ===

// Loads of the tests' upstream, which count every failed request.
pub mod load;
// What an app behind a sidecar Envoy reports of its calls.
pub mod outbound_report;
// What rollouts of servers that are no Envoy lose.
pub mod server_report;
// A flood of connections.
pub mod flood;
pub mod foreign_text;
// HTTP and HTTPS clients, and connections without an HTTP library.
pub mod http;
pub mod https;
pub mod raw_connection;
// A CA and its leaves.
pub mod test_ca;

// === Processes and time ===

// Processes under test, what they use, and their ports.
pub mod memory;
pub mod port;
pub mod process;
mod process_usage;
// Assertions about durations.
pub mod timing;
// Conditions to wait for, and cases that run in parallel.
pub mod parallel;
pub mod until;

// Edits of JSON.
pub mod json;
// Golden files, and the figures of benchmarks with their tables.
pub mod figures;
pub mod golden;
pub mod table;
// The figures of `make bench-admission`, `make bench-peers`, `make soak` and `make terminations`.
pub mod admission_report;
pub mod peers_report;
pub mod soak_report;
pub mod termination_report;
// The reports of drills.
#[cfg(feature = "webhook")]
pub mod drill_reports;
