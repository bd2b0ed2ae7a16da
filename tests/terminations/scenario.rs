//! What happens in one termination: all of it follows from a seed.

use std::time::Duration;

use ::tests::load::{EchoLoad, load};
use ::tests::timing::TIMEOUT;
use drainer::Timing;
use fastrand::Rng;

/// A termination under load, with at most one fault.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// The seed, which repeats it.
    pub(crate) seed: u64,
    /// Runs the newest Envoy, or else the oldest.
    pub(crate) newest_envoy: bool,
    /// The drainer is a native sidecar, or else a container.
    pub(crate) native_sidecar: bool,
    /// The pod's manifest does not say where the admin interface is.
    pub(crate) searches_admin: bool,
    /// `--drain-strategy immediate`.
    pub(crate) immediate: bool,
    /// How much later than the pod's end clients learn of it.
    pub(crate) endpoint_lag: Duration,
    pub(crate) clients: Vec<Client>,
    pub(crate) fault: Option<Fault>,
    /// When it happens: after the start of the load if it is before the pod's end, else after that.
    pub(crate) fault_at: Duration,
}

/// A kind of clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Client {
    KeepAlive { rate: f64 },
    ConnectionPerRequest { rate: f64 },
    Slow { rate: f64, seconds: f64 },
    Http2 { rate: f64 },
    SlowHttp2 { rate: f64, seconds: f64 },
    Tcp { session: f64 },
    Idle,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The drainer's container is restarted before the pod ends.
    DrainerRestart,
    /// Envoy's container is restarted before the pod ends, without a load.
    EnvoyRestart,
    /// The drainer's hook is called so much later than Envoy's.
    LateExec(Duration),
    /// Envoy's hook is called so much later than the drainer's.
    LateHttpGet(Duration),
    /// LDS adds a listener, before the pod ends or in the drain.
    ListenerUpdate { in_drain: bool },
    /// Envoy is restarted hot before the pod ends: the old process keeps its connections.
    HotRestart,
    /// A process hangs for so long, in the drain.
    Pause { envoy: bool, time: Duration },
}

/// How long the load runs before the pod ends.
pub(crate) const LOAD_BEFORE: Duration = Duration::from_secs(4);

/// A session of the old process of a hot restart that outlasts the minimum of a drain, in seconds.
const LONG_SESSION: f64 = 25.0;

/// How many new connections to a pod in a quiet period make it unlikely that another one has none.
const DENSE: f64 = 5.0;

// === impl Client ===

impl Client {
    /// How many connections it opens per second; one that keeps them stays with the other pod, once it is there.
    fn connections_per_second(self) -> f64 {
        match self {
            Self::ConnectionPerRequest { rate } | Self::Slow { rate, .. } => rate,
            Self::Tcp { session } => 1.0 / session,
            Self::KeepAlive { .. } | Self::Http2 { .. } | Self::SlowHttp2 { .. } | Self::Idle => {
                0.0
            }
        }
    }
}

// === impl Fault ===

impl Fault {
    /// Returns true if it happens before the pod ends.
    pub(crate) fn is_before_end(self) -> bool {
        matches!(
            self,
            Self::DrainerRestart
                | Self::EnvoyRestart
                | Self::HotRestart
                | Self::ListenerUpdate { in_drain: false }
        )
    }
}

// === impl Scenario ===

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let fault = fault(rng);
        let fault_at = if fault.is_some_and(Fault::is_before_end) {
            seconds(rng, 0.5, LOAD_BEFORE.as_secs_f64() - 1.0)
        } else {
            seconds(rng, 0.0, 9.0)
        };
        let mut clients = clients(rng);
        if fault == Some(Fault::HotRestart) {
            clients.push(Client::Tcp {
                session: LONG_SESSION,
            });
        }
        Self {
            seed,
            newest_envoy: rng.u8(0..4) > 0,
            native_sidecar: rng.bool(),
            searches_admin: rng.bool(),
            immediate: rng.bool(),
            endpoint_lag: seconds(rng, 0.0, 15.0),
            clients,
            fault,
            fault_at,
        }
    }

    /// The `drain-delay` that docs/load-balancers.md advises where endpoints lag for longer than the minimum of a drain, and
    /// clients connect so rarely that a quiet period may lie between two connections to a pod; `None` elsewhere.
    pub(crate) fn drain_delay(&self) -> Option<Duration> {
        let defaults = Timing::default();
        let rates = self.clients.iter().map(|it| it.connections_per_second());
        // One of two pods.
        let in_quiet_period = rates.sum::<f64>() / 2.0 * defaults.quiet_period.as_secs_f64();
        let is_needed = in_quiet_period < DENSE && self.endpoint_lag > defaults.min_drain_duration;
        is_needed.then_some(self.endpoint_lag)
    }

    /// The load of its clients.
    pub(crate) fn load(&self) -> EchoLoad {
        // A response takes up to 9 s, and an Envoy that hangs delays it by 3 s.
        let load = load().request_timeout(TIMEOUT);
        self.clients
            .iter()
            .fold(load, |load, client| match *client {
                Client::KeepAlive { rate } => load.keep_alive(rate),
                Client::ConnectionPerRequest { rate } => load.connection_per_request(rate),
                Client::Slow { rate, seconds } => load.slow(rate, Duration::from_secs_f64(seconds)),
                Client::Http2 { rate } => load.http2(rate),
                Client::SlowHttp2 { rate, seconds } => {
                    load.slow_http2(rate, Duration::from_secs_f64(seconds))
                }
                Client::Tcp { session } => load.stream(5.0, Duration::from_secs_f64(session)),
                Client::Idle => load.idle(),
            })
    }
}

/// A time, in whole milliseconds.
fn seconds(rng: &mut Rng, min: f64, max: f64) -> Duration {
    let milliseconds = (1_000.0 * (min + (max - min) * rng.f64())).round();
    Duration::from_secs_f64(milliseconds / 1_000.0)
}

fn fault(rng: &mut Rng) -> Option<Fault> {
    Some(match rng.u8(0..14) {
        0 => Fault::DrainerRestart,
        1 => Fault::EnvoyRestart,
        2 => Fault::LateExec(seconds(rng, 0.5, 9.0)),
        3 => Fault::LateHttpGet(seconds(rng, 0.5, 9.0)),
        4 => Fault::ListenerUpdate { in_drain: false },
        5 => Fault::ListenerUpdate { in_drain: true },
        6 => Fault::HotRestart,
        kind @ 7..=8 => Fault::Pause {
            envoy: kind == 7,
            time: seconds(rng, 0.2, 3.0),
        },
        _ => return None,
    })
}

/// Some kinds of clients; often those that rarely do something.
fn clients(rng: &mut Rng) -> Vec<Client> {
    let rate = |rng: &mut Rng| 0.2 * 250_f64.powf(rng.f64());
    let response_time = |rng: &mut Rng| (0.5 + 8.0 * rng.f64() * rng.f64()).round();
    let mut all = vec![
        Client::KeepAlive { rate: rate(rng) },
        Client::ConnectionPerRequest { rate: rate(rng) },
        Client::Slow {
            rate: 0.2 + 4.0 * rng.f64(),
            seconds: response_time(rng),
        },
        Client::Http2 { rate: rate(rng) },
        Client::SlowHttp2 {
            rate: 0.2 + 4.0 * rng.f64(),
            seconds: response_time(rng),
        },
        Client::Tcp {
            session: 1.0 + 8.0 * rng.f64(),
        },
        Client::Idle,
    ];
    rng.shuffle(&mut all);
    all.truncate(rng.usize(1..=all.len()));
    all
}
