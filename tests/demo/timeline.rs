//! What happens to the pod, told while it happens.

use std::time::Duration;

use tests::kubelet::{Event, RunningPod, Step, Timeline};
use tests::load::Running;
use tests::service::Service;
use tokio::time::Instant;

use crate::screen::Screen;
use crate::shop::ENVOY;

/// On a terminal the live line is renewed so often.
const LIVE: Duration = Duration::from_millis(100);

/// Looks at a pod that ends, and tells what is new.
pub struct Watch<'a> {
    timeline: Timeline,
    service: &'a Service,
    pod: &'a str,
    clients: &'a Running,
    screen: &'a Screen,
    start: Instant,
    /// How many events were told, or were before the end.
    told: usize,
    serves: bool,
    /// Connections to the pod; the last count before Envoy's SIGTERM is kept.
    open: usize,
    envoy_has_sigterm: bool,
    live: Instant,
}

// === impl Watch ===

impl<'a> Watch<'a> {
    /// Begins to watch, at the moment of the deletion.
    pub fn new(
        running: &RunningPod,
        service: &'a Service,
        pod: &'a str,
        clients: &'a Running,
        screen: &'a Screen,
    ) -> Self {
        let timeline = running.timeline();
        let now = Instant::now();
        Self {
            told: timeline.events().len(),
            timeline,
            service,
            pod,
            clients,
            screen,
            start: now,
            serves: true,
            open: service.open(pod),
            envoy_has_sigterm: false,
            live: now,
        }
    }

    /// Tells what has happened since the last look.
    pub fn look(&mut self) {
        let events = self.timeline.events();
        for event in &events[self.told..] {
            self.tell(event);
        }
        self.told = events.len();
        let open = self.service.open(self.pod);
        if !self.envoy_has_sigterm {
            self.open = open;
        }
        if self.serves && !self.service.serves(self.pod) {
            self.serves = false;
            let what = "sends new connections to the other pod from now on";
            self.event(self.start.elapsed(), "the Service", what);
        }
        if self.live.elapsed() >= LIVE {
            self.live = Instant::now();
            let report = self.clients.report();
            let (sent, failed) = (report.sent(), report.failed());
            let what = format!("{open} connections open, {sent} requests sent, {failed} failed");
            self.screen.live(self.start.elapsed(), &what);
        }
    }

    /// Ends the watch. Returns how many connections clients held when Envoy got SIGTERM.
    pub fn close(self) -> usize {
        self.screen.clear_live_line();
        self.open
    }

    fn tell(&mut self, event: &Event) {
        let Event {
            at,
            container,
            step,
            detail,
        } = event;
        let what = match step {
            Step::Started => "is started".to_owned(),
            Step::HookStarted => format!("preStop hook is called: {detail}"),
            Step::HookReturned => "preStop hook returns".to_owned(),
            Step::HookFailed => format!("preStop hook fails: {detail}"),
            Step::Sigterm if container == ENVOY => {
                self.envoy_has_sigterm = true;
                format!("SIGTERM, with {} connections open", self.open)
            }
            Step::Sigterm => "SIGTERM".to_owned(),
            Step::Sigkill => "SIGKILL".to_owned(),
            Step::Exited => detail.clone(),
        };
        self.event(at.saturating_duration_since(self.start), container, &what);
    }

    fn event(&self, at: Duration, who: &str, what: &str) {
        self.screen.event(at, who, what);
    }
}
