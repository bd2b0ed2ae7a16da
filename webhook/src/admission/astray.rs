//! Annotations that look like ours and count for no pod: misspelt, elsewhere than on a pod, or on the
//! pods of a kind that is not known here.

use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value};

use super::annotations::{self, INJECT, PREFIX};
use super::codes::{Code, Notice};
use super::object::Object;

/// What is to be said of a place in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The place.
    pub path: PointerBuf,
    /// What is to be said.
    pub notice: Notice,
}

struct Search<'a> {
    object: &'a Object<'a>,
    /// The annotations of the object's pods.
    counted: Vec<PointerBuf>,
    found: Vec<Stray>,
}

/// The maps in which people write annotations, rightly or not.
const MAPS: [&str; 3] = ["annotations", "labels", "metadata"];

/// Finds what is astray in an object, in the order of its text.
#[must_use]
pub fn astray(object: &Object<'_>) -> Vec<Stray> {
    let templates = match &object.template {
        Some(template) => vec![template.path.to_buf()],
        None => likely_templates(object.value),
    };
    let annotations = Pointer::from_static("/metadata/annotations");
    let mut search = Search {
        object,
        counted: templates
            .iter()
            .map(|path| path.concat(annotations))
            .collect(),
        found: Vec::new(),
    };
    search.walk(object.value, Pointer::root());
    search.found
}

/// Where pods may have their template in an object of a kind that is not known: beside containers.
fn likely_templates(object: &Value) -> Vec<PointerBuf> {
    fn walk(value: &Value, path: &Pointer, found: &mut Vec<PointerBuf>) {
        if value
            .pointer("/spec/containers")
            .is_some_and(Value::is_array)
        {
            found.push(path.to_buf());
        }
        for (token, child) in children(value) {
            walk(child, &path.with_trailing_token(token), found);
        }
    }
    let mut found = Vec::new();
    walk(object, Pointer::root(), &mut found);
    found
}

fn children(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, child)| (key.clone(), child))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, child)| (index.to_string(), child))
            .collect(),
        _ => Vec::new(),
    }
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
    fn walk(&mut self, value: &Value, path: &Pointer) {
        for (key, child) in children(value) {
            let path = path.with_trailing_token(&*key);
            if let (true, Value::Object(entries)) = (MAPS.contains(&&*key), child) {
                match self.counted.contains(&path) {
                    true => self.counted(entries, &path),
                    false => self.uncounted(&key, entries, &path),
                }
            }
            self.walk(child, &path);
        }
    }

    /// Looks through a pod's annotations.
    fn counted(&mut self, entries: &Map<String, Value>, path: &PointerBuf) {
        let asks = entries.get(INJECT).filter(|asks| !asks.is_null());
        let is_known = self.object.template.is_some();
        if let (Some(_), false) = (asks, is_known) {
            let Object { kind, version, .. } = self.object;
            let detail = format!("how a {kind} ({version}) makes its pods is not known here");
            self.tell(path, INJECT, Code::UnknownKind.about(detail));
        }
        let mut settings = None;
        let mut misspelt = false;
        for key in entries.keys() {
            match (annotations::unknown(key), key.strip_prefix(PREFIX)) {
                // A pod that asks is told of these at its admission.
                (_, Some(_)) if asks.is_some() && is_known => {}
                (Some(notice), _) => {
                    misspelt = true;
                    self.tell(path, key, notice);
                }
                (None, Some(name)) if annotations::is_setting(name) => {
                    settings = settings.or(Some(key));
                }
                (None, _) => {}
            }
        }
        if let (Some(key), None, false) = (settings, asks, misspelt) {
            let detail = format!("`{key}` is set, and no `inject` asks for a drainer");
            self.tell(path, key, Code::SettingsAlone.about(detail));
        }
    }

    /// Looks through a map in which annotations count for nothing.
    fn uncounted(&mut self, map: &str, entries: &Map<String, Value>, path: &PointerBuf) {
        let is_ours = |key: &&String| match key.strip_prefix(PREFIX) {
            Some(name) if name == "inject" || annotations::is_setting(name) => true,
            // Not among labels, of which we have others.
            _ => map == "annotations" && annotations::unknown(key).is_some(),
        };
        let ours: Vec<_> = entries.keys().filter(is_ours).collect();
        let Some(first) = ours.first() else { return };
        let names: Vec<_> = ours.iter().map(|key| format!("`{key}`")).collect();
        let right = match self.counted.first() {
            Some(counted) => dotted(counted),
            None => "the annotations of a pod or a pod template".to_owned(),
        };
        let detail = format!(
            "no pod gets {} from {}: move to {right}",
            names.join(", "),
            dotted(path)
        );
        self.tell(path, first, Code::Misplaced.about(detail));
        for key in ours {
            if let Some(notice) = annotations::unknown(key) {
                self.tell(path, key, notice);
            }
        }
    }

    fn tell(&mut self, map: &PointerBuf, key: &str, notice: Notice) {
        let path = map.with_trailing_token(key);
        self.found.push(Stray { path, notice });
    }
}
