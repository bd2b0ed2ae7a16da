//! The containers of a pod that change besides Envoy's arguments: Envoy's, as a native sidecar, and those that wait for
//! the drain.

use drainer::{Config, SettingValue};
use k8s_openapi::api::core::v1::LifecycleHandler;

use super::envoy::EnvoyContainer;
use super::redirection::is_mesh_proxy;
use super::sidecar::{self, SidecarMode};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::excerpt::excerpt;
use crate::names::CONTAINER_NAME;
use crate::pod::{
    Container, ContainerList, ContainerRef, MAX_MESSAGE_TEXT_LEN, PodView, format_names,
};
use crate::settings::{HookedContainers, MAX_HOOKED_CONTAINERS, Settings, Switch};

/// The annotation with which Envoy's container becomes a native sidecar. Kubernetes then ends Envoy after the pod's
/// containers. <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>
const ENVOY_NATIVE_SIDECAR: &str = "envoy-native-sidecar";

/// Returns true if Envoy's container moves to the end of the init containers: those that the pod has run in the same
/// order, and before Envoy, as they do without the move. An Envoy that is a native sidecar already stays where it is.
/// Every obstacle is a failure.
pub(super) fn is_envoy_moved(
    pod: &PodView<'_>,
    (envoy, container): (&EnvoyContainer, &Container<'_>),
    sidecar: Option<SidecarMode>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> bool {
    let is_requested = settings.values().envoy_native_sidecar == Switch::True;
    if !is_requested || envoy.container_ref.list == ContainerList::InitContainers {
        return false;
    }
    let obstacles = native_obstacles(pod, container, sidecar);
    let obstacles = obstacles.map(|obstacle| obstacle.for_annotations([ENVOY_NATIVE_SIDECAR]));
    diagnostics.failures.extend(obstacles);
    diagnostics.warnings.extend(start_order(container));
    diagnostics.warnings.extend(named_ports(container));
    true
}

/// Warns of an Envoy that keeps a pod from completing: a plain container beside others, which do the pod's work.
pub(super) fn check_completion(
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
        format!("`{name}` is a plain container, and the pod completes only when it has exited");
    diagnostics.warn(Code::PlainEnvoyInJob.about(ENVOY_NATIVE_SIDECAR, detail));
}

/// Returns true if the pod has no container beside Envoy, init containers aside.
fn has_one_container(pod: &PodView<'_>) -> bool {
    let containers = pod.spec.list(ContainerList::Containers);
    containers.is_none_or(|containers| containers.len() < 2)
}

/// Returns why Envoy cannot be a native sidecar.
fn native_obstacles(
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
        let detail = format!("the drainer is a plain container, and would stop before `{name}`");
        Code::PlainSidecarOfNativeEnvoy.diagnostic(detail)
    });
    let policy = envoy.restart_policy.as_deref();
    let policy = policy.filter(|policy| *policy != "Always").map(|policy| {
        let policy = excerpt(policy, MAX_MESSAGE_TEXT_LEN);
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
    Some(Code::EnvoyStartsFirst.about(ENVOY_NATIVE_SIDECAR, detail))
}

/// Warns of named ports, which Services of Kubernetes before 1.33 do not find in init containers.
/// <https://github.com/kubernetes/kubernetes/pull/128850>
fn named_ports(envoy: &Container<'_>) -> Option<Diagnostic> {
    let mut ports = envoy.ports.iter().flatten();
    let name = ports.find_map(|port| port.name.as_deref().filter(|name| !name.is_empty()))?;
    let target = format!("`targetPort: {}`", excerpt(name, MAX_MESSAGE_TEXT_LEN));
    let detail = format!(
        "before Kubernetes 1.33, a Service with {target} has no endpoints in a native sidecar"
    );
    Some(Code::NamedPortOfNativeEnvoy.about(ENVOY_NATIVE_SIDECAR, detail))
}

/// The annotation that selects containers whose preStop hook waits for the drain, so that each serves until Envoy's
/// inbound requests are done.
const EXTRA_LIFECYCLE_HOOKS: &str = "extra-lifecycle-hooks";

/// The same with its prefix.
const EXTRA_LIFECYCLE_HOOKS_KEY: &str = "envoy-drainer.dev/extra-lifecycle-hooks";

/// The preStop hook of a container that is not Envoy's.
#[derive(Debug, Clone)]
pub struct ExtraHook {
    pub container: String,
    pub container_ref: ContainerRef,
    pub hook: LifecycleHandler,
}

pub(super) type FoundContainer<'p, 'a> = (ContainerRef, &'p Container<'a>);

/// Selects the containers that get a hook. One with a preStop hook of its own keeps that, with a warning.
///
/// # Errors
/// If the annotation names a container that cannot have a hook, or if there are too many.
pub(super) fn select_hooked<'p, 'a>(
    pod: &'p PodView<'a>,
    envoy: ContainerRef,
    hooked: &HookedContainers,
    diagnostics: &mut Diagnostics,
) -> Result<Vec<FoundContainer<'p, 'a>>, Diagnostic> {
    let mut selected: Vec<_> = pod.long_running_containers().collect();
    selected.retain(|(container_ref, _)| *container_ref != envoy);
    match hooked {
        HookedContainers::None => return Ok(Vec::new()),
        HookedContainers::All => {}
        HookedContainers::Named(names) => {
            // Another webhook may add a container after this one, which is then called again.
            let is_of_mesh = |name: &str| pod.is_in_mesh() || is_mesh_proxy(name);
            let may_come = |name: &str| is_of_mesh(name) && !pod.has_container(name);
            let (later, present): (Vec<_>, Vec<_>) = names.iter().partition(|name| may_come(name));
            let obstacles = present.into_iter();
            let obstacles = obstacles.filter_map(|name| hook_obstacle(pod, &selected, name));
            let obstacles: Vec<_> = obstacles.collect();
            if !obstacles.is_empty() {
                return Err(denial(&obstacles.join("; ")));
            }
            for name in later {
                let detail =
                    format!("the pod has no container `{name}` yet, which another webhook may add");
                diagnostics.warn(Code::HookForLater.about(EXTRA_LIFECYCLE_HOOKS, detail));
            }
            selected.retain(|(_, container)| names.contains(container.name()));
        }
    }
    let has_hook = |(_, container): &FoundContainer<'_, '_>| container.pre_stop().is_some();
    let (kept, selected): (Vec<_>, Vec<_>) = selected.into_iter().partition(has_hook);
    if selected.len() > MAX_HOOKED_CONTAINERS {
        let many = format!("{} containers would wait for the drain", selected.len());
        return Err(denial(&format!(
            "{many}: the limit is {MAX_HOOKED_CONTAINERS}"
        )));
    }
    if !kept.is_empty() {
        let names = format_names(&kept);
        let detail = format!(
            "the preStop hooks of {names} are kept: these containers do not wait for the drain"
        );
        diagnostics.warn(Code::OwnHookKept.about(EXTRA_LIFECYCLE_HOOKS, detail));
    }
    Ok(selected)
}

/// Returns the containers without a hook that `extra-lifecycle-hooks` selects in a pod that has its drainer: another
/// webhook may have added them.
pub(crate) fn late_hooks(pod: &PodView<'_>) -> Vec<String> {
    let mut hooked = HookedContainers::None;
    let setting = pod.annotation(EXTRA_LIFECYCLE_HOOKS_KEY);
    if setting.is_none_or(|names| hooked.set(names).is_err()) {
        return Vec::new();
    }
    let is_selected = |name: &str| match &hooked {
        HookedContainers::None => false,
        HookedContainers::All => name != CONTAINER_NAME,
        HookedContainers::Named(names) => names.contains(name),
    };
    let containers = pod.long_running_containers();
    let late = containers.filter(|(_, it)| it.pre_stop().is_none() && is_selected(it.name()));
    let names = late.map(|(_, it)| it.name().to_owned());
    names.take(MAX_HOOKED_CONTAINERS).collect()
}

fn denial(detail: &str) -> Diagnostic {
    let detail = format!("`{EXTRA_LIFECYCLE_HOOKS}`: {detail}");
    Code::NoExtraHook.about(EXTRA_LIFECYCLE_HOOKS, detail)
}

/// Returns why the container of this name cannot have a hook; `others` are those that run as long as the pod, without
/// Envoy's.
fn hook_obstacle(
    pod: &PodView<'_>,
    others: &[FoundContainer<'_, '_>],
    name: &str,
) -> Option<String> {
    if others.iter().any(|(_, container)| container.name() == name) {
        return None;
    }
    Some(if pod.long_running(name).is_some() {
        format!("`{name}` is Envoy's container, which waits anyway")
    } else if pod.has_container(name) {
        format!("`{name}` is an init container that exits before the others start")
    } else if others.is_empty() {
        format!("the pod has no container `{name}`")
    } else {
        format!(
            "the pod has no container `{name}`, only {}",
            format_names(others)
        )
    })
}

// === impl ExtraHook ===

impl ExtraHook {
    /// The hook of a container from [`select_hooked`].
    pub(super) fn new(
        (container_ref, container): FoundContainer<'_, '_>,
        drainer: &Config,
    ) -> Self {
        let path = drainer.container_hook_path(container.name());
        Self {
            container: container.name().to_owned(),
            container_ref,
            hook: sidecar::wait_hook(drainer, path),
        }
    }
}

#[cfg(test)]
mod native_envoy_tests {
    use serde_json::{Value, json};

    use super::super::envoy::find_envoy;
    use super::*;
    use crate::settings::Defaults;
    use crate::settings::parse::ParsedSettings;

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
        let (envoy, container) = find_envoy(&pod, Some("envoy"), &mut diagnostics).unwrap();
        let envoy = (&envoy, container);
        let is_moved = is_envoy_moved(&pod, envoy, Some(sidecar), &settings, &mut diagnostics);
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
            let (envoy, _) = find_envoy(&pod, Some("envoy"), &mut diagnostics).unwrap();
            check_completion(&pod, &envoy, is_moved, &mut diagnostics);
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

#[cfg(test)]
mod extra_hooks_tests {
    use drainer::SettingValue;
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::ContainerList;

    /// The names of the containers that get a hook, or why not; and the details of the warnings.
    fn selected(setting: &str, spec: &Value) -> (Result<Vec<String>, String>, Vec<String>) {
        let pod = json!({ "spec": spec }).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let mut hooked = HookedContainers::None;
        hooked.set(setting).unwrap();
        let envoy = ContainerRef {
            list: ContainerList::Containers,
            index: 0,
        };
        let mut diagnostics = Diagnostics::default();
        let selected = select_hooked(&pod, envoy, &hooked, &mut diagnostics);
        let names = selected.map(|all| all.iter().map(|(_, c)| c.name().to_owned()).collect());
        let warnings = diagnostics.warnings.into_iter();
        let warnings = warnings.map(|warning| warning.detail).collect();
        (names.map_err(|denial| denial.detail), warnings)
    }

    #[test]
    fn long_running_containers_besides_envoy_are_selected() {
        let spec = json!({
            "containers": [{"name": "envoy"}, {"name": "app", "lifecycle": {"preStop": null}}, {"name": "worker"}],
            "initContainers": [{"name": "migrate"}, {"name": "logs", "restartPolicy": "Always"}],
        });
        let table = [
            ("*", Ok(vec!["app", "worker", "logs"])),
            ("worker", Ok(vec!["worker"])),
            ("logs,app", Ok(vec!["app", "logs"])),
            (
                "cache",
                Err("the pod has no container `cache`, only `app`, `worker`, `logs`"),
            ),
            (
                "app,envoy,migrate",
                Err(
                    "`envoy` is Envoy's container, which waits anyway; `migrate` is an init container that exits \
                     before the others start",
                ),
            ),
        ];
        for (setting, want) in table {
            let want = want
                .map(|names| names.into_iter().map(str::to_owned).collect())
                .map_err(|why| format!("`extra-lifecycle-hooks`: {why}"));
            assert_eq!(selected(setting, &spec), (want, vec![]), "{setting}");
        }
    }

    #[test]
    fn own_hooks_are_kept_with_a_warning() {
        let hooked =
            |name| json!({"name": name, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}});
        let spec = json!({"containers": [hooked("envoy"), hooked("app"), {"name": "worker"}]});
        let warning =
            "the preStop hooks of `app` are kept: these containers do not wait for the drain";
        for (setting, want) in [("*", vec!["worker".to_owned()]), ("app", vec![])] {
            let want = (Ok(want), vec![warning.to_owned()]);
            assert_eq!(selected(setting, &spec), want, "{setting}");
        }
    }

    #[test]
    fn pod_without_other_containers_gets_no_hook() {
        let alone = json!({"containers": [{"name": "envoy"}]});
        assert_eq!(selected("*", &alone), (Ok(vec![]), vec![]));
        let denied = selected("app", &alone).0.unwrap_err();
        assert!(
            denied.ends_with("the pod has no container `app`"),
            "{denied}"
        );
    }

    #[test]
    fn number_of_hooks_is_bounded() {
        let spec = |many: usize| {
            let others = (0..many).map(|n| json!({"name": format!("c{n}")}));
            let containers: Vec<_> = [json!({"name": "envoy"})]
                .into_iter()
                .chain(others)
                .collect();
            json!({ "containers": containers })
        };
        assert_eq!(selected("*", &spec(64)).0.unwrap().len(), 64);
        let denied = selected("*", &spec(65)).0.unwrap_err();
        assert!(denied.contains("65 containers would wait"), "{denied}");

        // Those that keep hooks of their own do not wait.
        let mut hooked = spec(65);
        hooked["containers"][1]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
        assert_eq!(selected("*", &hooked).0.unwrap().len(), 64);
    }
}
