//! YAML and JSON documents as text, read and edited in place; nothing here knows of Kubernetes.
//!
//! ```text
//! bytes ─► documents ─► Manifest::read ─► value ─► operations ─► Manifest::patched ─► text
//! ```
//!
//! A change is written into the text at its place, and the document is never rendered again: comments, quotes, anchors,
//! the order of keys and number formats stay. The new text is read again and must equal what the json-patch crate makes
//! of the document's value; if it does not, the change is refused.
//!
//! A change loses only what it replaces: the old value of a key (comments on its line stay), an empty `{}`, `[]` or
//! null that gets content, an alias or merged key that must differ from its anchor, which is written out, an item or a
//! key that is removed, with the comments in it, and the comments and the notation of an item that is moved. A last line
//! without a line break may get one, and a block scalar that ends with it becomes `|-`, so that its value stays.

mod documents;
mod emit;
mod error;
mod reader;
mod scalar;
mod source;
mod splice;
mod tree;

pub use documents::{Document, documents, is_json, starts_with_separator};
pub use error::ManifestError;
pub use reader::{MAX_NODES, count_nodes};

use std::slice;

use json_patch::jsonptr::Pointer;
use json_patch::{MoveOperation, Patch, PatchOperation};
use serde_json::Value;

use tree::{Edit, Tree};

/// Line breaks of YAML 1.1, which go-yaml and thus `kubectl` read, that YAML 1.2 does not have: NEL, and Unicode's line
/// and paragraph separators. They end a comment, for example.
/// <https://github.com/yaml/go-yaml/blob/v3/yamlprivateh.go>
const YAML_1_1_LINE_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// One document, parsed.
#[derive(Debug, Clone)]
pub struct Manifest<'a> {
    /// A byte order mark, or nothing.
    bom: &'a str,
    text: &'a str,
    /// The line of the stream on which it starts.
    line: usize,
    tree: Tree,
    value: Value,
}

// === impl Manifest ===

impl<'a> Manifest<'a> {
    /// Parses a document.
    ///
    /// # Errors
    /// For text that is not UTF-8, neither YAML nor JSON, more than one document, too large, or without a JSON form.
    pub fn read(document: &Document<'a>) -> Result<Self, ManifestError> {
        let Document { bytes, line } = *document;
        let text = str::from_utf8(bytes).map_err(|error| {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            ManifestError::after(&before, line, "not UTF-8")
        })?;
        let content = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (bom, text) = text.split_at(text.len() - content.len());
        let tree = Tree::read(text, line)?;
        let value = tree.root.value();
        Ok(Self {
            bom,
            text,
            line,
            tree,
            value,
        })
    }

    /// The document's text, without a byte order mark.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The entries whose key comes again in their mapping, in the order of the text, and errors about these keys. YAML
    /// forbids them; to `kubectl` the last one counts. [`Manifest::patched`] refuses a change at or below such a key.
    pub fn duplicates(&self) -> impl Iterator<Item = (&'a str, &ManifestError)> {
        let duplicates = self.tree.duplicates.iter();
        duplicates.map(|(hidden, _, error)| (&self.text[hidden.clone()], error))
    }

    /// How many nodes the document has.
    pub fn node_count(&self) -> usize {
        self.tree.node_count
    }

    /// An error about the first character that is a line break to `kubectl` and not here, so that the two may read
    /// different documents. JSON is not affected.
    pub fn yaml_1_1_line_break(&self) -> Option<ManifestError> {
        let (offset, found) = self.text.match_indices(YAML_1_1_LINE_BREAKS).next()?;
        if is_json(self.text.as_bytes()) {
            return None;
        }
        let escape = found.escape_unicode();
        let message = format!(
            "the character {escape} is a line break to kubectl, but not in YAML 1.2: remove it, or write its \
             escape in double quotes"
        );
        let before = &self.text[..offset];
        Some(ManifestError::after(before, self.line, message))
    }

    /// The document's value, as `kubectl` converts it to JSON.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The line of the stream of the node at `path`, or of its nearest ancestor in the text.
    pub fn line(&self, path: &Pointer) -> usize {
        self.tree.nearest(path).line
    }

    /// The document's text with the operations applied: `add`, `remove` of a list's item or of a key, and `move` from a
    /// list to another, where the item is rendered anew. A `remove` or an `add` at or below a list must not come after a
    /// `move` from or to it.
    ///
    /// # Errors
    /// If a change cannot be written into the text without changing something else.
    pub fn patched(&self, operations: &[PatchOperation]) -> Result<String, ManifestError> {
        let patched = self.try_patched(operations);
        let Some(text) = self.stripped().filter(|_| patched.is_err()) else {
            return patched;
        };
        let (bytes, line) = (text.as_bytes(), self.line);
        Manifest::read(&Document { bytes, line })?.try_patched(operations)
    }

    /// The document with `|-` in place of `|` or `|+`, if the text ends within a line of that block scalar: its value
    /// stays if a line break follows.
    fn stripped(&self) -> Option<String> {
        let before = self.text[..self.tree.unended_scalar?].trim_end();
        let line = before.rsplit('\n').next()?;
        let header = line.split(" #").next()?.rfind(['|', '>'])?;
        let (head, tail) = self.text.split_at(before.len() - line.len() + header + 1);
        let rest = tail.trim_start_matches(|char: char| char.is_ascii_digit() || char == '+');
        let digits = tail[..tail.len() - rest.len()].replace('+', "");
        Some(format!("{}{head}-{digits}{rest}", self.bom))
    }

    fn try_patched(&self, operations: &[PatchOperation]) -> Result<String, ManifestError> {
        let first = operations.first();
        let first = first.map_or(Pointer::root(), PatchOperation::path);
        let mut wanted = self.value.clone();
        let mut tree = self.tree.clone();
        for operation in operations {
            let path = operation.path();
            let at = self.tree.nearest(path).range.start;
            let mut duplicates = self.tree.duplicates.iter();
            if let Some((.., error)) = duplicates.find(|(_, kept, _)| kept.contains(&at)) {
                return Err(error.clone());
            }
            if json_patch::patch(&mut wanted, slice::from_ref(operation)).is_err() {
                return Err(self.layout_error(path));
            }
            let edit = match operation {
                PatchOperation::Add(_) => Edit::Add,
                PatchOperation::Remove(_) => Edit::Remove,
                PatchOperation::Move(MoveOperation { from, .. }) => {
                    let aliases = &tree.first_alias_lines;
                    tree.root.apply(Edit::Remove, from, &wanted, aliases)?;
                    Edit::Add
                }
                _ => return Err(self.layout_error(path)),
            };
            tree.root
                .apply(edit, path, &wanted, &tree.first_alias_lines)?;
        }
        let is_as_wanted =
            |text: &String| Tree::read(text, 1).is_ok_and(|tree| tree.root.value() == wanted);
        let patched = tree.write(self.text);
        let patched = patched.filter(is_as_wanted);
        let patched = patched.ok_or_else(|| self.layout_error(first))?;
        Ok(format!("{}{patched}", self.bom))
    }

    /// The error for a change at `path` that the text cannot take.
    fn layout_error(&self, path: &Pointer) -> ManifestError {
        ManifestError {
            line: self.line(path),
            column: None,
            message: format!("cannot write `{path}` into this layout: use plain block style here"),
        }
    }
}

/// The stream with a line break at its end. The values of its documents stay.
pub fn end_line(stream: &[u8]) -> Vec<u8> {
    let stripped = documents(stream).pop().and_then(|last| {
        let text = Manifest::read(&last).ok()?.stripped()?;
        let before = &stream[..stream.len() - last.bytes.len()];
        Some([before, text.as_bytes()].concat())
    });
    let mut ended = stripped.unwrap_or_else(|| stream.to_vec());
    ended.push(b'\n');
    ended
}

/// The operations of a patch with `base` prepended to the paths of `add`, `remove` and `move`; [`Manifest::patched`]
/// refuses all others.
pub fn rebase(patch: Patch, base: &Pointer) -> Vec<PatchOperation> {
    let mut operations = patch.0;
    for operation in &mut operations {
        match operation {
            PatchOperation::Add(add) => add.path = base.concat(&add.path),
            PatchOperation::Remove(remove) => remove.path = base.concat(&remove.path),
            PatchOperation::Move(MoveOperation { from, path }) => {
                *from = base.concat(from);
                *path = base.concat(path);
            }
            _ => {}
        }
    }
    operations
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

    /// A key in a mapping, a key in the first item of a list, an item before the first and one after the last, and
    /// another value for a key.
    fn changes() -> Vec<PatchOperation> {
        operations(json!([
            {"op": "add", "path": "/m/a/x~1y", "value": "{\"a\":1}"},
            {"op": "add", "path": "/s/c/0/life", "value": {"get": {"port": 1}}},
            {"op": "add", "path": "/s/c/0", "value": {"args": ["--a=b"], "image": "a:b", "name": "first"}},
            {"op": "add", "path": "/s/c/-", "value": {"env": [], "name": "last"}},
            {"op": "add", "path": "/s/grace", "value": 75},
        ]))
    }

    #[test]
    fn additions_are_written_in_place() {
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
                "indented lists, no newline at the end",
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
                "---\nm: {a: {k: v, \"x/y\": \"{\\\"a\\\":1}\", }} # m\ns: {grace: 75, c: [{\"args\":[\"--a=b\"],\"image\":\"a:b\",\"name\":\"first\"}, {name: one, \"life\": {\"get\":{\"port\":1}}}, {\"env\":[],\"name\":\"last\"}]}\n...\n",
            ),
            (
                "JSON",
                "\u{feff}{\n\t\"m\": {\n\t\t\"a\": {\n\t\t\t\"k\": 1e400\n\t\t}\n\t},\n\t\"s\": {\n\t\t\"grace\": 30,\n\t\t\"c\": [\n\t\t\t{\n\t\t\t\t\"name\": \"\\ud83d\\ude00\\/\"\n\t\t\t}\n\t\t]\n\t}\n}",
                "\u{feff}{\n\t\"m\": {\n\t\t\"a\": {\n\t\t\t\"k\": 1e400,\n\t\t\t\"x/y\": \"{\\\"a\\\":1}\"\n\t\t}\n\t},\n\t\"s\": {\n\t\t\"grace\": 75,\n\t\t\"c\": [\n\t\t\t{\n\t\t\t\t\"args\": [\n\t\t\t\t\t\"--a=b\"\n\t\t\t\t],\n\t\t\t\t\"image\": \"a:b\",\n\t\t\t\t\"name\": \"first\"\n\t\t\t},\n\t\t\t{\n\t\t\t\t\"name\": \"\\ud83d\\ude00\\/\",\n\t\t\t\t\"life\": {\n\t\t\t\t\t\"get\": {\n\t\t\t\t\t\t\"port\": 1\n\t\t\t\t\t}\n\t\t\t\t}\n\t\t\t},\n\t\t\t{\n\t\t\t\t\"env\": [],\n\t\t\t\t\"name\": \"last\"\n\t\t\t}\n\t\t]\n\t}\n}",
            ),
            (
                "changed aliases and merged keys are written out",
                "k: &k\n  v: 08 # a trap\nm:\n  <<: &a {a: *k}\ns:\n  grace: 1\n  c:\n  - *k\nz: *k\n",
                "k: &k\n  v: 08 # a trap\nm:\n  <<: &a {a: *k}\n  a:\n    v: 8\n    x/y: '{\"a\":1}'\ns:\n  grace: 75\n  c:\n  - name: first\n    args:\n    - --a=b\n    image: a:b\n  - v: 8\n    life:\n      get:\n        port: 1\n  - name: last\n    env: []\nz: *k\n",
            ),
        ];
        for (name, text, want) in table {
            let patched = read(text).patched(&changes());
            assert_eq!(patched.as_deref(), Ok(want), "{name}");
        }
    }

    #[test]
    fn last_block_scalar_keeps_its_value() {
        let table = [
            ("a: |\n  x", "a: |-\n  x\nz: 1\n"),
            ("a: |+\n  x\n\n  y", "a: |-\n  x\n\n  y\nz: 1\n"),
            ("a: >2+ # c\n   x\n  y", "a: >-2 # c\n   x\n  y\nz: 1\n"),
            ("a: |-\n  x", "a: |-\n  x\nz: 1\n"),
            // The line that ends is one of spaces.
            ("a: |\n  x\n  ", "a: |\n  x\nz: 1\n  "),
            ("a: |\r\n  x", "a: |-\r\n  x\r\nz: 1\r\n"),
            ("\u{feff}a: |\n  x\n", "\u{feff}a: |\n  x\nz: 1\n"),
            ("\u{feff}a: |\n  x", "\u{feff}a: |-\n  x\nz: 1\n"),
        ];
        let change = operations(json!([{"op": "add", "path": "/z", "value": 1}]));
        for (text, want) in table {
            let patched = read(text).patched(&change);
            assert_eq!(patched.as_deref(), Ok(want), "{text:?}");
            let ended = end_line(text.as_bytes());
            let ended = str::from_utf8(&ended).unwrap();
            assert_eq!(read(ended).value(), read(text).value(), "{text:?}");
        }
        // As go-yaml reads it.
        assert_eq!(read("a: |\n  x").value(), &json!({"a": "x"}));
        let moved = operations(json!([{"op": "move", "from": "/c/1", "path": "/i/-"}]));
        let patched = read("i:\n- a\nc:\n- b\n- |\n  x").patched(&moved);
        assert_eq!(patched.as_deref(), Ok("i:\n- a\n- x\nc:\n- b\n"));
    }

    #[test]
    fn items_are_removed_with_their_comments() {
        let (block, flow) = (
            "\
c:
# the first
- name: one
  # in one
  a: |
    text

# the second
- name: two # of two
  # in two

# the third
- name: three
z: 1
",
            "c: [{name: one}, {name: two}, # two\n  {name: three}]\nz: 1\n",
        );
        let table = [
            (block, 0, "# the first\n# the second\n- name: two"),
            (block, 1, "\n# the second\n\n# the third\n- name: three\n"),
            (block, 2, "  # in two\n\n# the third\nz: 1\n"),
            (flow, 0, "c: [{name: two}, # two\n  {name: three}]\nz: 1\n"),
            (flow, 1, "c: [{name: one}, # two\n  {name: three}]\nz: 1\n"),
            (flow, 2, "c: [{name: one}, {name: two}]\nz: 1\n"),
        ];
        for (text, index, want) in table {
            let path = format!("/c/{index}");
            let remove = json!({"op": "remove", "path": path});
            let patched = read(text).patched(&operations(json!([remove]))).unwrap();
            assert!(patched.contains(want), "{patched}");
            // Later indexes are those of the list without it, and `-` is its end.
            let change = operations(json!([
                remove,
                {"op": "add", "path": "/c/1/b", "value": 1},
                {"op": "add", "path": "/c/-", "value": {"name": "last"}},
                {"op": "add", "path": "/y", "value": 2},
            ]));
            let patched = read(text).patched(&change).unwrap();
            let value = read(&patched).value().clone();
            let mut names = vec!["one", "two", "three"];
            names.remove(index);
            assert_eq!(value["c"][1]["b"], 1, "{patched}");
            for (at, name) in names.into_iter().chain(["last"]).enumerate() {
                assert_eq!(value["c"][at]["name"], name, "{patched}");
            }
            assert!(patched.contains("z: 1"), "{patched}");
        }
    }

    #[test]
    fn values_in_brackets_are_replaced_by_json() {
        let table = [
            (
                "a: {k: {o: [1, 2]}} # c\nz: 1\n",
                "a: {k: {\"p\":1}} # c\nz: 1\n",
            ),
            ("a: {k: {o: [1, 2]}, m: 2}\n", "a: {k: {\"p\":1}, m: 2}\n"),
            ("{a: {k: {o: [1, 2]}}}\n", "{a: {k: {\"p\":1}}}\n"),
        ];
        for (text, want) in table {
            let add = json!([{"op": "add", "path": "/a/k", "value": {"p": 1}}]);
            let patched = read(text).patched(&operations(add));
            assert_eq!(patched.as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn values_replace_values_of_any_layout() {
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
                    let add = json!([{"op": "add", "path": path, "value": new}]);
                    let patched = read(&text).patched(&operations(add));
                    let patched = patched.unwrap_or_else(|error| panic!("{text:?} {new}: {error}"));
                    assert!(patched.starts_with(head), "{text:?} {new}: {patched:?}");
                    assert!(patched.ends_with(tail), "{text:?} {new}: {patched:?}");
                }
            }
        }
    }

    #[test]
    fn duplicate_keys_are_left_alone_where_nothing_changes() {
        let add = |path: &str| operations(json!([{"op": "add", "path": path, "value": 3}]));
        let place = |error: &ManifestError| (error.line, error.column.unwrap_or(0));
        // (text, hidden entry, place of the duplicate key, path, text or nothing if it is refused)
        let table = [
            (
                "a: {b: 1}\nc: {b: 1}\n",
                "",
                (0, 0),
                "/a/b",
                "a: {b: 3}\nc: {b: 1}\n",
            ),
            (
                "m: &m {a: 1}\n<<: *m\na: 2\nb: {<<: *m, a: 1}\n",
                "",
                (0, 0),
                "/m",
                "",
            ),
            (
                "a:\n  b: 1\n  c: 2\n  b:\n  - 3\nd: 1\n",
                "b: 1",
                (4, 3),
                "/a/z",
                "a:\n  b: 1\n  c: 2\n  b:\n  - 3\n  z: 3\nd: 1\n",
            ),
            (
                "a: {b: 1, c: 2, 'b': 3}\n",
                "b: 1",
                (1, 17),
                "/a/z",
                "a: {b: 1, c: 2, \"z\": 3, 'b': 3}\n",
            ),
            ("a: {b: 1, b: 2}\n", "b: 1", (1, 11), "/a/b", ""),
            (
                "\u{feff}a: {b: 1}\na: {b: 2}\n",
                "a: {b: 1}",
                (2, 1),
                "/a/b",
                "",
            ),
            (
                "{\"a\": 1, \"a\": 2}",
                "\"a\": 1",
                (1, 10),
                "/b",
                "{\"a\": 1, \"a\": 2, \"b\": 3}",
            ),
        ];
        for (text, hidden, at, path, want) in table {
            let manifest = read(text);
            let found = manifest.duplicates().next();
            let found = found.map_or(("", (0, 0)), |(entry, error)| (entry, place(error)));
            assert_eq!(found, (hidden, at), "{text}");
            match manifest.patched(&add(path)) {
                Ok(patched) => assert_eq!(patched, want),
                Err(error) => {
                    assert_eq!(want, "", "{text}: {error}");
                    let is_told = error.message.contains("duplicate key") && place(&error) == at;
                    assert_eq!(is_told, !hidden.is_empty(), "{error}");
                }
            }
        }
    }

    #[test]
    fn moved_items_are_rendered_anew() {
        let table = [
            (
                "from lines to lines, without the comments in it",
                "s:\n  c:\n  # e\n  - name: envoy # e\n    # in envoy\n    k: 'v'\n  - name: app\n  i:\n      - a\n# end\n",
                "/s/c/0",
                "/s/i/-",
                "s:\n  c:\n  # e\n  - name: app\n  i:\n      - a\n      - name: envoy\n        k: v\n        new: 1\n# end\n",
            ),
            (
                "from brackets to brackets",
                "s: {c: [{name: envoy, }, {name: app}], i: [a, ]} # s\n",
                "/s/c/0",
                "/s/i/-",
                "s: {c: [{name: app}], i: [a, {\"name\":\"envoy\",\"new\":1}, ]} # s\n",
            ),
            (
                "from brackets on several lines to a list of lines",
                "s:\n  c: [{name: app},\n    {name: envoy,\n     k: v}] # c\n  i:\n  - a\n",
                "/s/c/1",
                "/s/i/-",
                "s:\n  c: [{name: app}] # c\n  i:\n  - a\n  - name: envoy\n    k: v\n    new: 1\n",
            ),
            (
                "from a list of lines to brackets",
                "s:\n  c:\n  # e\n  - name: envoy # e\n  - name: app\n  i: [a]\n",
                "/s/c/0",
                "/s/i/-",
                "s:\n  c:\n  # e\n  - name: app\n  i: [a, {\"name\":\"envoy\",\"new\":1}]\n",
            ),
            (
                "from brackets with a comment to none",
                "s:\n  c: [{name: envoy}, # e\n    {name: app}]\n  i: []\n",
                "/s/c/0",
                "/s/i/-",
                "s:\n  c: [{name: app}]\n  i:\n  - name: envoy\n    new: 1\n",
            ),
            (
                "JSON",
                "{\n  \"s\": {\n    \"c\": [\n      {\n        \"name\": \"envoy\"\n      },\n      1\n    ],\n    \"i\": [\n      2\n    ]\n  }\n}\n",
                "/s/c/0",
                "/s/i/-",
                "{\n  \"s\": {\n    \"c\": [\n      1\n    ],\n    \"i\": [\n      2,\n      {\n        \"name\": \"envoy\",\n        \"new\": 1\n      }\n    ]\n  }\n}\n",
            ),
        ];
        for (name, text, from, to, want) in table {
            let moved = operations(json!([
                {"op": "add", "path": format!("{from}/new"), "value": 1},
                {"op": "move", "from": from, "path": to},
            ]));
            let patched = read(text).patched(&moved);
            assert_eq!(patched.as_deref(), Ok(want), "{name}");
        }
    }

    #[test]
    fn unsupported_moves_are_refused() {
        let table = [
            ("the only item", "c:\n- a\ni:\n- b\n", "/c/0", "/i/-"),
            (
                "a list in a list",
                "c:\n- - a\n  - b\ni:\n- c\n",
                "/c/0/0",
                "/i/-",
            ),
            (
                "an alias",
                "c:\n- &a a\n- b\nx: *a\ni:\n- c\n",
                "/c/0",
                "/i/-",
            ),
            ("not a list", "c: {a: 1}\ni:\n- c\n", "/c/a", "/i/-"),
        ];
        for (name, text, from, to) in table {
            let moved = operations(json!([{"op": "move", "from": from, "path": to}]));
            let error = read(text).patched(&moved).unwrap_err();
            assert!(
                error.message.contains("use plain block style"),
                "{name}: {error}"
            );
        }
    }

    #[test]
    fn keys_are_removed_and_items_move_to_any_place() {
        let removed = |path: &str| operations(json!([{"op": "remove", "path": path}]));
        let block = "a: 1 # one\n# two\nb:\n  c: 2\n  # three\n  d:\n    e: 3\n";
        for (text, path, want) in [
            (
                block,
                "/a",
                "# two\nb:\n  c: 2\n  # three\n  d:\n    e: 3\n",
            ),
            (
                block,
                "/b/c",
                "a: 1 # one\n# two\nb:\n  # three\n  d:\n    e: 3\n",
            ),
            (block, "/b", "a: 1 # one\n# two\n"),
            ("m: {a: 1, b: 2}\n", "/m/a", "m: {b: 2}\n"),
            ("m: {a: 1, b: 2}\n", "/m/b", "m: {a: 1}\n"),
            ("{\n  \"a\": 1,\n  \"b\": 2\n}", "/b", "{\n  \"a\": 1\n}"),
        ] {
            assert_eq!(
                read(text).patched(&removed(path)).as_deref(),
                Ok(want),
                "{path}"
            );
        }
        assert!(read("- a: 1\n  b: 2\n").patched(&removed("/0/a")).is_err());
        let moved = operations(json!([{"op": "move", "from": "/c/0", "path": "/i/0"}]));
        let text = read("c:\n- a: 1\n- b\ni:\n- c\n").patched(&moved);
        assert_eq!(text.as_deref(), Ok("c:\n- b\ni:\n- a: 1\n- c\n"));
    }

    #[test]
    fn other_operations_are_refused() {
        for operation in [
            json!({"op": "remove", "path": ""}),
            json!({"op": "remove", "path": "/b/0"}),
            json!({"op": "replace", "path": "/a", "value": 1}),
        ] {
            let error = read("a: 1\nb: [1]\n").patched(&operations(json!([operation])));
            assert!(error.is_err(), "{operation}");
        }
    }

    #[test]
    fn unsupported_changes_are_refused() {
        let table = [
            (
                "a: &x\n  b: c\nz: *x\n",
                "line 2: an alias on line 3 refers to what changes here: write its value out instead of the alias",
            ),
            (
                // For kubectl a later merge wins.
                "m: &m {a: {}}\na: {b: c}\n<<: *m\n",
                "line 2: cannot write `/a/n` into this layout: use plain block style here",
            ),
            (
                "a: 1\n",
                "line 1: cannot write `/a/n` into this layout: use plain block style here",
            ),
        ];
        let operations = operations(json!([{"op": "add", "path": "/a/n", "value": 1}]));
        for (text, want) in table {
            let error = read(text).patched(&operations);
            let error = error.unwrap_err();
            assert_eq!(format!("line {}: {error}", error.line), want, "{text}");
        }
    }
}
