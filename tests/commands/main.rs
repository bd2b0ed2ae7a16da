//! What the commands of `envoy-drainer` print, in the processes that a user starts: against files, or a fake API server.

#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

// `envoy-drainer check`.
mod check;
// `envoy-drainer drains`.
mod drains;
// `envoy-drainer explain` for objects of a cluster.
mod explain;
// `envoy-drainer lint`.
mod lint;
// `inject` and `explain` of files.
mod offline;

/// What a program has printed.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}
