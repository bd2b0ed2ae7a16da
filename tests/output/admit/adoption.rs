//! Admission of pods of Envoy Gateway and Contour that ask for adoption: a golden pod for each shape of theirs, and the
//! releases whose pods have that shape.

use std::path::Path;

use admission::{AdmissionOutcome, Code};
use serde_json::{Value, json};
use tests::golden;
use tests::review::{ReviewBuilder, defaults, lenient_defaults};

use super::{admit, assert_patched, pod};

/// A shape of pods, as `tests/golden/adopt/NAME.yaml` has it.
struct Shape {
    name: &'static str,
    product: &'static str,
    /// The port of the manager, in digits.
    manager_port: &'static str,
    releases: &'static [Release],
}

/// A release: the tags of its own image and of Envoy's, and what differs besides.
type Release = (&'static str, &'static str, fn(&mut Value));

/// The newest release of each supported minor version, as its tag builds pods, and Contour's Helm chart 0.7.
const SHAPES: [Shape; 3] = [
    Shape {
        name: "envoy-gateway",
        product: "Envoy Gateway",
        manager_port: "19002",
        releases: &[
            ("v1.4.6", "distroless-v1.34.10", |pod| {
                args(pod).retain(|it| it != "--component-log-level" && it != "misc:error");
                let bootstrap = &mut args(pod)[5];
                let old = bootstrap.as_str().unwrap();
                *bootstrap = json!(old.replace("name: default", "name: local_cluster"));
                join_args(pod);
            }),
            ("v1.5.0", "distroless-v1.35.0", join_args),
            ("v1.6.7", "distroless-v1.36.6", |_| {}),
            ("v1.7.5", "distroless-v1.37.5", |_| {}),
            ("v1.8.3", "distroless-v1.38.3", |_| {}),
            ("v1.9.0", "distroless-v1.39.0", |_| {}),
        ],
    },
    Shape {
        name: "contour",
        product: "Contour",
        manager_port: "8090",
        releases: &[
            ("v1.24.6", "v1.25.11", remove_metrics_port),
            ("v1.25.3", "v1.26.6", remove_metrics_port),
            ("v1.26.3", "v1.27.4", remove_metrics_port),
            ("v1.27.4", "v1.28.4", remove_metrics_port),
            ("v1.28.8", "v1.29.12", remove_metrics_port),
            ("v1.29.5", "v1.30.10", remove_metrics_port),
            ("v1.30.5", "v1.31.10", |pod| {
                envoy(pod)["ports"][2]["hostPort"] = json!(8002);
            }),
            ("v1.31.6", "v1.34.14", |_| {}),
            ("v1.32.5", "v1.34.14", |_| {}),
            ("v1.33.6", "distroless-v1.38.3", |_| {}),
        ],
    },
    Shape {
        name: "contour-chart",
        product: "Contour",
        manager_port: "8090",
        releases: &[("v1.33.6", "v1.38.3", |_| {})],
    },
];

fn envoy(pod: &mut Value) -> &mut Value {
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    let envoy = containers.iter_mut().find(|it| it["name"] == "envoy");
    envoy.unwrap()
}

fn args(pod: &mut Value) -> &mut Vec<Value> {
    envoy(pod)["args"].as_array_mut().unwrap()
}

/// Before Envoy Gateway 1.6, a flag of Envoy and its value were one argument.
fn join_args(pod: &mut Value) {
    let mut joined = Vec::<String>::new();
    for arg in &*args(pod) {
        let arg = arg.as_str().unwrap();
        match joined.last_mut() {
            Some(flag) if !arg.starts_with('-') => *flag = format!("{flag} {arg}"),
            _ => joined.push(arg.to_owned()),
        }
    }
    *args(pod) = joined.into_iter().map(Value::from).collect();
}

/// Before Contour 1.30, Envoy's container did not declare the port of its metrics.
fn remove_metrics_port(pod: &mut Value) {
    envoy(pod)["ports"].as_array_mut().unwrap().truncate(2);
}

// === impl Shape ===

impl Shape {
    /// The golden pod, and its patched form.
    fn file(&self) -> String {
        format!("adopt/{}", self.name)
    }

    /// The pod of a release.
    fn pod(&self, (version, envoy, change): &Release) -> Value {
        let mut pod = pod(&self.file());
        for list in ["/spec/initContainers", "/spec/containers"] {
            let containers = pod.pointer_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let image = container["image"].as_str().unwrap();
                let (name, _) = image.rsplit_once(':').unwrap();
                let is_envoy = container["name"] == "envoy";
                let tag = if is_envoy { envoy } else { version };
                container["image"] = json!(format!("{name}:{tag}"));
            }
        }
        change(&mut pod);
        pod
    }

    /// The minor versions of the releases: `1.4 to 1.9`.
    fn versions(&self) -> String {
        let minor = |(version, ..): &Release| {
            let (minor, _) = version.trim_start_matches('v').rsplit_once('.').unwrap();
            minor.to_owned()
        };
        let [first, .., last] = self.releases else {
            panic!("{} has one release", self.name)
        };
        format!("{} to {}", minor(first), minor(last))
    }
}

/// The warning about an Envoy that is older than supported ones.
fn warning_about_envoy(tag: &str) -> Option<String> {
    let (_, version) = tag.rsplit_once('v').unwrap();
    let minor = version.split('.').nth(1).unwrap();
    let is_old = minor.parse::<u32>().unwrap() < 31;
    is_old.then(|| {
        format!("DRN078: Envoy {version} is older than 1.31, the oldest that is supported; upgrade Envoy")
    })
}

#[test]
fn shutdown_managers_of_known_releases_are_adopted() {
    for shape in SHAPES {
        let golden = admit(&shape.file(), |_| {});
        assert_eq!(golden.outcome, AdmissionOutcome::Injected, "{}", shape.name);
        for release in shape.releases {
            let (version, envoy, _) = release;
            let name = format!("{} {version}", shape.name);
            let before = shape.pod(release);
            let result = ReviewBuilder::for_pod(&before).admit(&defaults());
            assert_eq!(result.outcome, AdmissionOutcome::Injected, "{name}");
            assert_eq!(result.patch, golden.patch, "{name}");
            let warnings = golden.warnings.iter().cloned();
            let warnings: Vec<_> = warnings.chain(warning_about_envoy(envoy)).collect();
            assert_eq!(result.warnings, warnings, "{name}");
            assert_patched(&name, &before, &result, &defaults());

            let [envoy] = &result.pod["spec"]["containers"].as_array().unwrap()[..] else {
                panic!("{name}: a container beside Envoy is left");
            };
            let grace = "terminationGracePeriodSeconds";
            let mut containers = before["spec"]["containers"].as_array().unwrap().iter();
            let envoy_before = containers.find(|container| container["name"] == "envoy");
            assert_eq!(envoy["args"], envoy_before.unwrap()["args"], "{name}");
            assert_eq!(result.pod["spec"][grace], before["spec"][grace], "{name}");
            // Nothing calls the manager any more.
            let text = result.pod.to_string();
            assert!(!text.contains(shape.manager_port), "{name}: {text}");
        }
    }
}

/// On the pages and in messages.
#[test]
fn known_versions_are_those_of_the_releases() {
    for shape in SHAPES.iter().filter(|shape| shape.releases.len() > 1) {
        let known = format!("{} {}", shape.product, shape.versions());
        let other = shape.pod(&("v2.0.0", "v1.99.0", |pod| {
            envoy(pod)["command"] = json!(["sh"]);
        }));
        let result = ReviewBuilder::for_pod(&other).admit(&defaults());
        let wanted = format!("DRN014: the pod differs from those of {known}: ");
        let warning = &result.warnings[0];
        assert!(warning.starts_with(&wanted), "{warning}");
        let page = format!("../docs/moving/{}.md", shape.name);
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        golden::check_section(&page, "tested versions", &format!("- {known}\n"));
    }
}

#[test]
fn manager_stays_whatever_is_annotated() {
    let another_shape = |pod: &mut Value| {
        pod["spec"]["containers"][0]["command"] = json!(["/usr/bin/contour"]);
    };
    let not_asking = |pod: &mut Value| {
        pod["metadata"]["annotations"]["envoy-drainer.dev/adopt"] = json!("false");
    };
    type Change = fn(&mut Value);
    let table: [(Change, Code); 2] = [
        (another_shape, Code::UnknownShutdownManager),
        (not_asking, Code::ContourPod),
    ];
    for (change, code) in table {
        let mut pod = pod("adopt/contour");
        change(&mut pod);
        // More than the drain timeout of the installation, but less than the manager's.
        pod["metadata"]["annotations"]["envoy-drainer.dev/min-drain-duration"] = json!("90s");
        let result = ReviewBuilder::for_pod(&pod).admit(&defaults());
        let skipped = AdmissionOutcome::Skipped(code);
        assert_eq!((result.allowed, result.outcome), (true, skipped));
        let warning = result.only_warning();
        assert!(warning.starts_with(&format!("{code}: ")), "{warning}");
    }
}

#[test]
fn invalid_adopt_is_denied_or_leaves_the_manager() {
    let mut invalid = pod("adopt/contour");
    invalid["metadata"]["annotations"]["envoy-drainer.dev/adopt"] = json!("yes");
    let denied = ReviewBuilder::for_pod(&invalid).admit(&defaults());
    assert_eq!(denied.outcome, AdmissionOutcome::Denied);
    assert_eq!(denied.warnings, [""; 0]);
    let wanted = "`envoy-drainer.dev/adopt`: invalid value `yes`: expected true or false";
    assert!(denied.message.contains(wanted), "{}", denied.message);
    let skipped = ReviewBuilder::for_pod(&invalid).admit(&lenient_defaults());
    assert_eq!(skipped.outcome, AdmissionOutcome::Skipped(Code::ContourPod));
}
