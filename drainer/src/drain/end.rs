//! Finding out what ends.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::info;

use super::{Drain, IDLE_PAUSE};
use crate::ending::{Answer, Came, End, Ending, LONE_DRAINER};
use crate::envoy::{Envoy, Seen};
use crate::progress::Phase;

/// An Envoy that does not answer within this is hung, or as good as.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two tries of a call to which Envoy gave no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// How long Envoy goes on, with its health failed, after its hook turned out to be alone.
pub(super) const ENVOY_ALONE: Duration = Duration::from_secs(10);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// Waits until it is clear what ends. Meanwhile does what is to be done while nothing does.
    pub(super) async fn next_end(&mut self) -> End {
        let mut came = self.came.subscribe();
        tokio::select! {
            biased;
            _ = came.wait_for(|came| *came != Came::default()) => {}
            never = self.attend() => match never {},
        }
        self.set_phase(Phase::Waiting);
        let mut answer = Answer::Awaited;
        loop {
            let now = Instant::now();
            let who = *came.borrow_and_update();
            let waited = self.alone.is_some_and(|at| now < at + LONE_DRAINER);
            let until = match who.ending(now, answer, waited) {
                Ending::Clear(end) => return end,
                Ending::Unclear { until } => until,
                Ending::Nothing => now + IDLE_PAUSE,
            };
            tokio::select! {
                biased;
                _ = came.changed() => {}
                () = sleep_until(until) => {}
                answers = self.answers(), if answer != Answer::Heard => match answers {
                    true => answer = Answer::Heard,
                    // Asked again: it may be busy, or still starting.
                    false => {
                        answer = Answer::None;
                        sleep(RETRY_PAUSE).await;
                    }
                },
            }
        }
    }

    async fn answers(&mut self) -> bool {
        match timeout(PATIENCE, self.envoy.look()).await {
            Ok(Seen::Counted(_)) => {
                self.has_answered = true;
                true
            }
            Ok(Seen::Unknown(_) | Seen::Refused) | Err(_) => false,
        }
    }

    /// Envoy is restarted alone, as it seems. Fails its health, in case it is the pod that ends,
    /// and waits a while for the other hook. Returns when health was failed if the pod ends after
    /// all, and `None` if Envoy's hook may return.
    pub(super) async fn envoy_alone(&mut self) -> Option<Instant> {
        self.set_phase(Phase::Restarting);
        let until = Instant::now() + ENVOY_ALONE;
        self.mark();
        let told = timeout(PATIENCE, self.envoy.fail_health()).await;
        if !told.is_ok_and(|told| told.is_ok()) {
            return None;
        }
        let failed_at = Instant::now();
        info!("Envoy's hook came alone: failed its health, in case the pod ends");
        let mut came = self.came.subscribe();
        loop {
            let who = *came.borrow_and_update();
            if who.drainer_hook.or(who.sigterm).is_some() {
                return Some(failed_at);
            }
            tokio::select! {
                biased;
                _ = came.changed() => {}
                () = sleep_until(until) => return None,
                () = sleep(IDLE_PAUSE) => if !self.answers().await {
                    return None;
                },
            }
        }
    }
}
