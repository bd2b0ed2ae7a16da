//! Makes the calls by which a drain changes Envoy.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use super::Drain;
use super::calls::{CallState, DrainCall, DrainCalls};
use super::log_limiter::LogLimiter;
use crate::envoy::{AdminError, Envoy};
use crate::exit_rules::DrainHistory;
use crate::health_failure::{HealthFailure, HealthFailureDelay};
use crate::marker::MarkerReason;

/// Timeout of the call that fails health at the end of a drain, which may be the drain's deadline.
const LAST_CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause before that call is repeated after the end of the drain.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// For how long it is repeated.
const MAX_RETRY_TIME: Duration = Duration::from_secs(15);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// Decides when the drain, which starts now, fails Envoy's health.
    pub(super) async fn decide_health_failure(&mut self, calls: &mut DrainCalls) {
        let delay = self.config.settings.health_failure_delay;
        let drains_http3 = delay == HealthFailureDelay::Auto && self.drains_http3().await;
        let quiet_period = self.config.timing.quiet_period;
        calls.health_failure = delay.decide(Instant::now(), drains_http3, quiet_period);
        self.publish_kept_health(calls);
        match calls.health_failure {
            HealthFailure::AtOnce => {}
            HealthFailure::At(_) => info!("Envoy's health is kept for {delay}"),
            HealthFailure::WithoutHttp3For(_) => info!(
                "Envoy's health is kept until no HTTP/3 connection is left, since kube-proxy would cut requests in \
                 flight"
            ),
        }
    }

    /// Makes the calls that are due, until Envoy does not respond.
    pub(super) async fn make_due_calls(
        &mut self,
        calls: &mut DrainCalls,
        history: &mut DrainHistory,
        log_limiter: &mut LogLimiter,
    ) {
        while let Some(call) = calls.next(
            Instant::now(),
            history.no_http3_since(),
            self.is_pod_terminating(),
        ) {
            let state = self.make_call(call, log_limiter).await;
            if state == CallState::Pending {
                return;
            }
            history.start(Instant::now());
            match call {
                DrainCall::DrainListeners => calls.listeners = state,
                DrainCall::FailHealth => self.end_kept_health(state, calls, history),
            }
        }
    }

    /// Fails Envoy's health at the end of a drain that has kept it. Envoy may run on, as a native sidecar does until
    /// the pod's other containers have stopped.
    pub(super) async fn fail_kept_health(
        &mut self,
        calls: &mut DrainCalls,
        history: &mut DrainHistory,
    ) {
        let state = self.try_to_fail_health().await;
        if state == CallState::Pending {
            warn!("Envoy did not respond at the end of the drain: its health may not be failed");
        }
        self.end_kept_health(state, calls, history);
    }

    /// Goes on trying to fail the health of an Envoy that did not respond at the end of the drain, when the hooks have
    /// returned: for a while, and no longer than until SIGTERM.
    pub(super) async fn retry_to_fail_health(&mut self) {
        let mut signals = self.signals.subscribe();
        let sigterm = signals.wait_for(|signals| signals.sigterm.is_some());
        let retry = async {
            loop {
                sleep(RETRY_DELAY).await;
                if self.try_to_fail_health().await != CallState::Pending {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            _ = sigterm => {}
            _ = timeout(MAX_RETRY_TIME, retry) => {}
        }
    }

    async fn try_to_fail_health(&mut self) -> CallState {
        let mut log_limiter = LogLimiter::for_startup();
        let call = self.make_call(DrainCall::FailHealth, &mut log_limiter);
        let state = timeout(LAST_CALL_TIMEOUT, call).await;
        state.unwrap_or(CallState::Pending)
    }

    fn end_kept_health(
        &self,
        state: CallState,
        calls: &mut DrainCalls,
        history: &mut DrainHistory,
    ) {
        if calls.is_health_kept() && state == CallState::Accepted {
            history.record_health_failure(Instant::now());
        }
        calls.health = state;
        self.publish_kept_health(calls);
    }

    fn publish_kept_health(&self, calls: &DrainCalls) {
        let health_kept = calls.is_health_kept();
        self.progress
            .send_modify(|progress| progress.health_kept = health_kept);
    }

    async fn make_call(&mut self, call: DrainCall, log_limiter: &mut LogLimiter) -> CallState {
        let reason = match self.is_pod_terminating() {
            true => MarkerReason::PodTerminating,
            false => MarkerReason::Provisional,
        };
        match call {
            DrainCall::FailHealth => {
                self.write_marker(reason);
                let result = self.envoy.fail_health().await;
                self.log_call("/healthcheck/fail", result, log_limiter)
            }
            DrainCall::DrainListeners => {
                // Without a marker, Envoy's health is kept, so that there is nothing to restore.
                if self.marker_reason.is_some() {
                    self.write_marker(reason);
                }
                let result = self.envoy.drain_listeners().await;
                self.log_call("/drain_listeners", result, log_limiter)
            }
        }
    }

    fn log_call(
        &self,
        call: &str,
        result: Result<(), AdminError>,
        log_limiter: &mut LogLimiter,
    ) -> CallState {
        match result {
            Ok(()) => {
                info!(call, "Envoy accepted the call");
                CallState::Accepted
            }
            Err(AdminError::Rejected(error)) => {
                error!(
                    call,
                    error, "Envoy rejected the call: continuing the drain without this call"
                );
                CallState::Rejected
            }
            Err(error) => {
                if log_limiter.should_log(Instant::now(), false) {
                    warn!(
                        call,
                        admin = %self.config.settings.admin_address,
                        %error,
                        "Envoy did not respond: retrying until the drain's deadline"
                    );
                }
                CallState::Pending
            }
        }
    }
}
