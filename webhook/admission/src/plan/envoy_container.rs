//! Finds Envoy's container in a pod.

use serde::Serialize;
use strum::Display;

use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::excerpt::excerpt;
use crate::names::MAX_NAME_LEN;
use crate::pod::{Container, ContainerRef, PodView};

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
pub(crate) fn find<'p, 'a>(
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
pub(super) fn format_names(containers: &[(ContainerRef, &Container<'_>)]) -> String {
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
        find(&pod, name, &mut diagnostics).map(|(envoy, container)| {
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
