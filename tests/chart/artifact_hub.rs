//! The chart's metadata, by the rules of Artifact Hub, which lists no chart that breaks one. Unknown keys, which it
//! ignores, fail here too.
//! <https://artifacthub.io/docs/topics/annotations/helm/>

use std::fs;
use std::path::Path;
use std::process::Command;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    kind: String,
    description: String,
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

/// <https://artifacthub.io/docs/topics/annotations/helm/#supported-annotations>
const KINDS_OF_CHANGE: [&str; 6] = [
    "added",
    "changed",
    "deprecated",
    "removed",
    "fixed",
    "security",
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

/// The changes of each version that the changelog has, as the packed chart has them.
#[test]
fn changes_have_kinds_that_artifact_hub_accepts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let changelog = fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
    let headings = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## ["));
    let versions = headings.map(|heading| heading.split(']').next().unwrap());
    let versions = Vec::from_iter(versions);
    assert!(
        versions.contains(&env!("CARGO_PKG_VERSION")),
        "{versions:?}"
    );
    for version in versions {
        let printed = Command::new("python3")
            .args([".ci/release/changelog", "artifacthub"])
            .current_dir(root)
            .env("VERSION", version)
            .env("REPOSITORY", "https://example.com/envoy-drainer")
            .output()
            .unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let changes: Vec<Change> = parse(&String::from_utf8(printed.stdout).unwrap());
        assert!(!changes.is_empty());
        for change in changes {
            assert!(KINDS_OF_CHANGE.contains(&&*change.kind), "{}", change.kind);
            assert!(
                change.description.ends_with(['.', ':']),
                "{}",
                change.description
            );
        }
    }
}
