//! The value files that the chart is rendered with: `tests/golden/chart/NAME.values.yaml`. `floor` is rendered for the
//! oldest supported cluster.

use std::fs;
use std::path::Path;

use tests::helm::{Helm, OLDEST_CLUSTER};

/// One value file.
pub(crate) struct ValueSet {
    pub name: String,
    /// What Helm rendered.
    pub rendered: String,
}

/// Renders all value files, sorted by name.
pub(crate) fn all(helm: &Helm) -> Vec<ValueSet> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/chart");
    let mut sets: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|file| {
            let values = file.unwrap().path();
            let name = values.file_name()?.to_str()?;
            let name = name.strip_suffix(".values.yaml")?.to_owned();
            let flag = format!("--values={}", values.display());
            let rendered = match &*name {
                "floor" => helm.render_for(OLDEST_CLUSTER, [flag]),
                _ => helm.render([flag]),
            };
            let rendered = rendered.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            Some(ValueSet { name, rendered })
        })
        .collect();
    sets.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!sets.is_empty());
    sets
}
