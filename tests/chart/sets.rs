//! The value files that the chart is rendered with: `tests/golden/chart/NAME.values.yaml`. `floor` is rendered for the
//! oldest supported cluster.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tests::helm::{Helm, OLDEST_CLUSTER};

/// One value file.
pub(crate) struct ValueSet {
    pub name: String,
    /// What Helm rendered.
    pub rendered: String,
}

/// Renders all value files, sorted by name.
pub(crate) fn all(helm: &Helm) -> Vec<ValueSet> {
    render(|name, values| match name {
        "floor" => helm.render_for(OLDEST_CLUSTER, [values]),
        _ => helm.render([values]),
    })
}

/// Renders all value files for the oldest supported cluster, with the policies that it has: none.
pub(crate) fn for_oldest_cluster(helm: &Helm) -> Vec<ValueSet> {
    let policies = "--set=policy.enabled=auto,policy.acceptUnrestrictedAccount=true";
    render(|_, values| helm.render_for(OLDEST_CLUSTER, [values, policies]))
}

/// Renders all value files with `helm`, which gets the name of each and the flag for it.
fn render(helm: impl Fn(&str, &str) -> Result<String>) -> Vec<ValueSet> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/chart");
    let mut sets: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|file| {
            let values = file.unwrap().path();
            let name = values.file_name()?.to_str()?;
            let name = name.strip_suffix(".values.yaml")?.to_owned();
            let rendered = helm(&name, &format!("--values={}", values.display()));
            let rendered = rendered.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            Some(ValueSet { name, rendered })
        })
        .collect();
    sets.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!sets.is_empty());
    sets
}
