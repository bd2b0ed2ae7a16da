//! Finding out what ends.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::{Drain, IDLE_PAUSE};
use crate::ending::{Answer, End, Ending, LONE_DRAINER};
use crate::envoy::{CallFailed, Envoy, Seen};
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
        let mut answer = Answer::Awaited;
        loop {
            let now = Instant::now();
            let who = *came.borrow_and_update();
            let waited = self.waited.is_some_and(|at| now < at + LONE_DRAINER);
            let until = match who.ending(now, answer, waited) {
                Ending::Nothing => {
                    tokio::select! {
                        biased;
                        _ = came.changed() => {}
                        never = self.attend() => match never {},
                    }
                    continue;
                }
                Ending::Unclear { until } => until,
                Ending::Clear(end) => return end,
            };
            self.set_phase(Phase::Waiting);
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
            Ok(Seen::Counted(_) | Seen::Unreadable(_)) => {
                self.has_answered = true;
                true
            }
            Ok(Seen::Unknown(_) | Seen::Refused) | Err(_) => false,
        }
    }

    /// Envoy is restarted alone, as it seems. Fails its health, in case it is the pod that ends,
    /// and waits a while for the other sign. Whenever that comes, a call to Envoy under way or not,
    /// the pod ends: then returns when health was failed, if it was. Returns `None` if Envoy's hook
    /// may return.
    pub(super) async fn envoy_alone(&mut self) -> Option<Option<Instant>> {
        self.set_phase(Phase::Restarting);
        let mut came = self.came.subscribe();
        let second = came.wait_for(|who| who.drainer_hook.or(who.sigterm).is_some());
        let mut failed_at = None;
        tokio::select! {
            biased;
            _ = second => Some(failed_at),
            () = self.accompany(&mut failed_at) => None,
        }
    }

    /// Fails Envoy's health and waits a while, but not for one that does not answer.
    async fn accompany(&mut self, failed_at: &mut Option<Instant>) {
        self.mark();
        match timeout(PATIENCE, self.envoy.fail_health()).await {
            Ok(Ok(())) => {
                *failed_at = Some(Instant::now());
                info!("Envoy's hook came alone: failed its health, in case the pod ends");
            }
            Ok(Err(CallFailed::Declined(error))) => {
                warn!(
                    error,
                    "Envoy's hook came alone, and it refuses to fail its health"
                );
            }
            Ok(Err(CallFailed::Refused | CallFailed::Unanswered(_))) | Err(_) => return,
        }
        tokio::select! {
            biased;
            () = sleep(ENVOY_ALONE) => {}
            () = self.falls_silent() => {}
        }
    }

    /// Waits until Envoy has not answered twice in a row: once may be chance.
    async fn falls_silent(&mut self) {
        loop {
            sleep(IDLE_PAUSE).await;
            if !self.answers().await {
                sleep(RETRY_PAUSE).await;
                if !self.answers().await {
                    return;
                }
            }
        }
    }
}
