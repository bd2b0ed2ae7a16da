//! The expected pod after its admission, made without the code under test: an edit of the submitted pod, with a
//! drainer that is written out here.

use serde_json::{Value, json};
use tests::json::push;
use tests::review::IMAGE;

/// The annotation with the result of the admission.
pub(crate) const STATUS: &str = "envoy-drainer.dev/status";

/// [`tests::review::TOKEN`] in hexadecimal, as in arguments and paths.
const TOKEN: &str = "42d2f756a1c91d39";

/// Returns the pod with its drainer, without its status annotation, which a removal needs.
pub(crate) fn injected_pod(pod: &Value) -> Value {
    let mut edited = pod.clone();
    let spec = &mut edited["spec"];
    let grace = grace_period(pod);
    let hooked = hooked(pod);
    // Indexing a `Value` mutably creates parents that are missing or null.
    spec["terminationGracePeriodSeconds"] = json!(grace);
    if has_token(pod) {
        let no_token = json!({"name": "envoy-drainer", "projected": {"sources": []}});
        push(&mut spec["volumes"], no_token);
    }
    let (list, index) = envoy_position(pod);
    let hook = |path: String| {
        let mut get = json!({"path": path, "port": port(pod)});
        if uses_host_network(pod) {
            get["host"] = json!("127.0.0.1");
        }
        json!({ "httpGet": get })
    };
    spec[list][index]["lifecycle"]["preStop"] = hook(format!("/drained/{TOKEN}"));
    for (list, index) in hooked {
        let container = &mut spec[list][index];
        let name = container["name"].as_str().expect("a name");
        let hook = hook(format!("/drained/{TOKEN}/{name}"));
        container["lifecycle"]["preStop"] = hook;
    }
    let drainer = drainer(pod);
    if is_moved(pod) {
        let containers = spec["containers"].as_array_mut().expect("Envoy is in it");
        let mut envoy = containers.remove(index);
        envoy["restartPolicy"] = json!("Always");
        push(&mut spec["initContainers"], drainer);
        push(&mut spec["initContainers"], envoy);
    } else if !is_native(pod) {
        push(&mut spec["containers"], drainer);
    } else if list == "initContainers" {
        let sidecars = spec[list].as_array_mut().expect("Envoy is in it");
        sidecars.insert(index, drainer);
    } else {
        push(&mut spec["initContainers"], drainer);
    }
    edited["metadata"]["labels"]["envoy-drainer.dev/injected"] = json!("true");
    edited
}

/// Whether Envoy has a hook that no annotation asks to replace.
pub(crate) fn has_unreplaced_hook(pod: &Value) -> bool {
    !pre_stop(pod).is_null() && annotation(pod, "existing-hook") != Some("replace")
}

/// Whether the pod names its admin interface, where the drainer does not search for it.
pub(crate) fn names_admin(pod: &Value) -> bool {
    let envoy = envoy(pod);
    let mut ports = items(&envoy["ports"]).iter();
    let is_named = annotation(pod, "admin-address").is_some();
    is_named || !uses_host_network(pod) || ports.any(|port| port["name"] == "admin")
}

/// Returns the positions of the containers that get a hook besides Envoy's.
fn hooked(pod: &Value) -> Vec<(&'static str, usize)> {
    let Some(names) = annotation(pod, "extra-lifecycle-hooks") else {
        return Vec::new();
    };
    let mut positions = Vec::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(&pod["spec"][list]).iter().enumerate() {
            let runs = list == "containers" || container["restartPolicy"] == "Always";
            let is_named = names == "*" || container["name"] == names;
            let has_hook = !container["lifecycle"]["preStop"].is_null();
            if runs && is_named && !has_hook && container["name"] != "envoy" {
                positions.push((list, index));
            }
        }
    }
    positions
}

/// Whether Envoy's container becomes a native sidecar and is none yet.
fn is_moved(pod: &Value) -> bool {
    let (list, _) = envoy_position(pod);
    annotation(pod, "envoy-native-sidecar") == Some("true") && list == "containers"
}

fn drainer(pod: &Value) -> Value {
    let mut container = json!({
        "name": "envoy-drainer",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": args(pod),
        "lifecycle": {"preStop": {"exec": {"command": ["/drainer", "drain", format!("--port={}", port(pod))]}}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    if has_token(pod) {
        container["volumeMounts"] = json!([{
            "name": "envoy-drainer",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": true,
        }]);
    }
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
        format!("--token={TOKEN}"),
        format!("--port={}", port(pod)),
        setting("drain-delay", "0s"),
        setting("min-drain-duration", "10s"),
        setting("drain-timeout", &format!("{}s", default_timeout(pod))),
        setting("idle-exit", "7s"),
        setting("quiet-period", "3s"),
        "--poll-interval=250ms".to_owned(),
        admin(pod),
    ];
    for name in [
        "health-failure-delay",
        "exit-at-connections",
        "ignore-kernel",
        "ignore-listeners",
        "count-listeners",
    ] {
        if let Some(value) = annotation(pod, name) {
            args.push(format!("--{name}={value}"));
        }
    }
    let probes = probes(pod);
    if !probes.is_empty() {
        args.push(format!("--readiness-probes={}", probes.join(",")));
    }
    // A duration of the drainer is at most a day.
    args.push(format!("--grace-period={}s", grace_period(pod).min(86_400)));
    if uses_host_network(pod) {
        args.push("--host-network".to_owned());
    }
    args
}

/// Returns the annotation's address, else that of the port named `admin`, else the default.
fn admin(pod: &Value) -> String {
    let named = |port: &&Value| port["name"] == "admin";
    match annotation(pod, "admin-address") {
        Some(address) => format!("--admin-address={address}"),
        None => match items(&envoy(pod)["ports"]).iter().find(named) {
            // Another pod of the node may have the default.
            Some(port) if uses_host_network(pod) => {
                format!("--admin-hints=127.0.0.1:{}", port["containerPort"])
            }
            Some(port) if port["containerPort"] != 9901 => {
                format!(
                    "--admin-hints=127.0.0.1:{},127.0.0.1:9901",
                    port["containerPort"]
                )
            }
            _ => "--admin-hints=127.0.0.1:9901".to_owned(),
        },
    }
}

/// Returns the readiness probes that open connections, of the containers that run as long as the pod.
fn probes(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let native = |container: &&Value| container["restartPolicy"] == "Always";
    let native = items(&spec["initContainers"]).iter().filter(native);
    let long_running = items(&spec["containers"]).iter().chain(native);
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
    long_running.filter_map(probe).collect()
}

/// Returns the drainer's mount for the admin's socket, derived from Envoy's.
fn socket_mount(pod: &Value) -> Option<Value> {
    annotation(pod, "admin-address")?.strip_prefix("unix:/")?;
    let mounts = items(&envoy(pod)["volumeMounts"]);
    let mut mounts = mounts.iter().filter(|mount| mount["name"] == "run");
    let mount = mounts.next().expect("the socket is mounted");
    let mut drainer_mount = json!({"name": "run", "mountPath": mount["mountPath"]});
    // Mount points of the drainer's own volumes are created in `/var/run`.
    if mount["mountPath"] != "/var/run" {
        drainer_mount["readOnly"] = json!(true);
    }
    if let Some(path) = mount["subPath"].as_str() {
        drainer_mount["subPath"] = json!(path);
    }
    Some(drainer_mount)
}

/// Returns the drainer's own user and group, or Envoy's where the admin is on a socket, unless those are root.
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

/// Returns none where the pod itself has a CPU limit. Otherwise includes ephemeral storage where another container
/// requests it, and makes requests equal to limits where every container has a CPU limit.
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
    // No container here requests CPU, so each request defaults to the limit.
    if has("limits", "cpu") == lists.iter().map(|list| list.len()).sum::<usize>() {
        requests = limits.clone();
    }
    Some(json!({"limits": limits, "requests": requests}))
}

fn present_grace_period(pod: &Value) -> i64 {
    let present = &pod["spec"]["terminationGracePeriodSeconds"];
    present.as_i64().unwrap_or(30)
}

/// Returns the grace period after the admission: what other containers need comes after the drain.
fn grace_period(pod: &Value) -> i64 {
    let (present, required) = (present_grace_period(pod), required_grace_period(pod));
    match annotation(pod, "extra-lifecycle-hooks") {
        None => present.max(required),
        Some(_) => present.saturating_add(required),
    }
}

/// Returns the drain timeout without annotation in seconds: at least 60, or what the present grace period allows, at
/// most a day, unless other containers wait.
fn default_timeout(pod: &Value) -> i64 {
    let allowed = present_grace_period(pod).min(86_400) - delay(pod) - 15;
    match annotation(pod, "extra-lifecycle-hooks") {
        None => allowed.max(60),
        Some(_) => 60,
    }
}

/// Returns the drain delay, the drain timeout and the margin of 15 s, in whole seconds.
fn required_grace_period(pod: &Value) -> i64 {
    let timeout = match annotation(pod, "drain-timeout") {
        None => default_timeout(pod),
        Some("30s") => 30,
        Some("1200s") => 1200,
        Some(other) => panic!("{other} is not generated by `pods`"),
    };
    delay(pod) + timeout + 15
}

/// Returns the drain delay in whole seconds.
fn delay(pod: &Value) -> i64 {
    match annotation(pod, "drain-delay") {
        None => 0,
        Some("400ms") => 1,
        Some("5s") => 5,
        Some(other) => panic!("{other} is not generated by `pods`"),
    }
}

fn port(pod: &Value) -> u16 {
    annotation(pod, "port").map_or(15902, |port| port.parse().expect("a port"))
}

fn uses_host_network(pod: &Value) -> bool {
    pod["spec"]["hostNetwork"] == true
}

/// Whether the pod's containers have a service account token.
fn has_token(pod: &Value) -> bool {
    pod["spec"]["automountServiceAccountToken"] != false
}

fn is_native(pod: &Value) -> bool {
    annotation(pod, "native-sidecar") != Some("false")
}

fn pre_stop(pod: &Value) -> &Value {
    &envoy(pod)["lifecycle"]["preStop"]
}

/// Returns Envoy's container.
pub(crate) fn envoy(pod: &Value) -> &Value {
    let (list, index) = envoy_position(pod);
    &pod["spec"][list][index]
}

/// Returns Envoy's container, to change it.
pub(crate) fn envoy_mut(pod: &mut Value) -> &mut Value {
    let (list, index) = envoy_position(pod);
    &mut pod["spec"][list][index]
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
