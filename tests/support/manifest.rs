//! Manifests before and after `inject`.

use serde::de::DeserializeOwned;
use webhook::cli::inject;
use webhook::cli::inject::InjectReport;

use crate::review::defaults;

/// What libyaml, another reader than the program's own, makes of a stream.
///
/// # Panics
/// If it cannot read it.
#[must_use]
pub fn read<T: DeserializeOwned>(stream: &[u8]) -> Vec<T> {
    serde_norway::Deserializer::from_slice(stream)
        .map(|document| T::deserialize(document).expect("libyaml reads it"))
        .collect()
}

/// Injects a stream all of whose pods that ask get a drainer, and checks that a second time changes
/// nothing.
///
/// # Panics
/// If one gets none, or a second time changes something.
#[must_use]
pub fn inject_all(stream: &str) -> String {
    let InjectReport {
        bytes,
        messages: remarks,
        requested: asked,
        injected,
        ..
    } = inject::inject(stream.as_bytes(), &defaults());
    assert_eq!(asked, injected, "{stream}\n{remarks:?}");
    let again = inject::inject(&bytes, &defaults());
    assert_eq!(again.bytes, bytes, "twice is not the same as once");
    assert_eq!((again.requested, again.already_injected), (asked, asked));
    String::from_utf8(bytes).expect("what was a str still is one")
}

/// A manifest of this kind whose pod asks, as plain as can be; the pod's template is at `path`.
#[must_use]
pub fn manifest_with_inject(version: &str, kind: &str, path: &str) -> String {
    let mut text = format!("apiVersion: {version}\nkind: {kind}\n");
    let mut indent = String::new();
    if path.is_empty() {
        text += "metadata:\n  name: a\n";
    } else {
        text += "metadata: {name: a}\n";
        for key in path.split('/').skip(1) {
            text += &format!("{indent}{key}:\n");
            indent += "  ";
        }
        text += &format!("{indent}metadata:\n");
    }
    text += &format!("{indent}  annotations:\n{indent}    envoy-drainer.dev/inject: \"true\"\n");
    text + &format!(
        "{indent}spec:\n{indent}  containers:\n{indent}  - name: envoy\n{indent}    image: envoy\n"
    )
}
