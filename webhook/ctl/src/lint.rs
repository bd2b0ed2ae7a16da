//! Findings about hand-written drains: preStop hooks that do not do what they seem to. Pure.

mod finding;
mod rules;
mod sarif;
mod script;

use admission::{CONTAINER_NAME, PodView, known_envoys, objects};
use manifest::{Document, Manifest};

use crate::object_name::ObjectName;
use crate::offline::{Message, MessageKind};

pub use finding::{LintCode, LintFinding, LintSeverity};
pub use sarif::to_sarif;

/// The findings about streams.
#[derive(Debug, Default)]
pub struct LintReport {
    pub findings: Vec<LintFinding>,
    /// The documents that cannot be read, with their files.
    pub errors: Vec<(String, Message)>,
    /// The number of pods and pod templates with an Envoy that has a preStop hook.
    pub hooks: usize,
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
            let name = ObjectName::new(object.kind, object.namespace, object.name);
            let line = manifest.line(&object.path.concat(template.path));
            let pod = template.pod.to_string();
            let pod = match PodView::decode(&pod) {
                Ok(pod) => pod,
                Err(error) => {
                    let error = Message::for_object(&name, line, MessageKind::Error, error);
                    self.errors.push((source.to_owned(), error));
                    continue;
                }
            };
            if pod.has_container(CONTAINER_NAME) {
                continue;
            }
            let envoys = known_envoys(&pod);
            for (at, container) in pod.long_running_containers() {
                let found = rules::check(&pod, container, envoys.contains(&at));
                let Some(found) = found else { continue };
                self.hooks += 1;
                let findings = found.into_iter().map(|violation| LintFinding {
                    code: violation.code,
                    severity: violation.code.severity(),
                    source: source.to_owned(),
                    line: has_lines.then_some(line),
                    object: name.clone(),
                    container: container.name().to_owned(),
                    message: violation.message,
                    remedy: violation.remedy,
                    annotations: violation.annotations,
                });
                self.findings.extend(findings);
            }
        }
        Ok(())
    }
}
