//! The monitor of the pod's Envoy: makes all calls to it, keeps what they showed, and publishes it.

use std::mem::replace;
use std::time::Duration;

use strum::VariantArray;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info};

use super::server::Server;
use crate::drain::calls::EnvoyCalls;
use crate::drain::client_activity::QuietWindow;
use crate::drain::exit_rules::{DrainHistory, DrainOutcome, ExitDecision, ExitRules};
use crate::drain::health_failure::FailHealthWhen;
use crate::drain::progress::{DrainPhase, Progress};
use crate::drain::summary::Remaining;
use crate::envoy::Setup;
use crate::envoy::admin_call::{AdminCall, CallError, or_rejection};
use crate::envoy::admin_client::AdminClient;
use crate::envoy::listeners::{EnvoyListeners, Listener};
use crate::envoy::server_info::ServerState;
use crate::envoy::snapshot::Snapshot;
use crate::kernel::witness::{Observation, SoleWitness, Witness};
use crate::kernel::{self, socket::SocketState};
use crate::log_limiter::LogLimiter;
use crate::settings::config::Config;
use crate::settings::health_failure_delay::HealthFailureDelay;
use crate::settings::readiness_probe::ReadinessProbe;
use crate::settings::timing::MAX_QUIET_WAIT;

/// An Envoy, and what is known of it.
pub(crate) struct Monitor {
    /// What it was told.
    pub(crate) calls: EnvoyCalls,
    /// Calls that change Envoy go through [`Monitor::make_call`].
    pub(super) client: AdminClient,
    pub(super) config: Config,
    pub(super) progress: watch::Sender<Progress>,
    /// Envoy's setup as last read; `None` until it was read by this process.
    setup: Option<Setup>,
    /// When a drain ends; depends on `setup`, and on whether Envoy has responded to this process.
    pub(super) rules: ExitRules,
    /// When Envoy was last seen live, with its health not failed.
    pub(super) live_at: Option<Instant>,
    /// For how long Envoy had been running at the last ping, if that is known.
    uptime: Option<Duration>,
    /// From when Envoy's setup is worth a read; `None` if it is not.
    pub(super) inspect_at: Option<Instant>,
    restore_log: LogLimiter,
    kernel: Witness,
    /// The server that takes Envoy's place, or where an Envoy has no admin interface, what listens in the pod.
    server: Server,
    /// The least pause since the kernel last listed its sockets.
    pub(super) listing_pause: Duration,
}

/// The pause after a poll, in multiples of the time it took, up to [`MAX_POLL_PAUSE`]; also that after an
/// inspection. A poll walks all statistics on Envoy's main thread, which has other work.
const POLL_PAUSE_FACTOR: u32 = 10;

const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);

/// The same after the kernel has listed its sockets. Meanwhile this process does nothing else: 5 ms with 1,000 connections,
/// some 100 ms with 20,000 (measured, loopback).
const LISTING_PAUSE_FACTOR: u32 = 20;

/// Pause between two logs of the same failure, while nothing drains.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout for reading Envoy's setup during a drain, which continues without it.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(2);

// === impl Monitor ===

impl Monitor {
    /// A monitor that publishes the `progress`.
    pub(crate) fn new(config: &Config, progress: watch::Sender<Progress>) -> Self {
        let probes = config.readiness_probes.iter().copied();
        let probes = probes.filter(|it| config.is_of_server() && config.serves(it.port, true));
        Self {
            calls: EnvoyCalls::default(),
            client: AdminClient::new(config),
            config: config.clone(),
            progress,
            setup: None,
            rules: ExitRules {
                timing: config.settings.timing,
                exit_at_connections: config.settings.exit_at_connections,
                quiet: QuietWindow::new(config.settings.timing.quiet_period, probes),
                has_responded: false,
                keeps_health: false,
            },
            live_at: None,
            uptime: None,
            inspect_at: None,
            restore_log: LogLimiter::default(),
            kernel: Witness::default(),
            server: Server::default(),
            listing_pause: Duration::ZERO,
        }
    }

    /// Sets what the flags of a shutdown manager's hook say.
    pub(crate) fn apply_manager_flags(&mut self, flags: &[String]) {
        self.config.apply_manager_flags(flags);
        self.rules.timing = self.config.settings.timing;
        self.rules.exit_at_connections = self.config.settings.exit_at_connections;
    }

    /// Makes a call that changes Envoy, and notes in [`Monitor::calls`] how Envoy has responded.
    pub(crate) async fn make_call(&mut self, call: AdminCall) -> Result<(), CallError> {
        self.calls.is_health_failed |= call == AdminCall::FailHealth;
        let result = self.client.post(call).await;
        self.calls.note(call, &result, Instant::now());
        result
    }

    /// Decides when a drain that starts now, and ends at `deadline` at the latest, fails Envoy's health. Where that spares
    /// the app's own calls, the whole minimum follows.
    pub(crate) fn decide_health_failure(&mut self, delay: HealthFailureDelay, deadline: Instant) {
        let (now, timing) = (Instant::now(), &self.config.settings.timing);
        let minimum = timing.min_drain_duration;
        let latest = deadline.checked_sub(minimum).unwrap_or(now);
        let latest = latest.min(now + minimum + MAX_QUIET_WAIT);
        let no_http3_for = self.drains_http3().then_some(timing.quiet_period);
        let can_spare = self.setup.as_ref().is_some_and(Setup::can_spare_outbound);
        let spared_until = can_spare.then_some(latest);
        let when = FailHealthWhen::decide(delay, now, no_http3_for, spared_until);
        self.calls.spares_outbound = can_spare && when != FailHealthWhen::AtOnce;
        self.calls.fail_health_when = when;
        if self.calls.is_health_kept() {
            info!(health_failure_delay = %delay, "Envoy's health is not failed yet");
        }
    }

    /// Asks for Envoy's state, while nothing drains, and restores its health if that is due. Returns whether its health was
    /// not failed, by `/server_info`, which takes the same time in any Envoy, or else by its statistics; `None` if that is
    /// unknown.
    pub(crate) async fn ping(&mut self) -> Result<Option<bool>, CallError> {
        if self.config.is_of_server() {
            self.poll_server()?;
            self.rules.has_responded = true;
            self.live_at = Some(Instant::now());
            return Ok(None);
        }
        let info = or_rejection(self.client.server_info().await);
        self.note_address();
        let info = info?.unwrap_or_default();
        self.rules.has_responded = true;
        let before = replace(&mut self.uptime, info.uptime());
        if before > self.uptime {
            self.expect_another_envoy();
        }
        let live = match info.state {
            ServerState::Live => Some(true),
            ServerState::Draining => Some(false),
            ServerState::Initializing => None,
            ServerState::Unknown => {
                let polled = or_rejection(self.client.poll().await)?;
                polled.ok().and_then(|snapshot| snapshot.live)
            }
        };
        let now = Instant::now();
        // Another server may answer where nothing tells its health: only what this process has failed is restored.
        let may_have_failed = live.map_or(self.calls.is_health_failed, |live| !live);
        if live == Some(true) {
            self.live_at = Some(now);
            self.calls.note_live();
        } else if may_have_failed && self.calls.restore_at.is_some_and(|at| at <= now) {
            self.restore_health().await;
        }
        Ok(live)
    }

    /// Restores Envoy's health. That is due until Envoy has accepted the call, or is live: a server that rejects it now may
    /// not be the Envoy that responds later.
    async fn restore_health(&mut self) {
        match self.make_call(AdminCall::RestoreHealth).await {
            Ok(()) => {
                info!("Restored Envoy's health, since nothing is terminating");
            }
            Err(error) if error.is_rejection() && self.restore_log.should_log(LOG_INTERVAL) => {
                error!(%error, "Envoy rejected /healthcheck/ok: if its health has failed, it stays failed");
            }
            Err(error) => debug!(%error, "Envoy's health is not restored yet"),
        }
    }

    /// Publishes the address of the admin interface. Makes an inspection due if that is another one.
    fn note_address(&mut self) {
        let admin = self.client.address().map(ToString::to_string);
        if self.progress.borrow().admin != admin {
            self.progress.send_modify(|now| now.admin = admin);
            self.expect_another_envoy();
        }
    }

    /// Notes what a poll has shown. Makes an inspection due if listeners have changed since Envoy's setup was read.
    fn note(&mut self, polled: &Result<Snapshot, CallError>) {
        self.note_address();
        if matches!(polled, Ok(snapshot) if snapshot.has_new_listener) {
            self.request_inspection();
        }
    }

    /// Returns whether `/drain_listeners` alone makes HTTP/3 clients reconnect at once: Envoy speaks HTTP/3, and the drain
    /// strategy is immediate. With the gradual one only failed health does that.
    pub(crate) fn drains_http3(&self) -> bool {
        let have_quic = |all: &EnvoyListeners| !all.names_where(Listener::speaks_quic).is_empty();
        let setup = self.setup.as_ref().filter(|it| it.server.drains_at_once());
        setup.is_some_and(|it| it.listeners.as_ref().is_ok_and(have_quic))
    }

    /// Reads Envoy's setup and polls once, while nothing drains. Tests the calls of a drain, once for each start of Envoy.
    /// Returns what the poll counted, or why Envoy rejected it.
    pub(crate) async fn read_setup(
        &mut self,
    ) -> Result<(Setup, Result<Snapshot, String>), CallError> {
        // Whether all statistics are too large, which an inspection does not find out.
        let _ = self.client.poll().await;
        let setup = self.client.inspect().await?;
        if self.setup.is_none() {
            self.client.test_calls().await?;
        }
        let polled = self.client.poll().await;
        self.set_setup(setup.clone());
        self.note(&polled);
        Ok((setup, or_rejection(polled)?))
    }

    /// Reads Envoy's setup during a drain if that is due: at its start, since listeners may have changed; when a
    /// listener has appeared; and while it is unknown which statistics are hidden.
    pub(crate) async fn inspect_if_due(&mut self) {
        let started = Instant::now();
        if self.inspect_at.is_none_or(|at| started < at) {
            return;
        }
        let inspected = timeout(INSPECT_TIMEOUT, self.client.inspect()).await;
        let is_complete = matches!(&inspected, Ok(Ok(setup)) if setup.hidden_stats.is_ok());
        if let Ok(Ok(setup)) = inspected {
            self.set_setup(setup);
        }
        if !is_complete || self.inspect_at.is_some() {
            let now = Instant::now();
            self.inspect_at = Some(now + (now - started) * POLL_PAUSE_FACTOR);
        }
    }

    /// Forgets what is known of Envoy, since this is another one.
    fn expect_another_envoy(&mut self) {
        self.setup = None;
        self.client.forbidden.clear();
        self.request_inspection();
    }

    /// Makes an inspection due now, since Envoy may be another one.
    pub(crate) fn request_inspection(&mut self) {
        self.inspect_at = (!self.config.is_of_server()).then(Instant::now);
    }

    /// Counts what the kernel knows to be open on the ports of a server, or of an Envoy without an admin interface.
    fn poll_server(&mut self) -> Result<Snapshot, CallError> {
        let started = Instant::now();
        if self.progress.borrow().phase != DrainPhase::Standby {
            self.server.subscribe();
        }
        let polled = self.server.poll(&self.config);
        self.listing_pause = started.elapsed() * LISTING_PAUSE_FACTOR;
        polled
    }

    /// Polls once, adds the result to `history`, publishes it and decides what is next. Nothing is left only if the kernel
    /// agrees.
    pub(crate) async fn poll(&mut self, history: &mut DrainHistory) -> ExitDecision {
        let started = Instant::now();
        let is_server = self.config.is_of_server();
        let polled = if is_server {
            self.poll_server()
        } else {
            self.client.poll().await
        };
        let now = Instant::now();
        debug!(?polled, "Polled Envoy");
        self.rules.keeps_health = self.calls.fail_health_when == FailHealthWhen::AtEnd;
        self.rules.has_responded |= polled.is_ok();
        self.note(&polled);
        let mut unknown = polled.as_ref().err().map(ToString::to_string);
        // What Envoy rejects tells nothing.
        let mut polled = or_rejection(polled).map(Result::unwrap_or_default);
        // On a node's network, what listens may be other pods'.
        let may_listen = !self.config.host_network && self.config.manager.is_none();
        if may_listen && !is_server && polled.as_ref().is_err_and(CallError::is_absence) {
            let is_unreachable = true;
            let open = self.poll_server().map(|it| Snapshot {
                is_unreachable,
                ..it
            });
            polled = open.or(polled);
        }
        let server = polled.as_ref().ok().and_then(|it| it.open.server);
        history.witness = server.map(|_| SoleWitness::Kernel);
        if let Ok(Snapshot { open, .. }) = &mut polled
            && open.connections.is_none()
        {
            open.connections = self.observe(history).and_then(|seen| seen.connections);
            history.witness = open.connections.map(|_| SoleWitness::Kernel);
            unknown = unknown.or(Some("the number of connections".to_owned()));
            unknown = unknown.filter(|_| history.witness.is_none());
        }
        let is_repeated = history.disagreement.is_some();
        history.add(now, polled, &self.rules);
        let pause = ((now - started) * POLL_PAUSE_FACTOR).max(self.listing_pause);
        let interval = self.config.settings.timing.poll_interval;
        let pause = pause.min(MAX_POLL_PAUSE).max(interval);
        let mut decision = history.decide(&self.rules, now, pause);
        if let ExitDecision::Exit(outcome) = decision
            && !self.confirms(outcome, history)
        {
            // The statistics and the sockets are not of one moment: both are asked again first.
            let pause = if is_repeated { pause } else { Duration::ZERO };
            decision = ExitDecision::PollAt(Instant::now() + pause);
        }
        self.progress.send_modify(|progress| {
            let remaining = history.last_open.as_ref().and_then(Remaining::new);
            progress.remaining = remaining.or(progress.remaining.take());
            progress.unknown = unknown;
            progress.disagreement = history.disagreement;
            progress.witness = history.witness;
        });
        decision
    }

    /// Returns false if nothing is left by the last poll, but something by the kernel's sockets.
    pub(crate) fn confirms(&mut self, outcome: DrainOutcome, history: &mut DrainHistory) -> bool {
        if !matches!(outcome, DrainOutcome::Drained | DrainOutcome::Idle) {
            return true;
        }
        match self.observe(history) {
            Some(seen) => history.disagreement = seen.disagreement,
            None => history.witness = history.witness.or(Some(SoleWitness::Envoy)),
        }
        history.disagreement.is_none()
    }

    /// Compares the last poll with the sockets that the kernel lists now; `None` if it is not to be asked, or lists none of
    /// the counted listeners'.
    fn observe(&mut self, history: &DrainHistory) -> Option<Observation> {
        let at = &self.setup.as_ref()?.listeners.as_ref().ok()?.addresses;
        let is_asked = !at.counted.is_empty() && !self.config.settings.ignore_kernel;
        let at = is_asked.then_some(at)?;
        let started = Instant::now();
        let log = |error: &_| debug!(%error, "The kernel does not list its sockets");
        let sockets = kernel::list(SocketState::VARIANTS).inspect_err(log).ok()?;
        let (admin, allowed) = (self.client.address(), self.rules.exit_at_connections);
        let envoy = history.last_open.as_ref();
        let envoy = envoy.map_or(0, |open| open.over_sockets(at.all.is_some()));
        let seen = self.kernel.compare(&sockets, at, admin, envoy, allowed);
        self.listing_pause = started.elapsed() * LISTING_PAUSE_FACTOR;
        self.progress
            .send_modify(|it| it.unseen.clone_from(&seen.unseen));
        (seen.unseen.len() < at.counted.len()).then_some(seen)
    }

    /// Begins a phase, which decides which calls are due, and publishes it for `drainer status` and for the hooks of other
    /// containers.
    pub(crate) fn set_phase(&mut self, phase: DrainPhase) {
        self.progress.send_modify(|progress| {
            progress.phase = phase;
            progress.health_kept = false;
            progress.deadline_in = None;
            progress.waiting_for = None;
        });
    }

    /// Keeps Envoy's setup, and adapts the quiet window to its listeners.
    fn set_setup(&mut self, setup: Setup) {
        let listeners = setup.listeners.as_ref().ok();
        let is_counted = |it: &&ReadinessProbe| listeners.is_some_and(|l| l.counts_port(it.port));
        let probes = self.config.readiness_probes.iter().filter(is_counted);
        let quiet_period = self.config.settings.timing.quiet_period;
        self.rules.quiet = QuietWindow::new(quiet_period, probes.copied());
        if self.setup.is_none() {
            info!(envoy_version = setup.server.version, "Envoy is responding");
        }
        // While Envoy is starting, listeners may be missing.
        self.inspect_at = setup.server.is_starting().then(Instant::now);
        self.setup = Some(setup);
    }
}
