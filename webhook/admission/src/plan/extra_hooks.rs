//! The preStop hooks of the containers that the annotation `extra-lifecycle-hooks` selects: each waits for the drain, so
//! that its container serves until Envoy's inbound requests are done.

use drainer::Config;
use k8s_openapi::api::core::v1::LifecycleHandler;

use super::envoy_container::format_names;
use super::sidecar_container;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::pod::{Container, ContainerRef, PodView};
use crate::settings::{HookedContainers, MAX_HOOKED_CONTAINERS};

const NAME: &str = "extra-lifecycle-hooks";

/// The preStop hook of a container that is not Envoy's.
#[derive(Debug, Clone)]
pub struct ExtraHook {
    pub container: String,
    pub container_ref: ContainerRef,
    pub hook: LifecycleHandler,
}

type FoundContainer<'p, 'a> = (ContainerRef, &'p Container<'a>);

/// Selects the containers that get a hook. One with a preStop hook of its own keeps that, with a warning.
///
/// # Errors
/// If the annotation names a container that cannot have a hook, or if there are too many.
pub(crate) fn select<'p, 'a>(
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
            let obstacles = names
                .iter()
                .filter_map(|name| obstacle(pod, &selected, name));
            let obstacles: Vec<_> = obstacles.collect();
            if !obstacles.is_empty() {
                return Err(denial(&obstacles.join("; ")));
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
        let warning = Code::OwnHookKept.diagnostic(detail);
        diagnostics.warn(warning.for_annotations([NAME]));
    }
    Ok(selected)
}

fn denial(detail: &str) -> Diagnostic {
    let denial = Code::NoExtraHook.diagnostic(format!("`{NAME}`: {detail}"));
    denial.for_annotations([NAME])
}

/// Returns why the container of this name cannot have a hook; `others` are those that run as long as the pod, without
/// Envoy's.
fn obstacle(pod: &PodView<'_>, others: &[FoundContainer<'_, '_>], name: &str) -> Option<String> {
    if others.iter().any(|(_, container)| container.name() == name) {
        return None;
    }
    Some(if pod.long_running(name).is_some() {
        format!("`{name}` is Envoy's container, which waits anyway")
    } else if pod.has_container(name) {
        format!("`{name}` is an init container that ends before the others start")
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
    /// The hook of a container from [`select`].
    pub(super) fn new(
        (container_ref, container): FoundContainer<'_, '_>,
        drainer: &Config,
    ) -> Self {
        let path = drainer.container_hook_path(container.name());
        Self {
            container: container.name().to_owned(),
            container_ref,
            hook: sidecar_container::hook(drainer, path),
        }
    }
}

#[cfg(test)]
mod tests {
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
        let selected = select(&pod, envoy, &hooked, &mut diagnostics);
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
                    "`envoy` is Envoy's container, which waits anyway; `migrate` is an init container that ends before the others start",
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
