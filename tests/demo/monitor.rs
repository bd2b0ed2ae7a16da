//! Prints the events of a pod's termination while they occur.

use std::collections::BTreeSet;

use tests::admin::Admin;
use tests::kubelet::{Event, RunningPod, Step, Timeline};
use tests::load::RunningLoad;
use tests::service::Service;
use tokio::time::Instant;

use crate::screen::{Screen, thousands};
use crate::shop::{DELETED_POD, ENVOY_CONTAINER};

/// Number of clients that keep a connection open without using it, and never close it.
const IDLE_CLIENTS: usize = 1;

/// Polls a terminating pod and prints new events.
pub(crate) struct TerminationMonitor<'a> {
    timeline: Timeline,
    service: &'a Service,
    clients: &'a RunningLoad,
    admin: &'a Admin,
    screen: &'a Screen,
    start: Instant,
    /// Number of the timeline's events that were printed, or that preceded the termination.
    reported: usize,
    /// Connections to the pod when Envoy received SIGTERM; updated until then.
    connections_at_sigterm: usize,
    stages: BTreeSet<Stage>,
}

/// A stage of the termination, which a pod reaches once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Envoy reports the state DRAINING.
    Draining,
    /// The Service sends no new connections to the pod.
    OutOfService,
    /// Only idle clients still have connections.
    OnlyIdleClients,
    /// Envoy received SIGTERM.
    Sigterm,
    /// Envoy exited.
    Exited,
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
            reported: timeline.events().len(),
            timeline,
            service,
            clients,
            admin,
            screen,
            start: Instant::now(),
            connections_at_sigterm: service.open_connections(DELETED_POD),
            stages: BTreeSet::new(),
        }
    }

    /// Polls the pod, and prints what has changed since the last call.
    pub(crate) async fn print_changes(&mut self) {
        let events = self.timeline.events();
        for event in &events[self.reported..] {
            self.print_event(event);
        }
        self.reported = events.len();

        let open = self.service.open_connections(DELETED_POD);
        if !self.service.is_serving(DELETED_POD) && self.is_first(Stage::OutOfService) {
            let text = "sends new connections to the other pod only";
            self.screen.event(self.start.elapsed(), "Service", text);
        }
        if !self.stages.contains(&Stage::Sigterm) {
            self.connections_at_sigterm = open;
            let is_out = self.stages.contains(&Stage::OutOfService);
            if is_out && open <= IDLE_CLIENTS && self.is_first(Stage::OnlyIdleClients) {
                let text = "have closed all connections but the idle one";
                self.screen.event(self.start.elapsed(), "clients", text);
            }
            if self.is_draining().await && self.is_first(Stage::Draining) {
                let text = "is draining: each response asks its client to reconnect";
                self.screen
                    .event(self.start.elapsed(), ENVOY_CONTAINER, text);
            }
        }
        let report = self.clients.report();
        let (sent, failed) = (thousands(report.sent()), thousands(report.failed()));
        let open = connections(open);
        let text = format!("load           {sent} requests, {failed} failed; {open} to the pod");
        if !self.stages.contains(&Stage::Exited) {
            self.screen.status(self.start.elapsed(), &text);
        }
    }

    /// Returns the number of open connections when Envoy received SIGTERM.
    pub(crate) fn finish(self) -> usize {
        self.screen.clear_status();
        self.connections_at_sigterm
    }

    /// Marks a stage as reached. Returns true the first time.
    fn is_first(&mut self, stage: Stage) -> bool {
        self.stages.insert(stage)
    }

    /// Returns true if Envoy is DRAINING. Envoy is not asked again once it was.
    async fn is_draining(&self) -> bool {
        let state = async { self.admin.state().await.unwrap_or_default() };
        self.stages.contains(&Stage::Draining) || state.await == "DRAINING"
    }

    fn print_event(&mut self, event: &Event) {
        let detail = &event.detail;
        let is_envoy = event.container == ENVOY_CONTAINER;
        let text = match event.step {
            Step::Started => "started".to_owned(),
            Step::HookStarted => format!("preStop hook called: {detail}"),
            Step::HookReturned => "preStop hook returned".to_owned(),
            Step::HookFailed => format!("preStop hook failed: {detail}"),
            Step::Sigterm if is_envoy => {
                self.stages.insert(Stage::Sigterm);
                format!("SIGTERM with {}", connections(self.connections_at_sigterm))
            }
            Step::Sigterm => "SIGTERM".to_owned(),
            Step::Sigkill => "SIGKILL".to_owned(),
            Step::Exited => {
                if is_envoy {
                    self.stages.insert(Stage::Exited);
                }
                detail.clone()
            }
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
