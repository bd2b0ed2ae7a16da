//! What a drill does to the pods, where its load runs, and the rights that it needs.

use kube::api::ApiResource;
use serde::{Deserialize, Serialize};

/// What is done to the pods of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub(super) enum Disruption {
    /// The workload is restarted, as by `kubectl rollout restart`.
    #[strum(to_string = "rollout")]
    Rollout,
    /// Its pods are evicted, as by `kubectl drain`: each when the one before has been replaced.
    #[strum(to_string = "evictions")]
    Evict,
    /// Its pods are deleted: each when the one before has been replaced.
    #[strum(to_string = "deletions")]
    Delete,
}

/// Where a load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum LoadOrigin {
    /// In a Job, in the namespace of the workload.
    Cluster,
    /// In this process.
    Here,
}

// === impl Disruption ===

impl Disruption {
    /// The rights for a drill, in the namespace of the workload: verb, API group and resource, as in RBAC.
    pub(super) fn rights(self, workload: &ApiResource, origin: LoadOrigin) -> Vec<[&str; 3]> {
        let (group, resource) = (&*workload.group, &*workload.plural);
        let in_cluster = origin == LoadOrigin::Cluster;
        let rights = [
            (true, ["get", group, resource]),
            (true, ["list", "", "pods"]),
            (true, ["watch", "", "pods"]),
            (self == Self::Rollout, ["patch", group, resource]),
            (self == Self::Evict, ["create", "", "pods/eviction"]),
            (self == Self::Delete, ["delete", "", "pods"]),
            (in_cluster, ["create", "batch", "jobs"]),
            (in_cluster, ["get", "", "pods/log"]),
            (in_cluster, ["delete", "batch", "jobs"]),
        ];
        let needed = rights.into_iter().filter(|(is_needed, _)| *is_needed);
        needed.map(|(_, right)| right).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::core::GroupVersionKind;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/drill.md");

    /// The rights in a row of the page, as in `create pods/eviction`.
    fn rights_of_row(name: &str) -> BTreeSet<String> {
        let row = format!("| {name} | ");
        let cell = PAGE.lines().find_map(|line| line.strip_prefix(&row));
        let cell = cell.unwrap_or_else(|| panic!("no row `{name}`"));
        let rights = cell.trim_end_matches(" |").split("; ").flat_map(|part| {
            // Without what is in parentheses.
            let part = part.split(" (").next().unwrap().replace('`', "");
            let (verbs, resource) = part.rsplit_once(' ').unwrap();
            let verbs = verbs.trim_end_matches(" the").split(" and ");
            let rights = verbs.map(|verb| format!("{verb} {resource}"));
            rights.collect::<Vec<_>>()
        });
        rights.collect()
    }

    #[test]
    fn rights_of_a_drill_are_those_of_its_page() {
        let workload = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let workload = ApiResource::from_gvk(&workload);
        for (disruption, row) in [
            (Disruption::Rollout, "a rollout"),
            (Disruption::Evict, "`--evict`"),
            (Disruption::Delete, "`--delete`"),
        ] {
            for origin in [LoadOrigin::Cluster, LoadOrigin::Here] {
                let mut rows = vec!["every drill", row];
                if origin == LoadOrigin::Cluster {
                    rows.push("the load in the cluster");
                }
                let want: BTreeSet<_> = rows.into_iter().flat_map(rights_of_row).collect();
                let rights = disruption.rights(&workload, origin).into_iter();
                let rights = rights.map(|[verb, _, resource]| {
                    let resource = resource.replace(&workload.plural, "workload");
                    format!("{verb} {resource}")
                });
                assert_eq!(rights.collect::<BTreeSet<_>>(), want, "{disruption}");
            }
        }
    }
}
