//! What a client may take from the server: time, memory and connections.

use std::time::Duration;

/// The bounds of the server. The defaults are the product's; tests shorten them.
///
/// The API server waits 5 s for an answer and then goes on without one, which is a pod without its
/// drainer. So what can be had by waiting is waited for, and what cannot is told before that.
///
/// What they let a crowd take, measured by `make hostile`: all `connections`, each with a head of 15 KiB
/// and a body of 64 KiB, are 85 MiB resident and 2 MiB in the kernel, the program's own 9 MiB among them;
/// `bodies_size` is 14 MiB. The chart's limit is 128 MiB.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For a TLS handshake, the client's silence before it included.
    pub handshake_timeout: Duration,
    /// For the head of a request, the idle time before it included. It is longer than the 90 s for
    /// which Go, and so the API server, keeps an idle connection: closed by the server, one could
    /// be closed under a request, which Go does not send again because it is a POST.
    /// <https://github.com/golang/go/issues/22158>
    pub head_timeout: Duration,
    /// The same on the ports for probes and metrics, whose connections are for one request each.
    pub plain_head_timeout: Duration,
    /// For the body of a request, the memory it is read to and its turn to be decided. It ends before
    /// the API server's 5 s, so that an answer is still read.
    pub body_timeout: Duration,
    /// The largest body. A pod may have 3 MiB, the limit of a request to the API server, and its
    /// review holds more than the pod: controller-runtime takes 7 MiB as well.
    pub max_body_size: usize,
    /// All bodies together, but for those of at most [`Limits::FREE_BODY`]. Never less than
    /// `body_size`.
    pub body_memory: usize,
    /// How long a body that has come so far waits for the memory to grow further. Short, because
    /// it holds what others wait for.
    pub memory_wait: Duration,
    /// How long a client may take to read an answer, from when the kernel can take no more of it. The
    /// API server waits 5 s for a whole answer.
    pub write_timeout: Duration,
    /// How many connections the TLS port has. When all are taken, one makes room for the next.
    pub max_connections: usize,
    /// How many connections the ports for probes and metrics have, each.
    pub max_plain_connections: usize,
    /// After so long a connection's next response closes it, and up to a fifth sooner: the API
    /// server sticks to its connections, and new replicas would get no load.
    pub max_connection_age: Duration,
    /// How long the server serves on after it was told to end, because the API server learns only
    /// later that this replica is gone.
    pub shutdown_delay: Duration,
    /// How long requests in flight may then take. On the TLS port that is after the API server has let
    /// its idle connections go, for which it has `head`.
    pub shutdown_grace: Duration,
}

// === impl Limits ===

impl Limits {
    /// A body of this size has memory whatever the others do. The review of an ordinary pod is a
    /// fifth of it.
    pub const UNCOUNTED_BODY_SIZE: usize = 64 << 10;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            head_timeout: Duration::from_secs(100),
            plain_head_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(4),
            max_body_size: 7 << 20,
            body_memory: 14 << 20,
            memory_wait: Duration::from_millis(500),
            write_timeout: Duration::from_secs(5),
            max_connections: 384,
            max_plain_connections: 128,
            max_connection_age: Duration::from_secs(5 * 60),
            shutdown_delay: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}
