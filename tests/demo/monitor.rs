//! Prints the events of a pod's termination while they occur.

use tests::admin::Admin;
use tests::kubelet::{Event, RunningPod, Step, Timeline};
use tests::load::RunningLoad;
use tests::service::Service;
use tokio::time::Instant;

use crate::screen::{Screen, thousands};

/// The name of Envoy's container in the review.
pub(crate) const ENVOY_CONTAINER: &str = "envoy";

/// The pod that is deleted.
pub(crate) const DELETED_POD: &str = "edge-1";

/// Polls a terminating pod and prints new events.
pub(crate) struct TerminationMonitor<'a> {
    timeline: Timeline,
    service: &'a Service,
    clients: &'a RunningLoad,
    admin: &'a Admin,
    screen: &'a Screen,
    start: Instant,
    /// Number of the timeline's events that were printed, or that preceded the termination.
    printed: usize,
    has_sigterm: bool,
    /// Connections to the pod at the last poll before Envoy received SIGTERM.
    pub(crate) connections: usize,
}

// === impl TerminationMonitor ===

impl<'a> TerminationMonitor<'a> {
    /// Starts monitoring at the moment of the deletion.
    pub(crate) fn new(
        pod: &RunningPod,
        service: &'a Service,
        clients: &'a RunningLoad,
        admin: &'a Admin,
        screen: &'a Screen,
    ) -> Self {
        let timeline = pod.timeline();
        Self {
            printed: timeline.events().len(),
            timeline,
            service,
            clients,
            admin,
            screen,
            start: Instant::now(),
            has_sigterm: false,
            connections: service.open_connections(DELETED_POD),
        }
    }

    /// Polls the pod, and prints what has changed since the last call, and the status if it is due.
    pub(crate) async fn print_changes(&mut self) {
        let events = self.timeline.events();
        for event in &events[self.printed..] {
            self.print_event(event);
        }
        self.printed = events.len();
        if self.has_sigterm {
            return;
        }
        self.connections = self.service.open_connections(DELETED_POD);
        let at = self.start.elapsed();
        if self.screen.is_status_due(at) {
            let report = self.clients.report();
            let (sent, failed) = (thousands(report.sent()), thousands(report.failed()));
            let pods = self.service.serving_pods();
            let state = self.admin.state().await.unwrap_or_default();
            let open = connections(self.connections);
            let text = format!(
                "{sent} requests, {failed} failed; new connections to {pods} of 2 pods; Envoy {state}, {open}"
            );
            self.screen.status(at, &text);
        }
    }

    fn print_event(&mut self, event: &Event) {
        let is_envoy = event.container == ENVOY_CONTAINER;
        let detail = &event.detail;
        let text = match event.step {
            Step::Started => "started".to_owned(),
            Step::HookStarted => format!("preStop hook called: {detail}"),
            Step::HookReturned => "preStop hook returned".to_owned(),
            Step::HookFailed => format!("preStop hook failed: {detail}"),
            Step::Sigterm if is_envoy => {
                self.has_sigterm = true;
                format!("SIGTERM with {}", connections(self.connections))
            }
            Step::Sigterm => "SIGTERM".to_owned(),
            Step::Sigkill => "SIGKILL".to_owned(),
            Step::Exited => detail.clone(),
        };
        let at = event.at.saturating_duration_since(self.start);
        self.screen.event(at, &event.container, &text);
    }
}

fn connections(count: usize) -> String {
    match count {
        1 => "1 connection open".to_owned(),
        count => format!("{count} connections open"),
    }
}
