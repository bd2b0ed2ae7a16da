//! Standby while nothing is ending: reads Envoy's setup, and warns of what will impair a drain.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::field::display;
use tracing::{error, warn};

use super::monitor::{LOG_INTERVAL, Monitor};
use crate::drain::report::Report;
use crate::envoy::admin_call::CallError;
use crate::envoy::setup_warnings::{SetupWarning, SetupWarningKind, setup_warnings};
use crate::http_client::HttpError::PermissionDenied;
use crate::log_limiter::LogLimiter;

/// What standby has told.
pub(crate) struct Standby {
    /// What has been warned of.
    warnings: Vec<SetupWarning>,
    /// When the drainer started.
    started_at: Instant,
    /// It was reported that Envoy's admin interface cannot be read.
    is_admin_reported: bool,
    setup_log: LogLimiter,
}

/// Pause between two calls to Envoy while nothing drains.
pub(crate) const STANDBY_INTERVAL: Duration = Duration::from_secs(1);

/// How long after the drainer Envoy may start: it may have to wait for its image, or for init containers.
const MAX_ENVOY_START: Duration = Duration::from_secs(60);

/// How long Envoy usually takes to respond; what it lacks until then is not logged.
const USUAL_ENVOY_START: Duration = Duration::from_secs(5);

/// The same once Envoy's setup was read: less than [`ENVOY_EXIT_BEFORE_HOOK`](super::ENVOY_EXIT_BEFORE_HOOK).
const SETTLED_INTERVAL: Duration = Duration::from_secs(4);

/// The pause between two lists of a server's connections, in multiples of the pause in a drain.
const BASELINE_PAUSE_FACTOR: u32 = 5;

/// What to do where the admin interface cannot be read.
const ANNOTATE: &str = "Annotate the pod with envoy-drainer.dev/admin-address";
const ANNOTATE_OTHER: &str =
    "If it has another address, annotate the pod with envoy-drainer.dev/admin-address";
const DECLARE: &str = "Declare the ports of its container, or none";
const ADMIT: &str = "Set `mode: 438` for the socket in Envoy's bootstrap, or set `runAsUser` for Envoy's container: the \
    drainer then runs as the same user";

// === impl Standby ===

impl Standby {
    /// That of a drainer that starts.
    pub(crate) fn new() -> Self {
        Self {
            warnings: Vec::new(),
            started_at: Instant::now(),
            is_admin_reported: false,
            setup_log: LogLimiter::default(),
        }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run<T>(&mut self, monitor: &mut Monitor) -> T {
        if monitor.config.is_of_server() {
            return self.watch_server(monitor).await;
        }
        loop {
            monitor.client.find_again().await;
            let has_responded = monitor.ping().await.is_ok();
            if !has_responded || monitor.client.has_other_listeners().await != Ok(false) {
                monitor.request_inspection();
            }
            if monitor.inspect_at.is_some() {
                self.read_setup(monitor).await;
            }
            // With none, its admin interface has not been found in all the time that an Envoy takes to start.
            let is_settled = monitor.calls.restore_at.is_none() && monitor.inspect_at.is_none()
                || self.is_admin_reported && monitor.client.address().is_none();
            let pause = is_settled.then_some(SETTLED_INTERVAL);
            sleep(pause.unwrap_or(STANDBY_INTERVAL)).await;
        }
    }

    /// The same for a server in Envoy's place: now and then, its connections are the baseline of a drain.
    async fn watch_server<T>(&mut self, monitor: &mut Monitor) -> T {
        loop {
            let error = monitor.ping().await.err();
            let unknown = error.as_ref().map(ToString::to_string);
            monitor.progress.send_modify(|now| now.unknown = unknown);
            if let Some(error) = error {
                self.warn_of_unreadable_admin(monitor, &error);
            }
            let pause = monitor.listing_pause * BASELINE_PAUSE_FACTOR;
            sleep(pause.max(SETTLED_INTERVAL)).await;
        }
    }

    /// Reads Envoy's setup, and warns of what will impair a drain. To be repeated while Envoy is starting, since its
    /// listeners may be missing.
    async fn read_setup(&mut self, monitor: &mut Monitor) {
        let read = monitor.read_setup().await;
        let unknown = read.as_ref().err().map(ToString::to_string);
        monitor.progress.send_modify(|now| now.unknown = unknown);
        let (setup, snapshot) = match read {
            Ok(read) => read,
            Err(error) => return self.warn_of_unreadable_admin(monitor, &error),
        };
        if !setup.server.is_starting() {
            let forbidden = &monitor.client.forbidden;
            let warnings = setup_warnings(&setup, snapshot.as_ref(), forbidden, &monitor.config);
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
        let age = self.started_at.elapsed();
        let (kind, remedy) = match error {
            _ if monitor.config.is_of_server() => (SetupWarningKind::ServerNotListening, DECLARE),
            CallError::Ambiguous(_) => (SetupWarningKind::AdminAmbiguous, ANNOTATE),
            CallError::Http(PermissionDenied) => (SetupWarningKind::AdminUnreadable, ADMIT),
            error if error.is_absence() => (SetupWarningKind::AdminNone, ANNOTATE_OTHER),
            _ => (SetupWarningKind::AdminUnreadable, ANNOTATE_OTHER),
        };
        let is_final = matches!(error, CallError::Http(PermissionDenied)) || error.is_rejection();
        if (is_final || age >= USUAL_ENVOY_START) && self.setup_log.should_log(LOG_INTERVAL) {
            let admin = monitor.client.address().map(display);
            error!(admin, %error, "{}. {remedy}", kind.message());
        }
        if age >= MAX_ENVOY_START && !self.is_admin_reported {
            self.is_admin_reported = true;
            report(monitor, vec![kind]);
        }
    }
}

/// Reports setup warnings, if there are any, while standby goes on.
fn report(monitor: &Monitor, warnings: Vec<SetupWarningKind>) {
    let access = monitor.config.webhook.clone();
    if !warnings.is_empty() {
        // Lost if the drainer exits meanwhile; it ends within a second.
        tokio::spawn(async move { Report::SetupWarnings(warnings).send(&access).await });
    }
}
