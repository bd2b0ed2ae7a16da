//! Which container of a pod is the Envoy.

use std::fmt;

use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::excerpt::truncate;
use crate::admission::pod::{Container, PodView};

/// Envoy's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyContainer {
    /// Its name.
    pub name: String,
    /// Where it stands in the pod.
    pub container_ref: ContainerRef,
    /// How it was found.
    pub source: EnvoyContainerSource,
}

/// Where a container stands in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerRef {
    /// The list.
    pub list: ContainerList,
    /// The index in that list.
    pub index: usize,
}

/// A pod's lists of containers that run as long as the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerList {
    /// `spec.containers`.
    Containers,
    /// `spec.initContainers`, of which those with `restartPolicy: Always` stay.
    InitContainers,
}

/// How Envoy's container was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvoyContainerSource {
    /// The annotation names it.
    Annotation,
    /// It is called `envoy`.
    Name,
    /// No other image is called `envoy…`.
    Image,
    /// There is no other container, and its name or its image speaks of Envoy.
    OnlyContainer,
    /// There is no other container, and nothing speaks of Envoy.
    Guess,
}

/// Istio's Envoy, which has a drain of its own and is ours only if somebody says so.
const ISTIO_PROXY: &str = "istio-proxy";

/// Finds Envoy's container. A mere guess is a warning.
///
/// # Errors
/// With the code that says why there is none, or more than one.
pub(crate) fn find<'p, 'a>(
    pod: &'p PodView<'a>,
    named: Option<&str>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(EnvoyContainer, &'p Container<'a>), Diagnostic> {
    let found = |found, (place, container): (ContainerRef, &'p Container<'a>)| {
        let name = container.name().to_owned();
        (
            EnvoyContainer {
                name,
                container_ref: place,
                source: found,
            },
            container,
        )
    };
    if let Some(name) = named {
        return pod
            .long_running_containers()
            .find(|(_, container)| container.name() == name)
            .map(|envoy| found(EnvoyContainerSource::Annotation, envoy))
            .ok_or_else(|| container_not_found(pod, name));
    }
    let (istios, candidates): (Vec<_>, Vec<_>) = pod
        .long_running_containers()
        .partition(|(_, container)| container.name() == ISTIO_PROXY);
    if let Some(envoy) = candidates.iter().find(|(_, c)| c.name() == "envoy") {
        return Ok(found(EnvoyContainerSource::Name, *envoy));
    }
    let by_image: Vec<_> = candidates
        .iter()
        .filter(|(_, c)| has_envoy_image(c))
        .collect();
    match (&by_image[..], &candidates[..], &istios[..]) {
        ([envoy], ..) => Ok(found(EnvoyContainerSource::Image, **envoy)),
        ([], [only], []) if mentions_envoy(only.1) => {
            Ok(found(EnvoyContainerSource::OnlyContainer, *only))
        }
        ([], [only], []) => {
            warnings.push(Code::EnvoyGuessed.diagnostic(format!(
                "container `{}` with image `{}` is taken for the Envoy only since there is no other",
                only.1.name(),
                only.1.image.as_deref().unwrap_or_default()
            )));
            Ok(found(EnvoyContainerSource::Guess, *only))
        }
        ([], _, istios) => {
            let there = format_names(candidates.iter().map(|(_, container)| container.name()));
            let beside = match istios {
                [] => String::new(),
                _ => format!(" beside `{ISTIO_PROXY}`"),
            };
            Err(Code::NoEnvoy.diagnostic(format!(
                "no Envoy is known among the pod's containers{beside}: {there}"
            )))
        }
        (several, ..) => {
            let names = format_names(several.iter().map(|(_, container)| container.name()));
            Err(Code::SeveralEnvoys
                .diagnostic(format!("the containers {names} may each be the Envoy")))
        }
    }
}

/// Tells why the annotation's container is none that stays. One that is not there yet may be added by
/// a later webhook, after which the API server asks us again.
fn container_not_found(pod: &PodView<'_>, name: &str) -> Diagnostic {
    if pod
        .all_containers()
        .any(|container| container.name() == name)
    {
        let detail = format!(
            "`envoy-container: {name}` is an init container that ends before the others start"
        );
        return Code::ContainerEnds
            .diagnostic(detail)
            .for_annotations(["envoy-container"]);
    }
    let there = format_names(
        pod.long_running_containers()
            .map(|(_, container)| container.name()),
    );
    let detail =
        format!("`envoy-container: {name}` is not among the pod's containers so far: {there}");
    Code::NoSuchContainer
        .diagnostic(detail)
        .for_annotations(["envoy-container"])
}

/// True for `acme/my-envoy`, or a container called `edge-envoy`.
fn mentions_envoy(container: &Container<'_>) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    [container.name(), image]
        .iter()
        .any(|text| text.to_ascii_lowercase().contains("envoy"))
}

/// True for `docker.io/envoyproxy/envoy:v1.36`, by the last segment of its path.
fn has_envoy_image(container: &Container<'_>) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    image
        .rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with("envoy"))
}

/// In a message, more names than these are only counted.
const MAX_NAMES: usize = 16;

/// In bytes: the longest name of a container. A message cuts longer ones.
const MAX_NAME_LEN: usize = 63;

fn format_names<'n>(mut names: impl Iterator<Item = &'n str>) -> String {
    let quoted: Vec<_> = names
        .by_ref()
        .take(MAX_NAMES)
        .map(|name| format!("`{}`", truncate(name, MAX_NAME_LEN)))
        .collect();
    match (&quoted[..], names.count()) {
        ([], _) => "none".to_owned(),
        (quoted, 0) => quoted.join(", "),
        (quoted, more) => format!("{} and {more} more", quoted.join(", ")),
    }
}

// === impl ContainerList ===

impl ContainerList {
    /// The list's key in a pod's `spec`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

// === impl EnvoyContainerSource ===

impl fmt::Display for EnvoyContainerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "named by the annotation `envoy-container`",
            Self::Name => "called `envoy`",
            Self::Image => "the only one whose image is called `envoy…`",
            Self::OnlyContainer => "the only container",
            Self::Guess => "a mere guess: it is the only container",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn find_in(
        spec: &Value,
        named: Option<&str>,
    ) -> Result<(String, EnvoyContainerSource), Diagnostic> {
        let pod = json!({ "spec": spec }).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let mut warnings = Vec::new();
        find(&pod, named, &mut warnings).map(|(envoy, container)| {
            let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
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
    fn the_more_a_container_says_the_sooner_it_is_taken() {
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
        for (containers, named, name, by) in table {
            let want = Ok((name.to_owned(), by));
            assert_eq!(
                find_in(&spec(containers), named),
                want,
                "{containers} {named:?}"
            );
        }
    }

    #[test]
    fn who_cannot_be_told_apart_is_named() {
        let table = [
            (
                "",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers: none",
            ),
            (
                "a b",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers: `a`, `b`",
            ),
            (
                "a +b",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers: `a`, `b`",
            ),
            (
                "a -envoy b=my-envoy",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers: `a`, `b`",
            ),
            (
                "app=foo +istio-proxy=istio/proxyv2",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers beside `istio-proxy`: `app`",
            ),
            (
                "istio-proxy b=my-envoy",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers beside `istio-proxy`: `b`",
            ),
            (
                "istio-proxy",
                None,
                Code::NoEnvoy,
                "no Envoy is known among the pod's containers beside `istio-proxy`: none",
            ),
            (
                "a=envoy +b=x/envoy:1 c",
                None,
                Code::SeveralEnvoys,
                "the containers `a`, `b` may each be the Envoy",
            ),
            (
                "a -b",
                Some("b"),
                Code::ContainerEnds,
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
        let nothing =
            Err(Code::NoEnvoy.diagnostic("no Envoy is known among the pod's containers: none"));
        assert_eq!(find_in(&Value::Null, None), nothing);
    }
}
