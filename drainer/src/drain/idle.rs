//! What is to be done while nothing ends.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::complaints::Complaints;
use super::end::ENVOY_ALONE;
use super::{Drain, IDLE_PAUSE};
use crate::envoy::{CallFailed, Envoy, Seen};
use crate::warnings::warnings;

/// An Envoy that has not answered for so long after the drainer's start is not just starting.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is then said again.
const REMINDER: Duration = Duration::from_secs(60);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// What is to be done while nothing ends: undo what an earlier life of the drainer did to Envoy,
    /// and tell what will spoil a drain. Neither waits for the other, and neither is given up: who
    /// refuses now may be another than the Envoy that answers later. Never returns.
    pub(super) async fn attend(&mut self) -> Infallible {
        if let Some(let_go) = self.let_go {
            // An Envoy that is restarted dies by now; one that lives on is to be healthy again.
            sleep_until(let_go + ENVOY_ALONE).await;
        }
        let mut is_healthy = !self.marker.is_present();
        let mut undoing = Complaints::new(Instant::now() + START_PATIENCE, REMINDER);
        let mut learning = Complaints::new(Instant::now() + START_PATIENCE, REMINDER);
        while !is_healthy || self.setup.is_none() {
            if !is_healthy {
                is_healthy = self.restore_health(&mut undoing).await;
            }
            if self.setup.is_none()
                && let Err(error) = self.learn_setup().await
                && learning.are_due(Instant::now(), matches!(error, CallFailed::Declined(_)))
            {
                error!(
                    admin = %self.admin,
                    %error,
                    "Envoy's admin interface does not answer as Envoy does: each drain would last \
                     to its deadline. Is its address right?"
                );
            }
            sleep(IDLE_PAUSE).await;
        }
        pending().await
    }

    /// Undoes what made Envoy fail. Returns true if Envoy has heard it.
    async fn restore_health(&mut self, complaints: &mut Complaints) -> bool {
        match self.envoy.restore_health().await {
            Ok(()) => {}
            Err(CallFailed::Declined(error)) if complaints.are_due(Instant::now(), true) => {
                error!(
                    error,
                    "Envoy refuses to have its health restored: it stays DRAINING"
                );
                return false;
            }
            Err(error) => {
                debug!(%error, "Envoy's health is not restored yet");
                return false;
            }
        }
        self.has_answered = true;
        info!("Restored the health of Envoy, which an earlier drain had failed");
        if let Err(error) = self.marker.remove() {
            error!(%error, "Cannot remove the marker: the next start restores Envoy's health again");
        }
        true
    }

    /// Learns how Envoy is set up, and warns of what will spoil a drain.
    async fn learn_setup(&mut self) -> Result<(), CallFailed> {
        let setup = self.envoy.inspect().await?;
        let seen = self.envoy.look().await;
        match &seen {
            Seen::Counted(_) | Seen::Unreadable(_) => self.has_answered = true,
            Seen::Unknown(why) => return Err(CallFailed::Unanswered(why.clone())),
            Seen::Refused => return Err(CallFailed::Refused),
        }
        info!(version = setup.server.version, "Envoy answers");
        for warning in warnings(&setup, &seen) {
            warn!("{warning}");
        }
        self.setup = Some(setup);
        Ok(())
    }
}
