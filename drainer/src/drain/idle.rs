//! What is to be done while nothing ends.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::end::ENVOY_ALONE;
use super::{Drain, IDLE_PAUSE};
use crate::envoy::{CallFailed, Envoy};
use crate::warnings::warnings;

/// An Envoy that has not answered for so long after the drainer's start is not just starting.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is then said again, and how often Envoy is asked again for what it refused.
const REMINDER: Duration = Duration::from_secs(60);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// What is to be done while nothing ends: undo what an earlier life of the drainer did to Envoy,
    /// and tell what will spoil a drain. Never returns.
    pub(super) async fn attend(&mut self) -> Infallible {
        if let Some(alone) = self.alone {
            // An Envoy that is restarted dies by now; one that lives on is to be healthy again.
            sleep_until(alone + ENVOY_ALONE).await;
        }
        if self.marker.is_present() {
            self.restore_health().await;
        }
        if self.setup.is_none() {
            self.await_setup().await;
        }
        // Who refused may have been another than Envoy, which answers by now.
        while self.marker.is_present() {
            self.restore_health().await;
            sleep(REMINDER).await;
        }
        pending().await
    }

    async fn restore_health(&mut self) {
        loop {
            match self.envoy.restore_health().await {
                Ok(()) => break,
                Err(CallFailed::Declined(error)) => {
                    error!(
                        error,
                        "Envoy refuses to have its health restored: it stays DRAINING"
                    );
                    return;
                }
                Err(error) => debug!(%error, "Envoy's health is not restored yet"),
            }
            sleep(IDLE_PAUSE).await;
        }
        self.has_answered = true;
        info!("Restored the health of Envoy, which an earlier drain had failed");
        if let Err(error) = self.marker.remove() {
            error!(%error, "Cannot remove the marker: the next start restores Envoy's health again");
        }
    }

    /// Waits until Envoy tells its setup, and warns of what will spoil a drain.
    async fn await_setup(&mut self) {
        let mut complain_at = Instant::now() + START_PATIENCE;
        let mut complained = false;
        let setup = loop {
            let error = match self.envoy.inspect().await {
                Ok(setup) => break setup,
                Err(error) => error,
            };
            // Something that answers, but not as Envoy does, is not just starting.
            let is_another = matches!(error, CallFailed::Declined(_));
            if Instant::now() >= complain_at || is_another && !complained {
                error!(
                    %error,
                    "Envoy's admin interface does not answer as Envoy does: each drain would last to its \
                     deadline. Is its address right?"
                );
                complained = true;
                complain_at = Instant::now() + REMINDER;
            }
            sleep(IDLE_PAUSE).await;
        };
        self.has_answered = true;
        info!(version = setup.server.version, "Envoy answers");
        let seen = self.envoy.look().await;
        for warning in warnings(&setup, &seen) {
            warn!("{warning}");
        }
        self.setup = Some(setup);
    }
}
