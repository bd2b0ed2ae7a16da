//! Every annotation: the effect of valid values, and the diagnostics of invalid values and unknown keys.

use std::path::Path;

use admission::keys::PREFIX;
use admission::settings::all;
use admission::{AdmissionOutcome, Code, Settings};
use serde_json::{Value, json};
use tests::review::{AdmissionResult, ReviewBuilder, defaults, lenient_defaults};
use tests::table::rows;
use tests::{golden, helm};

/// A pod that requests a drainer and has these annotations as well.
fn pod(annotations: &[(&str, &str)]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "edge", "annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {
            "containers": [
                {
                    "name": "proxy",
                    "image": "envoyproxy/envoy:v1.40.0",
                    "volumeMounts": [{"name": "run", "mountPath": "/run/envoy"}],
                },
                {"name": "app", "image": "app"},
            ],
            "volumes": [{"name": "run", "emptyDir": {}}],
        },
    });
    for (key, value) in annotations {
        pod["metadata"]["annotations"][format!("{PREFIX}{key}")] = json!(value);
    }
    pod
}

fn admit_pod(pod: &Value) -> AdmissionResult {
    ReviewBuilder::for_pod(pod).admit(&defaults())
}

fn admit(annotations: &[(&str, &str)]) -> AdmissionResult {
    admit_pod(&pod(annotations))
}

/// Admits a pod where invalid values cause warnings.
fn admit_with_warnings(pod: &Value) -> AdmissionResult {
    ReviewBuilder::for_pod(pod).admit(&lenient_defaults())
}

/// The drainer's container in a patched pod.
fn drainer(pod: &Value) -> &Value {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    let mut containers = lists.into_iter().flatten().flatten();
    let drainer = containers.find(|container| container["name"] == "envoy-drainer");
    drainer.expect("the pod has a drainer")
}

#[test]
fn valid_values_reach_the_drainer() {
    let table = "\
admin-address | [::1]:9901 | --admin-address=[::1]:9901
admin-address | 0.0.0.0:1 | --admin-address=127.0.0.1:1
admin-address | unix:@admin | --admin-address=unix:@admin
admin-address | unix:/run/envoy/a.sock | --admin-address=unix:/run/envoy/a.sock
port | 1 | --port=1
port | 65535 | --port=65535
drain-delay | 1m30s | --drain-delay=90s
min-drain-duration | 0 | --min-drain-duration=0s
min-drain-duration | 60s | --min-drain-duration=60s
drain-timeout | 10s | --drain-timeout=10s
idle-exit | 400ms | --idle-exit=400ms
idle-exit | off | --idle-exit=off
quiet-period | 0s | --quiet-period=0s
health-failure-delay | 1m30s | --health-failure-delay=90s
health-failure-delay | 0 | --health-failure-delay=0s
exit-at-connections | 12 | --exit-at-connections=12
ignore-kernel | true | --ignore-kernel=true
ignore-listeners | probes, 8081 | --ignore-listeners=probes,8081
count-listeners | egress, 8081 | --count-listeners=egress,8081";
    for [key, value, arg] in rows(table) {
        let result = admit(&[(key, value)]);
        assert_eq!(result.outcome, AdmissionOutcome::Injected, "{key}: {value}");
        let warnings = match value {
            // The drainer's user may not be Envoy's.
            "unix:/run/envoy/a.sock" => 1,
            // Is longer than `drain-timeout`.
            "1m30s" if key == "health-failure-delay" => 1,
            _ => 0,
        };
        assert_eq!(result.warnings.len(), warnings, "{key}: {value}");
        let args = drainer(&result.pod)["args"].as_array().unwrap();
        assert!(args.contains(&json!(arg)), "{key}: {value}: {args:?}");
    }
}

#[test]
fn valid_values_reach_the_container() {
    let table = "\
cpu-request | 0.05 | /resources/requests/cpu
cpu-limit | 1 | /resources/limits/cpu
memory-request | 64Mi | /resources/requests/memory
memory-limit | 24Mi | /resources/limits/memory";
    for [key, value, pointer] in rows(table) {
        let result = admit(&[(key, value)]);
        let set = drainer(&result.pod).pointer(pointer);
        assert_eq!(set, Some(&json!(value)), "{key}: {value}");
    }
}

#[test]
fn the_named_container_gets_the_hook() {
    let result = admit(&[("envoy-container", "app"), ("existing-hook", "keep")]);
    let containers = &result.pod["spec"]["containers"];
    assert_eq!(containers[0].get("lifecycle"), None);
    let hook = &containers[1]["lifecycle"]["preStop"]["httpGet"];
    assert_eq!(hook["port"], 15902);
}

/// An annotation, an invalid value, and the end of the message.
const BAD_VALUES: &str = "\
envoy-container |  | invalid name ``: must be the name of a container
admin-address | localhost:9901 | invalid admin address `localhost:9901`: expected an address such as 127.0.0.1:9901, [::1]:9901, unix:/path or unix:@name
admin-address | 169.254.169.254:80 | invalid admin address `169.254.169.254:80`: it is not a loopback address, and the drainer calls its own pod's Envoy only; write it like 127.0.0.1:9901 or [::1]:9901
port | 0 | invalid port `0`: must be a number from 1 to 65535
port | http | invalid port `http`: must be a number from 1 to 65535
drain-delay | 5 | invalid duration `5`: expected a duration such as 90s, 1m30s or 400ms
drain-delay |  | invalid duration ``: expected a duration such as 90s, 1m30s or 400ms
min-drain-duration | -1s | invalid duration `-1s`: expected a duration such as 90s, 1m30s or 400ms
drain-timeout | 1 min | invalid duration `1 min`: expected a duration such as 90s, 1m30s or 400ms
idle-exit | never | invalid duration `never`: expected a duration such as 7s, 1m30s or 400ms, or off
quiet-period | 3S | invalid duration `3S`: expected a duration such as 90s, 1m30s or 400ms
health-failure-delay | off | invalid duration `off`: expected a duration such as 7s, 1m30s or 400ms, or auto or end
health-failure-delay | 25h | invalid duration `25h`: must be at most 24h
exit-at-connections | -1 | invalid number `-1`: must be a whole number, 0 or more
exit-at-connections | 1.5 | invalid number `1.5`: must be a whole number, 0 or more
ignore-kernel | yes | invalid value `yes`: expected true or false
ignore-listeners | web,,probes | invalid listener ``: expected a name or a port
count-listeners | 65536 | invalid port `65536`: must be a number from 1 to 65535
ignore-listeners | 0 | invalid port `0`: must be a number from 1 to 65535
ignore-listeners | 8080;9090 | invalid listener `8080;9090`: separate names and ports by commas: 8080,9090
ignore-listeners | web, probes metrics | invalid listener `probes metrics`: separate names and ports by commas: probes,metrics
min-drain-duration | 25h | invalid duration `25h`: must be at most 24h
native-sidecar | yes | invalid value `yes`: expected auto, true or false
native-sidecar | True | invalid value `True`: expected auto, true or false
existing-hook | chain | invalid value `chain`: expected keep or replace
drain-strategy | fast | invalid strategy `fast`: expected immediate or gradual
drain-strategy |  | invalid strategy ``: expected immediate or gradual
wait-for-replacement | auto | invalid duration `auto`: expected a duration such as 90s, 1m30s or 400ms
extra-lifecycle-hooks |  | invalid name ``: expected names of containers such as app,worker, or * for all
extra-lifecycle-hooks | app,* | invalid name `*`: expected names of containers such as app,worker, or * for all
envoy-native-sidecar | auto | invalid value `auto`: expected true or false
cpu-request | 25 m | invalid quantity `25 m`: expected a quantity such as 100m, 0.5, 64Mi or 1G
cpu-request | 0 | invalid quantity `0`: must be more than 0
cpu-limit | -1 | invalid limit `-1`: must be more than 0, or none
memory-request | 16mb | invalid quantity `16mb`: expected a quantity such as 100m, 0.5, 64Mi or 1G
memory-limit | lots | invalid quantity `lots`: expected a quantity such as 100m, 0.5, 64Mi or 1G
memory-limit | 23.9Mi | invalid limit `23.9Mi`: must be at least 24Mi, which the container runtime itself needs
memory-limit | 64m | invalid limit `64m`: must be at least 24Mi, which the container runtime itself needs
drain-timeout | 5s | drain-timeout 5s is less than min-drain-duration 10s (installation default): raise the one or lower the other
min-drain-duration | 61s | drain-timeout 60s (installation default) is less than min-drain-duration 61s: raise the one or lower the other
cpu-request | 200m | cpu-request 200m is more than cpu-limit 100m (installation default): lower the one or raise the other
cpu-limit | 10m | cpu-request 25m (installation default) is more than cpu-limit 10m: lower the one or raise the other
memory-request | 1Gi | memory-request 1Gi is more than memory-limit 64Mi (installation default): lower the one or raise the other";

fn bad_values() -> impl Iterator<Item = [&'static str; 3]> {
    let message = "invalid duration `  `: expected a duration such as 90s, 1m30s or 400ms";
    rows(BAD_VALUES).chain([["drain-delay", "\u{7}\n", message]])
}

#[test]
fn invalid_values_are_denied_with_a_valid_form() {
    for [key, value, message] in bad_values() {
        let result = admit(&[(key, value)]);
        let denied = (false, AdmissionOutcome::Denied);
        assert_eq!((result.allowed, result.outcome), denied, "{key}: {value}");
        let text = result.message;
        assert!(text.starts_with("DRN020: "), "{key}: {value}: {text}");
        assert!(text.ends_with(message), "{key}: {value}: {text}");
        // The message names the annotation, and of a conflict both annotations.
        assert!(text.contains(key), "{text}");
    }
}

#[test]
fn invalid_values_are_ignored_with_on_invalid_warn() {
    let without = admit_with_warnings(&pod(&[]));
    for [key, value, message] in bad_values() {
        let mut result = admit_with_warnings(&pod(&[(key, value)]));
        let injected = (true, AdmissionOutcome::Injected);
        assert_eq!((result.allowed, result.outcome), injected, "{key}: {value}");
        let warning = result.only_warning();
        assert!(warning.starts_with("DRN052: "), "{warning}");
        let message = message.replace(char::is_control, " ") + "; ";
        assert!(warning.contains(&message), "{warning}");
        let used = match key {
            "envoy-container" | "admin-address" => "; it is detected instead",
            _ => " used",
        };
        assert!(warning.ends_with(used), "{warning}");
        let annotations = &mut result.pod["metadata"]["annotations"];
        let annotations = annotations.as_object_mut().unwrap();
        annotations.shift_remove(&format!("{PREFIX}{key}"));
        assert_eq!(result.pod, without.pod, "{key}: {value}");
    }
}

#[test]
fn long_hook_that_is_replaced_is_not_recorded() {
    let mut pod = pod(&[("existing-hook", "replace")]);
    let command = json!(["sh", "-c", "true;".repeat(1000)]);
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": command}}});
    let result = admit_pod(&pod);
    assert_eq!(result.outcome, AdmissionOutcome::Injected);
    let status = &result.pod["metadata"]["annotations"]["envoy-drainer.dev/status"];
    let status: Value = serde_json::from_str(status.as_str().unwrap()).unwrap();
    assert_eq!(status["replacedHook"], "too long to repeat");
}

#[test]
fn all_errors_are_reported_at_once() {
    let result = admit(&[
        ("port", "none"),
        ("drain-timeout", "1x"),
        ("memory-limit", "1Mi"),
        ("envoy-container", "edge"),
    ]);
    let want = [
        "DRN020: `envoy-drainer.dev/port`: invalid port `none`: must be a number from 1 to 65535",
        "DRN020: `envoy-drainer.dev/drain-timeout`: invalid duration `1x`: expected a duration such as 90s, \
         1m30s or 400ms",
        "DRN020: `envoy-drainer.dev/memory-limit`: invalid limit `1Mi`: must be at least 24Mi, which the container \
         runtime itself needs",
    ];
    assert_eq!(result.message.lines().collect::<Vec<_>>(), want);
    // A reason that would only skip the pod is a warning.
    let skip = "DRN012: `envoy-container: edge` is not among the pod's containers so far: `proxy`, `app`; correct \
        the name, unless a later webhook adds that container: the API server then calls this webhook again";
    assert_eq!(result.only_warning(), skip);
}

#[test]
fn default_port_yields_to_declared_ports() {
    let mut pod = pod(&[("admin-address", "127.0.0.1:9901")]);
    pod["spec"]["containers"][1]["ports"] =
        json!([{"containerPort": 15902}, {"containerPort": 15903}]);
    for host_network in [false, true] {
        pod["spec"]["hostNetwork"] = json!(host_network);
        let result = admit_pod(&pod);
        assert_eq!(result.outcome, AdmissionOutcome::Injected);
        let want = "DRN058: the drainer's port 15902 belongs to container `app`, so 15904 is used; \
            annotate `port` to choose another";
        assert_eq!(result.warnings[0], want);
        // Another workload on the node's network would have the same port.
        let codes = result.warnings.iter().map(|warning| &warning[..6]);
        assert!(codes.skip(1).eq(host_network.then_some("DRN079")));
        let drainer = drainer(&result.pod);
        let args = drainer["args"].as_array().unwrap();
        assert!(args.contains(&json!("--port=15904")), "{args:?}");
        let hook = &result.pod["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"];
        assert_eq!(hook["port"], 15904);
        let declared = drainer.pointer("/ports/0/hostPort");
        assert_eq!(declared, host_network.then_some(&json!(15904)));
    }
}

#[test]
fn ports_do_not_conflict_without_an_envoy() {
    for annotations in [&[][..], &[("port", "15902")]] {
        let mut pod = pod(annotations);
        pod["spec"]["containers"][0]["image"] = json!("nginx");
        pod["spec"]["containers"][1]["ports"] = json!([{"containerPort": 15902}]);
        let result = admit_pod(&pod);
        assert_eq!(result.outcome, AdmissionOutcome::Skipped(Code::NoEnvoy));
    }
}

#[test]
fn conflicts_of_defaulted_settings_are_not_reported() {
    // Two annotations, and the messages.
    let table = "\
drain-timeout: 1m0x | min-drain-duration: 5m | drain-timeout`: invalid duration `1m0x`: expected a duration such as 90s, 1m30s or 400ms
drain-timeout: 26h | min-drain-duration: 27h | min-drain-duration`: invalid duration `27h`: must be at most 24h + drain-timeout`: invalid duration `26h`: must be at most 24h
cpu-limit: lots | cpu-request: 1 | cpu-limit`: invalid limit `lots`: expected a quantity such as 100m or 0.5, or none
memory-limit: 16Mi | memory-request: 128Mi | memory-limit`: invalid limit `16Mi`: must be at least 24Mi, which the container runtime itself needs
admin-address: localhost:1 | port: 9901 | admin-address`: invalid admin address `localhost:1`: expected an address such as 127.0.0.1:9901, [::1]:9901, unix:/path or unix:@name";
    for [one, other, want] in rows(table) {
        let annotations = [one, other].map(|annotation| annotation.split_once(": ").unwrap());
        let message = |detail| format!("DRN020: `envoy-drainer.dev/{detail}");
        let want: Vec<_> = want.split(" + ").map(message).collect();
        let lines = admit(&annotations).message;
        assert_eq!(lines, want.join("\n"), "{annotations:?}");
    }
    // Where the default is used, a conflict with it is reported.
    let annotations = [("drain-timeout", "1m0x"), ("min-drain-duration", "5m")];
    let result = admit_with_warnings(&pod(&annotations));
    let first = &result.warnings[0];
    assert!(first.ends_with("400ms; the default 60s is used"), "{first}");
    let conflict = "DRN052: drain-timeout 60s (installation default) is less than min-drain-duration 300s: raise \
        the one or lower the other; the defaults 10s and 60s are used";
    assert_eq!(result.warnings[1], conflict);
}

#[test]
fn effects_of_an_envoy_in_place_of_a_bad_name_are_not_reported() {
    let annotations = [
        ("drain-strategy", "immediate"),
        ("extra-lifecycle-hooks", "*"),
        ("envoy-native-sidecar", "true"),
    ];
    let bad_name = [("envoy-container", "")];
    let admit = |annotations: &[(&str, &str)], args: Value| {
        let mut pod = pod(annotations);
        let envoy = &mut pod["spec"]["containers"][0];
        envoy["args"] = args;
        envoy["ports"] = json!([{"name": "http", "containerPort": 8080}]);
        envoy["startupProbe"] = json!({"tcpSocket": {"port": 8080}});
        let hook = json!({"preStop": {"sleep": {"seconds": 1}}});
        pod["spec"]["containers"][1]["lifecycle"] = hook;
        let result = admit_pod(&pod);
        let warnings = result.warnings.iter().map(|it| &**it);
        let lines = result.message.lines().chain(warnings);
        let codes: Vec<_> = lines.map(|line| line[..6].to_owned()).collect();
        (result.outcome, codes)
    };
    let args = json!(["-c", "/envoy.yaml"]);
    let (outcome, codes) = admit(&annotations, args.clone());
    assert_eq!(outcome, AdmissionOutcome::Injected);
    assert_eq!(codes, ["DRN063", "DRN066", "DRN067", "DRN065"]);
    assert_eq!(admit(&annotations, json!(null)).1[0], "DRN027");
    for args in [args, json!(null)] {
        let (outcome, codes) = admit(&[&annotations[..], &bad_name].concat(), args);
        assert_eq!(outcome, AdmissionOutcome::Denied);
        assert_eq!(codes, ["DRN020"]);
    }
}

#[test]
fn port_conflicts_are_reported_without_an_envoy() {
    let declared = |annotations: &[(&str, &str)], other: &str| {
        let mut pod = pod(annotations);
        pod["spec"]["initContainers"] = json!([{"name": "init"}]);
        pod["spec"]["containers"][1]["image"] = json!(other);
        pod["spec"]["containers"][1]["ports"] = json!([{"containerPort": 9911}]);
        let result = admit_pod(&pod);
        assert_eq!(result.outcome, AdmissionOutcome::Denied);
        result.message
    };
    let taken = "DRN024: the drainer's port 9911 belongs to container `app`; ";
    let port = ("port", "9911");
    let init = declared(&[port, ("envoy-container", "init")], "app");
    let two_envoys = declared(&[port], "envoyproxy/envoy:v1.40.0");
    for (message, first) in [(init, "DRN022: "), (two_envoys, "DRN021: ")] {
        let lines: Vec<_> = message.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with(first), "{lines:?}");
        assert!(lines[1].starts_with(taken), "{lines:?}");
    }
}

#[test]
fn unresolvable_settings_skip_the_pod_with_on_invalid_warn() {
    let socket = ("admin-address", "unix:/tmp/admin.sock");
    let table = [
        (socket, Code::SocketNotMounted),
        (("port", "9901"), Code::PortTaken),
    ];
    for ((key, value), code) in table {
        let denied = admit(&[(key, value)]);
        assert_eq!(denied.outcome, AdmissionOutcome::Denied, "{key}: {value}");
        let text = denied.message;
        assert!(text.starts_with(&code.to_string()), "{text}");
        let skipped = admit_with_warnings(&pod(&[(key, value)]));
        let outcome = AdmissionOutcome::Skipped(code);
        assert_eq!(skipped.outcome, outcome, "{key}: {value}");
        let status = &skipped.pod["metadata"]["annotations"]["envoy-drainer.dev/status"];
        assert_eq!(*status, json!(format!(r#"{{"skipped":"{code}"}}"#)));
    }
}

#[test]
fn plain_sidecars_are_denied_in_a_job() {
    let mut pod = pod(&[("native-sidecar", "false")]);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]);
    let result = admit_pod(&pod);
    let want = "DRN020: `envoy-drainer.dev/native-sidecar`: `false` in a pod that runs to completion, \
        which it never would: expected auto or true";
    assert_eq!(result.message, want);
    let warned = admit_with_warnings(&pod);
    assert_eq!(drainer(&warned.pod)["restartPolicy"], "Always");
}

#[test]
fn extra_hooks_and_moves_that_cannot_be_are_denied() {
    let moved = ("envoy-native-sidecar", "true");
    let table = [
        (vec![("extra-lifecycle-hooks", "proxy")], "DRN028"),
        (vec![("extra-lifecycle-hooks", "app,cache")], "DRN028"),
        (vec![moved, ("native-sidecar", "false")], "DRN030"),
    ];
    for (annotations, code) in table {
        let denied = admit(&annotations);
        assert_eq!(denied.outcome, AdmissionOutcome::Denied, "{annotations:?}");
        assert!(denied.message.starts_with(code), "{}", denied.message);
        let warned = admit_with_warnings(&pod(&annotations));
        assert!(warned.allowed, "{annotations:?}");
        let warning = &warned.warnings[0];
        assert!(warning.starts_with(code), "{warning}");
    }
    let mut alone = pod(&[moved]);
    alone["spec"]["containers"].as_array_mut().unwrap().pop();
    let denied = admit_pod(&alone);
    assert!(denied.message.starts_with("DRN029: "), "{}", denied.message);
    // A bad value is the only reason to deny a pod for which it may be the cause of another.
    let bad = admit(&[moved, ("native-sidecar", "no")]);
    assert_eq!(bad.message.lines().count(), 1, "{}", bad.message);
}

#[test]
fn unknown_keys_warn_with_the_nearest_known_key() {
    let table = "\
drain-timout | did you mean `drain-timeout`?
idle_exit | did you mean `idle-exit`?
ports | did you mean `port`?
Inject | did you mean `inject`?
mem-limit | did you mean `memory-limit`?
envoy-containers | did you mean `envoy-container`?
wait-for-replacements | did you mean `wait-for-replacement`?
image | unknown annotation `envoy-drainer.dev/image`
 | unknown annotation `envoy-drainer.dev/`
drain-timeout/x | did you mean `drain-timeout`?";
    for row in table.lines() {
        let (key, ending) = row.split_once(" | ").unwrap();
        let result = admit(&[(key, "whatever")]);
        assert_eq!(result.outcome, AdmissionOutcome::Injected, "{key}");
        let warning = result.only_warning();
        assert!(warning.starts_with("DRN050: "), "{key}: {warning}");
        assert!(warning.ends_with(ending), "{key}: {warning}");
    }
}

#[test]
fn only_true_requests_a_drainer() {
    let result = |value: &str| {
        let mut pod = pod(&[]);
        pod["metadata"]["annotations"]["envoy-drainer.dev/inject"] = json!(value);
        admit_pod(&pod)
    };
    let table = [
        ("true", AdmissionOutcome::Injected),
        ("enabled", AdmissionOutcome::Injected),
        ("false", AdmissionOutcome::NotRequested),
        ("disabled", AdmissionOutcome::NotRequested),
        ("yes", AdmissionOutcome::Denied),
        ("True", AdmissionOutcome::Denied),
        ("", AdmissionOutcome::Denied),
    ];
    for (value, outcome) in table {
        assert_eq!(result(value).outcome, outcome, "{value}");
    }
    let want = "DRN020: `envoy-drainer.dev/inject`: invalid value `yes`: \"true\" requests a drainer, \
        \"false\" does not";
    assert_eq!(result("yes").message, want);
}

#[test]
fn overlong_values_are_not_repeated() {
    let result = admit(&[("drain-timeout", &"9".repeat(100_000))]);
    let want =
        "DRN020: `envoy-drainer.dev/drain-timeout`: a value of 100000 bytes: the limit is 1024";
    assert_eq!(result.message, want);
}

#[test]
fn warnings_are_limited_in_length_and_number() {
    let long = "x".repeat(400);
    let keys: Vec<String> = (0..40).map(|n| format!("{long}{n}")).collect();
    let annotations: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
    let result = admit(&annotations);
    assert_eq!(result.warnings.len(), 16);
    assert!(result.warnings.iter().all(|warning| warning.len() <= 256));
    assert_eq!(result.warnings[15], "17 more warnings");
}

#[test]
fn an_envoy_of_a_later_webhook_is_injected_on_reinvocation() {
    let mut pod = pod(&[("envoy-container", "istio-proxy")]);
    let first = admit_pod(&pod);
    let outcome = AdmissionOutcome::Skipped(Code::NoSuchContainer);
    assert_eq!((first.allowed, first.outcome), (true, outcome));
    let warning = &first.warnings[0];
    assert!(warning.starts_with("DRN012: "), "{warning}");
    // The API server calls the webhook again after the other one.
    pod = first.pod;
    pod["spec"]["initContainers"] =
        json!([{"name": "istio-proxy", "image": "istio/proxyv2", "restartPolicy": "Always"}]);
    let second = admit_pod(&pod);
    assert_eq!(second.outcome, AdmissionOutcome::Injected);
    // Istio's drain, its redirection, and the pod's other proxy.
    let codes: Vec<_> = second.warnings.iter().map(|it| &it[..6]).collect();
    assert_eq!(codes, ["DRN075", "DRN083", "DRN072"]);
    let first_init = &second.pod["spec"]["initContainers"][0];
    assert_eq!(first_init, drainer(&second.pod));
}

#[test]
fn containers_of_a_later_webhook_get_their_hooks() {
    let mut pod = pod(&[("extra-lifecycle-hooks", "app,linkerd-proxy")]);
    // The mesh may inject by its namespace, of which the pod does not tell.
    let first = admit_pod(&pod);
    assert!(first.only_warning().starts_with("DRN082: "));
    let hook = |pod: &Value, index: usize| {
        pod["spec"]["containers"][index]["lifecycle"]["preStop"].clone()
    };
    let app = hook(&first.pod, 1);
    pod = first.pod;
    let added = [json!({"name": "linkerd-proxy"}), json!({"name": "other"})];
    let containers = pod["spec"]["containers"].as_array_mut();
    containers.unwrap().extend(added);
    let second = admit_pod(&pod);
    assert_eq!(second.outcome, AdmissionOutcome::Repaired);
    let mut expected = app.clone();
    let path = app["httpGet"]["path"].as_str().unwrap();
    expected["httpGet"]["path"] = json!(path.replace("/app", "/linkerd-proxy"));
    let hooks = [1, 2, 3].map(|index| hook(&second.pod, index));
    assert_eq!(hooks, [app, expected, Value::Null]);
    // The grace period covers the containers from the first time on.
    assert_eq!(grace(&second.pod), Some(105));
    assert!(admit_pod(&second.pod).patch.0.is_empty());
}

fn grace(pod: &Value) -> Option<i64> {
    pod["spec"]["terminationGracePeriodSeconds"].as_i64()
}

#[test]
fn certain_envoys_of_a_namespace_need_no_annotation() {
    use AdmissionOutcome::{Denied, Injected, NotRequested, Skipped};
    let envoy = json!({"name": "proxy", "image": "envoyproxy/envoy:v1.40.0"});
    let custom = json!({"name": "proxy", "image": "acme/envoy-edge"});
    let app = json!({"name": "app", "image": "app"});
    let copy = json!({"name": "copy", "image": "envoyproxy/envoy", "command": ["sh"]});
    // Another container than the certain one would be taken.
    let program = json!({"name": "proxy", "image": "acme/proxy", "command": ["envoy"]});
    let two = [&envoy, &app];
    let opted_out = json!({"envoy-drainer.dev/inject": "false"});
    let bad = json!({"envoy-drainer.dev/port": "0"});
    let bad_request = json!({"envoy-drainer.dev/port": "0", "envoy-drainer.dev/inject": "true"});
    for (annotations, containers, outcome) in [
        (json!({}), two, Injected),
        (json!(null), two, Injected),
        (opted_out, two, NotRequested),
        (json!({}), [&custom, &app], NotRequested),
        (json!({}), [&envoy, &copy], NotRequested),
        (json!({}), [&program, &copy], NotRequested),
        // What denies a pod that asks only skips one that does not.
        (bad, two, Skipped(Code::BadValue)),
        (bad_request, two, Denied),
    ] {
        let metadata = json!({"name": "edge", "annotations": annotations});
        let pod = json!({"metadata": metadata, "spec": {"containers": containers}});
        let result = ReviewBuilder::for_pod(&pod).admit_in_all(&defaults());
        assert_eq!(result.outcome, outcome, "{pod}");
    }
}

/// The bytes of all annotations' keys and values, as the API server counts them.
fn size(pod: &Value) -> usize {
    let annotations = pod["metadata"]["annotations"].as_object().expect("a map");
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().expect("a text").len();
    annotations.iter().map(size).sum()
}

#[test]
fn status_is_omitted_where_it_does_not_fit() {
    const LIMIT: usize = 256 << 10;
    let plain = admit(&[]);
    let added = size(&plain.pod) - size(&pod(&[]));
    // Quotes, which are two bytes in JSON and one in the annotation.
    for (filler, missing) in [("x", 0), ("x", 1), ("\"", 0), ("\"", 1)] {
        let has_status = missing == 0;
        let mut full = pod(&[]);
        let room = LIMIT - added - size(&full) - "filler".len() + missing;
        full["metadata"]["annotations"]["filler"] = json!(filler.repeat(room));
        let result = admit_pod(&full);
        assert_eq!(result.outcome, AdmissionOutcome::Injected);
        assert!(size(&result.pod) <= LIMIT, "{} bytes", size(&result.pod));
        let status = &result.pod["metadata"]["annotations"]["envoy-drainer.dev/status"];
        assert_eq!(!status.is_null(), has_status, "{filler} {missing}");
        let warnings = &result.warnings;
        let is_reported = warnings.iter().any(|it| it.starts_with("DRN061: "));
        assert_eq!(is_reported, !has_status, "{warnings:?}");
        let again = admit_pod(&result.pod);
        let already = AdmissionOutcome::Skipped(Code::AlreadyInjected);
        assert_eq!((again.outcome, again.patch.0), (already, vec![]));
    }
}

#[test]
fn a_skip_at_the_limit_changes_nothing() {
    let mut full = pod(&[("envoy-container", "none")]);
    let room = (256 << 10) - size(&full) - "filler".len();
    full["metadata"]["annotations"]["filler"] = json!("x".repeat(room));
    let result = admit_pod(&full);
    let skipped = AdmissionOutcome::Skipped(Code::NoSuchContainer);
    assert_eq!((result.outcome, result.patch.0), (skipped, vec![]));
    let last = result.warnings.last().unwrap();
    assert!(last.starts_with("DRN061: "), "{last}");
}

/// The rows of the settings table, as docs/annotations.md has them.
fn settings_table() -> String {
    let mut table = "| annotation | value | default | chart value | meaning |\n\
                     | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let rows = Settings::default().rows();
    for definition in all() {
        let name = definition.name;
        let default = match rows.iter().find(|row| row.name == name) {
            None => "detected".to_owned(),
            Some(row) if row.value.is_empty() => "–".to_owned(),
            Some(row) => format!("`{}`", row.value),
        };
        let chart_value = match definition.flag_help {
            Some(_) => format!("`drainer.{}`", helm::value_name(name)),
            None => "–".to_owned(),
        };
        let value = definition.value_name.replace('|', "\\|");
        let help = definition.help;
        table.push_str(&format!(
            "| `{name}` | {value} | {default} | {chart_value} | {help} |\n"
        ));
    }
    table
}

#[test]
fn the_page_lists_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/annotations.md");
    golden::check_section(&path, "settings", &settings_table());
}
