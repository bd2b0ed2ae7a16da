//! What disturbs the Envoys and the webhook: rollouts, evictions, rotations and kills, in turn and in random order, and
//! once an API server that is away.

use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use tests::soak_report::DisruptionCounts;
use tokio::time::{Instant, sleep};

use super::api_server::ApiServer;
use crate::edge::EnvoyDeployment;
use crate::eventually::eventually;
use crate::release::Release;

/// Disturbs them one at a time, and waits each time until all is well again.
pub(crate) struct Disruptor<'a> {
    pub(crate) edge: &'a EnvoyDeployment,
    pub(crate) release: &'a Release,
    /// The webhook's pod that is never killed.
    pub(crate) kept: &'a str,
    pub(crate) rng: Rng,
    pub(crate) counts: DisruptionCounts,
}

#[derive(Debug, Clone, Copy)]
enum Disruption {
    Rollout,
    Eviction,
    Rotation,
    Kill,
}

/// The longest pause before one, so that they meet all phases of what goes on by itself.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The API server is away for this part of the run, from some time in its second quarter. Only between two disruptions:
/// the endpoint of a pod that is being deleted would be in use for as long, which no drain outlasts.
const OUTAGE_SHARE: u32 = 6;

// === impl Disruptor ===

impl Disruptor<'_> {
    /// Disturbs them for this long.
    ///
    /// # Errors
    /// If something is not well again in time, or a pod has no drainer.
    pub(crate) async fn run(
        &mut self,
        length: Duration,
        mut api_server: Option<&ApiServer>,
    ) -> Result<()> {
        let started = Instant::now();
        let outage_at = length.mul_f64(f64::midpoint(0.5, self.rng.f64() / 2.0));
        loop {
            let mut round = [
                Disruption::Rollout,
                Disruption::Eviction,
                Disruption::Rotation,
                Disruption::Kill,
            ];
            self.rng.shuffle(&mut round);
            for disruption in round {
                if started.elapsed() >= outage_at
                    && let Some(api_server) = api_server.take()
                {
                    self.take_away(api_server, length / OUTAGE_SHARE).await?;
                }
                if started.elapsed() >= length {
                    return Ok(());
                }
                sleep(MAX_PAUSE.mul_f64(self.rng.f64())).await;
                let caused = self.cause(disruption).await;
                caused.with_context(|| format!("{disruption:?}"))?;
            }
        }
    }

    async fn cause(&mut self, disruption: Disruption) -> Result<()> {
        match disruption {
            Disruption::Rollout => {
                self.counts.terminations += self.edge.pods().await?.len() as u64;
                self.edge.rollout_restart().await?;
                self.counts.rollouts += 1;
            }
            Disruption::Eviction => {
                let pods = self.edge.pods().await?;
                let pod = self.rng.choice(&pods).context("there is no Envoy")?;
                let evict = || self.edge.namespace.evict(pod);
                eventually("the pod is evicted", evict).await?;
                self.edge.wait_until_stable().await?;
                self.counts.evictions += 1;
                self.counts.terminations += 1;
            }
            Disruption::Rotation => {
                self.rotate().await?;
                self.counts.requested_rotations += 1;
            }
            Disruption::Kill => {
                self.kill().await?;
                self.counts.kills += 1;
            }
        }
        self.edge.ensure_drainers(true).await
    }

    /// Requests a new CA, and waits until one is active.
    async fn rotate(&self) -> Result<()> {
        let previous = self.release.active_ca().await?;
        let secret = self.release.secret_name();
        let number = self.counts.requested_rotations;
        let annotation = format!("envoy-drainer.dev/rotate={number}");
        let annotate = format!("annotate secret {secret} --overwrite {annotation}");
        self.release.namespace.run(&annotate).await?;
        self.release.wait_for_rotation(&previous).await.map(drop)
    }

    /// Kills a pod of the webhook, and waits until another is in its place.
    async fn kill(&mut self) -> Result<()> {
        let mut pods = self.release.pods().await?;
        pods.retain(|pod| pod != self.kept);
        let pod = self.rng.choice(&pods);
        let pod = pod.context("the webhook has one pod only")?;
        let delete = format!("delete pod {pod} --grace-period=0 --force --wait=false");
        self.release.namespace.run(&delete).await?;
        self.release.wait_until_stable().await
    }

    /// Takes the API server away, and waits until pods get drainers again.
    async fn take_away(&mut self, api_server: &ApiServer, length: Duration) -> Result<()> {
        println!("  the API server is away for {} s", length.as_secs());
        api_server.take_away(length).await?;
        self.counts.outage_seconds = Some(length.as_secs());
        self.edge.wait_until_stable().await?;
        self.release.wait_until_stable().await?;
        self.release.wait_until_called(&self.edge.namespace).await
    }
}
