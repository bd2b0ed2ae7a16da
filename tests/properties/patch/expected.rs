//! What an admission should leave of a pod, made without the code under test: an edit of the pod as it
//! was sent, with a drainer that is written out here.

use std::env;

use serde_json::{Value, json};
use tests::review::IMAGE;

/// The annotation that tells what was done.
pub(crate) const STATUS: &str = "envoy-drainer.dev/status";

/// [`tests::review::TOKEN`], as the drainer writes it.
const TOKEN: &str = "42d2f756a1c91d39";

/// The pod with its drainer; its status, which is a text, as the JSON that it holds.
pub(crate) fn injected_pod(pod: &Value) -> Value {
    let mut edited = pod.clone();
    let spec = &mut edited["spec"];
    let present = spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let grace = present.max(required_grace_period(pod));
    let form = if is_native(pod) { "native" } else { "plain" };
    let mut status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "sidecar": form,
        "container": "envoy",
        "grace": {"from": present, "to": grace},
    });
    let replaced = pre_stop(pod);
    if !replaced.is_null() {
        status["replacedHook"] = replaced.clone();
    }
    // Indexing for writing makes what is missing or null.
    spec["terminationGracePeriodSeconds"] = json!(grace);
    push(
        &mut spec["volumes"],
        json!({"name": "envoy-drainer", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
    );
    let (list, index) = envoy_position(pod);
    let mut hook = json!({"path": format!("/drained/{TOKEN}"), "port": port(pod)});
    if uses_host_network(pod) {
        hook["host"] = json!("127.0.0.1");
    }
    spec[list][index]["lifecycle"]["preStop"] = json!({"httpGet": hook});
    let drainer = drainer(pod);
    match (is_native(pod), list) {
        (true, "initContainers") => spec[list]
            .as_array_mut()
            .expect("Envoy is in it")
            .insert(index, drainer),
        (true, _) => push(&mut spec["initContainers"], drainer),
        (false, _) => push(&mut spec["containers"], drainer),
    }
    edited["metadata"]["labels"]["envoy-drainer.dev/injected"] = json!("true");
    edited["metadata"]["annotations"][STATUS] = status;
    edited
}

/// The pod that is skipped with this code.
pub(crate) fn skipped_pod(pod: &Value, code: &str) -> Value {
    let mut edited = pod.clone();
    edited["metadata"]["annotations"][STATUS] = json!({"skipped": code});
    edited
}

/// Whether Envoy has a hook that nobody asked to replace.
pub(crate) fn has_unreplaced_hook(pod: &Value) -> bool {
    !pre_stop(pod).is_null() && annotation(pod, "existing-hook") != Some("replace")
}

/// Adds to a list that may be missing or null.
pub(crate) fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        _ => *list = json!([item]),
    }
}

fn drainer(pod: &Value) -> Value {
    let mut container = json!({
        "name": "envoy-drainer",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": args(pod),
        "lifecycle": {"preStop": {"exec": {"command": ["/drainer", "drain"]}}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "envoy-drainer", "mountPath": "/run/envoy-drainer"},
            {
                "name": "envoy-drainer",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "subPath": "no-token",
                "readOnly": true,
            },
        ],
    });
    if is_native(pod) {
        container["restartPolicy"] = json!("Always");
    }
    if uses_host_network(pod) {
        container["ports"] = json!([{"containerPort": port(pod), "hostPort": port(pod)}]);
    }
    let (user, group) = user_and_group(pod);
    container["securityContext"]["runAsUser"] = json!(user);
    if let Some(group) = group {
        container["securityContext"]["runAsGroup"] = json!(group);
    }
    if let Some(mount) = socket_mount(pod) {
        push(&mut container["volumeMounts"], mount);
    }
    if let Some(resources) = resources(pod) {
        container["resources"] = resources;
    }
    container
}

fn args(pod: &Value) -> Vec<String> {
    let setting = |name: &str, default: &str| {
        format!("--{name}={}", annotation(pod, name).unwrap_or(default))
    };
    let mut args = vec![
        "serve".to_owned(),
        format!("--admin-address={}", admin(pod)),
        format!("--token={TOKEN}"),
        format!("--port={}", port(pod)),
        setting("drain-delay", "0s"),
        setting("min-drain-duration", "10s"),
        setting("drain-timeout", "60s"),
        setting("idle-exit", "7s"),
        setting("quiet-period", "3s"),
        "--poll-interval=250ms".to_owned(),
    ];
    for name in ["exit-at-connections", "ignore-listeners"] {
        if let Some(value) = annotation(pod, name) {
            args.push(format!("--{name}={value}"));
        }
    }
    let probes = probes(pod);
    if !probes.is_empty() {
        args.push(format!("--readiness-probes={}", probes.join(",")));
    }
    if uses_host_network(pod) {
        args.push("--host-network".to_owned());
    }
    args
}

/// The annotation, else the port that is called so, else the installation's.
fn admin(pod: &Value) -> String {
    let named = |port: &&Value| port["name"] == "admin";
    match annotation(pod, "admin-address") {
        Some(address) => address.to_owned(),
        None => match items(&envoy(pod)["ports"]).iter().find(named) {
            Some(port) => format!("127.0.0.1:{}", port["containerPort"]),
            None => "127.0.0.1:9901".to_owned(),
        },
    }
}

/// The readiness probes that connect, of the containers that live as long as the pod.
fn probes(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let native = |container: &&Value| container["restartPolicy"] == "Always";
    let native = items(&spec["initContainers"]).iter().filter(native);
    let staying = items(&spec["containers"]).iter().chain(native);
    let probe = |container: &Value| {
        let probe = &container["readinessProbe"];
        let has_web = || {
            items(&container["ports"])
                .iter()
                .any(|port| port["name"] == "web")
        };
        match (&probe["httpGet"]["port"], &probe["tcpSocket"]["port"]) {
            (Value::String(web), _) if web == "web" && has_web() => Some("8080/2s".to_owned()),
            (_, Value::Number(port)) => Some(format!("{port}/10s")),
            _ => None,
        }
    };
    staying.filter_map(probe).collect()
}

/// The mount of Envoy's where its admin's socket is.
fn socket_mount(pod: &Value) -> Option<Value> {
    annotation(pod, "admin-address")?.strip_prefix("unix:/")?;
    let mounts = items(&envoy(pod)["volumeMounts"]);
    let mut mounts = mounts.iter().filter(|mount| mount["name"] == "run");
    let mount = mounts.next().expect("the socket is mounted");
    let mut own = json!({"name": "run", "mountPath": mount["mountPath"]});
    // The drainer's own directory is made in `/run`.
    if mount["mountPath"] != "/run" {
        own["readOnly"] = json!(true);
    }
    if let Some(path) = mount["subPath"].as_str() {
        own["subPath"] = json!(path);
    }
    Some(own)
}

/// The drainer's own, or Envoy's where it must share a socket, unless that is root.
fn user_and_group(pod: &Value) -> (i64, Option<i64>) {
    const OWN: i64 = 60902;
    if socket_mount(pod).is_none() {
        return (OWN, Some(OWN));
    }
    let id = |name: &str| {
        let of = |context: &Value| context[name].as_i64();
        of(&envoy(pod)["securityContext"])
            .or(of(&pod["spec"]["securityContext"]))
            .filter(|id| *id != 0)
    };
    let (user, group) = (id("runAsUser"), id("runAsGroup"));
    (user.unwrap_or(OWN), group.or(user.is_none().then_some(OWN)))
}

/// None where the pod has a budget as a whole. Else with storage where others account for it, and
/// requests as high as limits where the others' are.
fn resources(pod: &Value) -> Option<Value> {
    if pod["spec"]["resources"]["limits"]["cpu"].is_string() {
        return None;
    }
    let amount = |name: &str, default: &str| annotation(pod, name).unwrap_or(default).to_owned();
    let mut limits =
        json!({"cpu": amount("cpu-limit", "100m"), "memory": amount("memory-limit", "64Mi")});
    let mut requests =
        json!({"cpu": amount("cpu-request", "25m"), "memory": amount("memory-request", "16Mi")});
    let lists = ["containers", "initContainers"].map(|list| items(&pod["spec"][list]));
    let has = |list: &str, amount: &str| {
        let of = move |container: &&Value| !container["resources"][list][amount].is_null();
        lists.iter().copied().flatten().filter(of).count()
    };
    if has("requests", "ephemeral-storage") > 0 {
        limits["ephemeral-storage"] = json!("64Mi");
        requests["ephemeral-storage"] = json!("16Mi");
    }
    // No container here has requests of CPU, so each becomes the limit.
    if has("limits", "cpu") == lists.iter().map(|list| list.len()).sum::<usize>() {
        requests = limits.clone();
    }
    Some(json!({"limits": limits, "requests": requests}))
}

/// The delay, the time-out and the margin of 15 s, in whole seconds.
fn required_grace_period(pod: &Value) -> i64 {
    let delay = match annotation(pod, "drain-delay") {
        None => 0,
        Some("400ms") => 1,
        Some("5s") => 5,
        Some(other) => panic!("{other} is not among the pods'"),
    };
    let timeout = match annotation(pod, "drain-timeout") {
        None => 60,
        Some("30s") => 30,
        Some("1200s") => 1200,
        Some(other) => panic!("{other} is not among the pods'"),
    };
    delay + timeout + 15
}

fn port(pod: &Value) -> u16 {
    annotation(pod, "port").map_or(9902, |port| port.parse().expect("a port"))
}

fn uses_host_network(pod: &Value) -> bool {
    pod["spec"]["hostNetwork"] == true
}

fn is_native(pod: &Value) -> bool {
    annotation(pod, "native-sidecar") != Some("false")
}

fn pre_stop(pod: &Value) -> &Value {
    &envoy(pod)["lifecycle"]["preStop"]
}

/// Envoy's container.
pub(crate) fn envoy(pod: &Value) -> &Value {
    let (list, index) = envoy_position(pod);
    &pod["spec"][list][index]
}

fn envoy_position(pod: &Value) -> (&'static str, usize) {
    ["initContainers", "containers"]
        .into_iter()
        .find_map(|list| {
            let mut containers = items(&pod["spec"][list]).iter();
            Some((
                list,
                containers.position(|container| container["name"] == "envoy")?,
            ))
        })
        .expect("every pod here has an Envoy")
}

fn annotation<'p>(pod: &'p Value, name: &str) -> Option<&'p str> {
    pod["metadata"]["annotations"][format!("envoy-drainer.dev/{name}")].as_str()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}
