//! `inject` and `explain`: what they make of manifests, tell of them, and say by their exit codes.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tests::manifest::{inject_all, manifest_with_inject, read};
use tests::review::{IMAGE, defaults};
use tests::{binaries, golden};
use webhook::cli::explain::{ExplainReport, InjectionOutcome, ReasonModel};
use webhook::cli::inject;
use webhook::cli::inject::InjectReport;
use webhook::manifest;
use webhook::offline::{Input, MessageKind};

fn inject(stream: impl AsRef<[u8]>) -> InjectReport {
    inject::inject(stream.as_ref(), &defaults())
}

fn input(name: &str) -> Input {
    Input {
        name: name.to_owned(),
        bytes: golden::read(&format!("offline/{name}")).into_bytes(),
    }
}

fn shop_manifest() -> Input {
    input("shop.yaml")
}

/// The remarks as stderr shows them.
fn remarks(input: &Input) -> String {
    let remarks = inject(&input.bytes).messages;
    let lines = remarks
        .iter()
        .map(|remark| format!("{}\n", remark.display(&input.name, false)));
    lines.collect()
}

#[test]
fn a_diff_shows_the_changes_alone() {
    golden::check("offline/shop.remarks", &remarks(&shop_manifest()));
    let Input { name, bytes } = shop_manifest();
    let injected = inject(&bytes);
    let diff = manifest::unified_diff(&name, &bytes, &injected.bytes, false);
    golden::check("offline/shop.diff", &diff);
    let styled = manifest::unified_diff(&name, &bytes, &injected.bytes, true);
    assert_eq!(without_styles(&styled), diff);
    assert!(styled.contains("\u{1b}[32m+"), "{styled}");
}

#[test]
fn what_looks_like_ours_and_counts_for_no_pod_is_told() {
    let astray = input("astray.yaml");
    golden::check("offline/astray.remarks", &remarks(&astray));
    let injected = inject(&astray.bytes);
    assert_eq!(injected.bytes, astray.bytes);
    assert_eq!((injected.requested, injected.injected), (1, 0));
    let explained = ExplainReport::new(&[astray], &defaults());
    assert!(explained.is_success());
    golden::check("offline/astray.explained.txt", &explained.to_text(false));
}

#[test]
fn everything_wrong_is_told_at_once_unquoted_values_too() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    \
        envoy-drainer.dev/inject: yes\n    envoy-drainer.dev/drain-timeout: 5\n    \
        envoy-drainer.dev/idle-exit: off\n    envoy-drainer.dev/port: 0\n\
        spec:\n  containers:\n  - name: envoy\n";
    let injected = inject(pod);
    let told: Vec<_> = injected
        .messages
        .iter()
        .map(|remark| &*remark.text)
        .collect();
    assert_eq!(
        told,
        [
            "Pod a: DRN020: `envoy-drainer.dev/inject`: a boolean is not a text: write \"true\", with the quotes",
            "Pod a: DRN020: `envoy-drainer.dev/drain-timeout`: a number is not a text: write \"5s\", with the quotes",
            "Pod a: DRN020: drain-timeout 5s is less than min-drain-duration 10s (default): raise the one or lower the other",
            "Pod a: DRN020: `envoy-drainer.dev/idle-exit`: a boolean is not a text: write \"off\", with the quotes",
            "Pod a: DRN020: `envoy-drainer.dev/port`: invalid port `0`: a number from 1 to 65535",
        ]
    );
    assert_eq!(injected.bytes, pod.as_bytes());
    let field = inject(pod.replace("name: envoy", "name: [envoy]"));
    let wanted = "Pod a: DRN026: spec.containers[0].name: invalid type: sequence";
    let mut told = field.messages.iter();
    assert!(
        told.any(|remark| remark.text.starts_with(wanted)),
        "{:?}",
        field.messages
    );
}

#[test]
fn what_is_told_of_an_annotation_has_its_line() {
    let pod = manifest_with_inject("v1", "Pod", "").replace(
        "spec:",
        "    envoy-drainer.dev/port: '0'\n    envoy-drainer.dev/prot: '1'\n    \
         envoy-drainer.dev/min-drain-duration: 5m\nspec:",
    );
    let at = |name: &str| 1 + pod.lines().position(|line| line.contains(name)).unwrap();
    let [port, prot, minimum] = ["/port", "/prot", "/min-drain-duration"].map(at);
    let remarks = inject(&pod).messages;
    let lines: Vec<_> = remarks.iter().map(|remark| remark.line).collect();
    assert_eq!(lines, [port, prot, minimum], "{remarks:?}");
    let input = Input {
        name: String::new(),
        bytes: pod.clone().into_bytes(),
    };
    let explained = ExplainReport::new(&[input], &defaults());
    let [told] = &explained.pods[..] else {
        panic!("{explained:?}");
    };
    let lines =
        |reasons: &[ReasonModel]| reasons.iter().map(|reason| reason.line).collect::<Vec<_>>();
    assert_eq!(lines(&told.reasons), [port, minimum]);
    assert_eq!(lines(&told.warnings), [prot]);
    let text = explained.to_text(false);
    assert!(
        text.contains(&format!("DRN050    line {prot}: unknown")),
        "{text}"
    );
}

#[test]
fn explanations_are_for_people_and_programs() {
    let explained = ExplainReport::new(&[shop_manifest()], &defaults());
    assert!(!explained.is_success());
    let text = explained.to_text(false);
    golden::check("offline/shop.explained.txt", &text);
    golden::check("offline/shop.explained.json", &explained.to_json());
    assert_eq!(without_styles(&explained.to_text(true)), text);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?}");
}

#[test]
fn a_mere_guess_is_told_as_such_and_the_admins_port_by_its_name() {
    let pod = manifest_with_inject("v1", "Pod", "").replace(
        "  - name: envoy\n    image: envoy\n",
        "  - name: web\n    image: nginx\n    ports: [{name: envoy-admin, containerPort: 9902}]\n",
    );
    let input = Input {
        name: String::new(),
        bytes: pod.into_bytes(),
    };
    let text = ExplainReport::new(&[input], &defaults()).to_text(false);
    for told in [
        "container `web` (a mere guess: it is the only container)",
        "127.0.0.1:9902 (the container port called `envoy-admin`)",
        "listening on port 9903",
        "    port                    9903  next free\n",
        "DRN057",
        "→ annotate `envoy-container`",
        "DRN058",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn a_long_value_widens_its_column() {
    let pod = manifest_with_inject("v1", "Pod", "").replace(
        "spec:",
        "    envoy-drainer.dev/ignore-listeners: 9100,health\nspec:",
    );
    let bytes = pod.into_bytes();
    let name = String::new();
    let text = ExplainReport::new(&[Input { name, bytes }], &defaults()).to_text(false);
    for told in [
        "\n    drain-timeout               60s  default\n",
        "\n    ignore-listeners    9100,health  annotation\n",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn only_who_has_not_decided_is_told_how_to_ask() {
    let asks = "envoy-drainer.dev/inject: \"true\"";
    for (instead, is_told) in [("envoy-drainer.dev/inject: 'false'", false), ("a: b", true)] {
        let pod = manifest_with_inject("v1", "Pod", "").replace(asks, instead);
        let bytes = pod.into_bytes();
        let name = String::new();
        let explained = ExplainReport::new(&[Input { name, bytes }], &defaults());
        let text = explained.to_text(false);
        assert_eq!(text.contains("To ask for a drainer"), is_told, "{text}");
    }
}

#[test]
fn the_end_of_a_pod_follows_its_timings() {
    let table: &[(&str, &[(&str, f64)])] = &[
        (
            "",
            &[
                ("drain", 0.),
                ("earliest", 10.),
                ("idle", 10.),
                ("quiet", 30.),
                ("deadline", 60.),
                ("kill", 75.),
            ],
        ),
        (
            "drain-delay: 20s, idle-exit: 15s",
            &[
                ("hooks", 0.),
                ("drain", 20.),
                ("earliest", 30.),
                ("idle", 30.),
                ("quiet", 50.),
                ("deadline", 80.),
                ("kill", 95.),
            ],
        ),
        (
            "quiet-period: 25s, idle-exit: 28s",
            &[
                ("drain", 0.),
                ("earliest", 25.),
                ("idle", 28.),
                ("quiet", 30.),
                ("deadline", 60.),
                ("kill", 75.),
            ],
        ),
        (
            "quiet-period: 10m",
            &[
                ("drain", 0.),
                ("earliest", 30.),
                ("idle", 30.),
                ("quiet", 30.),
                ("deadline", 60.),
                ("kill", 75.),
            ],
        ),
        (
            "quiet-period: 25s, drain-timeout: 20s",
            &[
                ("drain", 0.),
                ("earliest", 20.),
                ("deadline", 20.),
                ("kill", 35.),
            ],
        ),
        (
            "idle-exit: off, quiet-period: 0s, min-drain-duration: 1m",
            &[
                ("drain", 0.),
                ("earliest", 60.),
                ("deadline", 60.),
                ("kill", 75.),
            ],
        ),
        (
            "idle-exit: 90s, min-drain-duration: 45s",
            &[
                ("drain", 0.),
                ("earliest", 45.),
                ("deadline", 60.),
                ("kill", 75.),
            ],
        ),
    ];
    for (settings, want) in table {
        let annotations: String = settings
            .split(", ")
            .filter(|setting| !setting.is_empty())
            .map(|setting| format!("    envoy-drainer.dev/{}'\n", setting.replace(": ", ": '")))
            .collect();
        let pod =
            manifest_with_inject("v1", "Pod", "").replace("spec:", &format!("{annotations}spec:"));
        let input = Input {
            name: String::new(),
            bytes: pod.into_bytes(),
        };
        let explained = ExplainReport::new(&[input], &defaults());
        let plan = explained.pods[0].plan.as_ref().unwrap();
        let end: Vec<_> = plan
            .timeline
            .iter()
            .map(|moment| (moment.event, moment.seconds))
            .collect();
        assert_eq!(end, *want, "{settings}");
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

const KINDS: [(&str, &str, &str); 8] = [
    ("v1", "Pod", ""),
    ("v1", "ReplicationController", "/spec/template"),
    ("apps/v1", "Deployment", "/spec/template"),
    ("apps/v1", "StatefulSet", "/spec/template"),
    ("apps/v1", "DaemonSet", "/spec/template"),
    ("apps/v1", "ReplicaSet", "/spec/template"),
    ("batch/v1", "Job", "/spec/template"),
    ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template"),
];

/// Asserts that the object has its drainer, timed for a Job or not.
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
fn every_kind_gets_its_drainer_alone_in_lists_and_in_json() {
    for (version, kind, path) in KINDS {
        let yaml = manifest_with_inject(version, kind, path);
        let [object] = &read::<Value>(inject_all(&yaml).as_bytes())[..] else {
            panic!("{kind}");
        };
        assert_drainer(object, path, kind);
        let [plain] = &read::<Value>(yaml.as_bytes())[..] else {
            panic!("{kind}");
        };
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
        objects
            .iter()
            .for_each(|object| assert_drainer(object, path, kind));
    }
}

#[test]
fn a_token_is_the_documents_own_and_the_same_each_time() {
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
fn offline_and_at_admission_a_pod_becomes_the_same() {
    for name in [
        "admin-unix-socket",
        "envoy-main",
        "envoy-native-sidecar",
        "existing-hook-replaced",
        "grace-bigger",
        "grace-smaller",
        "guaranteed",
        "host-network",
        "istio-injected",
        "job",
        "many-containers",
        "pod-level-resources",
    ] {
        let tokenless = |text: &str| {
            let at = text.find("--token=").unwrap() + "--token=".len();
            let token = &text[at..at + 16];
            read::<Value>(text.replace(token, "0123456789abcdef").as_bytes())
        };
        let offline = inject_all(&golden::read(&format!("{name}.yaml")));
        let admitted = golden::read(&format!("{name}.patched.yaml"));
        assert_eq!(tokenless(&offline), tokenless(&admitted), "{name}");
    }
}

#[test]
fn one_refused_pod_keeps_its_list_as_it_is() {
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
    assert_eq!((injected.requested, injected.injected), (3, 1));
    let kinds: Vec<_> = injected.messages.iter().map(|remark| remark.kind).collect();
    assert_eq!(kinds, [MessageKind::Skipped, MessageKind::Refused]);
}

#[test]
fn what_cannot_be_changed_is_told_by_both_commands_alike() {
    let pod = manifest_with_inject("v1", "Pod", "");
    let template = "apiVersion: v1\nkind: List\nitems:\n\
        - {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: &t\n    \
        {metadata: {annotations: {envoy-drainer.dev/inject: 'true'}}, spec: {containers: [{name: envoy}]}}}}\n\
        - {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}, spec: {template: *t}}\n";
    let twice =
        |key: &str, advice: &str| format!("the key `{key}` stands here a second time: {advice}");
    let table = [
        (
            template.to_owned(),
            5,
            "an alias on line 6 stands for what is to be changed here: write it out there"
                .to_owned(),
        ),
        (
            format!("{pod}apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\n"),
            1 + pod.lines().count(),
            twice("apiVersion", "is a `---` missing?"),
        ),
        (
            pod.replace("spec:", "    envoy-drainer.dev/inject: 'false'\nspec:"),
            7,
            twice("envoy-drainer.dev/inject", "remove one of the two"),
        ),
    ];
    for (text, line, why) in table {
        let injected = inject(&text);
        assert_eq!(injected.bytes, text.as_bytes());
        let told: Vec<_> = injected
            .messages
            .iter()
            .map(|remark| (remark.kind, remark.line, &*remark.text))
            .collect();
        assert_eq!(told, [(MessageKind::Error, line, &*why)], "{text}");
        let name = "a.yaml".to_owned();
        let bytes = text.into_bytes();
        let explained = ExplainReport::new(&[Input { name, bytes }], &defaults());
        assert!(!explained.is_success());
        let [error] = &explained.errors[..] else {
            panic!("{explained:?}");
        };
        assert_eq!((error.line, &error.message), (line, &why));
        let outcomes = explained.pods.iter().map(|pod| pod.outcome);
        assert!(
            outcomes.eq(explained.pods.iter().map(|_| InjectionOutcome::Unchanged)),
            "{explained:?}"
        );
    }
}

#[test]
fn streams_are_joined_with_the_separators_they_need() {
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
    // A program that refuses its arguments ends without reading.
    assert!(written.is_ok() || output.status.code() == Some(2));
    output
}

#[test]
fn exit_codes_tell_what_happened() {
    let fine = manifest_with_inject("v1", "Pod", "");
    let Input { bytes: shop, .. } = shop_manifest();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &fine).unwrap();
    let path = file.path().to_str().unwrap();
    let table: &[(&[&str], &[u8], i32)] = &[
        (&["inject"], fine.as_bytes(), 0),
        (&["inject", "-", path], b"", 0),
        (&["inject", "--diff", path], b"", 0),
        (&["inject"], b"a: 1\n", 0),
        (&["inject"], &shop, 1),
        (&["inject"], b"a: [\n", 1),
        (&["inject", "/no/such/file"], b"", 1),
        (&["inject", "--no-such-flag"], b"", 2),
        (&["inject", "--image", ""], fine.as_bytes(), 2),
        (&["explain", "--drain-timeout", "5s"], fine.as_bytes(), 2),
        (&["explain"], fine.as_bytes(), 0),
        (&["explain", "-o", "json", path], b"", 0),
        (&["explain", path, "/no/such/file"], b"", 1),
        (&["explain"], &shop, 1),
        (&["explain", "-o", "xml"], b"", 2),
    ];
    for (args, stdin, code) in table {
        let output = envoy_drainer(args, stdin);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {output:?}");
    }

    let output = envoy_drainer(&["inject"], &shop);
    assert_eq!(output.stdout, inject(&shop).bytes);
    let told = String::from_utf8(output.stderr).unwrap();
    let told = told.replace("stdin:", "shop.yaml:");
    let want = golden::read("offline/shop.remarks")
        + "of 5 pods that ask for a drainer, 2 get one, 1 is skipped, 2 are refused\n";
    assert_eq!(told, want);

    // What can be read is explained, but never half of the files are written.
    let output = envoy_drainer(&["explain", path, "/no/such/file"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.is_empty());
    assert!(
        output
            .stderr
            .starts_with(b"error: cannot read /no/such/file: ")
    );
    let output = envoy_drainer(&["inject", path, "/no/such/file"], b"");
    assert!(output.stdout.is_empty());

    let twice = envoy_drainer(&["inject"], inject_all(&fine).as_bytes());
    let unread = envoy_drainer(&["inject"], b"a: [\n");
    for (output, want) in [
        (
            twice,
            "the one pod that asks for a drainer has one already\n",
        ),
        (unread, "no pod asks for a drainer in what could be read\n"),
    ] {
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.ends_with(want), "{told}");
    }
    let unread = envoy_drainer(&["explain"], b"a: [\n");
    let told = String::from_utf8(unread.stderr).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");

    // Whoever asks for colours gets them anywhere; else a pipe has none.
    let output = envoy_drainer(&["explain", "--color", "always"], fine.as_bytes());
    assert!(output.stdout.contains(&0x1b));
    let output = envoy_drainer(&["explain"], fine.as_bytes());
    assert!(!output.stdout.contains(&0x1b));
}
