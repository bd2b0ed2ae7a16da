//! What the programs answer and print, and the pages that are generated from it: golden pods, reports and pages. No
//! test starts an Envoy or a server, so that the golden files can be updated without one.

#![expect(
    clippy::unwrap_used,
    reason = "tests may panic, and so may their helpers"
)]

// How an AdmissionReview becomes a patch: the golden pairs of tests/golden.
mod admit;
// Every setting: its annotation, its default, and what is wrong with a bad value.
mod annotations;
// `envoy-drainer check` against a fake API server.
mod check;
// docs/codes.md lists every code.
mod codes;
// `envoy-drainer drains` against a fake API server.
mod drains;
// `envoy-drainer explain` for objects of a fake API server.
mod explain;
// `envoy-drainer lint`.
mod lint;
// What the manifests of real Envoys show.
mod manifests;
// The figures in README.md and docs, which are those of docs/measured.
mod measured;
// `inject` and `explain`.
mod offline;
// The claims of docs/security.md, and the rows of docs/kubernetes-versions.md, name tests that exist.
mod security;
