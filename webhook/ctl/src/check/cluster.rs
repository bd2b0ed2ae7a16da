//! The versions of the API server and of the nodes' kubelets.

use std::collections::BTreeMap;

use admission::SidecarMode;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::version::Info;
use kubernetes::ReadError;

use super::report::{CheckResult, Section};
use crate::text::{list_names, plural};

/// The minimum version of Kubernetes: the first with native sidecars enabled by default.
/// <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>
const MIN_VERSION: &str = "1.29";

/// The name of the results about nodes.
const NODES: &str = "nodes";

/// The versions of the kubelets that may run pods with drainers.
#[derive(Debug, Default)]
pub struct NodeVersions {
    count: usize,
    /// The names of the nodes whose kubelet is too old, by its version.
    outdated: BTreeMap<String, Vec<String>>,
}

/// Checks the API server and the nodes. `sidecar_mode` is the default of drainers.
pub fn section(
    server: &Result<Info, ReadError>,
    node_versions: &Result<NodeVersions, ReadError>,
    sidecar_mode: SidecarMode,
) -> Section {
    let what = "whether the nodes support drainers";
    let nodes = match node_versions {
        Ok(node_versions) => node_versions.results(sidecar_mode),
        Err(error) => vec![CheckResult::unknown(NODES, what, error)],
    };
    Section::new("cluster", [vec![api_server(server)], nodes].concat())
}

fn api_server(server: &Result<Info, ReadError>) -> CheckResult {
    const NAME: &str = "api-server";
    let version = match server {
        Ok(Info { git_version, .. }) => git_version,
        Err(error) => return CheckResult::unknown(NAME, "the version of the API server", error),
    };
    let message = format!("the API server is Kubernetes {version}");
    if is_too_old(version) {
        let message = format!("{message}; the minimum is {MIN_VERSION}");
        return CheckResult::error(NAME, message).with_remedy("upgrade the cluster");
    }
    CheckResult::ok(NAME, message)
}

/// Returns true for a version below [`MIN_VERSION`]. One that cannot be parsed counts as new.
fn is_too_old(version: &str) -> bool {
    parse_version(version).is_some_and(|version| Some(version) < parse_version(MIN_VERSION))
}

/// Parses major and minor of a vendor's version, such as `v1.34.4-gke.1`.
fn parse_version(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.trim_start_matches('v').split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

// === impl NodeVersions ===

impl NodeVersions {
    /// Adds a node, unless it runs Windows, where no pod has a drainer.
    pub fn add(&mut self, node: Node) {
        let info = node.status.and_then(|status| status.node_info);
        let Some(info) = info.filter(|info| info.operating_system != "windows") else {
            return;
        };
        self.count += 1;
        if is_too_old(&info.kubelet_version) {
            let nodes = self.outdated.entry(info.kubelet_version).or_default();
            nodes.push(node.metadata.name.unwrap_or_default());
        }
    }

    fn results(&self, sidecar_mode: SidecarMode) -> Vec<CheckResult> {
        let count = plural(self.count, "node");
        if self.outdated.is_empty() {
            let message = match self.count {
                0 => "there are no nodes yet".to_owned(),
                1 => "the only node supports drainers".to_owned(),
                _ => format!("all {count} support drainers"),
            };
            return vec![CheckResult::ok(NODES, message)];
        }
        let result = |(version, nodes): (&String, &Vec<String>)| {
            let listed = list_names(nodes);
            let kubelets = format!("kubelet {version} on {} of {count} ({listed})", nodes.len());
            let mut remedy = format!("upgrade the kubelet to at least {MIN_VERSION}");
            let result = if sidecar_mode == SidecarMode::Native {
                remedy += ", or set `drainer.nativeSidecar: false` in the chart's values";
                let effect =
                    "does not support native sidecars: pods with a drainer do not start there";
                CheckResult::error(NODES, format!("{kubelets} {effect}"))
            } else {
                CheckResult::warning(NODES, format!("{kubelets} is not supported"))
            };
            let result = result.with_remedy(remedy);
            result.with_only_subject("Node", nodes)
        };
        self.outdated.iter().map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::Severity;

    fn node_versions(nodes: &[(&str, &str, &str)]) -> NodeVersions {
        let mut node_versions = NodeVersions::default();
        for (name, os, version) in nodes {
            let node = json!({
                "metadata": {"name": name},
                "status": {"nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": version,
                    "machineID": "", "operatingSystem": os, "osImage": "", "systemUUID": "",
                }},
            });
            node_versions.add(serde_json::from_value(node).unwrap());
        }
        node_versions
    }

    #[test]
    fn versions_of_vendors_are_parsed() {
        for (text, want) in [
            ("v1.34.4", Some((1, 34))),
            ("v1.29.3-gke.1282000", Some((1, 29))),
            ("v1.30.0+k3s1", Some((1, 30))),
            ("1.9", Some((1, 9))),
            ("v1.30+", None),
            ("", None),
        ] {
            assert_eq!(parse_version(text), want, "{text}");
        }
        assert!(is_too_old("1.9"));
        assert!(!is_too_old(MIN_VERSION));
    }

    #[test]
    fn api_server_below_minimum_version_is_an_error() {
        for (version, severity) in [
            ("v1.28.15", Severity::Error),
            ("v1.29.0", Severity::Ok),
            ("v2.0.0", Severity::Ok),
            ("main", Severity::Ok),
        ] {
            let info = Info {
                git_version: version.to_owned(),
                ..Info::default()
            };
            assert_eq!(api_server(&Ok(info)).severity, severity, "{version}");
        }
    }

    #[test]
    fn outdated_kubelets_are_grouped_by_version_except_windows() {
        let all = [
            ("a", "linux", "v1.34.4"),
            ("b", "linux", "v1.28.1"),
            ("c", "linux", "v1.27.0"),
            ("d", "linux", "v1.28.1"),
            ("e", "windows", "v1.20.0"),
        ];
        let results: Vec<_> = node_versions(&all)
            .results(SidecarMode::Native)
            .into_iter()
            .map(|result| (result.severity, result.message))
            .collect();
        let error = "does not support native sidecars: pods with a drainer do not start there";
        assert_eq!(
            results,
            [
                (
                    Severity::Error,
                    format!("kubelet v1.27.0 on 1 of 4 nodes (`c`) {error}")
                ),
                (
                    Severity::Error,
                    format!("kubelet v1.28.1 on 2 of 4 nodes (`b`, `d`) {error}")
                ),
            ]
        );
        let [result] = &node_versions(&all[..1]).results(SidecarMode::Native)[..] else {
            panic!("one result");
        };
        assert_eq!(result.severity, Severity::Ok);
    }

    #[test]
    fn nodes_without_status_are_ignored() {
        let mut node_versions = NodeVersions::default();
        node_versions.add(Node::default());
        assert_eq!(node_versions.count, 0);
    }
}
