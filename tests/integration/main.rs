//! Tests of running programs through their public interfaces, with real Envoys, real TLS and a fake API server.

#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

// The admin interface that `add-admin` adds.
mod added_admin;
// Servers that are no Envoy.
mod any_server;
// Admin interfaces whose addresses the drainer finds, in network namespaces of their own.
mod admin_search;
// Certificates of a running server: rotation, renewal, and modes without a cluster.
mod certificates;
// The port for drainers: whose requests it answers, and the drainers that call it.
mod drainer_api;
// When drains of a real Envoy end, and that they cut no request.
mod drain;
// Envoys with QUIC listeners, whose health a drain keeps for a while.
mod http3;
// Envoys with MODIFY_ONLY listeners, health checks and rare requests: what counts as idle.
mod idle;
// Envoys that change: hot restarts, and listeners that LDS adds.
mod envoy_changes;
// Events on the owners of skipped pods.
mod events;
// What admin interfaces that fail, stall or send invalid responses cost the drainer.
mod admin_faults;
// Floods of connections on the drainer's port.
mod flood;
// The two preStop hooks, as a kubelet runs them.
mod hooks;
// Drains that keep Envoy's health, for the app's own calls or for a pod without a replacement.
mod kept_health;
// The Kubernetes client: timeouts, conflicts, watches.
mod kube_client;
// The drainer's Unix socket: who is served on it, and what takes its place.
mod local_socket;
// The chart's alerts and dashboard, with a real Prometheus.
mod monitoring;
// What the drainer tests when it starts: the calls that Envoy allows, and its listeners.
mod premises;
// What drainers report, and what the webhook makes of it.
mod reports;
// Tests of the support code: the kubelet and the load generator.
mod selftest;
// Pods of an app and its Envoy: the order in which their containers end.
mod sidecar_envoys;
// The program `envoy-drainer serve`: flags, signals, logs.
mod serve;
// The admission server: TLS, limits, eviction, shutdown.
mod server;
// The drainer in the place of Envoy Gateway's shutdown manager.
mod shutdown_manager;
// Whether the pod, Envoy or the drainer terminates, by the hooks and signals that arrive.
mod termination_signals;
