//! Whether the cluster is new enough.

use std::fmt;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::version::Info;

use super::report::{CheckResult, Section, Subject};
use super::text::{join, plural};
use crate::admission::SidecarMode;
use crate::kubernetes::ReadError;

/// The oldest Kubernetes that is supported: the first that knows native sidecars without being told to.
/// <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>
const MIN_VERSION: Version = Version(1, 29);

/// A version of Kubernetes, major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u16, u16);

/// The kubelets that can get pods with drainers.
#[derive(Debug, Default)]
pub struct Kubelets {
    count: usize,
    /// Node and version.
    outdated: Vec<(String, String)>,
}

/// Judges the API server and the nodes. `form` is what the drainers of most pods are.
#[must_use]
pub fn section(
    server: &Result<Info, ReadError>,
    kubelets: &Result<Kubelets, ReadError>,
    sidecar_mode: SidecarMode,
) -> Section {
    let kubelets = match kubelets {
        Ok(kubelets) => kubelets.results(sidecar_mode),
        Err(unseen) => vec![CheckResult::unknown(
            "nodes",
            "whether the nodes are new enough",
            unseen,
        )],
    };
    Section {
        name: "cluster",
        results: [api_server(server)].into_iter().chain(kubelets).collect(),
    }
}

fn api_server(server: &Result<Info, ReadError>) -> CheckResult {
    const NAME: &str = "api-server";
    match server {
        Err(unseen) => CheckResult::unknown(NAME, "the version of the API server", unseen),
        Ok(Info { git_version, .. }) => match Version::parse(git_version) {
            Some(version) if version < MIN_VERSION => CheckResult::error(
                NAME,
                format!(
                    "the API server is Kubernetes {git_version}: at least {MIN_VERSION} is needed"
                ),
            )
            .remedy("upgrade the cluster"),
            _ => CheckResult::ok(NAME, format!("the API server is Kubernetes {git_version}")),
        },
    }
}

// === impl Version ===

impl Version {
    /// Reads `v1.34.4-gke.1`; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim_start_matches('v').split('.').map(str::parse);
        match (numbers.next()?, numbers.next()?) {
            (Ok(major), Ok(minor)) => Some(Self(major, minor)),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor) = self;
        write!(f, "{major}.{minor}")
    }
}

// === impl Kubelets ===

impl Kubelets {
    /// Takes one more node into account. No pod with a drainer runs on Windows.
    pub fn add(&mut self, node: Node) {
        let Some(info) = node.status.and_then(|status| status.node_info) else {
            return;
        };
        if info.operating_system == "windows" {
            return;
        }
        self.count += 1;
        let version = Version::parse(&info.kubelet_version);
        if version.is_some_and(|version| version < MIN_VERSION) {
            let name = node.metadata.name.unwrap_or_default();
            self.outdated.push((name, info.kubelet_version));
        }
    }

    fn results(&self, sidecar_mode: SidecarMode) -> Vec<CheckResult> {
        const NAME: &str = "nodes";
        let nodes = plural(self.count, "node");
        if self.outdated.is_empty() {
            let message = match self.count {
                0 => "there is no node yet".to_owned(),
                1 => "the one node is new enough for drainers".to_owned(),
                _ => format!("all {nodes} are new enough for drainers"),
            };
            return vec![CheckResult::ok(NAME, message)];
        }
        let mut versions: Vec<_> = self.outdated.iter().map(|(_, version)| version).collect();
        versions.sort();
        versions.dedup();
        let of_version = |version: &String| {
            let old = self.outdated.iter().filter(|(_, other)| other == version);
            let old: Vec<_> = old.map(|(name, _)| &**name).collect();
            let listed = join(old.iter().copied());
            let those = format!("kubelet {version} on {} of {nodes} ({listed})", old.len());
            let point = match sidecar_mode {
                SidecarMode::Native => CheckResult::error(
                    NAME,
                    format!(
                        "{those} does not know native sidecars: pods with a drainer do not start there"
                    ),
                )
                .remedy("upgrade the kubelet, or set `drainer.nativeSidecar: false` in the chart's values"),
                SidecarMode::Plain => CheckResult::warning(NAME, format!("{those} is not supported"))
                    .remedy(format!("upgrade the kubelet to {MIN_VERSION} at least")),
            };
            match &old[..] {
                [one] => point.subject(Subject::cluster_scoped("Node", *one)),
                _ => point,
            }
        };
        versions.into_iter().map(of_version).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::Severity;

    fn kubelets(nodes: &[(&str, &str, &str)]) -> Kubelets {
        let mut kubelets = Kubelets::default();
        for (name, os, version) in nodes {
            let node = json!({
                "metadata": {"name": name},
                "status": {"nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": version,
                    "machineID": "", "operatingSystem": os, "osImage": "", "systemUUID": "",
                }},
            });
            kubelets.add(serde_json::from_value(node).unwrap());
        }
        kubelets
    }

    #[test]
    fn versions_are_read_as_vendors_write_them() {
        for (text, want) in [
            ("v1.34.4", Some(Version(1, 34))),
            ("v1.29.3-gke.1282000", Some(Version(1, 29))),
            ("v1.30.0+k3s1", Some(Version(1, 30))),
            ("1.9", Some(Version(1, 9))),
            ("v1.30+", None),
            ("", None),
        ] {
            assert_eq!(Version::parse(text), want, "{text}");
        }
        assert!(Version(1, 9) < MIN_VERSION);
    }

    #[test]
    fn an_api_server_below_the_floor_is_an_error_and_an_odd_one_is_none() {
        for (version, mark) in [
            ("v1.28.15", Severity::Error),
            ("v1.29.0", Severity::Ok),
            ("v2.0.0", Severity::Ok),
            ("main", Severity::Ok),
        ] {
            let info = Info {
                git_version: version.to_owned(),
                ..Info::default()
            };
            assert_eq!(api_server(&Ok(info)).severity, mark, "{version}");
        }
    }

    #[test]
    fn old_kubelets_are_told_by_version_but_for_those_on_windows() {
        let all = [
            ("a", "linux", "v1.34.4"),
            ("b", "linux", "v1.28.1"),
            ("c", "linux", "v1.27.0"),
            ("d", "linux", "v1.28.1"),
            ("e", "windows", "v1.20.0"),
        ];
        let told: Vec<_> = kubelets(&all)
            .results(SidecarMode::Native)
            .into_iter()
            .map(|point| (point.severity, point.message))
            .collect();
        let what = "does not know native sidecars: pods with a drainer do not start there";
        assert_eq!(
            told,
            [
                (
                    Severity::Error,
                    format!("kubelet v1.27.0 on 1 of 4 nodes (`c`) {what}")
                ),
                (
                    Severity::Error,
                    format!("kubelet v1.28.1 on 2 of 4 nodes (`b`, `d`) {what}")
                ),
            ]
        );
        let [fine] = &kubelets(&all[..1]).results(SidecarMode::Native)[..] else {
            panic!("one point");
        };
        assert_eq!(fine.severity, Severity::Ok);
    }

    #[test]
    fn a_node_that_tells_nothing_of_itself_is_passed_over() {
        let mut kubelets = Kubelets::default();
        kubelets.add(Node::default());
        assert_eq!(kubelets.count, 0);
    }
}
