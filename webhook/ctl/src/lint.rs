//! Findings about hand-written drains: preStop hooks that do not do what they seem to. Pure.

mod hook;
mod rules;
mod sarif;

pub use sarif::to_sarif;

use std::fmt;

use admission::{CONTAINER_NAME, objects};
use manifest::{Document, Manifest};
use serde::Serialize;
use serde_json::Value;

use crate::object_name::ObjectName;
use crate::offline::Message;

/// A finding about a container of a pod or a pod template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    pub code: LintCode,
    pub severity: LintSeverity,
    /// The file, or `stdin`, or the object of the cluster.
    pub source: String,
    /// The line of the pod or pod template in the file; `null` for an object of the cluster.
    pub line: Option<usize>,
    pub object: ObjectName,
    pub container: String,
    pub message: String,
    pub remedy: String,
    /// The annotations that replace the hook, each as `name: value` without the prefix.
    pub annotations: Vec<String>,
}

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LintSeverity {
    /// Requests may be lost, or a limit of the cluster reached.
    Warning,
    /// The hook fails, or loses requests.
    Error,
}

/// The rules. Their codes are stable, and docs/lint.md describes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::VariantArray)]
#[serde(into = "String")]
pub enum LintCode {
    /// A call of Envoy's admin interface by GET, which needs POST.
    WrongMethod,
    /// A hook that needs a shell or a program in an image that has none.
    NoShell,
    /// A sleep as long as the grace period, or longer.
    SleepExceedsGrace,
    /// `/drain_listeners` without `graceful`.
    ImmediateDrain,
    /// `/drain_listeners?graceful` without `skip_exit`, and a wait as long as the drain time.
    ListenersClose,
    /// A sleep, and nothing that drains.
    SleepOnly,
    /// A hook by HTTP in the host network.
    HostNetworkHook,
    /// A grace period that node drains do not wait for.
    LongGrace,
    /// A loop until no connection is left, of which the admin interface has one.
    EndlessLoop,
}

/// The findings about streams.
#[derive(Debug, Default)]
pub struct LintReport {
    pub findings: Vec<LintFinding>,
    /// The documents that cannot be read, with their files.
    pub errors: Vec<(String, Message)>,
    /// The number of pods and pod templates with an Envoy that has a preStop hook.
    pub hooks: usize,
}

// === impl LintCode ===

impl LintCode {
    /// The code, such as `LNT001`.
    pub fn name(self) -> String {
        // The discriminants start at 0.
        format!("LNT{:03}", self as usize + 1)
    }

    /// What the rule finds, in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::WrongMethod => "Envoy's admin interface is called with GET, which it rejects.",
            Self::NoShell => "The hook needs a shell or a program that the image does not have.",
            Self::SleepExceedsGrace => "The hook sleeps for all of the grace period.",
            Self::ImmediateDrain => "The hook closes Envoy's listeners immediately.",
            Self::ListenersClose => "Envoy's listeners close while the hook still waits.",
            Self::SleepOnly => "The hook sleeps, and nothing asks clients to leave.",
            Self::HostNetworkHook => "The hook is called at the node's address.",
            Self::LongGrace => "The grace period is longer than node drains wait.",
            Self::EndlessLoop => "The hook waits for a count that never becomes zero.",
        }
    }

    /// How severe its findings are.
    pub fn severity(self) -> LintSeverity {
        match self {
            Self::WrongMethod
            | Self::NoShell
            | Self::SleepExceedsGrace
            | Self::ImmediateDrain
            | Self::EndlessLoop => LintSeverity::Error,
            Self::ListenersClose | Self::SleepOnly | Self::HostNetworkHook | Self::LongGrace => {
                LintSeverity::Warning
            }
        }
    }
}

impl From<LintCode> for String {
    fn from(code: LintCode) -> Self {
        code.name()
    }
}

impl fmt::Display for LintCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

// === impl LintSeverity ===

impl fmt::Display for LintSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

// === impl LintReport ===

impl LintReport {
    /// Adds the findings about a stream of documents. `has_lines` is false for an object of the cluster.
    pub fn add(&mut self, source: &str, stream: &[u8], has_lines: bool) {
        for document in manifest::documents(stream) {
            if let Err(error) = self.add_document(source, &document, has_lines) {
                self.errors.push((source.to_owned(), error));
            }
        }
    }

    fn add_document(
        &mut self,
        source: &str,
        document: &Document<'_>,
        has_lines: bool,
    ) -> Result<(), Message> {
        let manifest = Manifest::read(document)?;
        for object in objects(manifest.value()) {
            let Some(template) = &object.template else {
                continue;
            };
            let is_ours = |container: &Value| container["name"] == CONTAINER_NAME;
            if containers(template.pod).any(is_ours) {
                continue;
            }
            let name = ObjectName::new(object.kind, object.namespace, object.name);
            let line = manifest.line(&object.path.concat(template.path));
            for container in containers(template.pod) {
                let found = rules::check(template.pod, container);
                let Some(found) = found else { continue };
                self.hooks += 1;
                let container = container["name"].as_str().unwrap_or_default();
                let findings = found.into_iter().map(
                    |rules::Violation {
                         code,
                         message,
                         remedy,
                         annotations,
                     }| LintFinding {
                        code,
                        severity: code.severity(),
                        source: source.to_owned(),
                        line: has_lines.then_some(line),
                        object: name.clone(),
                        container: container.to_owned(),
                        message,
                        remedy,
                        annotations,
                    },
                );
                self.findings.extend(findings);
            }
        }
        Ok(())
    }
}

/// The containers of a pod that may have hooks: native sidecars too.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers"];
    let lists = lists.into_iter().map(|list| pod["spec"][list].as_array());
    lists.flatten().flatten()
}
