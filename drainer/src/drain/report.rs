//! A report to the webhook.

use hyper::Method;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::summary::DrainSummary;
use crate::envoy::setup_warnings::SetupWarningKind;
use crate::settings::config::WebhookAccess;
use crate::webhook_client::call;

/// A report, as JSON: `{"drain": {…}}` or `{"setupWarnings": ["…"]}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Report {
    /// A drain has ended, and its pod is terminating.
    Drain(DrainSummary),
    /// What in Envoy's setup will impair drains, unless this process has reported it already.
    SetupWarnings(Vec<SetupWarningKind>),
}

// === impl Report ===

impl Report {
    /// Sends the report, if the webhook takes any, within a second.
    pub(crate) async fn send(&self, access: &WebhookAccess) {
        let json = serde_json::to_vec(self).expect("keys are texts");
        if access.reports
            && let Err(error) = call(access, Method::POST, "/report", json.into()).await
        {
            info!(error, "The webhook did not take the report");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::drain::exit_rules::DrainOutcome;

    #[test]
    fn report_is_a_drain_or_setup_warnings() {
        let drain = json!({"outcome": "drained", "seconds": 1.5, "peak": 7});
        let summary = DrainSummary {
            outcome: DrainOutcome::Drained,
            is_final: true,
            seconds: 1.5,
            seconds_to_failed_health: None,
            seconds_to_zero: None,
            seconds_to_last_new_connection: None,
            peak: 7,
            remaining: None,
            disagreement: None,
            witness: None,
            replacement: None,
        };
        let report = Report::Drain(summary);
        let json = json!({ "drain": drain });
        assert_eq!(serde_json::to_value(&report).unwrap(), json);
        let read = |json: Value| serde_json::from_value::<Report>(json).ok();
        assert_eq!(read(json), Some(report));
        let warnings = Report::SetupWarnings(vec![SetupWarningKind::StatsHidden]);
        let json = json!({"setupWarnings": ["stats-hidden"]});
        assert_eq!(serde_json::to_value(&warnings).unwrap(), json);
        assert_eq!(read(json), Some(warnings));
        for invalid in [
            json!({}),
            json!([]),
            json!({"drain": drain, "setupWarnings": []}),
            json!({"drain": {"outcome": "lost", "seconds": 1, "peak": 0}}),
            json!({"drain": {"outcome": "drained", "seconds": 1, "peak": -1}}),
            json!({"setupWarnings": ["unknown"]}),
        ] {
            assert_eq!(read(invalid.clone()), None, "{invalid}");
        }
    }
}
