//! Finding out what ends.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::info;

use super::{Drain, IDLE_PAUSE};
use crate::ending::{Came, Ending, LONE_DRAINER};
use crate::envoy::{Envoy, Seen};
use crate::progress::Phase;

/// What ends, once it is clear.
pub(super) enum End {
    /// The pod, since its first hook.
    Pod { since: Instant },
    /// Envoy alone, as it seems, since its hook; and whether it answers.
    Envoy { since: Instant, answers: bool },
    /// The drainer alone, or the pod of an Envoy that does not run.
    Drainer,
}

/// A hung Envoy's hook is answered after this, so that the kubelet can restart it soon. Less than
/// the time that the drainer's hook has to come.
const SILENCE: Duration = Duration::from_millis(2500);

/// Between two tries of a call to which Envoy gave no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// SIGTERM without Envoy's hook, from an Envoy that does not answer: its hook would be here by then.
const SIGTERM_ALONE: Duration = Duration::from_secs(1);

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
        let mut answers = None;
        loop {
            let now = Instant::now();
            let who = *came.borrow_and_update();
            let until = match who.ending(now) {
                Ending::Pod { since } => return End::Pod { since },
                Ending::Envoy { since } => {
                    return End::Envoy {
                        since,
                        answers: answers == Some(true),
                    };
                }
                Ending::Drainer => return End::Drainer,
                Ending::PerhapsEnvoy { since, .. }
                    if answers.is_none() && now >= since + SILENCE =>
                {
                    return End::Envoy {
                        since,
                        answers: false,
                    };
                }
                Ending::PerhapsEnvoy { since, until } => match answers {
                    Some(_) => until,
                    None => since + SILENCE,
                },
                Ending::PerhapsDrainer { until } => match who.sigterm {
                    Some(sigterm) if self.was_just_alone(now) || answers == Some(false) => {
                        if now >= sigterm + SIGTERM_ALONE {
                            return End::Drainer;
                        }
                        sigterm + SIGTERM_ALONE
                    }
                    _ => until,
                },
                Ending::None => {
                    // Unreachable while only this task forgets who came; harmless all the same.
                    now + IDLE_PAUSE
                }
            };
            tokio::select! {
                biased;
                _ = came.changed() => {}
                () = sleep_until(until) => {}
                answered = self.answers(), if answers.is_none() => match answered {
                    true => answers = Some(true),
                    // Not at once: one that is busy, or still starting, may answer the next time.
                    false if who.envoy_hook.is_some() => sleep(RETRY_PAUSE).await,
                    false => answers = Some(false),
                },
            }
        }
    }

    /// Returns true if the drainer's own hook has just returned without Envoy's having come.
    fn was_just_alone(&self, now: Instant) -> bool {
        self.alone.is_some_and(|at| now < at + LONE_DRAINER)
    }

    async fn answers(&mut self) -> bool {
        match timeout(SILENCE, self.envoy.look()).await {
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
        let told = timeout(SILENCE, self.envoy.fail_health()).await;
        if !told.is_ok_and(|told| told.is_ok()) {
            return None;
        }
        let failed_at = Instant::now();
        info!("Envoy's hook came alone: failed its health, in case the pod ends");
        let mut came = self.came.subscribe();
        loop {
            if let Ending::Pod { .. } = came.borrow_and_update().ending(Instant::now()) {
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
