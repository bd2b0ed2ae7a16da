//! Injection into hand-written YAML keeps the value and every other byte of the text.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ctl::cli::inject;
use ctl::cli::inject::InjectReport;
use ctl::offline::{InjectionOutcome, Message, MessageKind};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use tests::manifest::{inject, inject_all, manifest_with_inject, read, texts};
use tests::yaml_generator::yaml_style;

/// The only message of a report.
fn only_message(report: &InjectReport) -> &Message {
    let [message] = &report.messages[..] else {
        panic!("{:?}", report.messages);
    };
    message
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
        let text = String::from_utf8_lossy(stream);
        assert_eq!(injected.bytes, *stream, "{text:?}");
        assert_eq!(injected.messages, [], "{text:?}");
    }
    let all = inject::join_streams(streams.iter().copied());
    assert_eq!(inject(&all).bytes, all);
}

#[test]
fn unreadable_documents_pass_with_an_error() {
    let template = "a template, not YAML: render it first, as `helm template` does";
    let second = "a second document without a line `---` before it";
    let alias = "an alias inside the node that it refers to";
    let prose = b"Thank you for installing it.\n\n  1. Open it:\n";
    let mapping = "mapping values are not allowed in this context";
    let number = "the number `.inf` has no form in JSON";
    let conditional = b"a: 1\n---\n{{- if .Values.x }}\na: 1\n{{- end }}\n";
    let table: &[(&[u8], (usize, usize), &str)] = &[
        (conditional, (3, 3), template),
        (
            b"metadata:\n  name: {{ .Release.Name }}\n",
            (2, 10),
            template,
        ),
        (b"a: 1\n{% if b %}\n", (2, 2), template),
        (b"a: 1\n---\nb: \xc3\xa9 \xff\n", (3, 6), "not UTF-8"),
        (b"\xff\xfea\0:\0", (1, 1), "not UTF-8"),
        (b"a: &a [*a]\n", (1, 8), alias),
        (b"a: .inf\n", (1, 4), number),
        (b"~: 1\n", (1, 1), "a key that is null, a list or a mapping"),
        (b"a: 1\r---\rb: 2\n", (2, 1), second),
        (prose, (3, 13), mapping),
        (b"a:\n  b: 1\n c: 2\n", (3, 2), "did not find expected key"),
        (b"a: 1\n---\nb: *c\n", (3, 4), "found unknown anchor"),
    ];
    for (stream, place, why) in table {
        let injected = inject(stream);
        assert_eq!(injected.bytes, *stream);
        let message = only_message(&injected);
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
    let texts = texts(&injected);
    assert!(texts[0].contains("aliases expand"), "{texts:?}");
}

#[test]
fn alias_expansion_is_bounded() {
    let numbers = "1,".repeat(20_000);
    let (text, key) = ("x".repeat(500_000), "x".repeat(1000));
    let anchors = |many: usize| (0..many).map(|n| format!("&a{n} [")).collect::<String>();
    let nested =
        |many: usize, inner: &str| format!("a: {}{inner}{}\n", anchors(many), "]".repeat(many));
    let repeated = |anchored: &str, many: usize| {
        let aliases = "*a,".repeat(many);
        format!("a: &a {anchored}\nb: [{aliases}]\n")
    };
    let mapping = |entry: &str| format!("{{{}}}", entry.repeat(20_000));
    for (document, is_read) in [
        (nested(60, &numbers), false),
        (nested(60, &format!("{text:?}")), false),
        (repeated(&text, 20_000), false),
        (repeated(&format!("{{{key}: {{}}}}"), 20_000), false),
        // Their value is small, but not the work to read it.
        (nested(60, &mapping("k: 1,")), false),
        (nested(60, &mapping("<<: {k: 1},")), false),
        // As in real manifests.
        (nested(60, "1,2"), true),
        (repeated(&format!("[{numbers}]"), 3), true),
        (repeated(&text, 20), true),
    ] {
        let head: String = document.chars().take(40).collect();
        let injected = inject(&document);
        assert_eq!(injected.bytes, document.as_bytes(), "{head}");
        let refusal = "anchors and aliases expand to more than 250000 nodes";
        let want = if is_read { vec![] } else { vec![refusal] };
        assert_eq!(texts(&injected), want, "{head}");
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
    let annotated = |n: usize, value: &str| {
        let lines = many(n, &|n| format!("    envoy-drainer.dev/a{n}: {value}\n"));
        pod.replace("  annotations:\n", &format!("  annotations:\n{lines}"))
    };
    let labelled = |n: usize| {
        let labels = many(n, &|n| format!("    a{n}: 1\n"));
        pod.replace("spec:\n", &format!("  labels:\n{labels}spec:\n"))
    };
    let with_variables = |n: usize| {
        let variables = many(n, &|n| format!("    - name: E{n}\n"));
        format!("{pod}    env:\n{variables}")
    };
    let list = |n: usize| {
        let keys = many(n, &|n| format!("k{n}: 1\n"));
        let items = "- {apiVersion: v1, kind: Pod}\n".repeat(n / 8);
        format!("{keys}apiVersion: v1\nkind: List\nitems:\n{items}")
    };
    let nested_merges = |n: usize, inner: &str| {
        let (open, close) = ("{<<: ".repeat(n / 1_000), "}".repeat(n / 1_000));
        format!("a: {open}{{{inner}}}{close}\n")
    };
    let nested_keys = |n| nested_merges(n, &many(n, &|n| format!("k{n}: 1,")));
    let nested_aliases = |n: usize| {
        let aliases = "*m,".repeat(n);
        format!(
            "m: &m {{a: 1}}\n{}",
            nested_merges(n, &format!("<<: [{aliases}]"))
        )
    };
    let merges = |n: usize| format!("m: &m {{a: 1}}\nb: {{{}}}\n", "<<: *m,".repeat(n));
    let containers = |n| many(n, &|n| format!("  - name: c{n}\n"));
    let with_configuration = |n: usize| {
        let lines = many(n / 8, &|n| format!("    k{n}: 1\n"));
        let pod = pod.clone()
            + "    volumeMounts: [{name: v, mountPath: /etc/envoy}]\n  volumes: [{name: v, configMap: {name: c}}]\n---\n";
        let pods = pod.repeat(n / 80);
        format!(
            "{pods}kind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  envoy.yaml: |\n    admin: {{}}\n{lines}"
        )
    };
    let table: [(&str, &dyn Fn(usize) -> String); 13] = [
        ("unknown annotations", &|n| annotated(n, "x")),
        ("annotations that are numbers", &|n| annotated(n, "1")),
        ("annotations of another key", &labelled),
        ("containers", &|n| pod.clone() + &containers(n)),
        ("variables", &with_variables),
        ("comments", &|n| pod.clone() + &"    # c\n".repeat(n)),
        ("pods with the same configuration", &with_configuration),
        ("documents", &|n| "---\na: 1\n".repeat(n)),
        ("objects beside many keys", &list),
        ("keys in nested merges", &nested_keys),
        ("nested merges of aliases", &nested_aliases),
        ("merges", &merges),
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
            let mut messages = injected.messages.iter();
            assert!(messages.all(|it| it.kind != MessageKind::Error), "{name}");
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
    let why = "too many nodes in one document, with those to be added, for 200 MiB of memory: \
               split it into several documents";
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
            let injected = injected.outcomes == [InjectionOutcome::Injected; 1_000];
            assert!(injected, "{head}");
            continue;
        }
        assert_eq!(texts(&injected), [why], "{head}");
        assert!(injected.messages[0].kind == MessageKind::Error);
        assert_eq!(injected.bytes, document.as_bytes(), "{head}");
    }
}

#[test]
fn yaml_1_1_line_breaks_pass_with_an_error() {
    for foreign in ['\u{85}', '\u{2028}', '\u{2029}'] {
        let asking = manifest_with_inject("v1", "Pod", "");
        let hidden = format!("a: 1 # é{foreign}  envoy-drainer.dev/inject: \"true\"\n");
        let commented = format!("kind: Pod # a{foreign}  b: c");
        for (document, line) in [
            (format!("# a{foreign}b: c\n{asking}"), 1),
            (asking.replace("kind: Pod", &commented), 2),
            (hidden, 1),
        ] {
            let injected = inject(&document);
            assert_eq!(injected.bytes, document.as_bytes(), "{document:?}");
            let message = only_message(&injected);
            assert!(
                message.kind == MessageKind::Error && message.line == line,
                "{message:?}"
            );
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
        let outcomes = inject(json.to_string()).outcomes;
        assert_eq!(outcomes, [InjectionOutcome::Injected]);
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
    let message = only_message(&injected);
    let displayed = message.display("a\u{1b}[2J.yaml", false).to_string();
    assert!(!displayed.contains(char::is_control), "{displayed:?}");
    let escaped = r"Pod a\u{1b}]0;owned\u{7}\r: DRN";
    assert!(displayed.contains(escaped), "{displayed}");
}

/// Scalars and collections that YAML readers interpret differently.
fn ambiguous_scalars() -> impl Iterator<Item = &'static str> {
    const WORDS: &str = "yes no on Off y N ~ null Null true FALSE 0777 0o17 08 0x1F 0b11 1_000 12:30:45 1e3 1. .5 +1 \
        -0 123456789012345678901234567890.5 2001-01-01 2001-12-14t21:59:43.10-05:00 = '' \"8080\" '0x1F' \
        \"\\x41\\u00e9\\n\\/\" 'it''s'";
    const TAGS_AND_COLLECTIONS: &str = "! 5 | !!str 5 | !!int \"5\" | !local x | !!binary aGk= | &anchor shared | \
        *anchor | [yes, no] | a: b | {a: b, 'c': [d, ], } | {<<: {a: b}, a: c}";
    const MULTILINE: [&str; 5] = [
        "|\n        one\n          two\n\n        three",
        "|2-\n          deep",
        ">+\n        fold\n        ed\n",
        "plain\n          words # c",
        "\"two\n          lines\"",
    ];
    let tags_and_collections = TAGS_AND_COLLECTIONS.split(" | ");
    WORDS
        .split(' ')
        .chain(tags_and_collections)
        .chain(MULTILINE)
}

#[test]
fn scalars_keep_their_text_and_value() {
    let mut manifest = manifest_with_inject("apps/v1", "Deployment", "/spec/template");
    manifest += "    x-ambiguous:\n";
    for scalar in ambiguous_scalars() {
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
    let special = ['\n', '&', '*', '[', '{', ':', '!', '"', '\''];
    for scalar in ambiguous_scalars().filter(|scalar| !scalar.contains(special)) {
        let quoted = serde_json::to_string(scalar).unwrap();
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nx: &m\n  annotations:\n    envoy-drainer.dev/inject: \"true\"\n    note: {quoted}\nmetadata: *m\nspec:\n  containers:\n  - name: envoy\n"
        );
        let injected = inject_all(&manifest);
        let written = injected.lines().rfind(|line| line.contains("note:"));
        let is_quoted = written.is_some_and(|line| line.contains(['"', '\'']));
        assert!(is_quoted, "{scalar}: {written:?}");
        let pod = &read::<Value>(injected.as_bytes())[0];
        assert_eq!(pod["metadata"]["annotations"]["note"], *scalar);
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
            spec["containers"] = if before {
                json!([{"name": "app", "image": "a"}, container])
            } else {
                json!([container, {"name": "app", "image": "a"}])
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

/// A [`deployment`] of Envoy Gateway that asks for adoption, with a shutdown manager before or behind its containers;
/// and the same without the manager and without the hook that calls it.
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
    let injected = labels.remove("envoy-drainer.dev/injected");
    assert_eq!(injected, Some("true".into()));
    if labels.is_empty() {
        metadata.remove("labels");
    }
    let annotations = metadata["annotations"].as_object_mut().unwrap();
    let status = annotations.remove("envoy-drainer.dev/status");
    assert!(status.unwrap().is_string());
    let is_moved = annotations.contains_key("envoy-drainer.dev/envoy-native-sidecar");
    let spec = pod["spec"].as_object_mut().unwrap();
    if is_moved {
        let inits = spec["initContainers"].as_array_mut().unwrap();
        let mut envoy = inits.pop().unwrap();
        assert_eq!(envoy["name"], "envoy");
        let restart_policy = envoy.as_object_mut().unwrap().remove("restartPolicy");
        assert_eq!(restart_policy, Some("Always".into()));
        let containers = spec["containers"].as_array_mut().unwrap();
        remove_hook(&mut containers[0]);
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
    let grace_period = spec.remove("terminationGracePeriodSeconds").unwrap();
    assert_eq!(grace_period, if is_moved { 105 } else { 75 });
    let mut containers = spec["containers"].as_array_mut().unwrap().iter_mut();
    let envoy = containers.find(|container| container["name"] == "envoy");
    remove_hook(envoy.unwrap());
}

fn remove_hook(container: &mut Value) {
    let hook = container.as_object_mut().unwrap().remove("lifecycle");
    assert!(hook.is_some(), "{container}");
}

/// The position of Envoy's container in a [`deployment`].
fn envoy_position(object: &Value) -> usize {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let mut containers = containers.unwrap().iter();
    let position = containers.position(|container| container["name"] == "envoy");
    position.unwrap()
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
        let injected = inject_all(&text);
        let mut read = read::<Value>(injected.as_bytes()).remove(0);
        remove_injection(&mut read, envoy_position(&object));
        prop_assert_eq!(&read, &object, "{}", injected);
        // A container that moves is rendered anew.
        prop_assert!(is_moved || is_subsequence(&text, &injected), "{}\n{}", text, injected);
    }

    #[test]
    fn adoption_removes_the_manager_and_nothing_else(
        ((with, without), style) in (adopted_deployment(), yaml_style())
    ) {
        let text = style.write(&with);
        let injected = inject_all(&text);
        let mut read = read::<Value>(injected.as_bytes()).remove(0);
        remove_injection(&mut read, envoy_position(&without));
        prop_assert_eq!(&read, &without, "{}", injected);
    }
}
