//! The chart's `values.yaml` and its README.

use std::fs;
use std::path::Path;

use tests::golden;
use tests::helm::CHART;

const TABLE_HEAD: &str = "| value | default | meaning |\n| --- | --- | --- |\n";

/// A key of `values.yaml`.
#[derive(Debug)]
pub(crate) struct ValuesEntry {
    /// The heading behind `##` above it, and the comments between that and the first key.
    pub section: String,
    /// The path of the key: `drainer.drainTimeout`.
    pub path: String,
    /// The text behind `# --` above it; empty if there is none.
    pub comment: String,
    /// The text behind the colon.
    pub value: String,
}

/// Lists the keys in order, without those in braces.
pub(crate) fn entries() -> Vec<ValuesEntry> {
    let text = fs::read_to_string(Path::new(CHART).join("values.yaml")).unwrap();
    let mut entries: Vec<ValuesEntry> = Vec::new();
    let mut path: Vec<&str> = Vec::new();
    let [mut section, mut comment] = [String::new(), String::new()];
    for line in text.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        if let Some(title) = text.strip_prefix("## ") {
            section = format!("### {title}\n");
            continue;
        }
        if let Some(said) = text.strip_prefix('#') {
            match said.trim().strip_prefix("-- ") {
                Some(first) => comment = first.to_owned(),
                None if !comment.is_empty() => comment = format!("{comment} {}", said.trim()),
                None if entries.last().is_none_or(|it| it.section != section) => {
                    section = format!("{section}\n{}", said.trim());
                }
                None => {}
            }
            continue;
        }
        let Some((key, value)) = text.split_once(':').filter(|_| !text.starts_with('-')) else {
            comment.clear();
            continue;
        };
        path.truncate(depth);
        path.push(key);
        entries.push(ValuesEntry {
            section: section.clone(),
            path: path.join("."),
            comment: std::mem::take(&mut comment),
            value: value.trim().to_owned(),
        });
    }
    entries
}

/// The chart's README, which `helm show readme` prints.
fn page(entries: &[ValuesEntry]) -> String {
    let mut page = "# envoy-drainer\n\n\
        <!-- Written by `UPDATE_GOLDEN=1 cargo test -p tests --test chart`; edit `values.yaml`. -->\n\n\
        A mutating admission webhook that injects a drainer sidecar beside Envoy, so that pods drain before they terminate.\n\n\
        ```\n\
        helm install envoy-drainer charts/envoy-drainer --namespace envoy-drainer --create-namespace --wait \\\n\
        \x20 --set image.registry=REGISTRY\n\
        ```\n\n\
        ## Values\n"
        .to_owned();
    let mut current = "";
    for entry in entries.iter().filter(|entry| !entry.comment.is_empty()) {
        if entry.section != current {
            current = &entry.section;
            page += &format!("\n{}\n\n{TABLE_HEAD}", current.trim());
        }
        let default = match entry.value.as_str() {
            "" => "see `values.yaml`".to_owned(),
            value => format!("`{value}`"),
        };
        let ValuesEntry { path, comment, .. } = entry;
        page += &format!("| `{path}` | {default} | {comment} |\n");
    }
    page
}

#[test]
fn readme_lists_every_value() {
    let page_of_chart = Path::new(CHART).join("README.md");
    golden::check_file(&page_of_chart, &page(&entries()));
}

#[test]
fn every_value_has_a_comment() {
    let entries = entries();
    for entry in &entries {
        let is_group = entries
            .iter()
            .any(|other| other.path.starts_with(&format!("{}.", entry.path)));
        let said_above = entries.iter().any(|other| {
            !other.comment.is_empty() && entry.path.starts_with(&format!("{}.", other.path))
        });
        let is_sentence = entry.comment.ends_with('.');
        assert!(is_group || said_above || is_sentence, "{entry:?}");
    }
}
