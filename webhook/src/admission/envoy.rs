//! Which container of a pod is the Envoy.

use std::fmt;

use super::codes::{Code, Notice};
use super::view::{Container, PodView};

/// Envoy's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envoy {
    /// Its name.
    pub name: String,
    /// Where it stands in the pod.
    pub place: Place,
    /// How it was found.
    pub found: FoundBy,
}

/// Where a container stands in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The list.
    pub list: List,
    /// The index in that list.
    pub index: usize,
}

/// A pod's lists of containers that run as long as the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `spec.containers`.
    Containers,
    /// `spec.initContainers`, of which those with `restartPolicy: Always` stay.
    InitContainers,
}

/// How Envoy's container was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// The annotation names it.
    Annotation,
    /// It is called `envoy`.
    Name,
    /// No other image is called `envoy…`.
    Image,
    /// There is no other container.
    OnlyContainer,
}

/// Istio's Envoy, which has a drain of its own and is ours only if somebody says so.
const ISTIO_PROXY: &str = "istio-proxy";

/// Finds Envoy's container.
///
/// # Errors
/// With the code that says why there is none, or more than one.
pub(super) fn find<'p, 'a>(
    pod: &'p PodView<'a>,
    named: Option<&str>,
) -> Result<(Envoy, &'p Container<'a>), Notice> {
    let found = |found, (place, container): (Place, &'p Container<'a>)| {
        let name = container.name().to_owned();
        (Envoy { name, place, found }, container)
    };
    if let Some(name) = named {
        return pod
            .staying()
            .find(|(_, container)| container.name() == name)
            .map(|envoy| found(FoundBy::Annotation, envoy))
            .ok_or_else(|| {
                let there = listed(pod.staying().map(|(_, container)| container.name()));
                Code::NoSuchContainer.about(format!(
                    "`envoy-container: {name}` is not among the pod's containers {there}"
                ))
            });
    }
    let candidates: Vec<_> = pod
        .staying()
        .filter(|(_, container)| container.name() != ISTIO_PROXY)
        .collect();
    if let Some(envoy) = candidates.iter().find(|(_, c)| c.name() == "envoy") {
        return Ok(found(FoundBy::Name, *envoy));
    }
    let by_image: Vec<_> = candidates
        .iter()
        .filter(|(_, c)| has_envoy_image(c))
        .collect();
    match (&by_image[..], &candidates[..]) {
        ([envoy], _) => Ok(found(FoundBy::Image, **envoy)),
        ([], [only]) => Ok(found(FoundBy::OnlyContainer, *only)),
        ([], _) => {
            let there = listed(candidates.iter().map(|(_, container)| container.name()));
            Err(Code::NoEnvoy.about(format!(
                "none of the containers {there} is known as an Envoy"
            )))
        }
        (several, _) => {
            let names = listed(several.iter().map(|(_, container)| container.name()));
            Err(Code::SeveralEnvoys.about(format!("the containers {names} may each be the Envoy")))
        }
    }
}

/// True for `docker.io/envoyproxy/envoy:v1.36`, by the last segment of its path.
fn has_envoy_image(container: &Container<'_>) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    image
        .rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with("envoy"))
}

fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let quoted: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

// === impl List ===

impl List {
    /// The list's key in a pod's `spec`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

// === impl FoundBy ===

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "named by the annotation `envoy-container`",
            Self::Name => "called `envoy`",
            Self::Image => "the only one whose image is called `envoy…`",
            Self::OnlyContainer => "the only container",
        })
    }
}
