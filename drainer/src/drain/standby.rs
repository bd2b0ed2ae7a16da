//! Standby while nothing terminates: restores Envoy's health after a restart of the drainer, and reads
//! Envoy's setup.

use std::future::pending;

use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

use super::{Drain, STANDBY_INTERVAL, send_report};
use crate::envoy::server_info::ServerState;
use crate::envoy::setup_warnings::{SetupWarning, SetupWarningKind, setup_warnings};
use crate::envoy::{AdminError, Envoy, or_rejection};
use crate::marker::MarkerReason;
use crate::report::Report;
use crate::termination::TerminationScope;

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// Undoes what an earlier process of the drainer did to Envoy, and logs what will impair a drain.
    /// Neither waits for the other, and both are retried forever: a server that rejects a call now may
    /// not be the Envoy that responds later. Returns only to resume the drain of an earlier process.
    pub(super) async fn standby(&mut self) -> TerminationScope {
        loop {
            if self.marker_reason == Some(MarkerReason::PodTerminating)
                && self.restore_at.is_none()
                && self.is_still_draining().await
            {
                return TerminationScope::PodResumed;
            }
            self.restore_if_due().await;
            let is_set_up = self.setup.as_ref().is_some_and(|s| !s.server.is_starting());
            if self.marker_reason.is_none() && is_set_up {
                pending().await
            }
            if !is_set_up {
                let result = self.read_setup().await;
                self.publish_setup(result.as_ref().err());
                if let Err(error) = result {
                    self.warn_of_unreadable_admin(&error);
                }
            }
            sleep(STANDBY_INTERVAL).await;
        }
    }

    /// Returns true if this is the Envoy whose health was failed when the pod terminated. Another
    /// one, for example after a restart of all containers, is live: then the pod is not terminating,
    /// and the marker is removed. If the state is unknown, Envoy is left as it is for as long as a
    /// pod may take to terminate.
    async fn is_still_draining(&mut self) -> bool {
        let state = match or_rejection(self.envoy.inspect().await) {
            Ok(Ok(setup)) => {
                self.has_responded = true;
                setup.server.state
            }
            Ok(Err(_)) => ServerState::Unknown,
            Err(_) => return false,
        };
        let is_live = match state {
            ServerState::Live => Some(true),
            ServerState::Draining => Some(false),
            ServerState::Initializing => return false,
            ServerState::Unknown => self.poll_live().await,
        };
        match is_live {
            Some(true) => {
                info!("Envoy is live, so the pod is not terminating: removing the marker");
                self.remove_marker();
            }
            Some(false) => {}
            None => self.restore_at = Some(Instant::now() + self.resume_timeout()),
        }
        is_live == Some(false)
    }

    /// Restores Envoy's health if an earlier drain failed it and it is time to.
    pub(super) async fn restore_if_due(&mut self) {
        let is_due = match (self.marker_reason, self.restore_at) {
            (None, _) | (Some(MarkerReason::PodTerminating), None) => false,
            (Some(MarkerReason::Provisional), None) => true,
            (Some(_), Some(at)) => Instant::now() >= at,
        };
        if is_due {
            self.restore_health().await;
        }
    }

    /// Polls whether Envoy's health is not failed; `None` if that is unknown.
    pub(super) async fn poll_live(&mut self) -> Option<bool> {
        self.envoy.poll().await.ok()?.live()
    }

    async fn restore_health(&mut self) {
        if self.poll_live().await == Some(true) {
            // Another Envoy, which only the kubelet can have started.
            self.backoff.reset();
        }
        match self.envoy.restore_health().await {
            Ok(()) => {
                self.has_responded = true;
                info!("Restored Envoy's health, which an earlier drain had failed");
                self.remove_marker();
            }
            Err(AdminError::Rejected(error))
                if self.restore_log.should_log(Instant::now(), true) =>
            {
                error!(
                    error,
                    "Envoy rejected /healthcheck/ok: its health checks keep failing"
                );
            }
            Err(error) => debug!(%error, "Envoy's health is not restored yet"),
        }
    }

    fn remove_marker(&mut self) {
        (self.marker_reason, self.restore_at) = (None, None);
        if let Err(error) = self.marker.remove() {
            error!(%error, "Cannot remove the marker: if the drainer restarts, it may make a draining Envoy healthy");
        }
    }

    /// Reads Envoy's setup, and warns of what will impair a drain. To be repeated while Envoy is
    /// starting, since its listeners may be missing.
    async fn read_setup(&mut self) -> Result<(), AdminError> {
        let setup = self.envoy.inspect().await?;
        let snapshot = or_rejection(self.envoy.poll().await)?;
        self.has_responded = true;
        if self.setup.is_none() {
            info!(envoy_version = setup.server.version, "Envoy is responding");
        }
        if !setup.server.is_starting() {
            let delay = self.config.settings.health_failure_delay;
            let warnings = setup_warnings(&setup, snapshot.as_ref(), delay);
            for SetupWarning { text, .. } in &warnings {
                warn!("{text}");
            }
            self.report_setup(warnings.iter().map(|warning| warning.kind).collect());
        }
        self.set_setup(setup);
        Ok(())
    }

    /// Publishes why Envoy's setup is unknown, for `drainer status`.
    fn publish_setup(&self, error: Option<&AdminError>) {
        let admin = &self.config.settings.admin_address;
        let unknown = error.map(|error| format!("Envoy's admin interface at {admin}: {error}"));
        self.progress
            .send_modify(|progress| progress.unknown = unknown);
    }

    /// Logs that Envoy's setup is unknown, and reports it when an Envoy that is only starting would have responded.
    fn warn_of_unreadable_admin(&mut self, error: &AdminError) {
        let now = Instant::now();
        let is_rejected = matches!(error, AdminError::Rejected(_));
        if self.setup_log.should_log(now, is_rejected) {
            error!(
                admin = %self.config.settings.admin_address,
                %error,
                "Envoy's admin interface cannot be read: until it can, each drain lasts until its deadline. If it has \
                 another address, annotate the pod with envoy-drainer.dev/admin-address"
            );
        }
        if self.admin_report_at.take_if(|at| now >= *at).is_some() {
            self.report_setup(vec![SetupWarningKind::AdminUnreadable]);
        }
    }

    /// Reports setup warnings, if there are any, while standby goes on.
    fn report_setup(&self, warnings: Vec<SetupWarningKind>) {
        if warnings.is_empty() || !self.config.webhook.reports {
            return;
        }
        let access = self.config.webhook.clone();
        let report = Report::SetupWarnings(warnings);
        // Lost if the drainer exits meanwhile; it ends within a second, and the client's process with it.
        tokio::spawn(async move { send_report(&access, &report).await });
    }
}
