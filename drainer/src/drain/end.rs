//! Finding out what ends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::{Drain, IDLE_PAUSE, Told};
use crate::ending::{Answer, Came, End, Ending, LONE_DRAINER};
use crate::envoy::{CallFailed, Envoy, Seen};
use crate::marker::Reason;
use crate::progress::Phase;

/// An Envoy that does not answer within this is hung, or as good as.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two tries of a call to which Envoy gave no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// How often is decided again what ends, since no task is woken when the port fails a connection.
const PORT_PAUSE: Duration = Duration::from_millis(250);

/// How long Envoy goes on, with its health failed, after its hook turned out to be alone.
pub(super) const ENVOY_ALONE: Duration = Duration::from_secs(10);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// Waits until it is clear what ends. Meanwhile does what is to be done while nothing does.
    pub(super) async fn next_end(&mut self) -> End {
        let mut came = self.came.subscribe();
        let mut answer = Answer::Awaited;
        let waited = self.waited;
        loop {
            match ending(&mut came, answer, waited) {
                Ending::Nothing => {
                    tokio::select! {
                        biased;
                        _ = came.changed() => {}
                        end = self.attend() => return end,
                    }
                    continue;
                }
                Ending::Unclear { .. } => {}
                Ending::Clear(end) => return end,
            }
            self.set_phase(Phase::Waiting);
            tokio::select! {
                biased;
                () = is_decided(&mut came, answer, waited) => {}
                answers = self.answers_or_attends(answer == Answer::Heard) => match answers {
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

    /// Returns whether Envoy answers. Once that `is_known`, never returns; it restores Envoy's health
    /// then where that is due, so that hooks which come alone again and again do not put that off.
    async fn answers_or_attends(&mut self, is_known: bool) -> bool {
        if !is_known {
            return self.answers().await;
        }
        loop {
            if self.backoff.is_active(Instant::now()) {
                self.restore_if_due().await;
            }
            sleep(IDLE_PAUSE).await;
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
    /// the pod ends: then returns whether Envoy was told to fail its health. Returns `None` if Envoy's
    /// hook may return.
    pub(super) async fn envoy_alone(&mut self) -> Option<Told> {
        self.set_phase(Phase::Restarting);
        let mut came = self.came.subscribe();
        let second = came.wait_for(|who| who.drainer_hook.or(who.sigterm).is_some());
        let may_fail = self.backoff.allows(Instant::now());
        let mut health = Told::NotYet;
        tokio::select! {
            biased;
            _ = second => return Some(health),
            () = self.accompany(may_fail, &mut health) => {}
        }
        if may_fail {
            let now = Instant::now();
            // An Envoy that is restarted is gone by then; one that lives on is to be healthy again.
            self.restore_at = Some(now + ENVOY_ALONE);
            self.backoff.failed(now);
        }
        None
    }

    /// Fails Envoy's health, if it may, and waits a while, but not for one that does not answer.
    async fn accompany(&mut self, may_fail: bool, health: &mut Told) {
        if may_fail && !self.fail_provisionally(health).await {
            return;
        }
        if !may_fail {
            info!(
                "Envoy's hook came alone again, and had not ended Envoy before: leaving its health as \
                 it is"
            );
        }
        tokio::select! {
            biased;
            () = sleep(ENVOY_ALONE) => {}
            () = self.falls_silent() => {}
        }
    }

    /// Fails Envoy's health, in case the pod ends. Returns false if Envoy does not answer.
    async fn fail_provisionally(&mut self, health: &mut Told) -> bool {
        self.mark(Reason::Provisional);
        match timeout(PATIENCE, self.envoy.fail_health()).await {
            Ok(Ok(())) => {
                *health = Told::Heard;
                info!("Envoy's hook came alone: failed its health, in case the pod ends");
                true
            }
            Ok(Err(CallFailed::Declined(error))) => {
                warn!(
                    error,
                    "Envoy's hook came alone, and it refuses to fail its health"
                );
                true
            }
            Ok(Err(CallFailed::Refused | CallFailed::Unanswered(_))) | Err(_) => false,
        }
    }

    /// Waits until Envoy has not answered twice in a row: once may be chance.
    async fn falls_silent(&mut self) {
        loop {
            sleep(IDLE_PAUSE).await;
            if self.backoff.is_active(Instant::now()) {
                self.restore_if_due().await;
            }
            if !self.answers().await {
                sleep(RETRY_PAUSE).await;
                if !self.answers().await {
                    return;
                }
            }
        }
    }
}

/// What ends by now, where the drainer's own hook returned at `waited` without a drain.
fn ending(came: &mut watch::Receiver<Came>, answer: Answer, waited: Option<Instant>) -> Ending {
    let now = Instant::now();
    let waited = waited.is_some_and(|at| now < at + LONE_DRAINER);
    came.borrow_and_update().ending(now, answer, waited)
}

/// Returns when it is clear what ends, as far as that depends on time and signals. Waiting here rather
/// than in [`Drain::next_end`] leaves calls to Envoy alone until then.
async fn is_decided(came: &mut watch::Receiver<Came>, answer: Answer, waited: Option<Instant>) {
    while let Ending::Unclear { until } = ending(came, answer, waited) {
        let next = until.min(Instant::now() + PORT_PAUSE);
        tokio::select! {
            biased;
            _ = came.changed() => {}
            () = sleep_until(next) => {}
        }
    }
}
