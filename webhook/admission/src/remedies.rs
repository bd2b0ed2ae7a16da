//! Each remedy of each code, applied as it reads: the pod then gets a drainer, and not that code again.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the rows of the tables are literals"
)]

use std::time::Duration;

use drainer::Token;
use serde_json::{Value, json};

use crate::diagnostics::{Code, Diagnostic, Effect};
use crate::names::PREFIX;
use crate::plan::{Bootstrap, EnvoyConfiguration, EnvoyConfigurations, PodContext};
use crate::pod::PodView;
use crate::review::creation_review;
use crate::settings::{
    Defaults, DrainerApiDefaults, NativeSidecar, OnInvalid, PodSettings, Settings,
};
use crate::shutdown_manager::tests::{contour, envoy_gateway};
use crate::{Decision, admit_workload, decide, misplaced, objects};

/// What is decided on: a pod or a workload, and what is known besides.
#[derive(Clone)]
struct Case {
    object: Value,
    defaults: Defaults,
    configurations: Option<EnvoyConfigurations>,
}

/// A change of a case.
type Remedy = Box<dyn Fn(&mut Case)>;

/// Codes whose remedy changes nothing that admission sees, or that admission itself never reports.
const WITHOUT_CHANGE: [(Code, &str); 9] = [
    (Code::AlreadyInjected, "nothing is to do"),
    (Code::NamespaceNotSelected, "about the namespace's labels"),
    (Code::EnvoyStartsFirst, "to be checked, and ignored"),
    (Code::VendorEnvoy, "to be read"),
    (Code::PodNotRead, "about the webhook's limits"),
    (Code::InternalError, "a bug"),
    (Code::Repaired, "about another webhook"),
    (Code::NotRemoved, "about `inject --remove`"),
    (
        Code::LoadBalancerInFront,
        "about Services: tests/commands/explain.rs",
    ),
];

fn case(object: Value) -> Case {
    Case {
        object,
        defaults: Defaults::new("drainer", "own"),
        configurations: None,
    }
}

/// A pod of a request and these annotations without their prefix.
fn pod(annotations: Value, spec: Value) -> Case {
    let mut object = json!({"metadata": {"name": "a", "annotations": {}}, "spec": spec});
    let inject = json!({"inject": "true"});
    for map in [inject, annotations] {
        for (name, value) in map.as_object().unwrap() {
            object["metadata"]["annotations"][format!("{PREFIX}{name}")] = value.clone();
        }
    }
    case(object)
}

/// The specification of a pod with Envoy, whose fields these are, and an app.
fn with(envoy: Value) -> Value {
    let mut container = json!({"name": "envoy", "image": "envoyproxy/envoy:v1.36.4",
        "args": ["-c", "/etc/envoy/envoy.yaml"]});
    for (name, value) in envoy.as_object().unwrap() {
        container[name] = value.clone();
    }
    json!({"containers": [container, {"name": "app", "image": "app"}]})
}

/// A workload with this pod's template.
fn workload(kind: &str, annotations: Value, spec: Value) -> Case {
    let mut case = pod(annotations, with(json!({})));
    let mut object =
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    object["spec"]["template"] = case.object;
    case.object = object;
    case
}

/// Sets values of the object by JSON pointers, `@NAME` being an annotation of a pod; `null` removes.
fn set<const N: usize>(values: [(&'static str, Value); N]) -> Remedy {
    Box::new(move |case| {
        for (at, value) in &values {
            let (mut place, path) = match at.strip_prefix('@') {
                Some(name) => {
                    let annotations = &mut case.object["metadata"]["annotations"];
                    (annotations, vec![format!("{PREFIX}{name}")])
                }
                None => {
                    let tokens = at.split('/').skip(1);
                    let tokens = tokens.map(|token| token.replace("~1", "/"));
                    (&mut case.object, tokens.collect())
                }
            };
            let (last, parents) = path.split_last().unwrap();
            for token in parents {
                place = match place {
                    Value::Array(items) => &mut items[token.parse::<usize>().unwrap()],
                    map => &mut map[token],
                };
            }
            match place {
                Value::Array(items) if last == "-" => items.push(value.clone()),
                Value::Array(items) => items[last.parse::<usize>().unwrap()] = value.clone(),
                map if value.is_null() => {
                    map.as_object_mut().unwrap().remove(last);
                }
                map => map[last] = value.clone(),
            }
        }
    })
}

fn change(change: impl Fn(&mut Case) + 'static) -> Remedy {
    Box::new(change)
}

/// What Envoy's file says of its admin interface.
fn file(admin: Option<Result<&str, &str>>) -> Option<EnvoyConfigurations> {
    let admin = admin.map(|admin| match admin {
        Ok(address) => Ok(address.parse().unwrap()),
        Err(reason) => Err(reason.to_owned()),
    });
    let ports = Vec::new();
    let file = Some((
        "c".to_owned(),
        Bootstrap {
            admin,
            ports,
            checks_all: false,
        },
    ));
    let arguments = Bootstrap::default();
    let configuration = EnvoyConfiguration { arguments, file };
    Some([("envoy".to_owned(), configuration)].into())
}

fn configured(case: Case, admin: Option<Result<&str, &str>>) -> Case {
    Case {
        configurations: file(admin),
        ..case
    }
}

fn with_api(case: &mut Case) {
    case.defaults.drainer_api = Some(DrainerApiDefaults {
        address: "a:1".to_owned(),
        ip: None,
        ca: "AAAA".to_owned(),
        replacement: true,
        reports: false,
    });
}

/// The codes of a case, and whether its pods get a drainer, or request none any more.
fn judge(case: &Case) -> (Vec<Code>, bool) {
    let codes = |all: &[Diagnostic]| Vec::from_iter(all.iter().map(|it| it.code));
    if let Some(kind) = case.object["kind"].as_str() {
        let found = objects(&case.object);
        let unknown = misplaced(&found[0], false).into_iter();
        let unknown = unknown.map(|it| it.diagnostic.code);
        let review = creation_review(["apps", "v1", kind], &case.object).to_string();
        let response = admit_workload(review.as_bytes(), &case.defaults).unwrap();
        let mut codes = codes(&response.diagnostics);
        codes.extend(unknown.filter(|code| *code == Code::UnknownKind));
        let is_fine = |code: &Code| !matches!(code.effect(), Effect::Skip | Effect::Denial);
        let all_fine = codes.iter().all(is_fine);
        return (codes, all_fine);
    }
    let text = case.object.to_string();
    let Ok(view) = PodView::decode(&text) else {
        return (vec![Code::NotAPod], false);
    };
    let context = PodContext {
        configurations: case.configurations.as_ref(),
        ..PodContext::new(None, Token(1))
    };
    match decide(&view, &context, &case.defaults) {
        Decision::NotRequested => (Vec::new(), true),
        Decision::Inject { warnings, .. } => (codes(&warnings), true),
        Decision::Skip {
            reason, warnings, ..
        } => (codes(&[vec![reason], warnings].concat()), false),
        Decision::Deny { reasons, warnings } => (codes(&[reasons, warnings].concat()), false),
        Decision::Repair { changes, .. } => (codes(&changes), true),
    }
}

type Row = (Code, Case, Vec<Remedy>);

fn without_inject() -> Remedy {
    set([("@inject", json!(null))])
}

fn managed(mut object: Value, annotations: [(&str, &str); 1]) -> Case {
    let all = &mut object["metadata"]["annotations"];
    *all = json!({});
    for (name, value) in [("inject", "true")].into_iter().chain(annotations) {
        all[format!("{PREFIX}{name}")] = json!(value);
    }
    case(object)
}

/// The reasons to skip a pod.
fn skips() -> Vec<Row> {
    let plain = |annotations: Value| pod(annotations, with(json!({})));
    let mut system = plain(json!({}));
    system.object["metadata"]["namespace"] = json!("kube-system");
    let mut own = plain(json!({}));
    own.object["metadata"]["namespace"] = json!("own");
    let mut windows = plain(json!({}));
    windows.object["spec"]["os"] = json!({"name": "windows"});
    let mut mirror = plain(json!({}));
    mirror.object["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x");
    let mut plain_drainers = plain(json!({}));
    plain_drainers.object["spec"]["restartPolicy"] = json!("Never");
    let settings = PodSettings {
        native_sidecar: NativeSidecar::False,
        ..PodSettings::default()
    };
    plain_drainers.defaults.settings = Settings::try_new(settings).unwrap();
    let mut other = envoy_gateway();
    let hook = other["spec"]["containers"][0]["lifecycle"].take();
    other["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sleep", "1"]}}});
    let hooked = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}});
    let mut unserved = workload("Deployment", json!({}), json!({}));
    unserved.object["apiVersion"] = json!("extensions/v1beta1");
    let shop = || set([("/metadata/namespace", json!("shop"))]);
    let two = json!({"containers": [{"name": "web", "image": "w"}, {"name": "app", "image": "a"}]});
    let name = |name: &str| set([("@envoy-container", json!(name))]);
    vec![
        (Code::SystemNamespace, system, vec![shop()]),
        (Code::ReleaseNamespace, own, vec![shop()]),
        (Code::WindowsPod, windows, vec![without_inject()]),
        (
            Code::MirrorPod,
            mirror,
            vec![set([(
                "/metadata/annotations/kubernetes.io~1config.mirror",
                json!(null),
            )])],
        ),
        (
            Code::EnvoyGatewayPod,
            managed(envoy_gateway(), [("adopt", "false")]),
            vec![set([("@adopt", json!("true"))])],
        ),
        (
            Code::ContourPod,
            managed(contour(), [("adopt", "false")]),
            vec![set([("@adopt", json!("true"))])],
        ),
        (
            Code::ExistingHook,
            pod(json!({}), with(hooked)),
            vec![
                set([("@existing-hook", json!("replace"))]),
                set([("/spec/containers/0/lifecycle", json!(null))]),
            ],
        ),
        (
            Code::NoEnvoy,
            pod(json!({}), two),
            vec![name("web"), without_inject()],
        ),
        (
            Code::PlainSidecarInJob,
            plain_drainers,
            vec![set([("@native-sidecar", json!("true"))])],
        ),
        (
            Code::StatusWithoutDrainer,
            plain(json!({"status": "by hand"})),
            vec![set([("@status", json!(null))])],
        ),
        (
            Code::NoSuchContainer,
            plain(json!({"envoy-container": "x"})),
            vec![name("envoy")],
        ),
        (
            Code::UnknownKind,
            unserved,
            vec![set([("/apiVersion", json!("apps/v1"))])],
        ),
        (
            Code::UnknownShutdownManager,
            managed(other, [("adopt", "true")]),
            vec![set([("/spec/containers/0/lifecycle", hook)])],
        ),
        (
            Code::IstioPod,
            pod(
                json!({}),
                json!({"containers": [{"name": "istio-proxy", "image": "proxyv2"}]}),
            ),
            vec![name("istio-proxy")],
        ),
    ]
}

/// The reasons to deny a pod.
fn denials() -> Vec<Row> {
    let plain = |annotations: Value| pod(annotations, with(json!({})));
    let several =
        json!({"containers": [{"name": "a", "image": "envoy"}, {"name": "b", "image": "envoy"}]});
    let mut init = plain(json!({"envoy-container": "early"}));
    init.object["spec"]["initContainers"] = json!([{"name": "early", "image": "envoy"}]);
    let mount = || {
        set([
            ("/spec/volumes", json!([{"name": "admin", "emptyDir": {}}])),
            (
                "/spec/containers/0/volumeMounts",
                json!([{"name": "admin", "mountPath": "/run/envoy"}]),
            ),
        ])
    };
    let socket = json!({"admin-address": "unix:/run/envoy/admin.sock"});
    let mut taken = plain(json!({}));
    taken.object["spec"]["volumes"] = json!([{"name": "envoy-drainer", "emptyDir": {}}]);
    let mut broken = plain(json!({}));
    broken.object["spec"]["containers"][0]["args"] = json!("-c");
    let immediate = || json!({"drain-strategy": "immediate"});
    let native = || json!({"envoy-native-sidecar": "true"});
    let remove = |name: &'static str| {
        change(move |case| {
            let annotations = case.object["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(&format!("{PREFIX}{name}"));
        })
    };
    let mut alone = plain(native());
    alone.object["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .pop();
    let mut plain_drainer = native();
    plain_drainer["native-sidecar"] = json!("false");
    let gradual = with(json!({"args": ["-c", "/e.yaml", "--drain-strategy", "gradual"]}));
    let mut on_node = plain(json!({}));
    on_node.object["spec"]["hostNetwork"] = json!(true);
    let script = with(json!({"command": ["sh", "-c", "envoy -c /e.yaml"]}));
    let wrapper = with(json!({"image": "acme/envoy-wrapper:1", "args": ["--service-node", "x"]}));
    let port = json!([{"containerPort": 8080}]);
    vec![
        (
            Code::ServerNotDrained,
            plain(json!({"server-container": "envoy"})),
            vec![remove("server-container")],
        ),
        (
            Code::BadValue,
            plain(json!({"drain-timeout": "90"})),
            vec![set([("@drain-timeout", json!("90s"))])],
        ),
        (
            Code::SeveralEnvoys,
            pod(json!({}), several),
            vec![set([("@envoy-container", json!("a"))])],
        ),
        (
            Code::InitContainerEnds,
            init,
            vec![
                set([("@envoy-container", json!("envoy"))]),
                set([("/spec/initContainers/0/restartPolicy", json!("Always"))]),
            ],
        ),
        (Code::SocketNotMounted, plain(socket), vec![mount()]),
        (
            Code::PortTaken,
            pod(json!({"port": "8080"}), with(json!({ "ports": port }))),
            vec![set([("@port", json!("16000"))]), remove("port")],
        ),
        (
            Code::NameTaken,
            taken,
            vec![set([("/spec/volumes/0/name", json!("mine"))])],
        ),
        (
            Code::NotAPod,
            broken,
            vec![set([("/spec/containers/0/args", json!(["-c", "/e.yaml"]))])],
        ),
        (
            Code::DrainFlagsNotAdded,
            pod(immediate(), with(json!({"args": null}))),
            vec![set([
                ("/spec/containers/0/command", json!(["envoy"])),
                ("/spec/containers/0/args", json!(["-c", "/e.yaml"])),
            ])],
        ),
        (
            Code::DrainFlagsNotAdded,
            pod(immediate(), gradual),
            vec![set([
                ("/spec/containers/0/args/3", json!("immediate")),
                ("@drain-strategy", json!(null)),
            ])],
        ),
        (
            Code::NoExtraHook,
            plain(json!({"extra-lifecycle-hooks": "other"})),
            vec![set([("@extra-lifecycle-hooks", json!("app"))])],
        ),
        (
            Code::EnvoyIsOnlyContainer,
            alone,
            vec![remove("envoy-native-sidecar")],
        ),
        (
            Code::PlainSidecarOfNativeEnvoy,
            plain(plain_drainer),
            vec![
                set([("@native-sidecar", json!("true"))]),
                remove("envoy-native-sidecar"),
            ],
        ),
        (
            Code::EnvoyRestartPolicy,
            pod(native(), with(json!({"restartPolicy": "Never"}))),
            vec![
                set([("/spec/containers/0/restartPolicy", json!(null))]),
                remove("envoy-native-sidecar"),
            ],
        ),
        (
            Code::AdminNotAdded,
            pod(json!({"add-admin": "true"}), script),
            vec![remove("add-admin")],
        ),
        (
            Code::AdminNotAdded,
            pod(json!({"add-admin": "true"}), wrapper),
            vec![remove("add-admin")],
        ),
        (
            Code::AdminNotNamed,
            on_node,
            vec![
                set([("@admin-address", json!("127.0.0.1:9901"))]),
                set([(
                    "/spec/containers/0/ports",
                    json!([{"name": "admin", "containerPort": 9901}]),
                )]),
            ],
        ),
    ]
}

/// Warnings about settings, and about what is around Envoy's container.
fn warnings() -> Vec<Row> {
    let plain = |annotations: Value| pod(annotations, with(json!({})));
    let remove = |name: &'static str| {
        change(move |case| {
            let annotations = case.object["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(&format!("{PREFIX}{name}"));
        })
    };
    let mut lenient = plain(json!({"drain-timeout": "90"}));
    lenient.defaults.on_invalid = OnInvalid::Warn;
    let mut limited = plain(json!({"drain-timeout": "900s"}));
    limited.defaults.on_invalid = OnInvalid::Warn;
    limited.defaults.maxima.drain_timeout = Duration::from_secs(300);
    let mut pod_level = plain(json!({"cpu-request": "50m"}));
    pod_level.object["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    let mut large = plain(json!({}));
    large.object["metadata"]["annotations"]["a"] = json!("x".repeat((256 << 10) - 100));
    let mut own_hook = plain(json!({"extra-lifecycle-hooks": "*"}));
    own_hook.object["spec"]["containers"][1]["lifecycle"] =
        json!({"preStop": {"sleep": {"seconds": 5}}});
    let containers = own_hook.object["spec"]["containers"]
        .as_array_mut()
        .unwrap();
    containers.push(json!({"name": "worker", "image": "w"}));
    let waits = || json!({"wait-for-replacement": "60s"});
    let mut owned = plain(waits());
    owned.object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet"}]);
    with_api(&mut owned);
    let mut step = plain(json!({}));
    step.object["spec"]["restartPolicy"] = json!("OnFailure");
    let mut on_node = plain(json!({"admin-address": "127.0.0.1:9901"}));
    on_node.object["spec"]["hostNetwork"] = json!(true);
    let mut redirected = plain(json!({}));
    redirected.object["spec"]["initContainers"] =
        json!([{"name": "proxy-init", "image": "i", "args": ["-w", "8282"]}]);
    let beside = |other: Value| {
        let mut spec = with(json!({}));
        spec["containers"][1] = other;
        pod(json!({}), spec)
    };
    let linkerd = json!({"name": "linkerd-proxy", "image": "l"});
    let mut misplaced = workload("Deployment", json!({}), json!({}));
    let template = misplaced.object["spec"]["template"]["metadata"].take();
    misplaced.object["metadata"] = template.clone();
    let moved = move |case: &mut Case| {
        case.object["metadata"] = json!({"name": "a"});
        case.object["spec"]["template"]["metadata"] = template.clone();
    };
    let mut unasked = workload("Deployment", json!({"drain-delay": "5s"}), json!({}));
    let key = "/spec/template/metadata/annotations/envoy-drainer.dev~1inject";
    set([(key, json!(null))])(&mut unasked);
    let delay = "/spec/template/metadata/annotations/envoy-drainer.dev~1drain-delay";
    let health = "/spec/template/metadata/annotations/envoy-drainer.dev~1health-failure-delay";
    let manager = managed(
        {
            let mut pod = envoy_gateway();
            let command = json!(["envoy-gateway", "envoy", "shutdown", "--drain-timeout=5s"]);
            pod["spec"]["containers"][1]["lifecycle"]["preStop"]["exec"]["command"] = command;
            pod
        },
        [("adopt", "true")],
    );
    vec![
        (
            Code::UnknownKey,
            plain(json!({"prot": "16000"})),
            vec![
                remove("prot"),
                set([("@prot", json!(null)), ("@port", json!("16000"))]),
            ],
        ),
        (
            Code::DefaultUsed,
            lenient,
            vec![set([("@drain-timeout", json!("90s"))])],
        ),
        (
            Code::AboveMaximum,
            limited,
            vec![
                set([("@drain-timeout", json!("300s"))]),
                change(|case| case.defaults.maxima.drain_timeout = Duration::from_secs(900)),
            ],
        ),
        (
            Code::LongGracePeriod,
            plain(json!({"drain-timeout": "900s"})),
            vec![set([("@drain-timeout", json!("300s"))])],
        ),
        (
            Code::ResourcesIgnored,
            pod_level,
            vec![remove("cpu-request")],
        ),
        (
            Code::EnvoyGuessed,
            pod(
                json!({}),
                json!({"containers": [{"name": "web", "image": "nginx"}]}),
            ),
            vec![set([("@envoy-container", json!("web"))]), without_inject()],
        ),
        (
            Code::OtherPort,
            pod(
                json!({}),
                with(json!({"ports": [{"containerPort": 15902}]})),
            ),
            vec![set([("@port", json!("16000"))])],
        ),
        (Code::Misplaced, misplaced, vec![change(moved)]),
        (
            Code::SettingsWithoutInject,
            unasked,
            vec![set([(key, json!("true"))]), set([(delay, json!(null))])],
        ),
        (
            Code::StatusLeftOut,
            large,
            vec![set([("/metadata/annotations/a", json!(null))])],
        ),
        (
            Code::OwnHookKept,
            own_hook,
            vec![
                set([("/spec/containers/1/lifecycle", json!(null))]),
                set([("@extra-lifecycle-hooks", json!("worker"))]),
            ],
        ),
        (
            Code::ManagerValueUnused,
            manager,
            vec![
                set([("@drain-timeout", json!("30s"))]),
                set([(
                    "/spec/containers/1/lifecycle/preStop/exec/command/3",
                    json!("--drain-timeout=30s"),
                )]),
            ],
        ),
        (
            Code::FullReplacementWait,
            owned,
            vec![remove("wait-for-replacement")],
        ),
        (
            Code::NoReplacementWait,
            plain(waits()),
            vec![remove("wait-for-replacement"), change(with_api)],
        ),
        (
            Code::PlainEnvoyInJob,
            step,
            vec![set([("@envoy-native-sidecar", json!("true"))])],
        ),
        (
            Code::OtherProxy,
            beside(linkerd.clone()),
            vec![
                set([("@extra-lifecycle-hooks", json!("linkerd-proxy"))]),
                change(|case| {
                    let mut proxy = case.object["spec"]["containers"]
                        .as_array_mut()
                        .unwrap()
                        .remove(1);
                    proxy["restartPolicy"] = json!("Always");
                    case.object["spec"]["initContainers"] = json!([proxy]);
                }),
            ],
        ),
        (
            Code::OtherCandidate,
            beside(json!({"name": "als", "image": "acme/envoy-als"})),
            vec![set([("@envoy-container", json!("envoy"))])],
        ),
        (
            Code::SettingWithoutEffect,
            plain(json!({"health-failure-delay": "60s"})),
            vec![remove("health-failure-delay")],
        ),
        (
            Code::SharedHostPort,
            on_node,
            vec![set([("@port", json!("16000"))])],
        ),
        (
            Code::HookForLater,
            plain(json!({"extra-lifecycle-hooks": "istio-proxy"})),
            vec![
                set([("@extra-lifecycle-hooks", json!("app"))]),
                set([(
                    "/spec/containers/-",
                    json!({"name": "istio-proxy", "image": "p"}),
                )]),
            ],
        ),
        (
            Code::HookRedirected,
            redirected,
            vec![set([
                ("@port", json!("16000")),
                ("/spec/initContainers/0/args/1", json!("8282,16000")),
            ])],
        ),
        (
            Code::HookRedirected,
            beside(linkerd),
            vec![set([
                ("@port", json!("16000")),
                (
                    "/metadata/annotations/config.linkerd.io~1skip-inbound-ports",
                    json!("16000"),
                ),
            ])],
        ),
        (
            Code::SolePod,
            workload("StatefulSet", json!({}), json!({"replicas": 1})),
            vec![
                set([(health, json!("end"))]),
                change(|case| {
                    with_api(case);
                    let api = case.defaults.drainer_api.as_mut();
                    api.unwrap().reports = true;
                }),
            ],
        ),
    ]
}

/// Warnings about Envoy: its arguments, its image, its admin interface.
fn warnings_about_envoy() -> Vec<Row> {
    let plain = |annotations: Value| pod(annotations, with(json!({})));
    let socket = json!({"admin-address": "unix:/run/envoy/admin.sock"});
    let mounted = with(json!({"volumeMounts": [{"name": "admin", "mountPath": "/run/envoy"}]}));
    let ports =
        json!([{"name": "admin", "containerPort": 1}, {"name": "envoy-admin", "containerPort": 2}]);
    let added = with(json!({"ports": [{"name": "admin", "containerPort": 9901}]}));
    let annotated = || set([("@admin-address", json!("127.0.0.1:9901"))]);
    let named = with(json!({"ports": [{"name": "http", "containerPort": 80}]}));
    let short = with(
        json!({"image": "envoyproxy/envoy:dev", "args": ["-c", "/e.yaml", "--drain-time-s", "30"]}),
    );
    let immediate = json!({"drain-strategy": "immediate"});
    let configure = |admin: &'static str| {
        change(move |case: &mut Case| case.configurations = file(Some(Ok(admin))))
    };
    let pipe = Some(Ok("unix:/run/envoy/admin.sock"));
    vec![
        (
            Code::SocketUserUnknown,
            pod(socket, mounted),
            vec![set([(
                "/spec/containers/0/securityContext",
                json!({"runAsUser": 101}),
            )])],
        ),
        (
            Code::ShortDrainTime,
            pod(json!({}), short),
            vec![
                set([("/spec/containers/0/args/3", json!("90"))]),
                set([("@drain-timeout", json!("20s"))]),
            ],
        ),
        (
            Code::DrainTimeOfUpdates,
            pod(immediate, with(json!({}))),
            vec![set([(
                "/spec/containers/0/args",
                json!(["-c", "/e.yaml", "--drain-time-s", "600"]),
            )])],
        ),
        (
            Code::NamedPortOfNativeEnvoy,
            pod(json!({"envoy-native-sidecar": "true"}), named),
            vec![set([("/spec/containers/0/ports/0/name", json!(null))])],
        ),
        (
            Code::AdminContradiction,
            pod(json!({}), with(json!({ "ports": ports }))),
            vec![annotated()],
        ),
        (
            Code::AdminContradiction,
            pod(json!({"add-admin": "true"}), added),
            vec![
                set([
                    ("@admin-address", json!("127.0.0.1:9901")),
                    ("@add-admin", json!(null)),
                ]),
                set([("/spec/containers/0/ports/0/name", json!("metrics"))]),
            ],
        ),
        (
            Code::NoAdmin,
            configured(plain(json!({})), None),
            vec![
                configure("127.0.0.1:9901"),
                set([("@add-admin", json!("true"))]),
            ],
        ),
        (
            Code::AdminNotNamed,
            configured(
                {
                    let mut on_node = plain(json!({}));
                    on_node.object["spec"]["hostNetwork"] = json!(true);
                    on_node
                },
                None,
            ),
            vec![change(|case: &mut Case| {
                case.configurations = file(Some(Ok("127.0.0.1:9901")));
            })],
        ),
        (
            Code::StartedByShell,
            pod(
                json!({}),
                with(json!({"command": ["sh", "-c"], "args": ["a=b\nenvoy -c /e.yaml"]})),
            ),
            vec![set([(
                "/spec/containers/0/args/0",
                json!("a=b\nexec envoy -c /e.yaml"),
            )])],
        ),
        (
            Code::HealthCheckOfAll,
            {
                let mut checked = configured(plain(json!({})), Some(Ok("127.0.0.1:9901")));
                let all = checked.configurations.iter_mut().flatten();
                all.for_each(|(_, it)| it.arguments.checks_all = true);
                checked
            },
            vec![configure("127.0.0.1:9901")],
        ),
        (
            Code::OldEnvoy,
            pod(
                json!({}),
                with(json!({"image": "envoyproxy/envoy:v1.29.0"})),
            ),
            vec![set([(
                "/spec/containers/0/image",
                json!("envoyproxy/envoy:v1.36.4"),
            )])],
        ),
        (
            Code::SocketNotReachable,
            configured(plain(json!({})), pipe),
            vec![
                set([
                    ("/spec/volumes", json!([{"name": "admin", "emptyDir": {}}])),
                    (
                        "/spec/containers/0/volumeMounts",
                        json!([{"name": "admin", "mountPath": "/run/envoy"}]),
                    ),
                ]),
                configure("127.0.0.1:9901"),
            ],
        ),
        (
            Code::AdminNotRead,
            configured(plain(json!({})), Some(Err("a variable"))),
            vec![annotated()],
        ),
    ]
}

#[test]
fn remedy_of_each_code_leads_to_a_drainer() {
    let rows = [skips(), denials(), warnings(), warnings_about_envoy()];
    let rows = Vec::from_iter(rows.into_iter().flatten());
    for (code, case, remedies) in &rows {
        let (codes, _) = judge(case);
        assert!(codes.contains(code), "{code}: {codes:?}: {}", case.object);
        for (nth, remedy) in remedies.iter().enumerate() {
            let mut changed = case.clone();
            remedy(&mut changed);
            let (codes, is_injected) = judge(&changed);
            let outcome = format!("{code}, remedy {nth}: {codes:?}: {}", changed.object);
            assert!(is_injected && !codes.contains(code), "{outcome}");
        }
    }
    for code in Code::ALL {
        let has_row = rows.iter().any(|(of, ..)| of == code);
        let is_exempt = WITHOUT_CHANGE.iter().any(|(of, _)| of == code);
        assert!(has_row != is_exempt, "{code}");
    }
}
