//! What a client may take from the server: time, memory and connections.

use std::time::Duration;

/// The bounds of the server. The defaults are the product's; tests shorten them.
///
/// The API server waits 5 s for an answer and then goes on without one, which is a pod without its
/// drainer. So what can be had by waiting is waited for, and what cannot is told before that.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For a TLS handshake, the client's silence before it included.
    pub handshake: Duration,
    /// For the head of a request, the idle time before it included. It is longer than the 90 s for
    /// which Go, and so the API server, keeps an idle connection: closed by the server, one could
    /// be closed under a request, which Go does not send again because it is a POST.
    /// <https://github.com/golang/go/issues/22158>
    pub head: Duration,
    /// For the head of a connection's first request where all places are taken: who has been silent
    /// for so long has to go then.
    ///
    /// Only then, because Go opens connections that it does not need yet: it dials for each request
    /// that finds none idle, gives the request whichever is free first, and keeps the other for
    /// later (`queueForDial` and `tryPutIdleConn`, "they may be actively dialing, but this conn is
    /// ready first"). To close such a spare one has the same risk as any idle one.
    /// <https://github.com/golang/go/blob/go1.25.0/src/net/http/transport.go>
    pub first_head: Duration,
    /// The same on the plain port, where clients send again what an idle connection lost, and where
    /// the kubelet's probes must not wait for others to go.
    pub plain_head: Duration,
    /// For the body of a request and the memory it is read to. It ends before the API server's 5 s,
    /// so that an answer is still read.
    pub body: Duration,
    /// The largest body. A pod may have 3 MiB, the limit of a request to the API server, and its
    /// review holds more than the pod: controller-runtime takes 7 MiB as well.
    pub body_size: usize,
    /// All bodies together; requests wait for their share. Never less than `body_size`.
    pub bodies_size: usize,
    /// How many connections the TLS port serves; more wait unaccepted, each takes about 60 KiB.
    pub connections: usize,
    /// How many connections the plain port serves.
    pub plain_connections: usize,
    /// After so long a connection's next response closes it, and up to a fifth sooner: the API
    /// server sticks to its connections, and new replicas would get no load.
    pub age: Duration,
    /// How long the server serves on after it was told to end, because the API server learns only
    /// later that this replica is gone.
    pub shutdown_delay: Duration,
    /// How long requests in flight may then take. On the TLS port that is after the API server has let
    /// its idle connections go, for which it has `head`.
    pub finish: Duration,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(100),
            first_head: Duration::from_secs(5),
            plain_head: Duration::from_secs(10),
            body: Duration::from_secs(4),
            body_size: 7 << 20,
            bodies_size: 32 << 20,
            connections: 512,
            plain_connections: 64,
            age: Duration::from_secs(5 * 60),
            shutdown_delay: Duration::from_secs(5),
            finish: Duration::from_secs(5),
        }
    }
}
