//! Injection into hand-written YAML keeps the value and every other byte of the text.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ctl::cli::inject;
use ctl::cli::inject::InjectReport;
use ctl::offline::{InjectionOutcome, MessageKind};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use tests::manifest::{inject_all, manifest_with_inject, read};
use tests::review::defaults;
use tests::yaml_generator::yaml_style;

fn inject(stream: impl AsRef<[u8]>) -> InjectReport {
    inject::inject(stream.as_ref(), &defaults())
}

#[test]
fn other_documents_pass_byte_for_byte() {
    let streams: &[&[u8]] = &[
        b"",
        b"\n",
        b"# only a comment",
        b"---",
        b"---\n---\n...\n---\n# c\n",
        b"\xef\xbb\xbf# a mark\nkind: X\n",
        b"%YAML 1.1\n%TAG !e! tag:example.com,2000:\n---\na: !e!x 1\n...\n\n%YAML 1.1\n---\nb: !!binary aGk=\n",
        b"a: 1\r\n---\r\nb: |\r\n  x\r\n\r\n   ---\r\n--- # c\r\n{c: [d, 'e', \"f\"], }   \r\n",
        b"key: &a [99999999999999999999, 0x1F, 0777, 1_000, yes, ~, 1e3, 12:30:45, 2001-01-01]\nother: *a\nm: {<<: {x: y}}\n? 1\n: 2\n",
        b"dup: 1\ndup: 2\n",
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n    containers: []   \n\n\n",
        b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}{\"a\":1e400}\n\n[1,2]\n",
        b"a: |+\n  keep\n\n\n\n---\nb: >-\n  fold\n\n  ed\n",
    ];
    for stream in streams {
        let injected = inject(stream);
        assert_eq!(
            injected.bytes,
            *stream,
            "{:?}",
            String::from_utf8_lossy(stream)
        );
        assert_eq!(
            injected.messages,
            [],
            "{:?}",
            String::from_utf8_lossy(stream)
        );
    }
    let all = inject::join_streams(streams.iter().copied());
    assert_eq!(inject(&all).bytes, all);
}

#[test]
fn unreadable_documents_pass_with_an_error() {
    let table: &[(&[u8], (usize, usize), &str)] = &[
        (
            b"a: 1\n---\n{{- if .Values.x }}\na: 1\n{{- end }}\n",
            (3, 3),
            "a template, not YAML: render it first, as by `helm template`",
        ),
        (
            b"metadata:\n  name: {{ .Release.Name }}\n",
            (2, 10),
            "a template, not YAML: render it first, as by `helm template`",
        ),
        (b"a: 1\n---\nb: \xc3\xa9 \xff\n", (3, 6), "not UTF-8"),
        (b"\xff\xfea\0:\0", (1, 1), "not UTF-8"),
        (
            b"a: &a [*a]\n",
            (1, 8),
            "an alias inside the node that it refers to",
        ),
        (
            b"a: .inf\n",
            (1, 4),
            "the number `.inf` has no form in JSON",
        ),
        (b"~: 1\n", (1, 1), "a key that is null, a list or a mapping"),
        (
            b"a: 1\r---\rb: 2\n",
            (2, 1),
            "a second document without a line `---` before it",
        ),
        (
            b"Thank you for installing it.\n\n  1. Open it:\n",
            (3, 13),
            "mapping values are not allowed in this context",
        ),
        (b"a:\n  b: 1\n c: 2\n", (3, 2), "did not find expected key"),
        (b"a: 1\n---\nb: *c\n", (3, 4), "found unknown anchor"),
    ];
    for (stream, place, why) in table {
        let injected = inject(stream);
        assert_eq!(injected.bytes, *stream);
        let [message] = &injected.messages[..] else {
            panic!("{:?}", injected.messages);
        };
        assert_eq!(message.kind, MessageKind::Error);
        assert_eq!((message.line, message.column), (place.0, Some(place.1)));
        assert_eq!(message.text, *why);
        let displayed = message.display("a.yaml", false).to_string();
        let (line, column) = place;
        assert_eq!(displayed, format!("a.yaml:{line}:{column}: error: {why}"));
    }
    let laughs: String = (1..30)
        .map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}]\n", n - 1))
        .collect();
    let injected = inject(format!("a0: &a0 ha\n{laughs}"));
    assert!(
        injected.messages[0].text.contains("aliases expand"),
        "{:?}",
        injected.messages
    );
}

#[test]
fn alias_expansion_is_bounded() {
    let numbers = "1,".repeat(20_000);
    let (text, key) = ("x".repeat(500_000), "x".repeat(1000));
    let anchors = |many: usize| (0..many).map(|n| format!("&a{n} [")).collect::<String>();
    let nested =
        |many: usize, inner: &str| format!("a: {}{inner}{}\n", anchors(many), "]".repeat(many));
    for (document, is_read) in [
        (nested(60, &numbers), false),
        (nested(60, &format!("{text:?}")), false),
        (
            format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(20_000)),
            false,
        ),
        (
            format!("a: &a {{{key}: {{}}}}\nb: [{}]\n", "*a,".repeat(20_000)),
            false,
        ),
        // Their value is small, but not the work to read it.
        (
            nested(60, &format!("{{{}}}", "k: 1,".repeat(20_000))),
            false,
        ),
        (
            nested(60, &format!("{{{}}}", "<<: {k: 1},".repeat(20_000))),
            false,
        ),
        // As in real manifests.
        (nested(60, "1,2"), true),
        (format!("a: &a [{numbers}]\nb: [*a, *a, *a]\n"), true),
        (format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(20)), true),
    ] {
        let head: String = document.chars().take(40).collect();
        let injected = inject(&document);
        assert_eq!(injected.bytes, document.as_bytes(), "{head}");
        let messages: Vec<_> = injected
            .messages
            .iter()
            .map(|message| &*message.text)
            .collect();
        match is_read {
            true => assert_eq!(messages, [""; 0], "{head}"),
            false => assert_eq!(
                messages,
                ["anchors and aliases expand to more than 250000 nodes"],
                "{head}"
            ),
        }
    }
}

#[test]
fn alias_expansion_is_bounded_by_the_documents_size() {
    // Each would expand to 488,281 nodes, and a stream of them to any number.
    let laughs: String = (1..9)
        .map(|n| format!("a{n}: &a{n} [*a{0},*a{0},*a{0},*a{0},*a{0}]\n", n - 1))
        .collect();
    let document = format!("---\na0: &a0 h\n{laughs}");
    let limit = document.len() * 16;
    let injected = inject(document.repeat(100));
    assert_eq!(injected.messages.len(), 100);
    for message in injected.messages {
        let want = format!("anchors and aliases expand to more than {limit} nodes");
        assert_eq!(message.text, want);
    }
}

#[test]
fn time_grows_with_the_input() {
    let many =
        |many: usize, line: &dyn Fn(usize) -> String| (0..many).map(line).collect::<String>();
    let pod = manifest_with_inject("v1", "Pod", "");
    let annotated = |many: usize, value: &str| {
        let line = |n| format!("    envoy-drainer.dev/a{n}: {value}\n");
        let annotations: String = (0..many).map(line).collect();
        pod.replace(
            "  annotations:\n",
            &format!("  annotations:\n{annotations}"),
        )
    };
    let merges = |depth: usize, inner: &str| {
        format!(
            "a: {}{{{inner}}}{}\n",
            "{<<: ".repeat(depth),
            "}".repeat(depth)
        )
    };
    let table: [(&str, &dyn Fn(usize) -> String); 12] = [
        ("unknown annotations", &|n| annotated(n, "x")),
        ("annotations that are numbers", &|n| annotated(n, "1")),
        ("annotations of another key", &|n| {
            pod.replace(
                "spec:\n",
                &format!(
                    "  labels:\n{}spec:\n",
                    many(n, &|n| format!("    a{n}: 1\n"))
                ),
            )
        }),
        ("containers", &|n| {
            pod.clone() + &many(n, &|n| format!("  - name: c{n}\n"))
        }),
        ("variables", &|n| {
            format!(
                "{pod}    env:\n{}",
                many(n, &|n| format!("    - name: E{n}\n"))
            )
        }),
        ("comments", &|n| pod.clone() + &"    # c\n".repeat(n)),
        ("documents", &|n| "---\na: 1\n".repeat(n)),
        ("objects beside many keys", &|n| {
            let keys = many(n, &|n| format!("k{n}: 1\n"));
            let items = "- {apiVersion: v1, kind: Pod}\n".repeat(n / 8);
            format!("{keys}apiVersion: v1\nkind: List\nitems:\n{items}")
        }),
        ("keys in nested merges", &|n| {
            merges(n / 1_000, &many(n, &|n| format!("k{n}: 1,")))
        }),
        ("nested merges of aliases", &|n| {
            let aliases = "*m,".repeat(n);
            format!(
                "m: &m {{a: 1}}\n{}",
                merges(n / 1_000, &format!("<<: [{aliases}]"))
            )
        }),
        ("merges", &|n| {
            format!("m: &m {{a: 1}}\nb: {{{}}}\n", "<<: *m,".repeat(n))
        }),
        ("anchors", &|n| many(n, &|n| format!("a{n}: &a{n} 1\n"))),
    ];
    // 16 times the input, and merges nested 16 times as deep, with a factor of 4 for caches and sorting: quadratic time
    // would be 256 times as long.
    for (name, document) in table {
        let [few, many] = [2_000, 32_000].map(|many| {
            let document = document(many);
            let before = cpu_time();
            let injected = inject(&document);
            let took = cpu_time() - before;
            let errors = injected
                .messages
                .iter()
                .filter(|it| it.kind == MessageKind::Error);
            assert_eq!(errors.count(), 0, "{name}");
            took
        });
        assert!(many < few * 16 * 4, "{name}: {few:?}, {many:?}");
    }
}

/// The CPU time of this thread so far.
fn cpu_time() -> Duration {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = schedstat.split(' ').next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

#[test]
fn oversized_documents_pass_with_an_error() {
    let wanted = |line: usize| {
        let why = "too many nodes in one document, with those to be added, for 200 MiB of memory: \
                   split it into several documents";
        vec![(line, why.to_owned())]
    };
    let item = "- apiVersion: v1\n  kind: Pod\n  metadata: {name: a, annotations: {envoy-drainer.dev/inject: \"true\"}}\n  \
        spec: {containers: [{name: envoy}]}\n";
    let list = |many: usize| format!("apiVersion: v1\nkind: List\nitems:\n{}", item.repeat(many));
    for (document, is_read) in [
        (list(1_000), true),
        (list(8_000), false),
        (format!("a: [{}]\n", "{},".repeat(1_000_000)), false),
    ] {
        let injected = inject(&document);
        let head: String = document.chars().take(40).collect();
        if is_read {
            assert_eq!(
                injected.outcomes,
                [InjectionOutcome::Injected; 1_000],
                "{head}"
            );
            continue;
        }
        let messages = injected
            .messages
            .iter()
            .map(|message| (message.line, message.text.clone()));
        let messages: Vec<_> = messages.collect();
        assert_eq!(messages, wanted(messages[0].0), "{head}");
        assert!(injected.messages[0].is_failure());
        assert_eq!(injected.bytes, document.as_bytes(), "{head}");
    }
}

#[test]
fn yaml_1_1_line_breaks_pass_with_an_error() {
    for foreign in ['\u{85}', '\u{2028}', '\u{2029}'] {
        let asking = manifest_with_inject("v1", "Pod", "");
        let hidden = format!("a: 1 # é{foreign}  envoy-drainer.dev/inject: \"true\"\n");
        for (document, line) in [
            (format!("# a{foreign}b: c\n{asking}"), 1),
            (
                asking.replace("kind: Pod", &format!("kind: Pod # a{foreign}  b: c")),
                2,
            ),
            (hidden, 1),
        ] {
            let injected = inject(&document);
            assert_eq!(injected.bytes, document.as_bytes(), "{document:?}");
            let [message] = &injected.messages[..] else {
                panic!("{document:?}: {:?}", injected.messages)
            };
            assert!(message.is_failure() && message.line == line, "{message:?}");
            let code = foreign.escape_unicode().to_string();
            assert!(message.text.contains(&code), "{message:?}");
        }
        // Documents without our annotations are not reported, and JSON is not affected.
        let other = format!("a: b{foreign}c\n");
        assert_eq!(inject(&other).messages, []);
        let json = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "annotations": { "envoy-drainer.dev/inject": "true", "a": foreign } },
            "spec": { "containers": [{ "name": "envoy" }] },
        });
        assert_eq!(
            inject(json.to_string()).outcomes,
            [InjectionOutcome::Injected]
        );
    }
}

#[test]
fn diff_escapes_names() {
    let diff = inject::unified_diff("a\u{1b}[2J\n.yaml", b"a\n", b"b\n", false);
    assert!(diff.starts_with(r"--- a/a\u{1b}[2J\n.yaml"), "{diff:?}");
}

#[test]
fn message_escapes_names() {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: \"a\\e]0;owned\\a\\r\"\n  \
        annotations: {envoy-drainer.dev/inject: maybe}\nspec: {containers: [{name: envoy}]}\n";
    let injected = inject(manifest);
    let [message] = &injected.messages[..] else {
        panic!("{:?}", injected.messages);
    };
    let displayed = message.display("a\u{1b}[2J.yaml", false).to_string();
    assert!(!displayed.contains(char::is_control), "{displayed:?}");
    assert!(
        displayed.contains(r"Pod a\u{1b}]0;owned\u{7}\r: DRN"),
        "{displayed}"
    );
}

/// Scalars and collections that YAML readers interpret differently.
const AMBIGUOUS_SCALARS: &[&str] = &[
    "yes",
    "no",
    "on",
    "Off",
    "y",
    "N",
    "~",
    "null",
    "Null",
    "true",
    "FALSE",
    "0777",
    "0o17",
    "08",
    "0x1F",
    "0b11",
    "1_000",
    "12:30:45",
    "1e3",
    "1.",
    ".5",
    "+1",
    "-0",
    "123456789012345678901234567890.5",
    "2001-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "=",
    "''",
    "\"8080\"",
    "'0x1F'",
    "\"\\x41\\u00e9\\n\\/\"",
    "'it''s'",
    "! 5",
    "!!str 5",
    "!!int \"5\"",
    "!local x",
    "!!binary aGk=",
    "|\n        one\n          two\n\n        three",
    "|2-\n          deep",
    ">+\n        fold\n        ed\n",
    "plain\n          words # c",
    "\"two\n          lines\"",
    "{a: b, 'c': [d, ], }",
    "&anchor shared",
    "*anchor",
    "[yes, no]",
    "a: b",
    "{<<: {a: b}, a: c}",
];

#[test]
fn scalars_keep_their_text_and_value() {
    let mut manifest = manifest_with_inject("apps/v1", "Deployment", "/spec/template");
    manifest += "    x-ambiguous:\n";
    for scalar in AMBIGUOUS_SCALARS {
        manifest += &format!("      - {scalar}\n");
    }
    manifest += "      - 80: non-string\n        true: keys\n        1.5: too\n        ? [a]\n";
    // JSON cannot have a list as a key.
    let refused = inject(&manifest);
    assert_eq!(refused.bytes, manifest.as_bytes());
    assert_eq!(refused.messages[0].kind, MessageKind::Error);

    let manifest = manifest.replace("        ? [a]\n", "");
    let injected = inject_all(&manifest);
    let (_, before) = manifest.split_once("    x-ambiguous:").unwrap();
    assert!(injected.contains(before), "{injected}");
    let ambiguous = |text: &str| {
        let [document] = &read::<serde_norway::Value>(text.as_bytes())[..] else {
            panic!("{text}");
        };
        document["spec"]["template"]["x-ambiguous"].clone()
    };
    assert!(ambiguous(&manifest).is_sequence());
    assert_eq!(ambiguous(&injected), ambiguous(&manifest));
}

#[test]
fn ambiguous_strings_are_quoted_when_written_out() {
    // A changed alias is written out.
    for scalar in AMBIGUOUS_SCALARS
        .iter()
        .filter(|scalar| !scalar.contains(['\n', '&', '*', '[', '{', ':', '!', '"', '\'']))
    {
        let quoted = serde_json::to_string(scalar).unwrap();
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nx: &m\n  annotations:\n    envoy-drainer.dev/inject: \"true\"\n    note: {quoted}\nmetadata: *m\nspec:\n  containers:\n  - name: envoy\n"
        );
        let injected = inject_all(&manifest);
        let written = injected
            .lines()
            .rfind(|line| line.contains("note:"))
            .unwrap();
        let is_plain = !written.contains(['"', '\'']);
        assert!(!is_plain, "{scalar}: {written}");
        assert_eq!(
            read::<Value>(injected.as_bytes())[0]["metadata"]["annotations"]["note"],
            **scalar
        );
    }
}

#[test]
fn unsupported_documents_pass_with_an_error() {
    let asks = "envoy-drainer.dev/inject: \"true\"";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n";
    let spec = "spec:\n  containers:\n  - name: envoy\n";
    let table = [
        (
            format!("{pod}  annotations: &a\n    {asks}\n{spec}x: *a\n"),
            "an alias on line 11 refers to what changes here: write its value out instead of the alias",
            7,
        ),
        (
            format!(
                "{pod}  annotations:\n    {asks}\n{spec}spec:\n  containers:\n  - name: envoy\n"
            ),
            "duplicate key `spec`: is a `---` missing?",
            11,
        ),
    ];
    for (manifest, text, line) in table {
        // Lines count from the start of the stream, here two lines before the document.
        let injected = inject(format!("a: 1\n---\n{manifest}"));
        assert_eq!(
            injected.bytes,
            format!("a: 1\n---\n{manifest}").into_bytes()
        );
        let [message] = &injected.messages[..] else {
            panic!("{:?}", injected.messages);
        };
        assert_eq!(message.text, text);
        assert_eq!(
            (message.kind, message.line),
            (MessageKind::Error, line),
            "{manifest}"
        );
    }
}

/// Values of unknown fields.
fn unknown_fields() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é😀\n\t]{0,8}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("x-[a-z~/]{1,4}", inner, 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// A Deployment that requests a drainer, with or without optional fields, and with unknown fields everywhere.
fn deployment() -> impl Strategy<Value = Value> {
    let fields = || btree_map("x-[a-z]{1,4}", unknown_fields(), 0..3);
    let shuffled = |object: Value| {
        let entries: Vec<_> = object.as_object().unwrap().clone().into_iter().collect();
        Just(entries)
            .prop_shuffle()
            .prop_map(|entries| Value::Object(entries.into_iter().collect()))
    };
    (fields(), fields(), fields(), any::<[bool; 5]>()).prop_flat_map(
        move |(in_container, in_spec, in_metadata, [labels, volumes, inits, before, moved])| {
            let object = |entries: &BTreeMap<String, Value>| {
                Value::Object(entries.clone().into_iter().collect())
            };
            let mut container = object(&in_container);
            container["name"] = "envoy".into();
            let mut metadata = object(&in_metadata);
            metadata["annotations"] = json!({"envoy-drainer.dev/inject": "true", "note": "1e3"});
            if moved {
                metadata["annotations"]["envoy-drainer.dev/envoy-native-sidecar"] = "true".into();
                metadata["annotations"]["envoy-drainer.dev/extra-lifecycle-hooks"] = "*".into();
            }
            if labels {
                metadata["labels"] = json!({"app": "a"});
            }
            let mut spec = object(&in_spec);
            spec["containers"] = match before {
                true => json!([{"name": "app", "image": "a"}, container]),
                false => json!([container, {"name": "app", "image": "a"}]),
            };
            if volumes {
                spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            }
            if inits {
                spec["initContainers"] = json!([{"name": "i", "image": "i"}]);
            }
            (shuffled(metadata), shuffled(spec)).prop_map(|(metadata, spec)| {
                json!({
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "a"},
                    "spec": {"template": {"metadata": metadata, "spec": spec}, "x-last": [1]},
                })
            })
        },
    )
}

/// A [`deployment`] of Envoy Gateway that asks for adoption, with a shutdown manager before or behind its containers; and
/// the same without the manager and without the hook that calls it.
fn adopted_deployment() -> impl Strategy<Value = (Value, Value)> {
    (deployment(), any::<bool>()).prop_map(|(mut without, is_first)| {
        let pod = &mut without["spec"]["template"];
        pod["metadata"]["annotations"]["envoy-drainer.dev/adopt"] = "true".into();
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        let envoy = containers.iter().position(|it| it["name"] == "envoy");
        let envoy = envoy.unwrap();
        containers[envoy]["command"] = json!(["envoy"]);
        let mut with = without.clone();
        let containers = &mut with["spec"]["template"]["spec"]["containers"];
        let hook = json!({"path": "/shutdown/ready", "port": 19002});
        containers[envoy]["lifecycle"] = json!({"preStop": {"httpGet": hook}});
        let shutdown = ["envoy-gateway", "envoy", "shutdown"];
        let manager = json!({
            "name": "shutdown-manager",
            "image": "envoyproxy/gateway:v1.9.0",
            "args": ["envoy-gateway", "envoy", "shutdown-manager"],
            "lifecycle": {"preStop": {"exec": {"command": shutdown}}},
        });
        let containers = containers.as_array_mut().unwrap();
        containers.insert(if is_first { 0 } else { containers.len() }, manager);
        (with, without)
    })
}

/// Removes what injection adds, and moves Envoy back to its `position` if it was moved; panics if something is missing.
fn remove_injection(object: &mut Value, position: usize) {
    let pod = object.pointer_mut("/spec/template").unwrap();
    let metadata = pod["metadata"].as_object_mut().unwrap();
    let labels = metadata["labels"].as_object_mut().unwrap();
    assert_eq!(
        labels.remove("envoy-drainer.dev/injected"),
        Some("true".into())
    );
    if labels.is_empty() {
        metadata.remove("labels");
    }
    let annotations = metadata["annotations"].as_object_mut().unwrap();
    assert!(
        annotations
            .remove("envoy-drainer.dev/status")
            .unwrap()
            .is_string()
    );
    let is_moved = annotations.contains_key("envoy-drainer.dev/envoy-native-sidecar");
    let spec = pod["spec"].as_object_mut().unwrap();
    if is_moved {
        let inits = spec["initContainers"].as_array_mut().unwrap();
        let mut envoy = inits.pop().unwrap();
        assert_eq!(envoy["name"], "envoy");
        let restart_policy = envoy.as_object_mut().unwrap().remove("restartPolicy");
        assert_eq!(restart_policy, Some("Always".into()));
        let containers = spec["containers"].as_array_mut().unwrap();
        assert!(
            containers[0]
                .as_object_mut()
                .unwrap()
                .remove("lifecycle")
                .is_some()
        );
        containers.insert(position, envoy);
    }
    for list in ["volumes", "initContainers"] {
        let items = spec[list].as_array_mut().unwrap();
        let before = items.len();
        items.retain(|item| item["name"] != "envoy-drainer");
        assert_eq!(items.len() + 1, before, "{list}");
        if items.is_empty() {
            spec.remove(list);
        }
    }
    assert_eq!(
        spec.remove("terminationGracePeriodSeconds"),
        Some(if is_moved { 105 } else { 75 }.into())
    );
    let mut containers = spec["containers"].as_array_mut().unwrap().iter_mut();
    let envoy = containers
        .find(|container| container["name"] == "envoy")
        .unwrap();
    assert!(envoy.as_object_mut().unwrap().remove("lifecycle").is_some());
}

/// The position of Envoy's container in a [`deployment`].
fn envoy_position(object: &Value) -> usize {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let mut containers = containers.unwrap().iter();
    let position = containers.position(|container| container["name"] == "envoy");
    position.unwrap()
}

/// Whether every byte of `part` is in `whole`, in any order, but for white space.
fn is_subset(part: &str, whole: &str) -> bool {
    let count = |text: &str| {
        let mut counts = [0_usize; 256];
        for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
            counts[usize::from(byte)] += 1;
        }
        counts
    };
    count(part)
        .iter()
        .zip(count(whole))
        .all(|(part, whole)| *part <= whole)
}

/// Whether the init containers are in brackets and the containers are not, so that `inject` cannot move one.
fn is_unsupported_move(text: &str) -> bool {
    let is_flow =
        |key: &str| text.contains(&format!("{key:?}: [")) || text.contains(&format!("{key}: ["));
    text.contains("envoy-native-sidecar") && is_flow("initContainers") && !is_flow("containers")
}

/// Whether every byte of `part` is in `whole`, in the same order.
fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut whole = whole.bytes();
    part.bytes().all(|byte| whole.any(|other| other == byte))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn injection_keeps_every_byte_and_value(
        (object, style) in (deployment(), yaml_style())
    ) {
        let text = style.write(&object);
        prop_assert_eq!(&read::<Value>(text.as_bytes())[0], &object, "libyaml reads the generated text: {}", text);
        let pod = &object["spec"]["template"];
        let is_moved = !pod["metadata"]["annotations"]["envoy-drainer.dev/envoy-native-sidecar"].is_null();
        if is_unsupported_move(&text) {
            let injected = inject(&text);
            prop_assert_eq!(injected.outcomes, [InjectionOutcome::Unchanged]);
            return Ok(());
        }
        let injected = inject_all(&text);
        let mut read = read::<Value>(injected.as_bytes()).remove(0);
        remove_injection(&mut read, envoy_position(&object));
        prop_assert_eq!(&read, &object, "{}", injected);
        let is_kept = if is_moved { is_subset } else { is_subsequence };
        prop_assert!(is_kept(&text, &injected), "{}\n{}", text, injected);
    }

    #[test]
    fn adoption_removes_the_manager_and_nothing_else(
        ((with, without), style) in (adopted_deployment(), yaml_style())
    ) {
        let text = style.write(&with);
        if is_unsupported_move(&text) {
            return Ok(());
        }
        let injected = inject_all(&text);
        let mut read = read::<Value>(injected.as_bytes()).remove(0);
        remove_injection(&mut read, envoy_position(&without));
        prop_assert_eq!(&read, &without, "{}", injected);
    }
}
