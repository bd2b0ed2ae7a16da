//! Annotations that look like ours and count for no pod: misspelt, elsewhere than on a pod, or on the
//! pods of a kind that is not known here.

use json_patch::jsonptr::{Pointer, PointerBuf};

use super::metadata_maps::{AnnotationLocations, MapKeys, MetadataKeys};
use super::objects;
use super::objects::WorkloadObject;
use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::settings::keys;
use crate::admission::settings::keys::{INJECT, MAX_REPORTED_KEYS, PREFIX};

/// What is to be said of a place in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisplacedAnnotation {
    /// The place.
    pub path: PointerBuf,
    /// What is to be said.
    pub diagnostic: Diagnostic,
}

/// An object under search.
struct MisplacedSearch<'a> {
    version: &'a str,
    kind: &'a str,
    /// The annotations of the object's pods, if it has any.
    annotations_path: Option<PointerBuf>,
    misplaced: Vec<MisplacedAnnotation>,
}

/// Where a kind that is not known may have a pod template: Argo's Rollout and Knative's Service do.
const COMMON_TEMPLATE_PATH: &Pointer = Pointer::from_static("/spec/template");

/// Finds what is astray in an object, at most 32 places.
#[must_use]
pub fn misplaced(object: &WorkloadObject<'_>) -> Vec<MisplacedAnnotation> {
    find_misplaced(object.version, object.kind, &object.value.to_string())
}

/// The same in an object's JSON. One that cannot be read has none.
pub(crate) fn find_misplaced(version: &str, kind: &str, json: &str) -> Vec<MisplacedAnnotation> {
    let Ok(places) = serde_json::from_str::<AnnotationLocations<'_>>(json) else {
        return Vec::new();
    };
    let known = objects::template_path(version, kind);
    let template = known.or_else(|| places.template.is_some().then_some(COMMON_TEMPLATE_PATH));
    let mut search = MisplacedSearch {
        version,
        kind,
        annotations_path: template
            .map(|path| path.concat(Pointer::from_static("/metadata/annotations"))),
        misplaced: Vec::new(),
    };
    for (path, maps) in places.iter() {
        search.check_metadata(path, maps, known.is_some());
    }
    search.misplaced.truncate(MAX_REPORTED_KEYS);
    search.misplaced
}

/// A place as people name it: `spec.template.metadata`.
fn dotted_path(path: &Pointer) -> String {
    let tokens: Vec<_> = path
        .tokens()
        .map(|token| token.decoded().into_owned())
        .collect();
    tokens.join(".")
}

// === impl MisplacedSearch ===

impl MisplacedSearch<'_> {
    /// Looks through one `metadata`.
    fn check_metadata(&mut self, path: &Pointer, maps: &MetadataKeys<'_>, is_known: bool) {
        self.check_ineffective_keys(path, &maps.direct, false);
        let annotations = path.with_trailing_token("annotations");
        match self.annotations_path.as_ref() == Some(&annotations) {
            true => self.check_pod_annotations(&annotations, &maps.annotations, is_known),
            false => self.check_ineffective_keys(&annotations, &maps.annotations, true),
        }
        self.check_ineffective_keys(&path.with_trailing_token("labels"), &maps.labels, false);
    }

    /// Looks through the annotations of the object's pods.
    fn check_pod_annotations(&mut self, path: &Pointer, keys: &MapKeys<'_>, is_known: bool) {
        if keys.requests_injection && !is_known {
            let (kind, version) = (self.kind, self.version);
            let detail = format!("how a {kind} ({version}) makes its pods is not known here");
            self.report(path, INJECT, Code::UnknownKind.diagnostic(detail));
        }
        let mut setting = None;
        let mut misspelt = false;
        for key in &keys.candidates {
            match (
                keys::lint_key(key, keys.suggestions()),
                key.strip_prefix(PREFIX),
            ) {
                // A pod that asks is told of these at its admission.
                (_, Some(_)) if keys.requests_injection && is_known => {}
                (Some(notice), _) => {
                    misspelt = true;
                    self.report(path, key, notice);
                }
                (None, Some(name)) if keys::is_setting(name) => {
                    setting = setting.or(Some(&**key));
                }
                (None, _) => {}
            }
        }
        if let (Some(key), false, false) = (setting, keys.requests_injection, misspelt) {
            let detail = format!("`{key}` is set, and no `inject` asks for a drainer");
            self.report(path, key, Code::SettingsAlone.diagnostic(detail));
        }
    }

    /// Looks through a map in which annotations count for nothing. Among labels and in `metadata` itself
    /// there are others that begin like ours.
    fn check_ineffective_keys(
        &mut self,
        path: &Pointer,
        keys: &MapKeys<'_>,
        are_annotations: bool,
    ) {
        let mut names = Vec::new();
        let mut unknown = Vec::new();
        for key in &keys.candidates {
            let name = key.strip_prefix(PREFIX);
            let is_used = name.is_some_and(|name| name == "inject" || keys::is_setting(name));
            let notice = match are_annotations {
                true if !is_used => keys::lint_key(key, keys.suggestions()),
                _ => None,
            };
            if is_used || notice.is_some() {
                names.push(&**key);
            }
            unknown.extend(notice.map(|notice| (&**key, notice)));
            if names.len() == MAX_REPORTED_KEYS {
                break;
            }
        }
        let Some(first) = names.first() else { return };
        let right = match &self.annotations_path {
            Some(counted) => dotted_path(counted),
            None => "the annotations of a pod or a pod template".to_owned(),
        };
        let quoted: Vec<_> = names.iter().map(|key| format!("`{key}`")).collect();
        let (quoted, place) = (quoted.join(", "), dotted_path(path));
        let detail = format!("no pod gets {quoted} from {place}: move to {right}");
        self.report(path, first, Code::Misplaced.diagnostic(detail));
        for (key, notice) in unknown {
            self.report(path, key, notice);
        }
    }

    fn report(&mut self, map: &Pointer, key: &str, notice: Diagnostic) {
        let path = map.with_trailing_token(key);
        self.misplaced.push(MisplacedAnnotation {
            path,
            diagnostic: notice,
        });
    }
}
