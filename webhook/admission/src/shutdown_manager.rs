//! The shutdown manager: the container with which Envoy Gateway and Contour drain their Envoys. It stays, and the pod
//! is skipped, unless the annotation `adopt` lets the drainer take its place.
//!
//! It is recognized strictly, by the shape that these products give their pods. A pod of another shape is left alone,
//! so that a new version of theirs never breaks it.

mod shape;

use drainer::Config;

use self::shape::{CONTOUR, Command, ENVOY_GATEWAY, Flag, Shape};
use super::diagnostics::{Code, Diagnostic};
use super::excerpt::excerpt;
use super::names::{ADOPT, ENVOY_CONTAINER, MANAGED_BY, MANAGER_APPARMOR};
use super::pod::{Container, ContainerList, ContainerRef, Hook, PodView, image_name};

pub(super) use self::shape::ManagerDefault;
pub use self::shape::ManagerProduct;

/// A shutdown manager whose place the drainer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownManager {
    pub product: ManagerProduct,
    /// The versions of the product that are known to run it in this shape.
    pub versions: &'static str,
    pub container_ref: ContainerRef,
}

/// A pod whose shutdown manager goes.
#[derive(Debug)]
pub(super) struct Adoption<'a> {
    pub manager: ShutdownManager,
    /// The pod without the manager's container and without Envoy's hook, which calls the manager.
    pub pod: PodView<'a>,
    /// What the manager would have drained with.
    pub defaults: Vec<ManagerDefault>,
}

/// Name of the manager's container, the same in both products.
const MANAGER: &str = "shutdown-manager";

/// Name of Envoy's container, the same in both products.
const ENVOY: &str = "envoy";

/// Maximum length of a hook in a message, in bytes.
const MAX_QUOTED_HOOK_LEN: usize = 100;

/// Returns true if the drainer runs in a container in the place of a shutdown manager: by its image, which has the usual name
/// or is that of the `installation`, and by the words of its command line.
pub fn is_drop_in<'w>(
    image: &str,
    installation: Option<&str>,
    mut words: impl Iterator<Item = &'w str>,
) -> bool {
    let is_drainer = image_name(image).0 == "drainer" || installation == Some(image);
    is_drainer && words.any(|word| word == MANAGER)
}

/// Returns the name of the container in which the drainer runs in the place of a shutdown manager.
pub(super) fn find_drop_in<'a>(pod: &'a PodView<'_>, installation: &str) -> Option<&'a str> {
    let mut containers = pod.long_running_containers();
    let is_drop_in =
        |it: &Container<'_>| is_drop_in(it.image(), Some(installation), it.command_line());
    let found = containers.find(|(_, it)| is_drop_in(it));
    found.map(|(_, container)| container.name())
}

/// Returns the adoption that a pod asks for; `None` if it has no shutdown manager.
///
/// # Errors
/// The reason to skip the pod: it does not ask, or it has another shape.
pub(super) fn find<'a>(pod: &PodView<'a>) -> Result<Option<Adoption<'a>>, Diagnostic> {
    let is_asking = pod.annotation(ADOPT) == Some("true");
    let is_hooked = |it: &Container<'_>| it.name() != MANAGER && it.pre_stop().is_some();
    let mut containers = pod.long_running_containers();
    let is_managed = is_of_envoy_gateway(pod) || containers.any(|(_, it)| is_hooked(it));
    let manager = pod.long_running(MANAGER);
    let Some((manager_ref, manager)) = manager.filter(|_| is_asking || is_managed) else {
        return Ok(None);
    };
    let is_envoy_gateway = is_of_envoy_gateway(pod) || ENVOY_GATEWAY.starts(manager);
    let (shape, code) = if is_envoy_gateway {
        (&ENVOY_GATEWAY, Code::EnvoyGatewayPod)
    } else {
        (&CONTOUR, Code::ContourPod)
    };
    let product = shape.product;
    match adopt(pod, manager_ref, manager, shape) {
        Ok(adoption) if is_asking => Ok(Some(adoption)),
        Ok(_) => {
            let detail = format!("the pods of {product} have their own drainer, `{MANAGER}`");
            Err(code.diagnostic(detail))
        }
        // `adopt` is no remedy then.
        Err(difference) => {
            let versions = shape.versions;
            let detail =
                format!("the pod differs from those of {product} {versions}: {difference}");
            let reason = Code::UnknownShutdownManager.diagnostic(detail);
            Err(reason.for_annotations(is_asking.then_some("adopt")))
        }
    }
}

fn is_of_envoy_gateway(pod: &PodView<'_>) -> bool {
    pod.labels().and_then(|labels| labels.get(MANAGED_BY)) == Some("envoy-gateway")
}

/// Adopts a pod of this shape.
///
/// # Errors
/// With the first difference from the shape.
fn adopt<'a>(
    pod: &PodView<'a>,
    manager_ref: ContainerRef,
    manager: &Container<'a>,
    shape: &Shape,
) -> Result<Adoption<'a>, String> {
    if manager_ref.list != ContainerList::Containers {
        return Err(format!("`{MANAGER}` is an init container"));
    }
    if pod.annotation(MANAGER_APPARMOR).is_some() {
        let annotation = format!("the annotation `{MANAGER_APPARMOR}`");
        return Err(format!("{annotation} requires the container `{MANAGER}`"));
    }
    shape.check_image(manager)?;
    let served = shape.parse(Command::Serve, manager.command_line())?;
    let Some(Hook::Exec { command: shutdown }) = manager.short_hook() else {
        let command = format!("{} {}", shape.programs[0], Command::Shutdown);
        return Err(format!(
            "the preStop hook of `{MANAGER}` is not an `exec` of `{command}`"
        ));
    };
    let shut_down = shape.parse(Command::Shutdown, shutdown.iter().map(String::as_str))?;
    let flags = || served.iter().chain(&shut_down);
    let port = match flags().find(|flag| flag.setting == "port") {
        Some(flag) => flag
            .value
            .parse()
            .map_err(|_| format!("`{flag}` is not a port"))?,
        None => Config::for_manager(shape.manager, &[]).settings.port.get(),
    };
    if !manager.declares_no_port_but(port) {
        return Err(format!("`{MANAGER}` declares other ports than its {port}"));
    }
    let envoy_ref = find_envoy(pod, shape, port)?;
    let mut others = pod.long_running_containers();
    let caller = others.find(|(at, container)| {
        ![manager_ref, envoy_ref].contains(at) && container.called_ports().any(|it| it == port)
    });
    if let Some((_, caller)) = caller {
        let name = caller.name();
        return Err(format!("`{name}` calls port {port} of `{MANAGER}` too"));
    }
    let of_flags = flags().filter_map(Flag::default);
    Ok(Adoption {
        manager: ShutdownManager {
            product: shape.product,
            versions: shape.versions,
            container_ref: manager_ref,
        },
        pod: pod.without_manager(manager_ref, envoy_ref),
        defaults: shape.defaults().chain(of_flags).collect(),
    })
}

/// Finds Envoy's container, whose hook calls the manager and whose probes do not.
///
/// # Errors
/// With the first difference from the shape.
fn find_envoy(pod: &PodView<'_>, shape: &Shape, port: u16) -> Result<ContainerRef, String> {
    let annotated = pod.annotation(ENVOY_CONTAINER);
    if annotated.is_some_and(|name| name != ENVOY) {
        return Err(format!(
            "the annotation `envoy-container` does not name `{ENVOY}`"
        ));
    }
    let envoy = pod.long_running(ENVOY);
    let envoy = envoy.filter(|(at, _)| at.list == ContainerList::Containers);
    let (envoy_ref, envoy) = envoy.ok_or_else(|| format!("it has no container `{ENVOY}`"))?;
    let command = envoy.command.as_deref().unwrap_or_default();
    if !command.iter().map(|word| &**word).eq([ENVOY]) {
        return Err(format!("the command of `{ENVOY}` is not `{ENVOY}`"));
    }
    let hook = envoy.short_hook();
    if !hook.is_some_and(|hook| hook.gets(shape.manager.hook_path, port)) {
        let present = match envoy.pre_stop() {
            Some(hook) => format!("`{}`", excerpt(hook.get(), MAX_QUOTED_HOOK_LEN)),
            None => "missing".to_owned(),
        };
        let expected = format!(
            "expected an `httpGet` of `{}` on port {port}",
            shape.manager.hook_path
        );
        return Err(format!(
            "the preStop hook of `{ENVOY}` is {present}: {expected}"
        ));
    }
    if envoy.probed_ports().any(|it| it == port) {
        return Err(format!(
            "a probe of `{ENVOY}` calls port {port} of `{MANAGER}`"
        ));
    }
    Ok(envoy_ref)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What Envoy Gateway's manager has without flags.
    const EG_DEFAULTS: &str =
        "admin-address=127.0.0.1:19000 drain-timeout=60s ignore-listeners=19001,19003";

    /// A pod of Envoy Gateway, whose manager comes last.
    pub(crate) fn envoy_gateway() -> Value {
        json!({
            "metadata": {
                "labels": {MANAGED_BY: "envoy-gateway"},
                "annotations": {ADOPT: "true"},
            },
            "spec": {
                "containers": [
                    {
                        "name": "envoy",
                        "image": "docker.io/envoyproxy/envoy:distroless-v1.39.0",
                        "command": ["envoy"],
                        "args": ["--drain-time-s", "60"],
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": 19003}},
                        "lifecycle": {"preStop": {"httpGet": {
                            "path": "/shutdown/ready", "port": 19002, "scheme": "HTTP",
                        }}},
                    },
                    {
                        "name": "shutdown-manager",
                        "image": "docker.io/envoyproxy/gateway:v1.9.0",
                        "command": ["envoy-gateway"],
                        "args": ["envoy", "shutdown-manager"],
                        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 19002}},
                        "lifecycle": {"preStop": {"exec": {
                            "command": ["envoy-gateway", "envoy", "shutdown"],
                        }}},
                    },
                ],
                "terminationGracePeriodSeconds": 360,
            },
        })
    }

    /// A pod of Contour, whose manager comes first.
    pub(crate) fn contour() -> Value {
        json!({
            "metadata": {"annotations": {ADOPT: "true"}},
            "spec": {
                "initContainers": [{"name": "envoy-initconfig"}],
                "containers": [
                    {
                        "name": "shutdown-manager",
                        "image": "ghcr.io/projectcontour/contour:v1.33.6",
                        "command": ["/bin/contour"],
                        "args": ["envoy", "shutdown-manager"],
                        "lifecycle": {"preStop": {"exec": {
                            "command": ["/bin/contour", "envoy", "shutdown"],
                        }}},
                    },
                    {
                        "name": "envoy",
                        "command": ["envoy"],
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8002}},
                        "lifecycle": {"preStop": {"httpGet": {"path": "/shutdown", "port": 8090}}},
                    },
                ],
                "terminationGracePeriodSeconds": 300,
            },
        })
    }

    /// What is found in a pod: the names of the containers that are left, and the manager's settings, or the skip.
    fn found(pod: &Value) -> Result<(Vec<String>, String), (Code, String)> {
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let adoption = find(&pod);
        let adoption = adoption.map_err(|reason| (reason.code, reason.detail))?;
        let adoption = adoption.expect("the pod has a manager");
        let manager = pod.container(adoption.manager.container_ref).unwrap();
        assert_eq!(manager.name(), MANAGER);
        let left = adoption.pod.long_running_containers();
        let names = left.map(|(_, container)| {
            assert!(container.pre_stop().is_none());
            container.name().to_owned()
        });
        let defaults = adoption.defaults.iter();
        let settings: Vec<_> = defaults
            .map(|default| format!("{}={}", default.setting, default.value))
            .collect();
        Ok((names.collect(), settings.join(" ")))
    }

    /// What is found after the value at a pointer into `containers` is replaced.
    fn found_with(mut pod: Value, pointer: &str, value: Value) -> Result<String, String> {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = pod["spec"]["containers"].pointer_mut(parent).unwrap();
        match parent {
            Value::Array(items) => items.push(value),
            parent => parent[key] = value,
        }
        let found = found(&pod).map(|(_, settings)| settings);
        found.map_err(|(code, detail)| {
            assert_eq!(code, Code::UnknownShutdownManager);
            let (_, difference) = detail.split_once(": ").unwrap();
            difference.to_owned()
        })
    }

    #[test]
    fn only_the_manager_goes() {
        let mut with_sidecar = envoy_gateway();
        let containers = with_sidecar["spec"]["containers"].as_array_mut().unwrap();
        containers.insert(0, json!({"name": "first"}));
        containers.push(json!({"name": "last"}));
        let table = [
            (envoy_gateway(), vec!["envoy"], EG_DEFAULTS),
            (with_sidecar, vec!["first", "envoy", "last"], EG_DEFAULTS),
            (
                contour(),
                vec!["envoy"],
                "admin-address=unix:/admin/admin.sock \
                 ignore-listeners=envoy-admin,health,health-om-enforced,stats,stats-health",
            ),
        ];
        for (pod, names, settings) in table {
            let names = names.into_iter().map(str::to_owned).collect();
            assert_eq!(found(&pod), Ok((names, settings.to_owned())));
        }
    }

    #[test]
    fn manager_stays_unless_the_pod_asks() {
        for (pod, code) in [
            (envoy_gateway(), Code::EnvoyGatewayPod),
            (contour(), Code::ContourPod),
        ] {
            for annotations in [json!({}), json!({ADOPT: "false"}), json!({ADOPT: "yes"})] {
                let mut pod = pod.clone();
                pod["metadata"]["annotations"] = annotations;
                assert_eq!(found(&pod).map_err(|(code, _)| code), Err(code));
            }
        }
        let pod = json!({"metadata": {"annotations": {ADOPT: "true"}}, "spec": {"containers": [{"name": "envoy"}]}});
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        assert!(find(&pod).unwrap().is_none());
    }

    #[test]
    fn flags_of_the_manager_become_settings() {
        let (serve, shutdown) = ("/1/args", "/1/lifecycle/preStop/exec/command");
        let eg = |flags: &str| {
            let words = ["envoy-gateway", "envoy", "shutdown"].into_iter();
            let words: Vec<_> = words.chain(flags.split_whitespace()).collect();
            found_with(envoy_gateway(), shutdown, json!(words)).unwrap()
        };
        let own = EG_DEFAULTS;
        assert_eq!(
            eg("--drain-timeout=30s --min-drain-duration 15s --exit-at-connections=2"),
            format!("{own} drain-timeout=30s min-drain-duration=15s exit-at-connections=2")
        );
        assert_eq!(
            eg("--health-check-failure-delay=400ms"),
            format!("{own} health-failure-delay=400ms")
        );
        let args = json!(["envoy", "shutdown-manager", "--ready-timeout=70s"]);
        assert_eq!(found_with(envoy_gateway(), serve, args).unwrap(), own);

        let flags = "/bin/contour envoy shutdown --drain-delay=1m --check-delay=20s --check-interval=2s \
                     --min-open-connections=3 --admin-address=/run/a.sock --ready-file=/run/ok";
        let words: Vec<_> = flags.split_whitespace().collect();
        assert_eq!(
            found_with(contour(), "/0/lifecycle/preStop/exec/command", json!(words)).unwrap(),
            "admin-address=unix:/admin/admin.sock \
             ignore-listeners=envoy-admin,health,health-om-enforced,stats,stats-health \
             drain-delay=1m min-drain-duration=20s exit-at-connections=3 admin-address=unix:/run/a.sock"
        );
        let mut other_port = contour();
        other_port["spec"]["containers"][1]["lifecycle"]["preStop"]["httpGet"]["port"] =
            json!(8091);
        let args = json!(["envoy", "shutdown-manager", "--serve-port", "8091"]);
        assert!(found_with(other_port, "/0/args", args).is_ok());
    }

    #[test]
    fn another_shape_is_left_alone() {
        let table = [
            (
                "/1/image",
                json!("example/other:v1.9.0"),
                "the image of its manager is called `other`: expected `gateway`, `gateway-dev`, `envoy-gateway`",
            ),
            (
                "/1/image",
                json!(null),
                "its manager has no image: expected `gateway`, `gateway-dev`, `envoy-gateway`",
            ),
            (
                "/1/ports",
                json!([{"containerPort": 1}]),
                "`shutdown-manager` declares other ports than its 19002",
            ),
            (
                "/1/command",
                json!(["sh"]),
                "`sh` is not expected in `envoy-gateway envoy shutdown-manager` of its manager",
            ),
            (
                "/1/args",
                json!(["envoy"]),
                "`shutdown-manager` is missing in `envoy-gateway envoy shutdown-manager` of its manager",
            ),
            (
                "/1/args",
                json!(["envoy", "shutdown-manager", "--other=1"]),
                "`--other=1` is not expected in `envoy-gateway envoy shutdown-manager` of its manager",
            ),
            (
                "/1/args",
                json!(["envoy", "shutdown-manager", "--ready-timeout"]),
                "`--ready-timeout` has no value in `envoy-gateway envoy shutdown-manager` of its manager",
            ),
            (
                "/1/lifecycle",
                json!({}),
                "the preStop hook of `shutdown-manager` is not an `exec` of `envoy-gateway envoy shutdown`",
            ),
            (
                "/1/lifecycle/preStop",
                json!({"sleep": {"seconds": 5}}),
                "the preStop hook of `shutdown-manager` is not an `exec` of `envoy-gateway envoy shutdown`",
            ),
            (
                "/1/lifecycle/preStop/exec/command",
                json!([
                    "envoy-gateway",
                    "envoy",
                    "shutdown",
                    "--drain-timeout=1s",
                    "now"
                ]),
                "`now` is not expected in `envoy-gateway envoy shutdown` of its manager",
            ),
            ("/0/name", json!("proxy"), "it has no container `envoy`"),
            (
                "/0/command",
                json!(["sh", "-c", "envoy"]),
                "the command of `envoy` is not `envoy`",
            ),
            (
                "/0/readinessProbe/httpGet/port",
                json!(19002),
                "a probe of `envoy` calls port 19002 of `shutdown-manager`",
            ),
            (
                "/0/livenessProbe",
                json!({"tcpSocket": {"port": 19002}}),
                "a probe of `envoy` calls port 19002 of `shutdown-manager`",
            ),
            (
                "/0/startupProbe",
                json!({"grpc": {"port": "19002"}}),
                "a probe of `envoy` calls port 19002 of `shutdown-manager`",
            ),
            (
                "/-",
                json!({"name": "app", "lifecycle": {"preStop": {"httpGet": {"port": 19002}}}}),
                "`app` calls port 19002 of `shutdown-manager` too",
            ),
        ];
        for (pointer, value, difference) in table {
            let found = found_with(envoy_gateway(), pointer, value.clone());
            assert_eq!(found, Err(difference.to_owned()), "{pointer} {value}");
        }
    }

    #[test]
    fn another_hook_of_envoy_is_left_alone() {
        let hook = "/0/lifecycle/preStop/httpGet";
        let table = [
            ("/0/lifecycle", json!(null), "missing"),
            (
                &format!("{hook}/path"),
                json!("/shutdown"),
                r#""path":"/shutdown""#,
            ),
            (&format!("{hook}/port"), json!(19001), r#""port":19001"#),
            (
                &format!("{hook}/port"),
                json!("readiness"),
                r#""port":"readiness""#,
            ),
            (
                &format!("{hook}/host"),
                json!("10.0.0.1"),
                r#""host":"10.0.0.1""#,
            ),
            (
                &format!("{hook}/scheme"),
                json!("HTTPS"),
                r#""scheme":"HTTPS""#,
            ),
            ("/0/lifecycle/preStop/x-other", json!(1), r#""x-other":1"#),
        ];
        let expected = "expected an `httpGet` of `/shutdown/ready` on port 19002";
        for (pointer, value, present) in table {
            let difference = found_with(envoy_gateway(), pointer, value).unwrap_err();
            let (start, end) = difference.split_once(": expected").unwrap();
            assert!(
                start.starts_with("the preStop hook of `envoy` is "),
                "{start}"
            );
            assert!(start.contains(present), "{start}");
            assert_eq!(format!("expected{end}"), expected);
        }
    }

    #[test]
    fn hook_may_name_the_local_host() {
        // <https://github.com/envoyproxy/gateway/pull/9861>
        for host in [
            json!(null),
            json!(""),
            json!("127.0.0.1"),
            json!("localhost"),
        ] {
            let found = found_with(envoy_gateway(), "/0/lifecycle/preStop/httpGet/host", host);
            assert_eq!(found, Ok(EG_DEFAULTS.to_owned()));
        }
    }

    #[test]
    fn manager_may_declare_its_own_port() {
        let (port, udp) = (
            json!({"containerPort": 19002}),
            json!({"containerPort": 19002, "protocol": "UDP"}),
        );
        for (ports, is_found) in [
            (json!([]), true),
            (json!([port]), true),
            (json!([port, {"containerPort": 9000}]), false),
            (json!([udp]), false),
            (json!([{}]), false),
        ] {
            let found = found_with(envoy_gateway(), "/1/ports", ports.clone());
            assert_eq!(found.is_ok(), is_found, "{ports}: {found:?}");
        }
    }

    #[test]
    fn program_of_contour_may_be_named_without_its_path() {
        for program in ["/bin/contour", "contour"] {
            let found = found_with(contour(), "/0/command", json!([program]));
            assert!(found.is_ok(), "{found:?}");
        }
        let found = found_with(contour(), "/0/command", json!(["/usr/bin/contour"]));
        let wanted = "`/usr/bin/contour` is not expected in `/bin/contour envoy shutdown-manager` of its manager";
        assert_eq!(found, Err(wanted.to_owned()));
    }

    #[test]
    fn manager_with_an_apparmor_profile_of_its_own_is_left_alone() {
        // Without the container, the API server would reject the pod for the annotation.
        let mut pod = contour();
        pod["metadata"]["annotations"][MANAGER_APPARMOR] = json!("runtime/default");
        let (code, detail) = found(&pod).unwrap_err();
        assert_eq!(code, Code::UnknownShutdownManager);
        assert!(detail.contains(MANAGER_APPARMOR), "{detail}");
    }

    #[test]
    fn version_of_the_image_does_not_matter() {
        for image in [
            "gateway-dev:latest",
            "r/mirror/gateway@sha256:0",
            "r/envoy-gateway",
            "gateway:v1.4.0-rc.1",
            "r:5000/gateway:v1.10.1",
            "r/gateway:v2.4.0@sha256:0",
            "envoyproxy/gateway:v1.3.3",
        ] {
            let found = found_with(envoy_gateway(), "/1/image", json!(image));
            assert!(found.is_ok(), "{image}: {found:?}");
        }
    }

    #[test]
    fn skip_names_the_expected_versions() {
        let mut pod = envoy_gateway();
        pod["metadata"]["annotations"][ENVOY_CONTAINER] = json!("proxy");
        let wanted = "the pod differs from those of Envoy Gateway 1.4 to 1.9: the annotation `envoy-container` does \
            not name `envoy`";
        assert_eq!(
            found(&pod),
            Err((Code::UnknownShutdownManager, wanted.to_owned()))
        );

        let mut pod = contour();
        let manager = pod["spec"]["containers"].as_array_mut().unwrap().remove(0);
        pod["spec"]["initContainers"] = json!([manager]);
        pod["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        let wanted = "the pod differs from those of Contour 1.24 to 1.33: `shutdown-manager` is an init container";
        assert_eq!(
            found(&pod),
            Err((Code::UnknownShutdownManager, wanted.to_owned()))
        );
    }
}
