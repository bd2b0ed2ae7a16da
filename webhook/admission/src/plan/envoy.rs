//! Envoy's container among those of a pod, and what else the pod runs that may be a proxy.

use serde::Serialize;
use strum::Display;

use super::redirection::is_mesh_proxy;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::ENVOY_CONTAINER;
use crate::pod::{Container, ContainerList, ContainerRef, PodView, format_names};

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
    /// It is a server, and no Envoy.
    #[strum(to_string = "named by the annotation `server-container`")]
    ServerContainer,
    #[strum(to_string = "named `envoy`")]
    Name,
    #[strum(to_string = "the only one whose program is Envoy")]
    Program,
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

/// The name of Envoy's program and image, and usually of its container.
const ENVOY: &str = "envoy";

/// The images of the Envoy project.
const PROJECT: &str = "envoyproxy/envoy";

/// Flags of Envoy that other programs hardly have.
const OWN_FLAGS: &str = "--base-id --component-log-level --config-yaml --disable-hot-restart --drain-strategy \
    --drain-time-s --parent-shutdown-time-s --restart-epoch --service-cluster --service-node --service-zone \
    --use-dynamic-base-id";

/// Endings of files that a command may read and that are named after Envoy: `/var/log/envoy.log`.
const FILES: [&str; 6] = [".log", ".yaml", ".yml", ".json", ".conf", ".sock"];

/// The minor version of the oldest Envoy 1 that is supported.
const OLDEST_MINOR: u32 = 31;

type Evidence = fn(&Container<'_>) -> bool;

/// What shows that a container is Envoy, the strongest first.
const EVIDENCE: [(EnvoyContainerSource, Evidence); 4] = [
    (EnvoyContainerSource::Name, |it| it.name() == ENVOY),
    (EnvoyContainerSource::Program, runs_envoy),
    (EnvoyContainerSource::Program, |it| {
        it.name().starts_with(ENVOY) && it.has_configuration_flag() && !has_subcommand(it)
    }),
    (EnvoyContainerSource::Image, has_envoy_image),
];

/// Finds Envoy's container: the one named `name` if an annotation gives it, else the one named `envoy`, else the one
/// whose program is Envoy, else the one whose image's name begins so, else the pod's only container. Weak evidence is a
/// warning.
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
        let container =
            container.ok_or_else(|| container_not_found(pod, "envoy-container", name))?;
        return Ok(envoy(EnvoyContainerSource::Annotation, container));
    }
    let all: Vec<_> = pod.long_running_containers().collect();
    let may_be_envoy = all.iter().filter(|(_, it)| !is_ztunnel(it)).copied();
    let (istios, candidates): (Vec<_>, Vec<_>) =
        may_be_envoy.partition(|(_, container)| container.name() == ISTIO_PROXY);
    let by_evidence = EVIDENCE.iter().map(|(source, shows)| {
        let found = candidates.iter().filter(|(_, container)| shows(container));
        (*source, found.copied().collect::<Vec<_>>())
    });
    let strongest = by_evidence.into_iter().find(|(_, found)| !found.is_empty());
    let (source, found) = match strongest {
        Some((_, several)) if several.len() > 1 => {
            let names = format_names(&several);
            let detail = format!("each of the containers {names} may be Envoy");
            return Err(Code::SeveralEnvoys.diagnostic(detail));
        }
        Some((source, found)) => (source, found[0]),
        None if istios.is_empty() && candidates.len() == 1 => {
            let source = if mentions_envoy(candidates[0].1) {
                EnvoyContainerSource::OnlyContainer
            } else {
                EnvoyContainerSource::Guess
            };
            (source, candidates[0])
        }
        None if istios.is_empty() => {
            let names = format_names(&all);
            let of_vendor = all.iter().find_map(|(_, it)| describe_vendor(it));
            let of_vendor = of_vendor.map_or_else(String::new, |vendor| format!("; {vendor}"));
            let sleeps = |it: &Container<'_>| it.short_hook().is_some_and(|hook| hook.is_sleep());
            let sleeping = all.iter().find(|(_, it)| sleeps(it));
            let sleeping = sleeping.map_or_else(String::new, |(_, it)| {
                let name = it.name();
                format!(
                    "; `{name}` only sleeps before SIGTERM: `server-container: {name}` with `existing-hook: replace` drains it"
                )
            });
            let detail =
                format!("no Envoy found among the pod's containers: {names}{of_vendor}{sleeping}");
            return Err(Code::NoEnvoy.diagnostic(detail));
        }
        None => {
            let detail =
                format!("the pod's only Envoy is Istio's, in the container `{ISTIO_PROXY}`");
            return Err(Code::IstioPod.diagnostic(detail));
        }
    };
    let evidence = match source {
        EnvoyContainerSource::Guess => "the pod has no other",
        EnvoyContainerSource::OnlyContainer => "its name or image mentions Envoy",
        EnvoyContainerSource::Image => "its image is called so",
        _ => "its name starts so",
    };
    let is_weak = !is_shown(found.1) && describe_vendor(found.1).is_none();
    diagnostics.warnings.extend(is_weak.then(|| {
        let (name, image) = (found.1.name(), found.1.image());
        let container = format!("container `{name}` with image `{image}`");
        let detail = format!("{container} was taken for Envoy only because {evidence}");
        Code::EnvoyGuessed.diagnostic(detail)
    }));
    Ok(envoy(source, found))
}

/// Returns the containers that are Envoy without a doubt: the one that a plan would be for, unless it was taken for
/// Envoy on weak evidence, and others whose name or program is Envoy.
pub fn known_envoys(pod: &PodView<'_>) -> Vec<ContainerRef> {
    let mut diagnostics = Diagnostics::default();
    let found = find_envoy(pod, pod.annotation(ENVOY_CONTAINER), &mut diagnostics);
    // Neither a control plane nor a log shipper whose name or image begins so.
    let is_strong = |(envoy, it): &(EnvoyContainer, &Container<'_>)| {
        use EnvoyContainerSource::{Annotation, Name};
        let runs_image = has_envoy_image(it) && it.command.is_none() && !has_subcommand(it);
        diagnostics.warnings.is_empty() && (matches!(envoy.source, Annotation | Name) || runs_image)
    };
    let found = found.ok().filter(is_strong);
    let found = found.map(|(envoy, _)| envoy.container_ref);
    let envoys = pod.long_running_containers();
    let envoys =
        envoys.filter(|(at, it)| found == Some(*at) || it.name() == ENVOY || runs_envoy(it));
    envoys.map(|(at, _)| at).collect()
}

/// Returns true if Envoy's container is certain, by its name or by the image of the Envoy project, and no other
/// container is.
pub(crate) fn is_certain(pod: &PodView<'_>) -> bool {
    // As the webhook configuration has it, which selects pods by the name of the image alone.
    let is_envoy = |it: &Container<'_>| it.name() == ENVOY || it.image().contains(PROJECT);
    let containers = pod.long_running_containers();
    let certain = containers.filter(|(_, it)| it.name() != ISTIO_PROXY && is_envoy(it));
    let mut diagnostics = Diagnostics::default();
    let found = find_envoy(pod, None, &mut diagnostics);
    let is_found = found.is_ok_and(|(_, container)| is_envoy(container));
    certain.count() == 1 && is_found && diagnostics.warnings.is_empty()
}

/// Warns of other containers that may be in the path of requests: proxies that get SIGTERM at once, and those that may
/// be Envoy too, unless an annotation names Envoy's. `waits` is true for Envoy's container and for those that wait for the
/// drain.
pub(super) fn check_others(
    pod: &PodView<'_>,
    source: EnvoyContainerSource,
    waits: impl Fn(ContainerRef) -> bool,
    diagnostics: &mut Diagnostics,
) {
    let others = pod.long_running_containers().filter(|(at, _)| !waits(*at));
    let (proxies, mut candidates): (Vec<_>, Vec<_>) = others.partition(|(at, it)| {
        let is_proxy = runs_envoy(it) || is_mesh_proxy(it.name());
        is_proxy && at.list == ContainerList::Containers
    });
    use EnvoyContainerSource::{Annotation, ServerContainer};
    let is_named = matches!(source, Annotation | ServerContainer);
    let may_be_envoy =
        |it: &Container<'_>| it.name() == ENVOY || runs_envoy(it) || has_envoy_image(it);
    candidates.retain(|(_, it)| !is_named && may_be_envoy(it));
    let mut warn = |code: Code, what, containers: &[_]| {
        if !containers.is_empty() {
            let names = format_names(containers);
            diagnostics.warn(code.diagnostic(format!("the pod has {what}: {names}")));
        }
    };
    let what = "proxies too, which get SIGTERM when the pod is deleted";
    warn(Code::OtherProxy, what, &proxies);
    let what = "containers that may be Envoy too";
    warn(Code::OtherCandidate, what, &candidates);
}

/// Says whose Envoy a container runs, if it is a vendor's, and what is particular; docs/vendors.md has the sources.
fn describe_vendor(container: &Container<'_>) -> Option<String> {
    let name = container.name();
    let is = |mark: &str| name.contains(mark) || container.image().contains(mark);
    // Neither the control planes nor the agents of these products run Envoy.
    let is_other = ["kuma-cp", "apiext", "-agent", "higress-co"];
    let vendor = match () {
        () if is_ztunnel(container) => return Some(format!("`{name}` runs ztunnel, not Envoy")),
        () if is_other.iter().any(|mark| is(mark)) => return None,
        () if is("istio-proxy") => "Istio: its agent waits for `terminationDrainDuration` too",
        () if is("consul-dataplane") => "Consul: its agent waits for its own drain too",
        () if is("kuma") => "Kuma: annotate `admin-address`, a Unix socket since 2.14",
        () if is("emissary") => "Emissary-ingress: its port `admin` is another server's",
        () if is("higress") => "Higress: its agent waits after SIGTERM too",
        () if is("endpoints-runtime") => "ESPv2: it needs `--status_port` for its admin interface",
        () if is("appmesh-envoy") => "App Mesh, which AWS has discontinued",
        () => return None,
    };
    Some(format!("`{name}` runs the Envoy of {vendor}"))
}

/// Returns a warning if a shell starts Envoy as one of several commands, which then is its child.
fn started_by_shell(envoy: &Container<'_>) -> Option<Diagnostic> {
    let words: Vec<_> = envoy.command_line().collect();
    let is_shell = |word: &&str| ["sh", "bash", "ash", "dash"].contains(&last_segment(word));
    let shell = words.iter().position(is_shell)?;
    let flag = words.get(shell + 1).filter(|flag| flag.ends_with('c'));
    let script = words.get(shell + 2).filter(|_| flag.is_some())?.trim();
    let is_child = script.contains([';', '\n', '&', '|']) && !script.contains("exec ");
    (is_child && script.contains("envoy")).then(|| {
        let detail = format!("`{}` starts Envoy as its child", last_segment(words[shell]));
        Code::StartedByShell.diagnostic(detail)
    })
}

/// Warns of an Envoy of a vendor's agent, and of one whose image's tag says that it is too old.
pub(super) fn check_envoy(envoy: &Container<'_>, diagnostics: &mut Diagnostics) {
    let of_vendor = describe_vendor(envoy).map(|detail| Code::VendorEnvoy.diagnostic(detail));
    diagnostics.warnings.extend(of_vendor);
    diagnostics.warnings.extend(started_by_shell(envoy));
    if minor_version(envoy).is_some_and(|minor| minor < OLDEST_MINOR) {
        let version = version(envoy);
        let detail =
            format!("Envoy {version} is older than 1.{OLDEST_MINOR}, the oldest that is supported");
        diagnostics.warn(Code::OldEnvoy.diagnostic(detail));
    }
}

/// Returns the minor version of an Envoy 1, by the tag of the project's image: tags of others may be versions of
/// anything.
pub(super) fn minor_version(envoy: &Container<'_>) -> Option<u32> {
    let rest = version(envoy).strip_prefix("1.")?;
    let minor = rest.split(['.', '-']).next()?;
    minor.parse().ok().filter(|_| is_projects_image(envoy))
}

/// Returns `1.36.4` of the tags `v1.36.4` and `distroless-v1.36.4`.
fn version<'c>(envoy: &'c Container<'_>) -> &'c str {
    let (_, tag) = envoy.image_name();
    tag.trim_start_matches(|c: char| !c.is_ascii_digit())
}

/// Returns true if it is certain that a container is Envoy, whatever its image is called: by its name, its program, or
/// flags for the image's own program.
fn is_shown(container: &Container<'_>) -> bool {
    let is_own_flag = |word: &str| {
        let flag = word.split('=').next().unwrap_or_default();
        OWN_FLAGS.split_whitespace().any(|own| own == flag)
    };
    let paths = ["-c", "--config-path"].map(|flag| container.flag(flag));
    let mut paths = paths.into_iter().flatten();
    let has_own_flag = container.command_line().any(is_own_flag);
    let is_configured = has_own_flag || paths.any(|path| path.contains(ENVOY));
    let is_named = container.name() == ENVOY;
    is_named || runs_envoy(container) || container.program().is_none() && is_configured
}

/// Returns true if a container's program is Envoy, by its command line, or by Envoy's image where that says nothing else:
/// no program, or a script that names one.
fn runs_envoy(container: &Container<'_>) -> bool {
    let is_program = |word: &str| {
        let name = last_segment(word);
        name.contains(ENVOY) && !FILES.iter().any(|ending| name.ends_with(ending))
    };
    let is_separator = |c: char| c.is_whitespace() || ";&|()\"'".contains(c);
    let Some(program) = container.program() else {
        return is_envoys_image(container);
    };
    let mut words = container.command_line().peekable();
    let first = words.peek().copied().unwrap_or_default();
    let mut programs = [first, program].into_iter().map(last_segment);
    programs.any(|name| name == ENVOY)
        || is_envoys_image(container) && words.any(|it| it.split(is_separator).any(is_program))
}

/// Returns `envoy` of `/usr/local/bin/envoy`.
pub(super) fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns true for the proxy of Istio's ambient mode, whose container is called as Istio's Envoy is.
fn is_ztunnel(container: &Container<'_>) -> bool {
    const ZTUNNEL: &str = "ztunnel";
    let mut words = container.command_line();
    container.image().contains(ZTUNNEL) || words.any(|word| word.ends_with(ZTUNNEL))
}

/// Returns true if the image's program gets a subcommand: Envoy has none, but Envoy Gateway's control plane has.
fn has_subcommand(container: &Container<'_>) -> bool {
    let mut command = container.command.iter().flatten();
    let first = container.args.iter().flatten().next();
    let is_subcommand =
        |word: &str| !word.starts_with('-') && word.rsplit('/').next() != Some(ENVOY);
    command.next().is_none() && first.is_some_and(|word| is_subcommand(word))
}

/// Returns true for an image of the Envoy project, or one that is called like it.
pub(super) fn is_envoys_image(container: &Container<'_>) -> bool {
    is_projects_image(container) || container.image_name().0 == ENVOY
}

/// Returns true for `docker.io/envoyproxy/envoy-distroless:v1.36`.
fn is_projects_image(container: &Container<'_>) -> bool {
    container.image().rsplit('/').nth(1) == Some("envoyproxy") && has_envoy_image(container)
}

/// Returns why no long-running container has the annotated name. One that the pod does not have yet may be added
/// by a later webhook, after which the API server calls this one again.
/// Why the container that the annotation `key` names cannot be drained.
pub(super) fn container_not_found(pod: &PodView<'_>, key: &str, name: &str) -> Diagnostic {
    let diagnostic = if pod.has_container(name) {
        let detail = "is an init container that exits before the others start";
        Code::InitContainerEnds.diagnostic(format!("`{key}: {name}` {detail}"))
    } else {
        let names = format_names(&pod.long_running_containers().collect::<Vec<_>>());
        let detail = format!("is not among the pod's containers so far: {names}");
        Code::NoSuchContainer.diagnostic(format!("`{key}: {name}` {detail}"))
    };
    diagnostic.for_annotations([key])
}

/// Returns true for the image `acme/my-envoy` or the container `edge-envoy`. An organization's name says nothing:
/// `envoyproxy/ratelimit` is another program.
pub(super) fn mentions_envoy(container: &Container<'_>) -> bool {
    let mut texts = [container.name(), container.image_name().0].into_iter();
    texts.any(|text| text.to_ascii_lowercase().contains("envoy"))
}

/// Returns true for `docker.io/envoyproxy/envoy:v1.36` and `acme/envoy-edge`.
fn has_envoy_image(container: &Container<'_>) -> bool {
    container.image_name().0.starts_with(ENVOY)
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
            let is_named = envoy.source == EnvoyContainerSource::Annotation;
            let is_guess = !is_named && !is_shown(container);
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
                EnvoyContainerSource::Program,
            ),
            (
                "app +proxy=envoy",
                None,
                "proxy",
                EnvoyContainerSource::Program,
            ),
            (
                "app p=r.example:5000/envoyproxy/envoy-distroless@sha256:0",
                None,
                "p",
                EnvoyContainerSource::Program,
            ),
            (
                "app -init=envoy p=envoy",
                None,
                "p",
                EnvoyContainerSource::Program,
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
                EnvoyContainerSource::Program,
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
    fn program_is_stronger_than_an_images_name() {
        let of = |containers: Value| find_in(&json!({ "containers": containers }), None);
        let found = |name: &str, source| Ok((name.to_owned(), source));
        let helper = json!({"name": "envoy-sync", "image": "acme/envoy-config-sync:2", "args": ["--every=5s"]});
        let by_command =
            json!({"name": "front", "image": "acme/proxy", "command": ["/usr/local/bin/envoy"]});
        let by_flags =
            json!({"name": "envoy-front", "image": "acme/proxy", "args": ["-c", "/e.yaml"]});
        assert_eq!(
            of(json!([helper, by_command])),
            found("front", EnvoyContainerSource::Program)
        );
        assert_eq!(
            of(json!([helper, by_flags])),
            found("envoy-front", EnvoyContainerSource::Program)
        );
        let other = json!({"name": "app", "image": "acme/app"});
        assert_eq!(
            of(json!([helper, other])),
            found("envoy-sync", EnvoyContainerSource::Image)
        );
        assert_eq!(
            of(json!([by_flags, by_command])),
            found("front", EnvoyContainerSource::Program)
        );
        // Envoy Gateway's control plane.
        let control_plane = json!({"name": "envoy-gateway", "image": "envoyproxy/gateway",
            "args": ["server", "--config-path=/config/envoy-gateway.yaml"]});
        assert_eq!(
            of(json!([control_plane])),
            found("envoy-gateway", EnvoyContainerSource::OnlyContainer)
        );
        // A helper on Envoy's image, and an exporter with a configuration of its own.
        let copier = json!({"name": "copy", "image": "envoyproxy/envoy", "command": ["sh", "-c", "sleep 9"]});
        assert_eq!(
            of(json!([copier, by_command])),
            found("front", EnvoyContainerSource::Program)
        );
        let edge = json!({"name": "edge", "image": "envoyproxy/envoy:v1.40.0"});
        let exporter =
            json!({"name": "envoy-exporter", "image": "acme/exporter", "args": ["-c", "/x"]});
        assert_eq!(
            of(json!([edge, exporter])),
            found("edge", EnvoyContainerSource::Program)
        );
    }

    #[test]
    fn what_merely_mentions_envoy_is_told_or_no_envoy() {
        let codes = |container: &Value| {
            let pod = json!({"spec": {"containers": [container]}}).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let mut diagnostics = Diagnostics::default();
            let found = find_envoy(&pod, None, &mut diagnostics);
            if let Ok((_, container)) = &found {
                check_envoy(container, &mut diagnostics);
            }
            let failure = found.err().map(|failure| failure.code);
            let warnings = diagnostics.warnings.into_iter().map(|warning| warning.code);
            Vec::from_iter(failure.into_iter().chain(warnings))
        };
        let config = json!(["-c", "/etc/envoy/envoy.yaml"]);
        let shipper = json!(["sh", "-c", "tail -F /var/log/envoy/envoy.log"]);
        for other in [
            json!({"name": "ratelimit", "image": "docker.io/envoyproxy/ratelimit:3e085e5b"}),
            json!({"name": "ratelimit", "image": "envoyproxy/ratelimit", "command": ["/bin/ratelimit"]}),
            json!({"name": "authz", "image": "acme/envoy-ext-authz:1", "args": ["--addr=:9191"]}),
            json!({"name": "envoy-authz", "image": "openpolicyagent/opa:1-envoy", "args": ["run", "--server"]}),
            json!({"name": "envoy-gateway", "image": "envoyproxy/gateway:v1.9.0",
                "args": ["server", "--config-path=/config/envoy-gateway.yaml"]}),
            json!({"name": "envoy-gateway", "image": "envoyproxy/gateway", "command": ["envoy-gateway"],
                "args": ["server", "--config-path=/config/envoy-gateway.yaml"]}),
            json!({"name": "xds", "image": "acme/envoy-control-plane"}),
            json!({"name": "cp", "image": "kumahq/kuma-cp:2.14"}),
            json!({"name": "envoy-logs", "image": "fluent/fluent-bit:3", "args": ["-c", "/fluent-bit/etc/fluent-bit.conf"]}),
            json!({"name": "logs", "image": "envoyproxy/envoy:v1.36.4", "command": shipper}),
            json!({"name": "edge", "image": "acme/my-envoy:1"}),
        ] {
            assert_eq!(codes(&other), [Code::EnvoyGuessed], "{other}");
        }
        for envoy in [
            json!({"name": "edge", "image": "envoyproxy/envoy-distroless:v1.36.4"}),
            json!({"name": "edge", "image": "acme/my-envoy:1.0.0", "args": config}),
            json!({"name": "edge", "image": "acme/edge", "command": ["tini", "--", "envoy"], "args": config}),
            json!({"name": "edge", "image": "acme/gloo-envoy-wrapper", "args": ["--disable-hot-restart", "--service-node", "a"]}),
            json!({"name": "edge", "image": "envoyproxy/envoy:v1.36.4", "command": ["sh", "-c", "exec envoy -c /e.yaml"]}),
            // A tag of one's own is no version of Envoy.
            json!({"name": "envoy", "image": "registry.example/envoy:1.0.0"}),
        ] {
            assert_eq!(codes(&envoy), [], "{envoy}");
        }
        for (container, want) in [
            (
                json!({"name": "istio-proxy", "image": "istio/ztunnel:1.29", "args": ["proxy", "ztunnel"]}),
                Code::NoEnvoy,
            ),
            (
                json!({"name": "esp", "image": "gcr.io/endpoints-release/endpoints-runtime:2"}),
                Code::VendorEnvoy,
            ),
            (
                json!({"name": "envoy", "image": "envoyproxy/envoy:distroless-v1.29.0"}),
                Code::OldEnvoy,
            ),
        ] {
            assert_eq!(codes(&container), [want], "{container}");
        }
    }

    #[test]
    fn other_proxies_and_candidates_are_told() {
        let codes = |others: Value, hooked: &str| {
            let mut containers = vec![json!({"name": "envoy"}), others];
            let native = containers[1]["native"] == true;
            let init: Vec<_> = native
                .then(|| containers.pop())
                .flatten()
                .into_iter()
                .collect();
            let pod =
                json!({"spec": {"containers": containers, "initContainers": init}}).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let waiting = ["envoy", hooked].map(|name| pod.long_running(name).map(|(at, _)| at));
            let mut diagnostics = Diagnostics::default();
            let source = EnvoyContainerSource::Name;
            let waits = |at| waiting.contains(&Some(at));
            check_others(&pod, source, waits, &mut diagnostics);
            Vec::from_iter(diagnostics.warnings.iter().map(|warning| warning.code))
        };
        let second = json!({"name": "edge", "image": "envoyproxy/envoy:v1.40.0"});
        let linkerd = json!({"name": "linkerd-proxy", "image": "l"});
        let native = json!({"name": "linkerd-proxy", "native": true, "restartPolicy": "Always"});
        let helper = json!({"name": "als", "image": "acme/envoy-als"});
        assert_eq!(codes(second.clone(), ""), [Code::OtherProxy]);
        assert_eq!(codes(second, "edge"), []);
        assert_eq!(codes(linkerd, ""), [Code::OtherProxy]);
        assert_eq!(codes(native, ""), []);
        assert_eq!(codes(helper, ""), [Code::OtherCandidate]);
        assert_eq!(codes(json!({"name": "app", "image": "app"}), ""), []);
    }

    #[test]
    fn old_envoy_is_told_by_its_tag() {
        for (image, is_old) in [
            ("envoyproxy/envoy:v1.30.11", true),
            (
                "r.example/envoyproxy/envoy-distroless:v1.18-latest@sha256:0",
                true,
            ),
            ("envoyproxy/envoy:v1.31.0", false),
            ("envoyproxy/envoy:dev", false),
            ("envoyproxy/envoy", false),
            ("acme/envoy-edge:1.2", false),
        ] {
            let container = json!({"image": image}).to_string();
            let container = serde_json::from_str(&container).unwrap();
            let mut diagnostics = Diagnostics::default();
            check_envoy(&container, &mut diagnostics);
            let codes = diagnostics.warnings.iter().map(|warning| warning.code);
            assert!(codes.eq(is_old.then_some(Code::OldEnvoy)), "{image}");
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
                Code::IstioPod,
                "the pod\'s only Envoy is Istio\'s, in the container `istio-proxy`",
            ),
            (
                "istio-proxy b=my-envoy",
                None,
                Code::IstioPod,
                "the pod\'s only Envoy is Istio\'s, in the container `istio-proxy`",
            ),
            (
                "istio-proxy",
                None,
                Code::IstioPod,
                "the pod\'s only Envoy is Istio\'s, in the container `istio-proxy`",
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
                "`envoy-container: b` is an init container that exits before the others start",
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
