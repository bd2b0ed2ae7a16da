//! Annotations that look like ours and count for no pod: misspelt, elsewhere than on a pod, or on the
//! pods of a kind that is not known here.

use json_patch::jsonptr::{Pointer, PointerBuf};

use super::annotations::{self, INJECT, MOST_STRAYS, PREFIX};
use super::codes::{Code, Notice};
use super::object::{self, Object};
use super::places::{Keys, Maps, Places};

/// What is to be said of a place in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The place.
    pub path: PointerBuf,
    /// What is to be said.
    pub notice: Notice,
}

/// An object under search.
struct Search<'a> {
    version: &'a str,
    kind: &'a str,
    /// The annotations of the object's pods, if it has any.
    counted: Option<PointerBuf>,
    found: Vec<Stray>,
}

/// Where a kind that is not known may have a pod template: Argo's Rollout and Knative's Service do.
const LIKELY: &Pointer = Pointer::from_static("/spec/template");

/// Finds what is astray in an object, at most 32 places.
#[must_use]
pub fn astray(object: &Object<'_>) -> Vec<Stray> {
    search(object.version, object.kind, &object.value.to_string())
}

/// The same in an object's JSON. One that cannot be read has none.
pub(super) fn search(version: &str, kind: &str, json: &str) -> Vec<Stray> {
    let Ok(places) = serde_json::from_str::<Places<'_>>(json) else {
        return Vec::new();
    };
    let known = object::place(version, kind);
    let template = known.or_else(|| places.template.is_some().then_some(LIKELY));
    let mut search = Search {
        version,
        kind,
        counted: template.map(|path| path.concat(Pointer::from_static("/metadata/annotations"))),
        found: Vec::new(),
    };
    for (path, maps) in places.iter() {
        search.look_at(path, maps, known.is_some());
    }
    search.found.truncate(MOST_STRAYS);
    search.found
}

/// A place as people name it: `spec.template.metadata`.
fn dotted(path: &Pointer) -> String {
    let tokens: Vec<_> = path
        .tokens()
        .map(|token| token.decoded().into_owned())
        .collect();
    tokens.join(".")
}

// === impl Search ===

impl Search<'_> {
    /// Looks through one `metadata`.
    fn look_at(&mut self, path: &Pointer, maps: &Maps<'_>, is_known: bool) {
        self.uncounted(path, &maps.own, false);
        let annotations = path.with_trailing_token("annotations");
        match self.counted.as_ref() == Some(&annotations) {
            true => self.counted(&annotations, &maps.annotations, is_known),
            false => self.uncounted(&annotations, &maps.annotations, true),
        }
        self.uncounted(&path.with_trailing_token("labels"), &maps.labels, false);
    }

    /// Looks through the annotations of the object's pods.
    fn counted(&mut self, path: &Pointer, keys: &Keys<'_>, is_known: bool) {
        if keys.asks && !is_known {
            let (kind, version) = (self.kind, self.version);
            let detail = format!("how a {kind} ({version}) makes its pods is not known here");
            self.report(path, INJECT, Code::UnknownKind.about(detail));
        }
        let mut setting = None;
        let mut misspelt = false;
        for key in &keys.ours {
            match (
                annotations::unknown(key, keys.likeness()),
                key.strip_prefix(PREFIX),
            ) {
                // A pod that asks is told of these at its admission.
                (_, Some(_)) if keys.asks && is_known => {}
                (Some(notice), _) => {
                    misspelt = true;
                    self.report(path, key, notice);
                }
                (None, Some(name)) if annotations::is_setting(name) => {
                    setting = setting.or(Some(&**key));
                }
                (None, _) => {}
            }
        }
        if let (Some(key), false, false) = (setting, keys.asks, misspelt) {
            let detail = format!("`{key}` is set, and no `inject` asks for a drainer");
            self.report(path, key, Code::SettingsAlone.about(detail));
        }
    }

    /// Looks through a map in which annotations count for nothing. Among labels and in `metadata` itself
    /// there are others that begin like ours.
    fn uncounted(&mut self, path: &Pointer, keys: &Keys<'_>, are_annotations: bool) {
        let mut names = Vec::new();
        let mut unknown = Vec::new();
        for key in &keys.ours {
            let name = key.strip_prefix(PREFIX);
            let is_used =
                name.is_some_and(|name| name == "inject" || annotations::is_setting(name));
            let notice = match are_annotations {
                true if !is_used => annotations::unknown(key, keys.likeness()),
                _ => None,
            };
            if is_used || notice.is_some() {
                names.push(&**key);
            }
            unknown.extend(notice.map(|notice| (&**key, notice)));
            if names.len() == MOST_STRAYS {
                break;
            }
        }
        let Some(first) = names.first() else { return };
        let right = match &self.counted {
            Some(counted) => dotted(counted),
            None => "the annotations of a pod or a pod template".to_owned(),
        };
        let quoted: Vec<_> = names.iter().map(|key| format!("`{key}`")).collect();
        let (quoted, place) = (quoted.join(", "), dotted(path));
        let detail = format!("no pod gets {quoted} from {place}: move to {right}");
        self.report(path, first, Code::Misplaced.about(detail));
        for (key, notice) in unknown {
            self.report(path, key, notice);
        }
    }

    fn report(&mut self, map: &Pointer, key: &str, notice: Notice) {
        let path = map.with_trailing_token(key);
        self.found.push(Stray { path, notice });
    }
}
