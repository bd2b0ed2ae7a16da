//! The chart's metadata, by the rules of Artifact Hub, which lists no chart that breaks one. Unknown keys, which it
//! ignores, fail here too.
//! <https://artifacthub.io/docs/topics/annotations/helm/>

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tests::helm;

/// `Chart.yaml`, without the fields that Helm's own linter checks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chart {
    app_version: String,
    home: String,
    sources: Vec<String>,
    icon: String,
    keywords: Vec<String>,
    annotations: Annotations,
}

/// The annotations that the chart has; those that are lists are YAML in a string.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    #[serde(rename = "artifacthub.io/category")]
    category: String,
    #[serde(rename = "artifacthub.io/license")]
    license: String,
    #[serde(rename = "artifacthub.io/prerelease")]
    prerelease: String,
    #[serde(rename = "artifacthub.io/images")]
    images: String,
    #[serde(rename = "artifacthub.io/links")]
    links: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    name: String,
    image: String,
    platforms: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    name: String,
    url: String,
}

/// <https://artifacthub.io/docs/topics/annotations/helm/#supported-annotations>
const CATEGORIES: [&str; 8] = [
    "ai-machine-learning",
    "database",
    "integration-delivery",
    "monitoring-logging",
    "networking",
    "security",
    "storage",
    "streaming-messaging",
];

fn parse<T: DeserializeOwned>(yaml: &str) -> T {
    serde_norway::from_str(yaml).unwrap_or_else(|error| panic!("{error}:\n{yaml}"))
}

fn chart() -> Chart {
    parse(&fs::read_to_string(Path::new(helm::CHART).join("Chart.yaml")).unwrap())
}

#[test]
fn annotations_have_values_that_artifact_hub_accepts() {
    let annotations = chart().annotations;
    assert!(CATEGORIES.contains(&&*annotations.category));
    assert_eq!(annotations.license, env!("CARGO_PKG_LICENSE"));
    annotations.prerelease.parse::<bool>().unwrap();
}

#[test]
fn images_are_those_of_the_version() {
    let chart = chart();
    let images: Vec<Image> = parse(&chart.annotations.images);
    let names: Vec<_> = images.iter().map(|image| &*image.name).collect();
    assert_eq!(names, ["envoy-drainer", "drainer"]);
    for image in &images {
        let end = format!("/{}:{}", image.name, chart.app_version);
        assert!(image.image.ends_with(&end), "{}", image.image);
        assert_eq!(image.platforms, ["linux/amd64", "linux/arm64"]);
    }
}

#[test]
fn links_lead_to_the_repository_or_to_public_pages() {
    let chart = chart();
    let links: Vec<Link> = parse(&chart.annotations.links);
    let mut names: Vec<_> = links.iter().map(|link| &link.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), links.len());
    for url in links.iter().map(|link| &link.url).chain([&chart.home]) {
        assert!(url.starts_with("https://"), "{url}");
    }
    assert_eq!(chart.sources, [chart.home]);
    assert!(chart.icon.starts_with("data:image/svg+xml;base64,"));
    assert!(chart.keywords.contains(&"envoy".to_owned()));
}
