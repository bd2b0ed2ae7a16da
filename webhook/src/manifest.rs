//! Manifests: streams of YAML and JSON documents, the objects and pod templates in them, and changes that keep
//! every byte that they do not concern.
//!
//! ```text
//! bytes ─► documents ─► Manifest::read ─► objects ─► operations ─► Manifest::patched ─► text
//! ```
//!
//! A change is written into the text where it belongs, never by rendering the document again: its
//! comments, quotes, anchors, key order and number formats are not touched, so that nothing can be
//! lost. Then the text is read again and must mean exactly what the json-patch crate makes of the
//! document's value; where it does not, the document is refused and stays as it was.
//!
//! What a changed document loses is what the change replaces: the value of a key that gets another
//! one (comments on its line stay), an empty `{}`, `[]` or null that gets content, and an alias or a
//! merged key that is to differ from what it stands for, which is written out. A last line without
//! a line break may get one.

mod diff;
mod documents;
mod edit;
mod emit;
mod reader;
mod scalar;
mod source;
mod splice;
mod tree;

pub use diff::unified_diff;
pub use documents::{Document, documents, is_json, starts_with_separator};
pub use edit::EditError;
pub use reader::{MAX_NODES, YamlError, count_nodes};

use std::collections::HashMap;

use json_patch::jsonptr::Pointer;
use json_patch::{CopyOperation, MoveOperation, Patch, PatchOperation};
use serde_json::Value;

use source::SourceText;
use tree::{Key, MappingEntry, Tree};

/// What every object begins with, and with it the next document of a stream.
const OBJECT_KEYS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// What `kubectl` takes for the end of a line and YAML 1.2 does not: NEL, and Unicode's separators of lines and
/// paragraphs. A comment ends there, and so may more.
/// <https://github.com/yaml/go-yaml/blob/v3/yamlprivateh.go>
const YAML_1_1_LINE_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// A document that was read.
#[derive(Debug, Clone)]
pub struct Manifest<'a> {
    text: &'a str,
    /// The line of the stream on which it starts.
    line: usize,
    tree: Tree,
    value: Value,
}

// === impl Manifest ===

impl<'a> Manifest<'a> {
    /// Reads a document.
    ///
    /// # Errors
    /// For what is not UTF-8, not YAML or JSON, more than one document, or has no JSON form.
    pub fn read(document: &Document<'a>) -> Result<Self, YamlError> {
        let Document { bytes, line } = *document;
        let text = str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let start = before.iter().rposition(|&byte| byte == b'\n');
            let on_line = &before[start.map_or(0, |newline| newline + 1)..];
            YamlError {
                line: line + before.iter().filter(|&&byte| byte == b'\n').count(),
                column: String::from_utf8_lossy(on_line).chars().count() + 1,
                message: "not UTF-8".to_owned(),
            }
        })?;
        let tree = Tree::read(strip_bom(text), line)?;
        let value = tree.value();
        Ok(Self {
            text,
            line,
            tree,
            value,
        })
    }

    /// The document as it is written.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Tells of the first key that stands a second time in its mapping. That can be read, but readers
    /// differ on which of the two counts.
    #[must_use]
    pub fn duplicate_key(&self) -> Option<YamlError> {
        let MappingEntry {
            key,
            key_range: at,
            line,
            ..
        } = self.tree.duplicate_entry()?;
        let column = SourceText(strip_bom(self.text)).column(at.start) + 1;
        let Key::Name(key) = key else { return None };
        let advice = match column {
            1 if OBJECT_KEYS.contains(&&**key) => "is a `---` missing?",
            _ => "remove one of the two",
        };
        Some(YamlError {
            line: *line,
            column,
            message: format!("the key `{key}` stands here a second time: {advice}"),
        })
    }

    /// How many nodes the document has.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.tree.node_count
    }

    /// Tells of the first character that ends a line for `kubectl` and not here, so that the two may read different
    /// documents. JSON has no such character.
    #[must_use]
    pub fn yaml_1_1_line_break(&self) -> Option<YamlError> {
        let text = strip_bom(self.text);
        let (at, found) = text.match_indices(YAML_1_1_LINE_BREAKS).next()?;
        if documents::is_json(text.as_bytes()) {
            return None;
        }
        let before = &text[..at];
        let escape = found.escape_unicode();
        Some(YamlError {
            line: self.line + before.matches('\n').count(),
            column: SourceText(text).column(at) + 1,
            message: format!(
                "the character {escape} ends a line for kubectl, though YAML 1.2 says otherwise: remove it, or \
                 write its escape in double quotes"
            ),
        })
    }

    /// The document as the API server gets it from `kubectl`.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The line of the stream where the node at `path` stands, or the nearest above it.
    #[must_use]
    pub fn line(&self, path: &Pointer) -> usize {
        self.tree.line(path)
    }

    /// The lines of the stream where the entries of the mapping at `path` stand, by their keys, as far as they
    /// are written there.
    #[must_use]
    pub fn lines(&self, path: &Pointer) -> HashMap<&str, usize> {
        self.tree.lines(path)
    }

    /// The document's text with the operations written into it.
    ///
    /// # Errors
    /// Where the text cannot take a change without changing something else.
    pub fn patched(&self, operations: &[PatchOperation]) -> Result<String, EditError> {
        let Some(first) = operations.first() else {
            return Ok(self.text.to_owned());
        };
        let form = || self.tree.layout_error(first.path());
        let mut wanted = self.value.clone();
        json_patch::patch(&mut wanted, operations).map_err(|_| form())?;
        let mut tree = self.tree.clone();
        tree.apply(operations)?;

        let text = strip_bom(self.text);
        let mark = &self.text[..self.text.len() - text.len()];
        let written = tree.write(text).map_err(|_| form())?;
        match Tree::read(&written, 1) {
            Ok(read) if read.value() == wanted => Ok(format!("{mark}{written}")),
            _ => Err(form()),
        }
    }
}

/// The operations of a patch whose paths begin at `base`, from the root.
#[must_use]
pub fn rebase(patch: Patch, base: &Pointer) -> Vec<PatchOperation> {
    let mut operations = patch.0;
    for operation in &mut operations {
        match operation {
            PatchOperation::Add(add) => add.path = base.concat(&add.path),
            PatchOperation::Replace(replace) => replace.path = base.concat(&replace.path),
            PatchOperation::Remove(remove) => remove.path = base.concat(&remove.path),
            PatchOperation::Test(test) => test.path = base.concat(&test.path),
            PatchOperation::Move(MoveOperation { from, path })
            | PatchOperation::Copy(CopyOperation { from, path }) => {
                *from = base.concat(from);
                *path = base.concat(path);
            }
        }
    }
    operations
}

fn strip_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Manifest<'_> {
        let [document] = documents(text.as_bytes())[..] else {
            panic!("{text} is not one document");
        };
        Manifest::read(&document).unwrap()
    }

    fn operations(operations: Value) -> Vec<PatchOperation> {
        serde_json::from_value(operations).unwrap()
    }

    /// One key into `metadata.annotations`, one into the first container, one container before the
    /// first, one after the last, another grace period.
    fn changes() -> Vec<PatchOperation> {
        operations(json!([
            {"op": "add", "path": "/m/a/x~1y", "value": "{\"a\":1}"},
            {"op": "add", "path": "/s/c/0/life", "value": {"get": {"port": 1}}},
            {"op": "add", "path": "/s/c/0", "value": {"args": ["--a=b"], "image": "a:b", "name": "first"}},
            {"op": "add", "path": "/s/c/-", "value": {"env": [], "name": "last"}},
            {"op": "replace", "path": "/s/grace", "value": 75},
        ]))
    }

    #[test]
    fn changes_are_written_where_they_belong() {
        let table = [
            (
                "plain",
                "\
# head
m:
  a: # annotations
    k: 'v'   # quoted
    # about k
  # about m
s:
  grace: 0x1E  # half a minute
  c:
  # the first
  - name: one
    run: |+
      text

    # in one
  # the second
  - name: two

  # in s
# end
",
                "\
# head
m:
  a: # annotations
    k: 'v'   # quoted
    # about k
    x/y: '{\"a\":1}'
  # about m
s:
  grace: 75  # half a minute
  c:
  # the first
  - name: first
    args:
    - --a=b
    image: a:b
  - name: one
    run: |+
      text

    # in one
    life:
      get:
        port: 1
  # the second
  - name: two
  - name: last
    env: []

  # in s
# end
",
            ),
            (
                "lists deeper than their keys, no newline at the end",
                "m:\n    a: {}\ns:\n    grace: 30\n    c:\n      - name: one\n      -\n        name: two",
                "m:\n    a:\n      x/y: '{\"a\":1}'\ns:\n    grace: 75\n    c:\n      - name: first\n        args:\n          - --a=b\n        image: a:b\n      - name: one\n        life:\n          get:\n            port: 1\n      -\n        name: two\n      - name: last\n        env: []\n",
            ),
            (
                "carriage returns, an empty mapping",
                "m:\r\n  a: {} # none\r\ns:\r\n  grace: ~\r\n  c:\r\n  - name: one\r\n",
                "m:\r\n  a: # none\r\n    x/y: '{\"a\":1}'\r\ns:\r\n  grace: 75\r\n  c:\r\n  - name: first\r\n    args:\r\n    - --a=b\r\n    image: a:b\r\n  - name: one\r\n    life:\r\n      get:\r\n        port: 1\r\n  - name: last\r\n    env: []\r\n",
            ),
            (
                "brackets",
                "---\nm: {a: {k: v, }} # m\ns: {grace: 30, c: [{name: one}]}\n...\n",
                "---\nm: {a: {k: v, x/y: '{\"a\":1}', }} # m\ns: {grace: 75, c: [{name: first, args: [--a=b], image: \"a:b\"}, {name: one, life: {get: {port: 1}}}, {name: last, env: []}]}\n...\n",
            ),
            (
                "JSON",
                "\u{feff}{\n\t\"m\": {\n\t\t\"a\": {\n\t\t\t\"k\": 1e400\n\t\t}\n\t},\n\t\"s\": {\n\t\t\"grace\": 30,\n\t\t\"c\": [\n\t\t\t{\n\t\t\t\t\"name\": \"\\ud83d\\ude00\\/\"\n\t\t\t}\n\t\t]\n\t}\n}",
                "\u{feff}{\n\t\"m\": {\n\t\t\"a\": {\n\t\t\t\"k\": 1e400,\n\t\t\t\"x/y\": \"{\\\"a\\\":1}\"\n\t\t}\n\t},\n\t\"s\": {\n\t\t\"grace\": 75,\n\t\t\"c\": [\n\t\t\t{\n\t\t\t\t\"args\": [\n\t\t\t\t\t\"--a=b\"\n\t\t\t\t],\n\t\t\t\t\"image\": \"a:b\",\n\t\t\t\t\"name\": \"first\"\n\t\t\t},\n\t\t\t{\n\t\t\t\t\"name\": \"\\ud83d\\ude00\\/\",\n\t\t\t\t\"life\": {\n\t\t\t\t\t\"get\": {\n\t\t\t\t\t\t\"port\": 1\n\t\t\t\t\t}\n\t\t\t\t}\n\t\t\t},\n\t\t\t{\n\t\t\t\t\"env\": [],\n\t\t\t\t\"name\": \"last\"\n\t\t\t}\n\t\t]\n\t}\n}",
            ),
            (
                "aliases and merges are written out where they are changed",
                "k: &k\n  v: 08 # a trap\nm:\n  <<: &a {a: *k}\ns:\n  grace: 1\n  c:\n  - *k\nz: *k\n",
                "k: &k\n  v: 08 # a trap\nm:\n  <<: &a {a: *k}\n  a:\n    v: 8\n    x/y: '{\"a\":1}'\ns:\n  grace: 75\n  c:\n  - name: first\n    args:\n    - --a=b\n    image: a:b\n  - v: 8\n    life:\n      get:\n        port: 1\n  - name: last\n    env: []\nz: *k\n",
            ),
        ];
        for (name, text, want) in table {
            let written = read(text).patched(&changes());
            assert_eq!(written.as_deref(), Ok(want), "{name}");
        }
    }

    #[test]
    fn brackets_of_which_nothing_stays_become_lines() {
        let table = [
            (
                "a: {k: {o: [1, 2]}} # c\nz: 1\n",
                "a: # c\n  k:\n    p: 1\nz: 1\n",
            ),
            ("a: {k: {o: [1, 2]}, m: 2}\n", "a: {k: {p: 1}, m: 2}\n"),
            ("{a: {k: {o: [1, 2]}}}\n", "{a: {k: {\"p\":1}}}\n"),
        ];
        for (text, want) in table {
            let replace = json!([{"op": "add", "path": "/a/k", "value": {"p": 1}}]);
            let written = read(text).patched(&operations(replace));
            assert_eq!(written.as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_value_takes_the_place_of_another_of_any_form() {
        let scalar = json!("on");
        let object = json!({"k": [1, []], "l": {}});
        let list = json!([{"k": null}]);
        let olds = [
            "a:",
            "a: # c",
            "a: ~ # c",
            "a: {b: c,\n d: e} # c",
            "a: |-\n  b\n\n",
            "a: b\n  c # d",
            "a:\n  # c\n  b: c # d\n  # e",
            "a:\n- b\n- - c",
            "a: !!map\n  b: c",
            "? a\n: b",
            "\"a\" : 'b''c'",
        ];
        for old in olds {
            for new in [&scalar, &object, &list] {
                let inner = old.replace('\n', "\n  ");
                for (head, tail) in [("", "\n# end\nz: 1\n"), ("x:\n  ", "")] {
                    let text = match head {
                        "" => format!("{old}{tail}"),
                        _ => format!("{head}{inner}"),
                    };
                    let path = if head.is_empty() { "/a" } else { "/x/a" };
                    let replace = json!([{"op": "replace", "path": path, "value": new}]);
                    let written = read(&text).patched(&operations(replace));
                    let written = written.unwrap_or_else(|error| panic!("{text:?} {new}: {error}"));
                    assert!(written.starts_with(head), "{text:?} {new}: {written:?}");
                    assert!(written.ends_with(tail), "{text:?} {new}: {written:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_repeated_key_is_told() {
        let key = |key: &str, advice: &str| {
            format!("the key `{key}` stands here a second time: {advice}")
        };
        let (cut, remove) = ("is a `---` missing?", "remove one of the two");
        let table = [
            ("a: {b: 1}\nc: {b: 1}\n", None),
            ("m: &m {a: 1}\n<<: *m\na: 2\nb: {<<: *m, a: 1}\n", None),
            (
                "\u{feff}apiVersion: v1\nspec: 1\nkind: A\napiVersion: v1\nkind: B\nspec: {a: 1, a: 2}\n",
                Some((4, 1, key("apiVersion", cut))),
            ),
            (
                "a: 1\nspec: {b: [{c: 1, 'c': 2}]}\na: 2\n",
                Some((2, 19, key("c", remove))),
            ),
            ("a: 1\na: 2\n", Some((2, 1, key("a", remove)))),
            (
                "{\"kind\": 1, \"kind\": 2}",
                Some((1, 13, key("kind", remove))),
            ),
        ];
        for (text, want) in table {
            let told = read(text).duplicate_key();
            let told = told.map(|told| (told.line, told.column, told.message));
            assert_eq!(told, want, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let table = [
            (
                "a: &x\n  b: c\nz: *x\n",
                "line 2: an alias on line 3 stands for what is to be changed here: write it out there",
            ),
            (
                // A merge that comes later wins for kubectl.
                "m: &m {a: {}}\na: {b: c}\n<<: *m\n",
                "line 2: `/a/n` cannot be written into this text: use plain block style here",
            ),
            (
                "a: 1\n",
                "line 1: `/a/n` cannot be written into this text: use plain block style here",
            ),
        ];
        let operations = operations(json!([{"op": "add", "path": "/a/n", "value": 1}]));
        for (text, want) in table {
            let error = read(text).patched(&operations);
            let error = error.unwrap_err();
            assert_eq!(format!("line {}: {error}", error.line()), want, "{text}");
        }
    }
}
