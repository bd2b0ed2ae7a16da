//! Output, messages and exit codes of `inject` and `explain`.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use ctl::cli::explain::ExplainReport;
use ctl::cli::inject;
use ctl::offline::{InjectionOutcome as Outcome, Input, LocatedDiagnostic, MessageKind, Verdict};
use serde_json::{Value, json};
use tests::foreign_text::{FOREIGN_TEXT, assert_escaped};
use tests::manifest::{
    KINDS, assert_explained, explain, inject, inject_all, manifest_with_inject, read, texts,
};
use tests::review::{IMAGE, defaults};
use tests::{binaries, golden};

use super::text;

fn input(name: &str) -> Input {
    Input {
        name: name.to_owned(),
        bytes: golden::read(&format!("offline/{name}")).into_bytes(),
    }
}

/// A pod that requests a drainer, with these annotations as well.
fn pod_with(annotations: &str) -> String {
    manifest_with_inject("v1", "Pod", "").replace("spec:", &format!("{annotations}spec:"))
}

fn shop_manifest() -> Input {
    input("shop.yaml")
}

/// The messages as printed to stderr.
fn messages(input: &Input) -> String {
    let messages = inject(&input.bytes).messages;
    let lines = messages
        .iter()
        .map(|message| format!("{}\n", &*message.display(&input.name, false)));
    lines.collect()
}

#[test]
fn diff_shows_only_changes() {
    golden::check("offline/shop.remarks", &messages(&shop_manifest()));
    let Input { name, bytes } = shop_manifest();
    let injected = inject(&bytes);
    let diff = inject::unified_diff(&name, &bytes, &injected.bytes, false);
    golden::check("offline/shop.diff", &diff);
    let styled = inject::unified_diff(&name, &bytes, &injected.bytes, true);
    assert_eq!(without_styles(&styled), *diff);
    assert!(styled.contains("\u{1b}[32m+"), "{}", &*styled);
}

#[test]
fn moved_envoy_is_rendered_anew() {
    let Input { name, bytes } = input("sidecar.yaml");
    let injected = inject(&bytes);
    assert_eq!(injected.outcomes, [Outcome::Injected; 3]);
    let diff = inject::unified_diff(&name, &bytes, &injected.bytes, false);
    golden::check("offline/sidecar.diff", &diff);
    let mut explained = ExplainReport::new(&[Input { name, bytes }], &defaults());
    golden::check("offline/sidecar.explained.txt", &explained.to_text(false));
    explained.pods.truncate(1);
    golden::check("explain/sidecar.json", &explained.to_json());
}

#[test]
fn adoption_is_written_and_explained() {
    let Input { name, bytes } = input("adopted.yaml");
    let injected = inject(&bytes);
    assert_eq!(injected.outcomes, [Outcome::Injected]);
    let diff = inject::unified_diff(&name, &bytes, &injected.bytes, false);
    golden::check("offline/adopted.diff", &diff);
    let explained = ExplainReport::new(&[input("adopted.yaml")], &defaults());
    golden::check("offline/adopted.explained.txt", &explained.to_text(false));
    golden::check("explain/adopted.json", &explained.to_json());
}

#[test]
fn misplaced_annotations_are_reported() {
    let astray = input("astray.yaml");
    golden::check("offline/astray.remarks", &messages(&astray));
    let injected = inject(&astray.bytes);
    assert_eq!(injected.bytes, astray.bytes);
    let outcomes = [
        [Outcome::NotRequested; 5].as_slice(),
        &[Outcome::OptedOut],
        &[Outcome::Skipped; 2],
    ];
    assert_eq!(injected.outcomes, outcomes.concat());
    let explained = ExplainReport::new(&[astray], &defaults());
    assert_eq!(explained.verdict(), Verdict::Finding);
    golden::check("offline/astray.explained.txt", &explained.to_text(false));
}

#[test]
fn all_bad_values_are_reported_at_once() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    \
        envoy-drainer.dev/inject: yes\n    envoy-drainer.dev/drain-timeout: 5\n    \
        envoy-drainer.dev/idle-exit: off\n    envoy-drainer.dev/port: 0\n\
        spec:\n  containers:\n  - name: envoy\n";
    let injected = inject(pod);
    assert_eq!(
        texts(&injected),
        [
            "Pod a: DRN020: `envoy-drainer.dev/inject` is a boolean, not a string: quote it",
            "Pod a: DRN020: `envoy-drainer.dev/drain-timeout` is a number, not a string: quote it",
            "Pod a: DRN020: `envoy-drainer.dev/idle-exit` is a boolean, not a string: quote it",
            "Pod a: DRN020: `envoy-drainer.dev/port` is a number, not a string: quote it",
        ]
    );
    assert_eq!(injected.bytes, pod.as_bytes());
    let mistyped = inject(pod.replace("name: envoy", "name: [envoy]"));
    let want = "Pod a: DRN026: spec.containers[0].name: invalid type: sequence";
    let texts = texts(&mistyped);
    assert!(texts.iter().any(|text| text.starts_with(want)), "{texts:?}");
}

#[test]
fn annotation_messages_have_their_line() {
    let pod = pod_with(
        "    envoy-drainer.dev/port: '0'\n    envoy-drainer.dev/prot: '1'\n    \
         envoy-drainer.dev/min-drain-duration: 5m\n",
    );
    let at = |name: &str| 1 + pod.lines().position(|line| line.contains(name)).unwrap();
    let [port, prot, minimum] = ["/port", "/prot", "/min-drain-duration"].map(at);
    let messages = inject(&pod).messages;
    let lines: Vec<_> = messages.iter().map(|message| message.line).collect();
    assert_eq!(lines, [port, prot, minimum], "{messages:?}");
    let explained = explain(pod);
    assert_eq!(explained.pods.len(), 1, "{explained:?}");
    let pod = &explained.pods[0].1;
    let lines = |reasons: &[LocatedDiagnostic]| -> Vec<_> {
        reasons.iter().map(|reason| reason.line).collect()
    };
    assert_eq!(lines(&pod.reasons), [port, minimum]);
    assert_eq!(lines(&pod.warnings), [prot]);
    let text = explained.to_text(false).to_string();
    let unknown = format!("DRN050    line {prot}: unknown");
    assert!(text.contains(&unknown), "{text}");
}

#[test]
fn explanations_render_as_text_and_json() {
    let explained = ExplainReport::new(&[shop_manifest()], &defaults());
    assert_eq!(explained.verdict(), Verdict::Finding);
    let text = explained.to_text(false).to_string();
    golden::check("offline/shop.explained.txt", &text);
    golden::check("explain/shop.json", &explained.to_json());
    assert_eq!(without_styles(&explained.to_text(true)), *text);
    for columns in [60, 80] {
        let mut command = Command::new(binaries::envoy_drainer().unwrap());
        command.args(["explain", "golden/offline/shop.yaml", "--image", IMAGE]);
        let output = command.env("COLUMNS", columns.to_string()).output();
        let output = output.unwrap().stdout;
        let text = str::from_utf8(&output).unwrap();
        assert!(!text.is_empty());
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(columns), "{columns}: {widest:?}: {text}");
    }
}

#[test]
fn guessed_container_and_named_admin_port_are_explained() {
    let pod = manifest_with_inject("v1", "Pod", "").replace(
        "  - name: envoy\n    image: envoy\n",
        "  - name: web\n    image: nginx\n    ports: [{name: envoy-admin, containerPort: 15902}]\n",
    );
    let parts = [
        "container `web` (a guess: it is the only container)",
        "127.0.0.1:15902 (the container port named `envoy-admin`)",
        "listening on port 15903",
        "    port                   15903  next free port\n",
        "DRN057",
        "→ annotate `envoy-container`",
        "DRN058",
    ];
    assert_explained(pod, &parts);
}

#[test]
fn long_values_widen_their_column() {
    let pod = pod_with("    envoy-drainer.dev/ignore-listeners: 9100,health\n");
    let parts = [
        "\n    drain-timeout               60s  default\n",
        "\n    ignore-listeners    9100,health  annotation\n",
    ];
    assert_explained(pod, &parts);
}

#[test]
fn opt_in_hint_is_only_for_undecided_pods() {
    let inject = "envoy-drainer.dev/inject: \"true\"";
    for (annotation, has_hint) in [("envoy-drainer.dev/inject: 'false'", false), ("a: b", true)] {
        let pod = manifest_with_inject("v1", "Pod", "").replace(inject, annotation);
        let text = explain(pod).to_text(false).to_string();
        assert_eq!(
            text.contains("To see what a drainer would change"),
            has_hint,
            "{text}"
        );
    }
}

#[test]
fn timeline_follows_settings() {
    let table = "\
drain-delay: 20s, idle-exit: 15s | hooks 0, drain 20, earliest 30, idle 30, quiet 50, deadline 80, kill 95
 | drain 0, earliest 10, idle 10, quiet 30, deadline 60, kill 75
quiet-period: 25s, idle-exit: 28s | drain 0, earliest 25, idle 28, quiet 30, deadline 60, kill 75
quiet-period: 10m | drain 0, earliest 30, idle 30, quiet 30, deadline 60, kill 75
quiet-period: 25s, drain-timeout: 20s | drain 0, earliest 20, deadline 20, kill 35
idle-exit: off, quiet-period: 0s, min-drain-duration: 1m | drain 0, earliest 60, deadline 60, kill 75
idle-exit: 90s, min-drain-duration: 45s | drain 0, earliest 45, deadline 60, kill 75";
    for row in table.lines() {
        let (settings, want) = row.split_once(" | ").unwrap();
        let settings = settings.split(", ").filter(|setting| !setting.is_empty());
        let annotation = |it: &str| format!("    envoy-drainer.dev/{}'\n", it.replace(": ", ": '"));
        let pod = pod_with(&settings.map(annotation).collect::<String>());
        let report: Value = serde_json::from_str(&explain(pod).to_json()).unwrap();
        let events = report["pods"][0]["plan"]["timeline"].as_array().unwrap();
        let events = events.iter().map(|event| {
            let name = event["event"].as_str().unwrap();
            format!("{name} {}", event["seconds"].as_f64().unwrap())
        });
        let events: Vec<_> = events.collect();
        assert_eq!(events.join(", "), format!("endpoint 0, {want}"), "{row}");
    }
}

fn without_styles(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain + rest
}

/// Asserts that the object has a drainer, with the `min-drain-duration` of its kind.
fn assert_drainer(object: &Value, path: &str, kind: &str) {
    let pod = object.pointer(path).unwrap();
    let drainer = &pod["spec"]["initContainers"][0];
    assert_eq!(drainer["name"], "envoy-drainer", "{kind}: {pod}");
    let minimum = match kind {
        "Job" | "CronJob" => "--min-drain-duration=0s",
        _ => "--min-drain-duration=10s",
    };
    let args = drainer["args"].as_array().unwrap();
    assert!(args.contains(&minimum.into()), "{kind}: {args:?}");
    assert!(pod["spec"]["imagePullSecrets"].is_null());
}

#[test]
fn every_kind_is_injected_in_yaml_and_json() {
    for (version, kind, path) in KINDS {
        let yaml = manifest_with_inject(version, kind, path);
        let only = |yaml: &str| {
            let mut objects = read::<Value>(yaml.as_bytes());
            assert_eq!(objects.len(), 1, "{kind}");
            objects.remove(0)
        };
        assert_drainer(&only(&inject_all(&yaml)), path, kind);
        let plain = only(&yaml);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "X"}, plain]});
        for json in [
            serde_json::to_string(&list).unwrap(),
            serde_json::to_string_pretty(&list).unwrap(),
        ] {
            let object: Value = serde_json::from_str(&inject_all(&json)).unwrap();
            assert_drainer(&object["items"][1], path, kind);
            assert_eq!(object["items"][0], json!({"kind": "X"}));
        }
        let array = inject_all(&format!("[{plain}, {plain}]"));
        let objects: Vec<Value> = serde_json::from_str(&array).unwrap();
        for object in &objects {
            assert_drainer(object, path, kind);
        }
    }
}

#[test]
fn token_depends_only_on_the_document() {
    let token = |text: &str| {
        let injected = inject_all(text);
        let at = injected.find("--token=").unwrap() + "--token=".len();
        injected[at..at + 16].to_owned()
    };
    let plain = manifest_with_inject("apps/v1", "Deployment", "/spec/template");
    let same = plain.replace("name: envoy\n", "name: 'envoy' # the same\n");
    assert_eq!(token(&plain), token(&same));
    for other in [
        plain.replace("name: a}", "name: b}"),
        plain.replace("name: a}", "name: a, namespace: shop}"),
        plain.replace("Deployment", "DaemonSet"),
        plain.replace("image: envoy", "image: envoy:2"),
    ] {
        assert_ne!(token(&plain), token(&other), "{other}");
    }
}

#[test]
fn offline_and_admission_inject_the_same() {
    let names = "admin-unix-socket envoy-main envoy-moved envoy-native-sidecar existing-hook-replaced extra-hooks \
        grace-bigger grace-smaller guaranteed host-network istio-injected job many-containers pod-level-resources";
    for name in names.split(' ') {
        let tokenless = |text: &str| {
            let at = text.find("--token=").unwrap() + "--token=".len();
            let token = &text[at..at + 16];
            read::<Value>(text.replace(token, "0123456789abcdef").as_bytes())
        };
        let offline = inject_all(&golden::read(&format!("{name}.yaml")));
        // From `--config-yaml`, which admission does not read.
        let offline = offline.replace("--admin-hints=[::1]:19000,", "--admin-hints=");
        let admitted = golden::read(&format!("{name}.patched.yaml"));
        assert_eq!(tokenless(&offline), tokenless(&admitted), "{name}");
    }
}

#[test]
fn removal_gives_back_the_manifest() {
    for (version, kind, path) in KINDS {
        let text = manifest_with_inject(version, kind, path);
        let removed = inject::remove(inject_all(&text).as_bytes());
        assert_eq!(String::from_utf8_lossy(&removed.bytes), text, "{kind}");
        assert_eq!(removed.outcomes, [Outcome::Injected], "{kind}");
    }
    // Comments of what moves are lost.
    let text = golden::read("offline/sidecar.yaml");
    let removed = inject::remove(&inject(&text).bytes);
    assert_eq!(texts(&removed), [""; 0]);
    let [before, after] = [text.as_bytes(), &removed.bytes].map(read::<Value>);
    assert_eq!(after, before);
    let adopted = inject(golden::read("offline/adopted.yaml")).bytes;
    let kept = inject::remove(&adopted);
    assert_eq!(kept.bytes, adopted);
    assert_eq!(kept.outcomes[0], Outcome::Denied);
    let want = "DRN090: the pod's shutdown manager was removed";
    assert!(texts(&kept)[0].contains(want), "{:?}", texts(&kept));
}

#[test]
fn denied_pod_leaves_its_list_unchanged() {
    let good = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "good", "annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {"containers": [{"name": "envoy"}]},
    });
    let mut bad = good.clone();
    bad["metadata"]["name"] = "bad".into();
    bad["metadata"]["annotations"]["envoy-drainer.dev/port"] = "0".into();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [good, bad]}).to_string();
    let injected = inject(format!("{list}\n{good}"));
    let output = String::from_utf8(injected.bytes).unwrap();
    assert!(output.starts_with(&format!("{list}\n")), "{output}");
    let outcomes = [Outcome::Unchanged, Outcome::Denied, Outcome::Injected];
    assert_eq!(injected.outcomes, outcomes);
    let kinds = injected.messages.iter().map(|message| message.kind);
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(kinds, [MessageKind::Skipped, MessageKind::Denied]);
}

#[test]
fn both_commands_report_unchangeable_documents() {
    let pod = manifest_with_inject("v1", "Pod", "");
    let template = "apiVersion: v1\nkind: List\nitems:\n\
        - {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: &t\n    \
        {metadata: {annotations: {envoy-drainer.dev/inject: 'true'}}, spec: {containers: [{name: envoy}]}}}}\n\
        - {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}, spec: {template: *t}}\n";
    let twice = |key: &str, advice: &str| format!("duplicate key `{key}`: {advice}");
    let alias = |line: usize| {
        format!(
            "an alias on line {line} refers to what changes here: write its value out instead of the alias"
        )
    };
    let lines = pod.lines().count();
    let anchored = pod.replace("annotations:", "annotations: &a") + "x: *a\n";
    let two_pods = format!("{pod}apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\n");
    let two_specs = format!("{pod}spec:\n  containers:\n  - name: envoy\n");
    let two_answers = pod.replace("spec:", "    envoy-drainer.dev/inject: 'false'\nspec:");
    let missing = "is a `---` missing?";
    let table = [
        (template.to_owned(), 5, alias(6)),
        (anchored, 6, alias(1 + lines)),
        (two_pods, 1 + lines, twice("apiVersion", missing)),
        (two_specs, 1 + lines, twice("spec", missing)),
        (
            two_answers,
            7,
            twice("envoy-drainer.dev/inject", "remove one of the two"),
        ),
    ];
    for (text, line, why) in table {
        let injected = inject(&text);
        assert_eq!(injected.bytes, text.as_bytes());
        assert_eq!(texts(&injected), [&*why], "{text}");
        let message = &injected.messages[0];
        assert_eq!(
            (message.kind, message.line),
            (MessageKind::Error, line),
            "{text}"
        );
        let explained = explain(text);
        assert_ne!(explained.verdict(), Verdict::Fine);
        let [(_, error)] = &explained.errors[..] else {
            panic!("{explained:?}");
        };
        assert_eq!((error.line, &error.text), (line, &why));
        let mut pods = explained.pods.iter();
        assert!(
            pods.all(|(_, pod)| pod.outcome == Outcome::Unchanged),
            "{explained:?}"
        );
    }
}

#[test]
fn joined_streams_get_needed_separators() {
    let table: &[(&[&str], &str)] = &[
        (&["a: 1", "b: 2\n"], "a: 1\n---\nb: 2\n"),
        (&["a: 1\n", "# c\n---\nb: 2\n"], "a: 1\n# c\n---\nb: 2\n"),
        (
            &["{}", "[]\n", "a: 1\n", "{}"],
            "{}\n[]\n---\na: 1\n---\n{}",
        ),
        (&["a: 1\n", "---\n{}\n"], "a: 1\n---\n{}\n"),
    ];
    for (streams, want) in table {
        let joined = inject::join_streams(streams.iter().map(|stream| stream.as_bytes()));
        assert_eq!(str::from_utf8(&joined), Ok(*want));
    }
}

fn envoy_drainer(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(binaries::envoy_drainer().unwrap())
        .args(args)
        .env("ENVOY_DRAINER_IMAGE", IMAGE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    // With wrong arguments the program exits without reading stdin.
    assert!(written.is_ok() || output.status.code() == Some(2));
    output
}

#[test]
fn exit_codes_match_the_result() {
    let fine = manifest_with_inject("v1", "Pod", "");
    let Input { bytes: shop, .. } = shop_manifest();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &fine).unwrap();
    let path = file.path().to_str().unwrap();
    let guessed = fine
        .replace("image: envoy", "image: nginx")
        .replace("name: envoy", "name: web");
    let skipped = fine.replace("kind: Pod", "kind: PodTemplate");
    let injected = inject_all(&fine);
    let edited = injected.replace("restartPolicy: Always", "restartPolicy: Never");
    let table: &[(&[&str], &[u8], i32)] = &[
        (&["inject"], fine.as_bytes(), 0),
        (&["inject", "-", path], b"", 0),
        (&["inject", "--diff", path], b"", 0),
        (&["inject"], b"a: 1\n", 0),
        (&["inject", "--strict"], b"a: 1\n", 1),
        (&["inject"], &shop, 1),
        (&["inject", "--strict"], fine.as_bytes(), 0),
        (&["inject"], guessed.as_bytes(), 0),
        (&["inject", "--strict"], guessed.as_bytes(), 1),
        (&["inject"], skipped.as_bytes(), 0),
        (&["inject", "--strict"], skipped.as_bytes(), 1),
        (&["inject", "--strict"], injected.as_bytes(), 0),
        (&["inject"], edited.as_bytes(), 0),
        (&["inject", "--strict"], edited.as_bytes(), 1),
        (&["inject"], b"a: [\n", 3),
        (&["inject", "/no/such/file"], b"", 3),
        (&["inject", "--no-such-flag"], b"", 2),
        (&["inject", "--image", ""], fine.as_bytes(), 2),
        (&["explain", "--drain-timeout", "5s"], fine.as_bytes(), 2),
        (&["explain"], fine.as_bytes(), 0),
        (&["explain", "-o", "json", path], b"", 0),
        (&["explain"], guessed.as_bytes(), 3),
        (&["explain"], skipped.as_bytes(), 3),
        (&["explain", path, "/no/such/file"], b"", 3),
        (&["explain", "-", "/no/such/file"], &shop, 1),
        (&["explain"], &shop, 1),
        (&["explain", "-o", "xml"], b"", 2),
    ];
    for (args, stdin, code) in table {
        let output = envoy_drainer(args, stdin);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {output:?}");
    }

    let output = envoy_drainer(&["inject"], &shop);
    assert_eq!(output.stdout, inject(&shop).bytes);
    let stderr = text(&output.stderr).replace("stdin:", "shop.yaml:");
    let want = golden::read("offline/shop.remarks")
        + "5 pods request a drainer: 2 injected, 1 skipped, 2 denied\n";
    assert_eq!(stderr, want);

    // `explain` covers the readable files; `inject` writes all files or none.
    let output = envoy_drainer(&["explain", path, "/no/such/file"], b"");
    assert_eq!(output.status.code(), Some(3));
    assert!(!output.stdout.is_empty());
    let unreadable = "error: cannot read /no/such/file: ";
    assert!(text(&output.stderr).starts_with(unreadable), "{output:?}");
    let output = envoy_drainer(&["inject", path, "/no/such/file"], b"");
    assert!(output.stdout.is_empty());

    let twice = envoy_drainer(&["inject"], inject_all(&fine).as_bytes());
    let unread = envoy_drainer(&["inject"], b"a: [\n");
    let none = "no pod requests a drainer in the documents that could be read\n";
    for (output, want) in [
        (twice, "1 pod requests a drainer: 1 already injected\n"),
        (unread, none),
    ] {
        assert!(text(&output.stderr).ends_with(want), "{output:?}");
    }
    let unread = envoy_drainer(&["explain"], b"a: [\n");
    assert_eq!(text(&unread.stderr).lines().count(), 1, "{unread:?}");

    // A pipe gets colours only with `--color always`.
    let output = envoy_drainer(&["explain", "--color", "always"], fine.as_bytes());
    assert!(output.stdout.contains(&0x1b));
    let output = envoy_drainer(&["explain"], fine.as_bytes());
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn foreign_text_is_escaped() {
    let neighbour = format!("---\n# {FOREIGN_TEXT}\n");
    let manifest = manifest_with_inject("v1", "Pod", "") + &neighbour;
    for color in ["never", "always"] {
        let output = envoy_drainer(&["inject", "--diff", "--color", color], manifest.as_bytes());
        let diff = text(&output.stdout);
        assert!(diff.contains("envoy-drainer"), "{diff}");
        assert_escaped(without_styles(diff).as_bytes());
    }
    let inject = "envoy-drainer.dev/inject: \"true\"";
    let value = json!(FOREIGN_TEXT).to_string().replace('\u{9b}', "\\x9b");
    let value = format!("envoy-drainer.dev/inject: {value}");
    let invalid = manifest_with_inject("v1", "Pod", "").replace(inject, &value);
    assert_escaped(&envoy_drainer(&["inject"], invalid.as_bytes()).stderr);
    assert_escaped(&envoy_drainer(&["explain"], invalid.as_bytes()).stdout);
    for command in ["inject", "explain"] {
        assert_escaped(&envoy_drainer(&[command, FOREIGN_TEXT], b"").stderr);
    }
}

/// The manifests that the documents show: each is injected without a message.
#[test]
fn documented_examples_are_injected_without_messages() {
    for name in ["deployment", "ext-proc", "gateway", "job", "streams"] {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples");
        let manifest = fs::read(format!("{examples}/{name}.yaml")).unwrap();
        let injected = inject(&manifest);
        assert_eq!(texts(&injected), [""; 0], "{name}");
        assert_eq!(injected.outcomes, [Outcome::Injected], "{name}");
        let diff = inject::unified_diff(name, &manifest, &injected.bytes, false);
        golden::check(&format!("examples/{name}.diff"), &diff);
    }
}
