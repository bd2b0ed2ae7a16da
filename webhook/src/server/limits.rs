//! Limits of the time, memory and connections that clients may use.

use std::time::Duration;

/// The server's limits. The defaults are those of production; tests shorten them.
///
/// The API server waits 5 s for a response and then creates the pod without a drainer. So requests wait for
/// memory and CPU as long as they can still be answered in time, and are rejected before the 5 s end otherwise.
///
/// All attacks together stay below 128 MiB, half of the chart's limit of memory. Measured by `make hostile`, including
/// the program's own 9 MiB:
///
/// - [`Limits::max_connections`], each with a head of 15 KiB and a body of 64 KiB, or a larger one as long as there is
///   `body_memory`, take up to 90 MiB of resident memory, and 2 MiB in the kernel.
/// - The drainer API's port takes up to 54 MiB: 128 connections 7 MiB; 200,000 endpoints in lists, of 32 bytes each, 6
///   MiB; two pages of EndpointSlices of 4 MiB and two Pods of 2 MiB, as text and as what is read of it, the most of
///   the rest.
/// - Both at once take up to 123 MiB of resident memory, less than the sum since their peaks do not coincide, and 2 MiB
///   in the kernel.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For a TLS handshake, including the time before its first byte.
    pub handshake_timeout: Duration,
    /// For the head of a request, including the idle time before it. Longer than the 90 s for which Go, and so
    /// the API server, keeps an idle connection: if the server closed it first, it could do so while a request
    /// is on its way, which Go does not retry because it is a POST.
    /// <https://github.com/golang/go/issues/22158>
    pub head_timeout: Duration,
    /// The same on the ports for probes and metrics, whose connections serve one request each.
    pub plain_http_head_timeout: Duration,
    /// For the body of a request, including the waits for memory and for the scheduler. Shorter than the API
    /// server's 5 s, so that the response is still read.
    pub body_timeout: Duration,
    /// Maximum size of a body, in bytes. A pod may have 3 MiB, the limit of a request to the API server, and its
    /// review holds more than the pod: controller-runtime's limit is 7 MiB too.
    pub max_body_size: usize,
    /// Memory of all bodies together in bytes, except those of at most [`Limits::UNCOUNTED_BODY_SIZE`]. Never
    /// less than `max_body_size`.
    pub body_memory: usize,
    /// How long a body that is partly read waits for more of `body_memory`. Short, because it may already hold memory
    /// that others wait for.
    pub memory_wait: Duration,
    /// How long a client may take to read a response, once the kernel's buffers are full. The API server waits
    /// 5 s for the whole response.
    pub write_timeout: Duration,
    /// Maximum number of connections of the TLS port. At the limit, a new connection evicts another; up to 64 that were
    /// evicted still answer a request, and up to 128 still wait for their handshake or their first request.
    pub max_connections: usize,
    /// Maximum number of connections of each of the ports for probes and metrics.
    pub max_plain_http_connections: usize,
    /// Age at which a connection's next response closes it, up to a fifth sooner: API servers reuse their
    /// connections, so that otherwise new replicas would get no load.
    pub max_connection_age: Duration,
    /// How long the server keeps serving after a shutdown was requested, until API servers know that this replica
    /// is terminating.
    pub shutdown_delay: Duration,
    /// How long requests in flight may take after that. On the TLS port, the API server first has `head_timeout`
    /// to close its idle connections.
    pub shutdown_grace: Duration,
}

// === impl Limits ===

impl Limits {
    /// Size up to which a body needs no memory of the shared budget, in bytes. The review of an ordinary pod is a
    /// fifth of it.
    pub const UNCOUNTED_BODY_SIZE: usize = 64 << 10;

    /// The limits of the ports for probes and metrics, whose connections serve one request each.
    pub(super) fn plain_http(&self) -> Self {
        Self {
            head_timeout: self.plain_http_head_timeout,
            max_connections: self.max_plain_http_connections,
            max_connection_age: Duration::ZERO,
            ..self.clone()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            head_timeout: Duration::from_secs(100),
            plain_http_head_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(4),
            max_body_size: 7 << 20,
            body_memory: 14 << 20,
            memory_wait: Duration::from_millis(500),
            write_timeout: Duration::from_secs(5),
            max_connections: 320,
            max_plain_http_connections: 128,
            max_connection_age: Duration::from_secs(5 * 60),
            shutdown_delay: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}
