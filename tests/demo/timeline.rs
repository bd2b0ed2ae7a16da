//! What happens to the pod, told while it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tests::admin::Admin;
use tests::kubelet::{Event, RunningPod, Step, Timeline};
use tests::load::RunningLoad;
use tests::service::Service;
use tokio::time::Instant;

use crate::screen::{Screen, thousands};
use crate::shop::{DELETED_POD, ENVOY_CONTAINER};

/// So many clients keep a connection without using it, and never hang up.
const IDLE_CLIENTS: usize = 1;

/// What a container does within so long is one line.
const GROUPING_WINDOW: Duration = Duration::from_millis(500);

/// Looks at a pod that ends, and tells what is new.
pub(crate) struct TerminationMonitor<'a> {
    timeline: Timeline,
    service: &'a Service,
    clients: &'a RunningLoad,
    admin: &'a Admin,
    screen: &'a Screen,
    start: Instant,
    /// How many events of the timeline were told, or were before the end.
    reported: usize,
    /// What has happened to each container and is not told yet.
    pending: BTreeMap<String, (Duration, Vec<String>)>,
    /// Connections to the pod; from Envoy's SIGTERM on, those it had then.
    open_connections: usize,
    stages: BTreeSet<Stage>,
}

/// What a pod comes to once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Envoy says that it is draining.
    Draining,
    /// The Service sends it no more connections.
    OutOfService,
    /// Its clients have left, but for the idle ones.
    NoClients,
    /// Envoy got SIGTERM.
    Sigterm,
    /// Envoy has ended.
    Ended,
}

// === impl Watch ===

impl<'a> TerminationMonitor<'a> {
    /// Begins to watch, at the moment of the deletion.
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
            pending: BTreeMap::new(),
            service,
            clients,
            admin,
            screen,
            start: Instant::now(),
            open_connections: service.open_connections(DELETED_POD),
            stages: BTreeSet::new(),
        }
    }

    /// Tells what has happened since the last look.
    pub(crate) async fn poll(&mut self) {
        let events = self.timeline.events();
        for event in &events[self.reported..] {
            self.add_event(event);
        }
        self.reported = events.len();
        self.print_pending(GROUPING_WINDOW);

        let open = self.service.open_connections(DELETED_POD);
        if !self.service.is_serving(DELETED_POD) && self.reach_stage(Stage::OutOfService) {
            let what = "sends new connections to the other pod from now on";
            self.screen.event(self.start.elapsed(), "the Service", what);
        }
        if !self.stages.contains(&Stage::Sigterm) {
            self.open_connections = open;
            let is_out = self.stages.contains(&Stage::OutOfService);
            if is_out && open <= IDLE_CLIENTS && self.reach_stage(Stage::NoClients) {
                let what = "are gone, but for an idle one, which nothing makes hang up";
                self.screen.event(self.start.elapsed(), "its clients", what);
            }
            if self.is_draining().await && self.reach_stage(Stage::Draining) {
                let what = "is draining: each answer asks its client to connect anew";
                self.screen
                    .event(self.start.elapsed(), ENVOY_CONTAINER, what);
            }
        }
        let report = self.clients.report();
        let (sent, failed) = (thousands(report.sent()), thousands(report.failed()));
        let open = connections(open);
        let what = format!("the traffic    {sent} requests, {failed} failed; {open} to the pod");
        self.screen.live(self.start.elapsed(), &what);
        if !self.stages.contains(&Stage::Ended) {
            self.screen.sample(self.start.elapsed(), &what);
        }
    }

    /// Ends the watch. Returns how many connections clients held when Envoy got SIGTERM.
    pub(crate) fn finish(mut self) -> usize {
        self.print_pending(Duration::ZERO);
        self.screen.clear_live();
        self.open_connections
    }

    /// Whether this is the first time.
    fn reach_stage(&mut self, stage: Stage) -> bool {
        self.stages.insert(stage)
    }

    /// Asks Envoy, until it is known.
    async fn is_draining(&self) -> bool {
        let state = async { self.admin.state().await.unwrap_or_default() };
        self.stages.contains(&Stage::Draining) || state.await == "DRAINING"
    }

    fn add_event(&mut self, event: &Event) {
        let Event {
            at,
            container,
            step,
            detail,
        } = event;
        let at = at.saturating_duration_since(self.start);
        let what = match step {
            Step::Started => "is started".to_owned(),
            Step::HookStarted => {
                let what = format!("preStop hook is called: {detail}");
                return self.screen.event(at, container, &what);
            }
            Step::HookReturned => "preStop hook returns".to_owned(),
            Step::HookFailed => format!("preStop hook fails: {detail}"),
            Step::Sigterm if container == ENVOY_CONTAINER => {
                self.stages.insert(Stage::Sigterm);
                format!("SIGTERM with {}", connections(self.open_connections))
            }
            Step::Sigterm => "SIGTERM".to_owned(),
            Step::Sigkill => "SIGKILL".to_owned(),
            Step::Exited if container == ENVOY_CONTAINER => {
                self.stages.insert(Stage::Ended);
                detail.clone()
            }
            Step::Exited => detail.clone(),
        };
        let pending = self.pending.entry(container.clone());
        pending.or_insert((at, Vec::new())).1.push(what);
    }

    /// Tells what has waited so long for more of its container.
    fn print_pending(&mut self, age: Duration) {
        let now = self.start.elapsed();
        let screen = self.screen;
        self.pending.retain(|container, (at, what)| {
            let waits = now < *at + age;
            if !waits {
                screen.event(*at, container, &what.join(", "));
            }
            waits
        });
    }
}

fn connections(count: usize) -> String {
    match count {
        1 => "1 connection open".to_owned(),
        count => format!("{count} connections open"),
    }
}
