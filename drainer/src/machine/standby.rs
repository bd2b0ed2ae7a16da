//! Standby while nothing is ending: restores health that a drain has failed, reads Envoy's setup, and warns of what will
//! impair a drain.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::field::display;
use tracing::{debug, error, info, warn};

use super::monitor::Monitor;
use crate::drain::report::Report;
use crate::envoy::admin_call::{AdminCall, CallError};
use crate::envoy::setup_warnings::{SetupWarning, SetupWarningKind, setup_warnings};
use crate::http_client::HttpError::PermissionDenied;
use crate::log_limiter::LogLimiter;

/// What standby has to do, and what it has told.
pub(crate) struct Standby {
    /// From when Envoy's health is restored if it is failed: a drain of this process or of an earlier one may have failed
    /// it. `None` once Envoy is live.
    restore_at: Option<Instant>,
    /// Envoy's setup has been read, and it was not starting then.
    is_set_up: bool,
    /// What has been warned of.
    warnings: Vec<SetupWarning>,
    /// When the drainer started.
    started_at: Instant,
    /// It was reported that Envoy's admin interface cannot be read.
    is_admin_reported: bool,
    restore_log: LogLimiter,
    setup_log: LogLimiter,
}

/// Pause between two calls to Envoy while nothing drains.
pub(crate) const STANDBY_INTERVAL: Duration = Duration::from_secs(1);

/// How long after the drainer Envoy may start: it may have to wait for its image, or for init containers.
const MAX_ENVOY_START: Duration = Duration::from_secs(60);

/// How long Envoy usually takes to respond; what it lacks until then is not logged.
const USUAL_ENVOY_START: Duration = Duration::from_secs(5);

/// Pause between two logs of the same failure.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How often to look for listeners that have appeared since Envoy's setup was read.
const NEW_LISTENER_INTERVAL: Duration = Duration::from_secs(30);

// === impl Standby ===

impl Standby {
    /// That of a drainer that starts.
    pub(crate) fn new() -> Self {
        Self {
            restore_at: Some(Instant::now()),
            is_set_up: false,
            warnings: Vec::new(),
            started_at: Instant::now(),
            is_admin_reported: false,
            restore_log: LogLimiter::new(LOG_INTERVAL),
            setup_log: LogLimiter::new(LOG_INTERVAL),
        }
    }

    /// Begins standby after a drain: Envoy's health is restored from `restore_at` on if it is failed, and its setup is read
    /// again, since it may be another Envoy.
    pub(crate) fn begin(&mut self, restore_at: Instant) {
        (self.restore_at, self.is_set_up) = (Some(restore_at), false);
    }

    /// Returns true if a drain has failed Envoy's health, and it is not restored yet.
    pub(crate) fn is_health_failed(&self) -> bool {
        self.restore_at.is_some_and(|at| Instant::now() < at)
    }

    /// Runs until it is dropped.
    pub(crate) async fn run<T>(&mut self, monitor: &mut Monitor) -> T {
        loop {
            // Another Envoy may have started.
            monitor.envoy.find_again(false).await;
            match monitor.ping().await {
                Ok(live) => self.restore_health_if_due(live, monitor).await,
                Err(_) => self.is_set_up = false,
            }
            self.is_set_up &= monitor.inspect_at.is_none();
            if !self.is_set_up {
                self.read_setup(monitor).await;
            }
            // With none, its admin interface has not been found in all the time that an Envoy takes to start.
            let is_settled = self.restore_at.is_none() && self.is_set_up
                || self.is_admin_reported && monitor.envoy.address().is_none();
            let pause = if is_settled {
                NEW_LISTENER_INTERVAL
            } else {
                STANDBY_INTERVAL
            };
            sleep(pause).await;
        }
    }

    /// Restores Envoy's health if that is due and Envoy is DRAINING, which is not `live`. It is due until Envoy has
    /// accepted the call, or is live: a server that rejects it now may not be the Envoy that responds later.
    pub(crate) async fn restore_health_if_due(
        &mut self,
        live: Option<bool>,
        monitor: &mut Monitor,
    ) {
        if live == Some(true) {
            self.restore_at = None;
        }
        if live != Some(false) || self.restore_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        match monitor.envoy.post(AdminCall::RestoreHealth).await {
            Ok(()) => {
                self.restore_at = None;
                info!("Restored Envoy's health: it was DRAINING, although nothing is terminating");
            }
            Err(error) if error.is_rejection() && self.restore_log.should_log(Instant::now()) => {
                error!(%error, "Envoy rejected /healthcheck/ok: its health checks keep failing");
            }
            Err(error) => debug!(%error, "Envoy's health is not restored yet"),
        }
    }

    /// Reads Envoy's setup, and warns of what will impair a drain. To be repeated while Envoy is starting, since its
    /// listeners may be missing.
    async fn read_setup(&mut self, monitor: &mut Monitor) {
        let is_first = monitor.setup.is_none();
        let result = monitor.read_setup().await;
        let error = result.as_ref().err();
        let unknown = error.map(|error| match monitor.envoy.address() {
            Some(admin) => format!("Envoy's admin interface at {admin}: {error}"),
            None => error.to_string(),
        });
        monitor.progress.send_modify(|now| now.unknown = unknown);
        let (setup, snapshot) = match result {
            Ok(read) => read,
            Err(error) => return self.warn_of_unreadable_admin(monitor, &error),
        };
        if is_first {
            info!(envoy_version = setup.server.version, "Envoy is responding");
        }
        self.is_set_up = !setup.server.is_starting();
        if self.is_set_up {
            let warnings = setup_warnings(&setup, snapshot.as_ref(), &monitor.config);
            self.warn(monitor, warnings);
        }
    }

    /// Logs and reports the warnings that are new.
    fn warn(&mut self, monitor: &Monitor, warnings: Vec<SetupWarning>) {
        let is_new = |warning: &&SetupWarning| !self.warnings.contains(warning);
        let new: Vec<_> = warnings.iter().filter(is_new).collect();
        for SetupWarning { kind, detail } in &new {
            let detail: String = detail.iter().map(|it| format!(" ({it})")).collect();
            warn!("{}{detail}", kind.message());
        }
        report(monitor, new.iter().map(|warning| warning.kind).collect());
        self.warnings = warnings;
    }

    /// Logs that Envoy's setup is unknown, and reports it when an Envoy that is only starting would have responded.
    fn warn_of_unreadable_admin(&mut self, monitor: &Monitor, error: &CallError) {
        let now = Instant::now();
        let kind = match error {
            CallError::Ambiguous(_) => SetupWarningKind::AdminAmbiguous,
            absence if absence.is_absence() => SetupWarningKind::AdminNone,
            _ => SetupWarningKind::AdminUnreadable,
        };
        let is_denied = matches!(error, CallError::Http(PermissionDenied));
        let is_final = is_denied || error.is_rejection();
        let is_worth_log = is_final || now >= self.started_at + USUAL_ENVOY_START;
        if is_worth_log && self.setup_log.should_log(now) {
            let admin = monitor.envoy.address().map(display);
            let remedy = match error {
                CallError::Http(PermissionDenied) => {
                    "Set `mode: 438` for the socket in Envoy's bootstrap, or set `runAsUser` for Envoy's container: the drainer then runs as the same user"
                }
                CallError::Ambiguous(_) => "Annotate the pod with envoy-drainer.dev/admin-address",
                _ => {
                    "If it has another address, annotate the pod with envoy-drainer.dev/admin-address"
                }
            };
            error!(admin, %error, "{}. {remedy}", kind.message());
        }
        if now >= self.started_at + MAX_ENVOY_START && !self.is_admin_reported {
            self.is_admin_reported = true;
            report(monitor, vec![kind]);
        }
    }
}

/// Reports setup warnings, if there are any, while standby goes on.
fn report(monitor: &Monitor, warnings: Vec<SetupWarningKind>) {
    if warnings.is_empty() || !monitor.config.webhook.reports {
        return;
    }
    let access = monitor.config.webhook.clone();
    // Lost if the drainer exits meanwhile; it ends within a second.
    tokio::spawn(async move { Report::SetupWarnings(warnings).send(&access).await });
}
