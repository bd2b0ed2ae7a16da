//! Manifests, and their injection by `inject`.

use ctl::cli::explain::ExplainReport;
use ctl::cli::inject::{self, InjectReport};
use ctl::offline::{InjectionOutcome, Input, ManifestContext};
use serde::de::DeserializeOwned;

use crate::review::defaults;

/// The kinds whose pods are injected: their API version, and the JSON pointer to their pod template.
pub const KINDS: [(&str, &str, &str); 8] = [
    ("v1", "Pod", ""),
    ("v1", "ReplicationController", "/spec/template"),
    ("apps/v1", "Deployment", "/spec/template"),
    ("apps/v1", "StatefulSet", "/spec/template"),
    ("apps/v1", "DaemonSet", "/spec/template"),
    ("apps/v1", "ReplicaSet", "/spec/template"),
    ("batch/v1", "Job", "/spec/template"),
    ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template"),
];

/// Parses a stream of documents by libyaml, which the product does not use.
///
/// # Panics
/// When it is not valid.
pub fn read<T: DeserializeOwned>(stream: &[u8]) -> Vec<T> {
    serde_norway::Deserializer::from_slice(stream)
        .map(|document| T::deserialize(document).expect("libyaml can parse it"))
        .collect()
}

/// Injects a stream with the defaults of tests.
pub fn inject(stream: impl AsRef<[u8]>) -> InjectReport {
    let context = ManifestContext::read([stream.as_ref()]);
    inject::inject(stream.as_ref(), &context, &defaults())
}

/// Explains a stream with the defaults of tests.
pub fn explain(stream: impl Into<Vec<u8>>) -> ExplainReport {
    let (name, bytes) = (String::new(), stream.into());
    ExplainReport::new(&[Input { name, bytes }], &defaults())
}

/// Asserts that the explanation of a stream has all of these parts, and returns it.
#[track_caller]
pub fn assert_explained(stream: String, parts: &[&str]) -> String {
    let text = explain(stream).to_text(false).to_string();
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    text
}

/// The texts of all messages.
pub fn texts(report: &InjectReport) -> Vec<&str> {
    let texts = report.messages.iter().map(|message| &*message.text);
    texts.collect()
}

/// Injects a stream, and checks that every pod that requests a drainer gets one and that another injection changes
/// nothing.
///
/// # Panics
/// When a pod gets none, or another injection changes something.
pub fn inject_all(stream: &str) -> String {
    use InjectionOutcome::{AlreadyInjected, Injected, NotRequested};
    let injected = inject(stream);
    for outcome in &injected.outcomes {
        let is_expected = matches!(outcome, Injected | NotRequested);
        assert!(is_expected, "{outcome:?}: {stream}\n{injected:?}");
    }
    let again = inject(&injected.bytes);
    assert_eq!(again.bytes, injected.bytes, "a second injection changes it");
    let expected = injected.outcomes.into_iter().map(|outcome| match outcome {
        Injected => AlreadyInjected,
        outcome => outcome,
    });
    assert!(expected.eq(again.outcomes));
    String::from_utf8(injected.bytes).expect("the output is UTF-8")
}

/// A minimal manifest of this kind whose pod template, at `path`, requests a drainer.
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
