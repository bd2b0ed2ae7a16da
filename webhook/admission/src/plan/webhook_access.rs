//! Whether the drainer calls the webhook, and how: only where a feature of the pod, or of the installation, needs it.

use drainer::WebhookAccess;

use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::WEBHOOK_TOKEN_VOLUME;
use crate::pod::PodView;
use crate::settings::Settings;
use crate::settings::defaults::{Defaults, DrainerApiDefaults};

/// Returns how the drainer calls the webhook, if it does. Where it cannot ask for a replacement, it does not wait for one.
///
/// # Errors
/// If the pod has a volume with the name of the token's.
pub(crate) fn find(
    pod: &PodView<'_>,
    settings: &mut Settings,
    defaults: &Defaults,
    diagnostics: &mut Diagnostics,
) -> Result<WebhookAccess, Diagnostic> {
    const SETTING: &str = "wait-for-replacement";
    let drainer_api = defaults.drainer_api.as_ref();
    if waits(settings) && pod.is_owned_by_stateful_set() {
        let detail = "a StatefulSet replaces a pod after it has terminated";
        let warning = Code::FullReplacementWait.diagnostic(detail);
        diagnostics.warn(warning.for_annotations([SETTING]));
    }
    if waits(settings) && !drainer_api.is_some_and(|drainer_api| drainer_api.replacement) {
        let detail = "the wait for a replacement is left out, since drainers could ask no webhook";
        let warning = Code::NoReplacementWait.diagnostic(detail);
        diagnostics.warn(warning.for_annotations([SETTING]));
        settings.drop_replacement_wait();
    }
    let is_called = |drainer_api: &&DrainerApiDefaults| waits(settings) || drainer_api.reports;
    let Some(drainer_api) = drainer_api.filter(is_called) else {
        return Ok(WebhookAccess::default());
    };
    if pod.has_volume(WEBHOOK_TOKEN_VOLUME) {
        let detail = format!("the pod has a volume `{WEBHOOK_TOKEN_VOLUME}` of its own");
        return Err(Code::NameTaken.diagnostic(detail));
    }
    Ok(WebhookAccess {
        address: drainer_api.address.clone(),
        ip: drainer_api.ip,
        ca: drainer_api.ca.clone(),
        reports: drainer_api.reports,
        ..WebhookAccess::default()
    })
}

/// Returns true if the pod has a wait for a replacement.
fn waits(settings: &Settings) -> bool {
    !settings.durations.wait_for_replacement.is_zero()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::ParsedSettings;

    fn drainer_api(replacement: bool, reports: bool) -> Option<DrainerApiDefaults> {
        Some(DrainerApiDefaults {
            address: "webhook.infra.svc:8443".to_owned(),
            ip: Some([10, 0, 0, 1].into()),
            ca: "AAAA".to_owned(),
            replacement,
            reports,
        })
    }

    /// Returns whether the drainer calls the webhook, its wait in seconds, and the codes of all warnings.
    fn find_in(
        pod: &Value,
        drainer_api: Option<DrainerApiDefaults>,
    ) -> (Result<bool, Code>, u64, Vec<Code>) {
        let defaults = Defaults {
            drainer_api,
            ..Defaults::new("image", "own")
        };
        let json = pod.to_string();
        let pod = PodView::decode(&json).unwrap();
        let ParsedSettings { mut settings, .. } =
            ParsedSettings::parse(&pod, false, &defaults, &[]);
        let mut diagnostics = Diagnostics::default();
        let found = find(&pod, &mut settings, &defaults, &mut diagnostics);
        let enabled = found
            .map(|access| access.is_enabled())
            .map_err(|error| error.code);
        let warnings = diagnostics.warnings.iter().map(|it| it.code).collect();
        assert_eq!(
            settings.timing().wait_for_replacement,
            settings.durations.wait_for_replacement
        );
        let wait = settings.durations.wait_for_replacement.as_secs();
        (enabled, wait, warnings)
    }

    #[test]
    fn webhook_is_called_only_for_a_feature() {
        let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let waiting = || pod(json!({"envoy-drainer.dev/wait-for-replacement": "30s"}));
        let mut of_stateful_set = waiting();
        of_stateful_set["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet"}]);
        let mut with_volume = waiting();
        with_volume["spec"] = json!({"volumes": [{"name": WEBHOOK_TOKEN_VOLUME}]});
        let off = Code::NoReplacementWait;
        let table = [
            (pod(json!({})), None, (Ok(false), 0, vec![])),
            (
                pod(json!({})),
                drainer_api(true, false),
                (Ok(false), 0, vec![]),
            ),
            (
                pod(json!({})),
                drainer_api(true, true),
                (Ok(true), 0, vec![]),
            ),
            (waiting(), None, (Ok(false), 0, vec![off])),
            (
                waiting(),
                drainer_api(false, false),
                (Ok(false), 0, vec![off]),
            ),
            (
                waiting(),
                drainer_api(false, true),
                (Ok(true), 0, vec![off]),
            ),
            (waiting(), drainer_api(true, false), (Ok(true), 30, vec![])),
            (
                of_stateful_set.clone(),
                drainer_api(true, false),
                (Ok(true), 30, vec![Code::FullReplacementWait]),
            ),
            (
                of_stateful_set,
                None,
                (Ok(false), 0, vec![Code::FullReplacementWait, off]),
            ),
            (
                with_volume.clone(),
                drainer_api(true, false),
                (Err(Code::NameTaken), 30, vec![]),
            ),
            (with_volume, None, (Ok(false), 0, vec![off])),
        ];
        for (pod, drainer_api, want) in table {
            assert_eq!(
                find_in(&pod, drainer_api.clone()),
                want,
                "{pod} {drainer_api:?}"
            );
        }
    }
}
