//! Whether Envoy's container becomes a native sidecar, as the annotation `envoy-native-sidecar` requests. Kubernetes then
//! ends Envoy after the pod's containers.
//! <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>

use super::envoy_container::EnvoyContainer;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::excerpt::excerpt;
use crate::pod::{Container, ContainerList, PodView};
use crate::settings::{Settings, Switch};
use crate::sidecar_mode::SidecarMode;

const NAME: &str = "envoy-native-sidecar";

/// Maximum length of a text of the pod in a message, in bytes.
const MAX_TEXT_LEN: usize = 63;

/// Returns true if Envoy's container moves to the end of the init containers: those that the pod has run in the same
/// order, and before Envoy, as they do without the move. An Envoy that is a native sidecar already stays where it is.
/// Every obstacle is a failure.
pub(crate) fn is_moved(
    pod: &PodView<'_>,
    (envoy, container): (&EnvoyContainer, &Container<'_>),
    sidecar: Option<SidecarMode>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> bool {
    let is_requested = settings.envoy_native_sidecar == Switch::True;
    if !is_requested || envoy.container_ref.list == ContainerList::InitContainers {
        return false;
    }
    let obstacles = obstacles(pod, container, sidecar);
    let obstacles = obstacles.map(|obstacle| obstacle.for_annotations([NAME]));
    diagnostics.failures.extend(obstacles);
    diagnostics.warnings.extend(start_order(container));
    diagnostics.warnings.extend(named_ports(container));
    true
}

/// Warns of an Envoy that keeps a Job from completing: a plain container beside others, which do the Job's work.
pub(crate) fn check_job(
    pod: &PodView<'_>,
    envoy: &EnvoyContainer,
    is_moved: bool,
    diagnostics: &mut Diagnostics,
) {
    let is_native = is_moved || envoy.container_ref.list == ContainerList::InitContainers;
    if is_native || has_one_container(pod) {
        return;
    }
    let name = &envoy.name;
    let detail =
        format!("`{name}` is a plain container, and the Job completes only when it has ended");
    let warning = Code::PlainEnvoyInJob.diagnostic(detail);
    diagnostics.warn(warning.for_annotations([NAME]));
}

/// Returns true if the pod has no container beside Envoy, init containers aside.
fn has_one_container(pod: &PodView<'_>) -> bool {
    let containers = pod.spec.list(ContainerList::Containers);
    containers.is_none_or(|containers| containers.len() < 2)
}

/// Returns why Envoy cannot be a native sidecar.
fn obstacles(
    pod: &PodView<'_>,
    envoy: &Container<'_>,
    sidecar: Option<SidecarMode>,
) -> impl Iterator<Item = Diagnostic> {
    let name = envoy.name();
    let only = has_one_container(pod).then(|| {
        let detail =
            format!("`{name}` is the pod's only container, which cannot be an init container");
        Code::EnvoyIsOnlyContainer.diagnostic(detail)
    });
    let plain = (sidecar == Some(SidecarMode::Plain)).then(|| {
        let detail = format!("the drainer is a plain container, and would end before `{name}`");
        Code::PlainSidecarOfNativeEnvoy.diagnostic(detail)
    });
    let policy = envoy.restart_policy.as_deref();
    let policy = policy.filter(|policy| *policy != "Always").map(|policy| {
        let policy = excerpt(policy, MAX_TEXT_LEN);
        format!("has `restartPolicy: {policy}`, and a native sidecar has `Always`")
    });
    // <https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/5307-container-restart-policy>
    let rules = envoy
        .restart_policy_rules
        .map(|_| "has `restartPolicyRules`, and a native sidecar cannot have any".to_owned());
    let policies = [policy, rules].into_iter().flatten();
    let policies = policies.map(move |obstacle| {
        Code::EnvoyRestartPolicy.diagnostic(format!("container `{name}` {obstacle}"))
    });
    only.into_iter().chain(plain).chain(policies)
}

/// Warns if the other containers start later than without the move: the kubelet starts the containers when a native
/// sidecar's postStart hook has returned and its startup probe has succeeded.
fn start_order(envoy: &Container<'_>) -> Option<Diagnostic> {
    let lifecycle = envoy.lifecycle.as_ref();
    let has_post_start = lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some());
    let condition = match (envoy.startup_probe.is_some(), has_post_start) {
        (false, false) => return None,
        (true, false) => "startup probe",
        (false, true) => "postStart hook",
        (true, true) => "startup probe and postStart hook",
    };
    let name = envoy.name();
    let detail = format!("the pod's containers start only after the {condition} of `{name}`");
    let warning = Code::EnvoyStartsFirst.diagnostic(detail);
    Some(warning.for_annotations([NAME]))
}

/// Warns of named ports, which Services of Kubernetes before 1.33 do not find in init containers.
/// <https://github.com/kubernetes/kubernetes/pull/128850>
fn named_ports(envoy: &Container<'_>) -> Option<Diagnostic> {
    let mut ports = envoy.ports.iter().flatten();
    let name = ports.find_map(|port| port.name.as_deref().filter(|name| !name.is_empty()))?;
    let target = format!("`targetPort: {}`", excerpt(name, MAX_TEXT_LEN));
    let detail = format!(
        "before Kubernetes 1.33, a Service with {target} has no endpoints in a native sidecar"
    );
    let warning = Code::NamedPortOfNativeEnvoy.diagnostic(detail);
    Some(warning.for_annotations([NAME]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::envoy_container;
    use crate::settings::ParsedSettings;
    use crate::settings::defaults::Defaults;

    /// Whether Envoy moves, and the codes of the failures and warnings.
    fn decision(spec: &Value, sidecar: SidecarMode) -> (bool, Vec<Code>) {
        let pod = json!({
            "metadata": {"annotations": {"envoy-drainer.dev/envoy-native-sidecar": "true"}},
            "spec": spec,
        });
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let settings = ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &[]).settings;
        let mut diagnostics = Diagnostics::default();
        let (envoy, container) =
            envoy_container::find(&pod, Some("envoy"), &mut diagnostics).unwrap();
        let envoy = (&envoy, container);
        let is_moved = is_moved(&pod, envoy, Some(sidecar), &settings, &mut diagnostics);
        let all = diagnostics.failures.into_iter().chain(diagnostics.warnings);
        (is_moved, all.map(|diagnostic| diagnostic.code).collect())
    }

    #[test]
    fn envoy_moves_unless_it_is_native_already() {
        let beside_app = |envoy: Value| json!({"containers": [{"name": "app"}, envoy]});
        let table = [
            (beside_app(json!({"name": "envoy"})), true, vec![]),
            (
                beside_app(
                    json!({"name": "envoy", "restartPolicy": "Always", "ports": [{"containerPort": 1}]}),
                ),
                true,
                vec![],
            ),
            (
                beside_app(
                    json!({"name": "envoy", "ports": [{"containerPort": 1}, {"name": "http"}]}),
                ),
                true,
                vec![Code::NamedPortOfNativeEnvoy],
            ),
            (
                beside_app(json!({"name": "envoy", "startupProbe": {}})),
                true,
                vec![Code::EnvoyStartsFirst],
            ),
            (
                beside_app(json!({"name": "envoy", "lifecycle": {"postStart": {}}})),
                true,
                vec![Code::EnvoyStartsFirst],
            ),
            (
                beside_app(
                    json!({"name": "envoy", "startupProbe": null, "lifecycle": {"postStart": null}}),
                ),
                true,
                vec![],
            ),
            (
                json!({
                    "containers": [{"name": "app"}],
                    "initContainers": [{"name": "envoy", "restartPolicy": "Always", "startupProbe": {}}],
                }),
                false,
                vec![],
            ),
        ];
        for (spec, is_moved, codes) in table {
            let got = decision(&spec, SidecarMode::Native);
            assert_eq!(got, (is_moved, codes), "{spec}");
        }
    }

    #[test]
    fn envoy_that_outlasts_its_job_is_a_warning() {
        let (app, envoy) = (json!({"name": "app"}), json!({"name": "envoy"}));
        let native = json!({"name": "envoy", "restartPolicy": "Always"});
        for (spec, is_moved, want) in [
            (json!({"containers": [app, envoy]}), false, true),
            (json!({"containers": [app, envoy]}), true, false),
            (json!({"containers": [envoy]}), false, false),
            (
                json!({"containers": [app, app], "initContainers": [native]}),
                false,
                false,
            ),
        ] {
            let pod = json!({ "spec": spec }).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let mut diagnostics = Diagnostics::default();
            let (envoy, _) = envoy_container::find(&pod, Some("envoy"), &mut diagnostics).unwrap();
            check_job(&pod, &envoy, is_moved, &mut diagnostics);
            let codes: Vec<_> = diagnostics.warnings.iter().map(|it| it.code).collect();
            assert_eq!(codes == [Code::PlainEnvoyInJob], want, "{spec}: {codes:?}");
        }
    }

    #[test]
    fn every_obstacle_is_a_failure() {
        let app = json!({"name": "app"});
        let table = [
            (
                json!({"containers": [{"name": "envoy"}], "initContainers": [{"name": "i", "restartPolicy": "Always"}]}),
                SidecarMode::Native,
                vec![Code::EnvoyIsOnlyContainer],
            ),
            (
                json!({"containers": [{"name": "envoy"}, app]}),
                SidecarMode::Plain,
                vec![Code::PlainSidecarOfNativeEnvoy],
            ),
            (
                json!({"containers": [{"name": "envoy", "restartPolicy": "Never"}, app]}),
                SidecarMode::Native,
                vec![Code::EnvoyRestartPolicy],
            ),
            (
                json!({"containers": [{"name": "envoy", "restartPolicy": "Always", "restartPolicyRules": [{}]}, app]}),
                SidecarMode::Native,
                vec![Code::EnvoyRestartPolicy],
            ),
            (
                json!({"containers": [{"name": "envoy", "restartPolicyRules": null}, app]}),
                SidecarMode::Native,
                vec![],
            ),
            (
                json!({"containers": [{"name": "envoy", "restartPolicy": "OnFailure"}]}),
                SidecarMode::Plain,
                vec![
                    Code::EnvoyIsOnlyContainer,
                    Code::PlainSidecarOfNativeEnvoy,
                    Code::EnvoyRestartPolicy,
                ],
            ),
        ];
        for (spec, sidecar, want) in table {
            assert_eq!(decision(&spec, sidecar).1, want, "{spec}");
        }
    }
}
