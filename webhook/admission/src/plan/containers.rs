//! The containers of a pod that change: Envoy's, with its flags and its place, and those that wait for the drain.

use std::time::Duration;

use drainer::{Config, duration};
use k8s_openapi::api::core::v1::LifecycleHandler;
use serde::Serialize;
use strum::Display;

use super::sidecar::{self, SidecarMode};
use super::whole_seconds;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::excerpt::excerpt;
use crate::names::MAX_NAME_LEN;
use crate::pod::{Container, ContainerList, ContainerRef, PodView};
use crate::settings::{DrainStrategy, HookedContainers, MAX_HOOKED_CONTAINERS, Settings, Switch};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyContainer {
    pub name: String,
    pub container_ref: ContainerRef,
    pub source: EnvoyContainerSource,
}

/// How Envoy's container was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum EnvoyContainerSource {
    #[strum(to_string = "named by the annotation `envoy-container`")]
    Annotation,
    #[strum(to_string = "named `envoy`")]
    Name,
    #[strum(to_string = "the only one whose image name starts with `envoy`")]
    Image,
    /// Its name or image mentions Envoy.
    #[strum(to_string = "the only container")]
    OnlyContainer,
    /// Nothing mentions Envoy.
    #[strum(to_string = "a guess: it is the only container")]
    Guess,
}

/// Istio's Envoy, which has a drain of its own: it is chosen only by the annotation.
const ISTIO_PROXY: &str = "istio-proxy";

/// Finds Envoy's container: the one named `name` if an annotation gives it, else by its own name or image, else
/// the pod's only container. The last, if nothing mentions Envoy, is a warning.
///
/// # Errors
/// If there is no such container, or more than one.
pub(super) fn find_envoy<'p, 'a>(
    pod: &'p PodView<'a>,
    name: Option<&str>,
    diagnostics: &mut Diagnostics,
) -> Result<(EnvoyContainer, &'p Container<'a>), Diagnostic> {
    let envoy = |source, (container_ref, container): (ContainerRef, &'p Container<'a>)| {
        let name = container.name().to_owned();
        let envoy = EnvoyContainer {
            name,
            container_ref,
            source,
        };
        (envoy, container)
    };
    if let Some(name) = name {
        let container = pod.long_running(name);
        let container = container.ok_or_else(|| container_not_found(pod, name))?;
        return Ok(envoy(EnvoyContainerSource::Annotation, container));
    }
    let (istios, candidates): (Vec<_>, Vec<_>) = pod
        .long_running_containers()
        .partition(|(_, container)| container.name() == ISTIO_PROXY);
    if let Some(container) = candidates.iter().find(|(_, c)| c.name() == "envoy") {
        return Ok(envoy(EnvoyContainerSource::Name, *container));
    }
    let mut by_image = candidates.clone();
    by_image.retain(|(_, container)| has_envoy_image(container));
    match (&by_image[..], &candidates[..], &istios[..]) {
        ([container], ..) => Ok(envoy(EnvoyContainerSource::Image, *container)),
        ([], [only], []) if mentions_envoy(only.1) => {
            Ok(envoy(EnvoyContainerSource::OnlyContainer, *only))
        }
        ([], [only], []) => {
            let (name, image) = (only.1.name(), only.1.image());
            diagnostics.warn(Code::EnvoyGuessed.diagnostic(format!(
                "container `{name}` with image `{image}` was taken for Envoy only because the pod has no other"
            )));
            Ok(envoy(EnvoyContainerSource::Guess, *only))
        }
        ([], _, istios) => {
            let names = format_names(&candidates);
            let besides = istios.first().map_or("", |_| " besides `istio-proxy`");
            let detail = format!("no Envoy found among the pod's containers{besides}: {names}");
            Err(Code::NoEnvoy.diagnostic(detail))
        }
        (several, ..) => {
            let names = format_names(several);
            let detail = format!("each of the containers {names} may be Envoy");
            Err(Code::SeveralEnvoys.diagnostic(detail))
        }
    }
}

/// Returns why no long-running container has the annotated name. One that the pod does not have yet may be added
/// by a later webhook, after which the API server calls this one again.
fn container_not_found(pod: &PodView<'_>, name: &str) -> Diagnostic {
    let diagnostic = if pod.has_container(name) {
        let detail = "is an init container that ends before the others start";
        Code::InitContainerEnds.diagnostic(format!("`envoy-container: {name}` {detail}"))
    } else {
        let names = format_names(&pod.long_running_containers().collect::<Vec<_>>());
        let detail = format!("is not among the pod's containers so far: {names}");
        Code::NoSuchContainer.diagnostic(format!("`envoy-container: {name}` {detail}"))
    };
    diagnostic.for_annotations(["envoy-container"])
}

/// Returns true for the image `acme/my-envoy` or the container `edge-envoy`.
fn mentions_envoy(container: &Container<'_>) -> bool {
    let mut texts = [container.name(), container.image()].into_iter();
    texts.any(|text| text.to_ascii_lowercase().contains("envoy"))
}

/// Returns true for `docker.io/envoyproxy/envoy:v1.36`, by the last segment of the path.
fn has_envoy_image(container: &Container<'_>) -> bool {
    let name = container.image().rsplit('/').next();
    name.is_some_and(|name| name.starts_with("envoy"))
}

/// Maximum number of names in a message; the others are only counted.
const MAX_NAMES: usize = 16;

/// Formats the names of containers for a message.
fn format_names(containers: &[(ContainerRef, &Container<'_>)]) -> String {
    let quoted = |(_, container): &(_, &Container<'_>)| {
        format!("`{}`", excerpt(container.name(), MAX_NAME_LEN))
    };
    let names: Vec<_> = containers.iter().take(MAX_NAMES).map(quoted).collect();
    match (names.join(", "), containers.len() - names.len()) {
        (names, _) if names.is_empty() => "none".to_owned(),
        (names, 0) => names,
        (names, more) => format!("{names} and {more} more"),
    }
}

/// Envoy's flags for its own drain, which the annotation `drain-strategy` adds to its arguments.
/// <https://www.envoyproxy.io/docs/envoy/latest/operations/cli>
const STRATEGY_FLAG: &str = "--drain-strategy";
const TIME_FLAG: &str = "--drain-time-s";

/// Commands that do not pass on arguments behind their script.
const SHELLS: [&str; 7] = ["ash", "bash", "busybox", "dash", "ksh", "sh", "zsh"];

/// Maximum length of a text of the pod in a message, in bytes.
const MAX_TEXT_LEN: usize = 64;

/// Returns the words to add to the end of Envoy's `args`; none without the annotation `drain-strategy`. A flag that is
/// present stays as it is: Envoy exits if one is given twice.
///
/// # Errors
/// If arguments at the end of `args` would not reach Envoy, or if they contain another strategy.
pub(super) fn missing_flags(
    envoy: &Container<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> Result<Vec<String>, Diagnostic> {
    if settings.drain_strategy == DrainStrategy::Unset {
        return Ok(Vec::new());
    }
    let strategy = &*settings.drain_strategy.to_string();
    let present = envoy.flag(STRATEGY_FLAG);
    if let Some(obstacle) = flags_obstacle(envoy, present.filter(|present| *present != strategy)) {
        let detail = format!("container `{}` {obstacle}", envoy.name());
        let refusal = Code::DrainFlagsNotAdded.diagnostic(detail);
        return Err(refusal.for_annotations(["drain-strategy"]));
    }
    let mut flags = Vec::new();
    if present.is_none() {
        flags.extend([STRATEGY_FLAG.to_owned(), strategy.to_owned()]);
    }
    let drain_timeout = settings.timing().drain_timeout;
    match envoy.flag(TIME_FLAG) {
        None => {
            let seconds = drain_time(drain_timeout);
            flags.extend([TIME_FLAG.to_owned(), seconds.to_string()]);
            let detail = format!(
                "`{TIME_FLAG} {seconds}` is added to Envoy's arguments, and holds for listeners that xDS updates or removes too"
            );
            diagnostics.warn(Code::DrainTimeOfUpdates.diagnostic(detail));
        }
        Some(present) => {
            let warning = too_short(present, drain_timeout);
            diagnostics.warnings.extend(warning);
        }
    }
    Ok(flags)
}

/// Returns why words at the end of `args` would not reach Envoy, or would contradict the other strategy there.
fn flags_obstacle(envoy: &Container<'_>, other_strategy: Option<&str>) -> Option<String> {
    let mut words = envoy.command_line().peekable();
    if words.peek().is_none() {
        let obstacle =
            "has neither `args` nor `command`: arguments would replace those of its image";
        return Some(obstacle.to_owned());
    }
    // What follows the first flag of Envoy's may be a value, of any name.
    let is_flag = |word: &&str| word.starts_with("--") && word.len() > 2;
    let mut before_flags = words.take_while(|word| !is_flag(word));
    // The last segment of the path.
    let is_shell = |word: &&str| {
        word.rsplit('/')
            .next()
            .is_some_and(|name| SHELLS.contains(&name))
    };
    if let Some(shell) = before_flags.find(is_shell) {
        let shell = excerpt(shell, MAX_TEXT_LEN);
        return Some(format!(
            "is started by `{shell}`, which would not pass arguments on to Envoy"
        ));
    }
    other_strategy.map(|other| {
        let other = excerpt(other, MAX_TEXT_LEN);
        format!("has `{STRATEGY_FLAG} {other}` among its arguments already")
    })
}

/// The drain time in seconds, which Envoy requires to be positive.
fn drain_time(drain_timeout: Duration) -> u64 {
    whole_seconds(drain_timeout).max(1)
}

/// Returns a warning about a drain time that is shorter than the drain may be. Envoy itself reports one that is not a
/// number.
fn too_short(drain_time: &str, drain_timeout: Duration) -> Option<Diagnostic> {
    let seconds: u64 = drain_time.parse().ok()?;
    if Duration::from_secs(seconds) >= drain_timeout {
        return None;
    }
    let timeout = duration::format(drain_timeout);
    let detail = format!("`{TIME_FLAG} {seconds}` is shorter than `drain-timeout` {timeout}");
    Some(Code::ShortDrainTime.diagnostic(detail))
}

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
    let is_requested = settings.envoy_native_sidecar == Switch::True;
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

/// Warns of an Envoy that keeps a Job from completing: a plain container beside others, which do the Job's work.
pub(super) fn check_job(
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
    diagnostics.warn(warning.for_annotations([ENVOY_NATIVE_SIDECAR]));
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
    Some(warning.for_annotations([ENVOY_NATIVE_SIDECAR]))
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
    Some(warning.for_annotations([ENVOY_NATIVE_SIDECAR]))
}

/// The annotation that selects containers whose preStop hook waits for the drain, so that each serves until Envoy's inbound
/// requests are done.
const EXTRA_LIFECYCLE_HOOKS: &str = "extra-lifecycle-hooks";

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
            let obstacles = names
                .iter()
                .filter_map(|name| hook_obstacle(pod, &selected, name));
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
        diagnostics.warn(warning.for_annotations([EXTRA_LIFECYCLE_HOOKS]));
    }
    Ok(selected)
}

fn denial(detail: &str) -> Diagnostic {
    let denial = Code::NoExtraHook.diagnostic(format!("`{EXTRA_LIFECYCLE_HOOKS}`: {detail}"));
    denial.for_annotations([EXTRA_LIFECYCLE_HOOKS])
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
    /// The hook of a container from [`select_hooked`].
    pub(super) fn new(
        (container_ref, container): FoundContainer<'_, '_>,
        drainer: &Config,
    ) -> Self {
        let path = drainer.container_hook_path(container.name());
        Self {
            container: container.name().to_owned(),
            container_ref,
            hook: sidecar::hook(drainer, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn find_in(
        spec: &Value,
        name: Option<&str>,
    ) -> Result<(String, EnvoyContainerSource), Diagnostic> {
        let pod = json!({ "spec": spec }).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let mut diagnostics = Diagnostics::default();
        find_envoy(&pod, name, &mut diagnostics).map(|(envoy, container)| {
            let codes: Vec<_> = diagnostics
                .warnings
                .iter()
                .map(|warning| warning.code)
                .collect();
            let is_guess = envoy.source == EnvoyContainerSource::Guess;
            assert_eq!(codes, [Code::EnvoyGuessed][usize::from(!is_guess)..]);
            assert_eq!(container.name(), envoy.name);
            assert_eq!(
                pod.container(envoy.container_ref).unwrap().name(),
                envoy.name
            );
            (envoy.name, envoy.source)
        })
    }

    /// Containers as `name=image`; those with `+` before the name are native sidecars, those with
    /// `-` init containers.
    fn spec(containers: &str) -> Value {
        let mut spec = json!({"containers": [], "initContainers": []});
        for container in containers.split_whitespace() {
            let (name, image) = container
                .split_once('=')
                .unwrap_or((container, "example/x"));
            let (list, policy) = match &name[..1] {
                "+" => ("initContainers", json!("Always")),
                "-" => ("initContainers", json!(null)),
                _ => ("containers", json!(null)),
            };
            let name = name.trim_start_matches(['+', '-']);
            let container = json!({"name": name, "image": image, "restartPolicy": policy});
            spec[list].as_array_mut().unwrap().push(container);
        }
        spec
    }

    #[test]
    fn envoy_is_found_by_the_strongest_hint() {
        let table = [
            ("app envoy", None, "envoy", EnvoyContainerSource::Name),
            ("app +envoy", None, "envoy", EnvoyContainerSource::Name),
            (
                "proxy=envoy:v1 envoy=x",
                None,
                "envoy",
                EnvoyContainerSource::Name,
            ),
            (
                "app proxy=envoyproxy/envoy:v1.36",
                None,
                "proxy",
                EnvoyContainerSource::Image,
            ),
            (
                "app +proxy=envoy",
                None,
                "proxy",
                EnvoyContainerSource::Image,
            ),
            (
                "app p=r.example:5000/a/envoy-distroless@sha256:0",
                None,
                "p",
                EnvoyContainerSource::Image,
            ),
            (
                "app -init=envoy p=envoy",
                None,
                "p",
                EnvoyContainerSource::Image,
            ),
            (
                "proxy=acme/my-envoy:1",
                None,
                "proxy",
                EnvoyContainerSource::OnlyContainer,
            ),
            (
                "Edge-Envoy",
                None,
                "Edge-Envoy",
                EnvoyContainerSource::OnlyContainer,
            ),
            ("proxy", None, "proxy", EnvoyContainerSource::Guess),
            (
                "-init proxy=nginx",
                None,
                "proxy",
                EnvoyContainerSource::Guess,
            ),
            (
                "envoy istio-proxy",
                None,
                "envoy",
                EnvoyContainerSource::Name,
            ),
            (
                "app istio-proxy=envoy p=envoy",
                None,
                "p",
                EnvoyContainerSource::Image,
            ),
            (
                "app envoy",
                Some("app"),
                "app",
                EnvoyContainerSource::Annotation,
            ),
            (
                "app +istio-proxy",
                Some("istio-proxy"),
                "istio-proxy",
                EnvoyContainerSource::Annotation,
            ),
        ];
        for (containers, named, name, source) in table {
            let want = Ok((name.to_owned(), source));
            assert_eq!(
                find_in(&spec(containers), named),
                want,
                "{containers} {named:?}"
            );
        }
    }

    #[test]
    fn ambiguous_containers_are_named() {
        let table = [
            (
                "",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers: none",
            ),
            (
                "a b",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers: `a`, `b`",
            ),
            (
                "a +b",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers: `a`, `b`",
            ),
            (
                "a -envoy b=my-envoy",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers: `a`, `b`",
            ),
            (
                "app=foo +istio-proxy=istio/proxyv2",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers besides `istio-proxy`: `app`",
            ),
            (
                "istio-proxy b=my-envoy",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers besides `istio-proxy`: `b`",
            ),
            (
                "istio-proxy",
                None,
                Code::NoEnvoy,
                "no Envoy found among the pod's containers besides `istio-proxy`: none",
            ),
            (
                "a=envoy +b=x/envoy:1 c",
                None,
                Code::SeveralEnvoys,
                "each of the containers `a`, `b` may be Envoy",
            ),
            (
                "a -b",
                Some("b"),
                Code::InitContainerEnds,
                "`envoy-container: b` is an init container that ends before the others start",
            ),
            (
                "a -b",
                Some("c"),
                Code::NoSuchContainer,
                "`envoy-container: c` is not among the pod's containers so far: `a`",
            ),
        ];
        for (containers, named, code, detail) in table {
            let keys = named.map(|_| "envoy-container");
            assert_eq!(
                find_in(&spec(containers), named),
                Err(code.diagnostic(detail).for_annotations(keys)),
                "{containers}"
            );
        }
        let none = Err(Code::NoEnvoy.diagnostic("no Envoy found among the pod's containers: none"));
        assert_eq!(find_in(&Value::Null, None), none);
    }
}

#[cfg(test)]
mod flags_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodView;
    use crate::settings::Defaults;
    use crate::settings::ParsedSettings;

    /// The added flags or the refusal, and the codes of the warnings.
    fn flags(annotations: &Value, container: &Value) -> (Result<String, String>, Vec<Code>) {
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [container]},
        });
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("image", "own");
        let settings = ParsedSettings::parse(&pod, false, &defaults, &[]).settings;
        let (_, envoy) = pod.long_running_containers().next().unwrap();
        let mut diagnostics = Diagnostics::default();
        let flags = missing_flags(envoy, &settings, &mut diagnostics)
            .map(|flags| flags.join(" "))
            .map_err(|refusal| {
                assert_eq!(refusal.code, Code::DrainFlagsNotAdded);
                refusal.detail
            });
        let warnings = diagnostics.warnings.iter();
        (flags, warnings.map(|warning| warning.code).collect())
    }

    fn strategy(strategy: &str) -> Value {
        json!({"envoy-drainer.dev/drain-strategy": strategy})
    }

    #[test]
    fn nothing_is_added_without_the_annotation() {
        let shell = json!({"name": "envoy", "command": ["sh"]});
        assert_eq!(flags(&json!({}), &shell), (Ok(String::new()), vec![]));
    }

    #[test]
    fn only_missing_flags_are_added() {
        let envoy = |args: &str| {
            let args: Vec<_> = args.split(' ').collect();
            json!({"name": "envoy", "args": args})
        };
        let both = "--drain-strategy immediate --drain-time-s 60";
        let updates = vec![Code::DrainTimeOfUpdates];
        let table = [
            ("-c /envoy.yaml", both, updates.clone()),
            (
                "-c /envoy.yaml --drain-strategy immediate",
                "--drain-time-s 60",
                updates,
            ),
            (
                "--drain-time-s 60 -c /envoy.yaml",
                "--drain-strategy immediate",
                vec![],
            ),
            (
                "--drain-time-s 59 -c /envoy.yaml",
                "--drain-strategy immediate",
                vec![Code::ShortDrainTime],
            ),
            (
                "--drain-time-s $(TIME)",
                "--drain-strategy immediate",
                vec![],
            ),
            ("--drain-time-s 600 --drain-strategy immediate", "", vec![]),
            (
                "-c /envoy.yaml --service-cluster dash --service-node sh",
                both,
                vec![Code::DrainTimeOfUpdates],
            ),
        ];
        for (args, want, warnings) in table {
            assert_eq!(
                flags(&strategy("immediate"), &envoy(args)),
                (Ok(want.to_owned()), warnings),
                "{args}"
            );
        }
    }

    #[test]
    fn drain_time_is_the_drain_timeout_in_drain_time() {
        for (timeout, seconds) in [("90500ms", 91), ("1m", 60)] {
            let annotations = json!({
                "envoy-drainer.dev/drain-strategy": "gradual",
                "envoy-drainer.dev/drain-timeout": timeout,
            });
            let envoy = json!({"name": "envoy", "command": ["envoy"]});
            let want = format!("--drain-strategy gradual --drain-time-s {seconds}");
            assert_eq!(flags(&annotations, &envoy).0, Ok(want), "{timeout}");
        }
        assert_eq!(drain_time(Duration::ZERO), 1);
    }

    #[test]
    fn flags_that_would_not_reach_envoy_are_refused() {
        let image = "has neither `args` nor `command`: arguments would replace those of its image";
        let shell = |name: &str| {
            format!("is started by `{name}`, which would not pass arguments on to Envoy")
        };
        let table = [
            (json!({"name": "envoy"}), image.to_owned()),
            (
                json!({"name": "envoy", "args": [], "command": null}),
                image.to_owned(),
            ),
            (
                json!({"name": "envoy", "command": ["/bin/sh", "-c", "envoy"]}),
                shell("/bin/sh"),
            ),
            (
                json!({"name": "envoy", "command": ["tini", "--"], "args": ["bash", "/start"]}),
                shell("bash"),
            ),
            (
                json!({"name": "envoy", "args": ["--drain-strategy", "gradual"]}),
                "has `--drain-strategy gradual` among its arguments already".to_owned(),
            ),
        ];
        for (container, want) in table {
            let want = Err(format!("container `envoy` {want}"));
            let refused = flags(&strategy("immediate"), &container);
            assert_eq!(refused, (want, vec![]), "{container}");
        }
    }
}

#[cfg(test)]
mod native_envoy_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::Defaults;
    use crate::settings::ParsedSettings;

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
