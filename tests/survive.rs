//! Whatever a pod holds survives its admission: the patch, applied, gives what an independent edit of
//! the same document gives, and nothing else of it changes.

use k8s_openapi::api::core::v1::Pod;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use tests::review::{Review, Told, defaults};
use webhook::admission::{Code, Outcome, answer};

const STATUS: &str = "envoy-drainer.dev/status";

/// A number that no f64 holds, as a text until the document is written.
const NUMBERS: [&str; 3] = [
    "1e400",
    "-123456789012345678901234567890",
    "0.1234567890123456789012345",
];

/// The document that the admission should leave, made by editing the one that was sent. What is added
/// comes from the pod as patched; where it goes and that nothing else changes is decided here.
fn edited(mut pod: Value, patched: &Value) -> Value {
    let find = |list: &Value, name: &str| {
        let items = list.as_array().map_or(&[][..], Vec::as_slice);
        items.iter().position(|item| item["name"] == name)
    };
    // Indexing for writing makes what is missing or null.
    pod["metadata"]["annotations"][STATUS] = patched["metadata"]["annotations"][STATUS].clone();
    pod["metadata"]["labels"]["envoy-drainer.dev/injected"] = json!("true");
    let grace = pod["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(30);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(grace.max(75));
    let volume =
        json!({"name": "envoy-drainer", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}});
    push(&mut pod["spec"]["volumes"], volume);

    let native_envoy = find(&pod["spec"]["initContainers"], "envoy");
    let list = if native_envoy.is_some() {
        "initContainers"
    } else {
        "containers"
    };
    let envoy = find(&pod["spec"][list], "envoy").expect("every pod here has an Envoy");
    pod["spec"][list][envoy]["lifecycle"]["preStop"] =
        json!({"httpGet": {"path": "/drained/42d2f756a1c91d39", "port": 9902}});

    let plain = pod["metadata"]["annotations"]["envoy-drainer.dev/native-sidecar"] == "false";
    let list = if plain {
        "containers"
    } else {
        "initContainers"
    };
    let drainer = find(&patched["spec"][list], "envoy-drainer").expect("the drainer was added");
    let drainer = patched["spec"][list][drainer].clone();
    match native_envoy {
        Some(at) if !plain => {
            let list = pod["spec"]["initContainers"]
                .as_array_mut()
                .expect("Envoy is in it");
            list.insert(at, drainer);
        }
        _ => push(&mut pod["spec"][list], drainer),
    }
    pod
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        _ => *list = json!([item]),
    }
}

/// Admits a pod, of which [`NUMBERS`] are sent as the numbers they stand for.
fn admit(pod: &Value) -> Told {
    let mut bytes = String::from_utf8(Review::of(pod).bytes()).expect("JSON is UTF-8");
    for number in NUMBERS {
        bytes = bytes.replace(&format!("\"{number}\""), number);
    }
    let answer = answer(bytes.as_bytes(), &defaults()).expect("a review");
    Told::read(&answer, pod.clone())
}

fn assert_survives(pod: &Value) {
    let told = admit(pod);
    assert_eq!(told.outcome, Outcome::Injected, "{:?}", told.message);
    assert_eq!(told.pod, edited(pod.clone(), &told.pod));
    let again = admit(&told.pod);
    assert_eq!(again.outcome, Outcome::Skipped(Code::AlreadyInjected));
    assert_eq!((again.patch.0, again.warnings), (vec![], vec![]));
    serde_json::from_value::<Pod>(told.pod).expect("the API server can decode what we leave");
}

// Keys that a JSON pointer must escape, and others that nobody expects.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "a/b",
            "a~b",
            "~1",
            "~0",
            "/",
            "",
            "-",
            "0",
            "x-future",
            "é🦀",
            "\u{0}\"\\"
        ])
        .prop_map(str::to_owned),
        ".{0,8}",
    ]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(&NUMBERS[..]).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(key(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Fields that no version of Kubernetes knows.
fn unknown_fields() -> impl Strategy<Value = Map<String, Value>> {
    let fields = btree_map(key().prop_map(|key| format!("x-{key}")), anything(), 0..3);
    fields.prop_map(|fields| fields.into_iter().collect())
}

/// A map of texts: missing, `null`, empty or with odd keys.
fn texts() -> impl Strategy<Value = Option<Value>> {
    let filled = btree_map(key(), ".{0,12}".prop_map(Value::from), 0..4)
        .prop_map(|map| Some(Value::Object(map.into_iter().collect())));
    prop_oneof![Just(None), Just(Some(Value::Null)), filled]
}

fn object(
    fields: impl IntoIterator<Item = (&'static str, Option<Value>)>,
    unknown: Map<String, Value>,
) -> Value {
    let known = fields
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(known.chain(unknown).collect())
}

fn maybe(values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(Value::Null)),
        select(values).prop_map(Some)
    ]
}

fn container(name: String) -> impl Strategy<Value = Value> {
    let lifecycle = maybe(vec![
        json!({}),
        json!({"preStop": null}),
        json!({"postStart": {"exec": {"command": ["a", "b"]}}, "x-signal/~": 9}),
    ]);
    let ports = maybe(vec![
        json!([]),
        json!([{"name": "web", "containerPort": 8080, "x-p": null}]),
        json!([{"containerPort": 9902, "protocol": "UDP"}, {"containerPort": 1, "hostPort": 1}]),
    ]);
    let probe = maybe(vec![
        json!({"httpGet": {"port": "web"}, "periodSeconds": 2}),
        json!({"tcpSocket": {"port": 65535}}),
        json!({"exec": {"command": null}, "x-q": {}}),
    ]);
    let resources = maybe(vec![
        json!({}),
        json!({"limits": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}}),
        json!({"requests": null, "limits": {}, "claims": []}),
    ]);
    let mounts = maybe(vec![
        json!([]),
        json!([{"name": "v", "mountPath": "/v", "x-m": 1}]),
    ]);
    let env = maybe(vec![
        json!([{"name": "A/B~", "value": "\u{2028}$(X)"}, {"name": "C", "x-e": [null]}]),
    ]);
    (
        lifecycle,
        ports,
        probe,
        resources,
        mounts,
        env,
        unknown_fields(),
    )
        .prop_map(
            move |(lifecycle, ports, probe, resources, mounts, env, unknown)| {
                let fields = [
                    ("name", Some(json!(name))),
                    ("image", Some(json!("example/image"))),
                    ("lifecycle", lifecycle),
                    ("ports", ports),
                    ("readinessProbe", probe),
                    ("resources", resources),
                    ("volumeMounts", mounts),
                    ("env", env),
                ];
                object(fields, unknown)
            },
        )
}

/// Up to three containers with other names, and where among them Envoy stands.
fn containers() -> impl Strategy<Value = (Vec<Value>, Index)> {
    let named = (0..3).map(|n| container(format!("c{n}")));
    (named.collect::<Vec<_>>(), 0..4_usize, any::<Index>()).prop_map(|(mut all, count, at)| {
        all.truncate(count);
        (all, at)
    })
}

prop_compose! {
    fn pod()(
        annotations in texts(),
        labels in texts(),
        (mut containers, envoy_at) in containers(),
        mut init in prop_oneof![Just(None), Just(Some(None)), vec(container("i0".into()), 0..2).prop_map(|list| Some(Some(list)))],
        mut envoy in container("envoy".into()),
        native_envoy in any::<bool>(),
        native_sidecar in select(vec![None, Some("auto"), Some("true"), Some("false")]),
        volumes in maybe(vec![json!([]), json!([{"name": "v", "emptyDir": {}, "x-v": 1e300}])]),
        grace in maybe(vec![json!(0), json!(30), json!(74), json!(75), json!(76), json!(i64::MAX)]),
        unknown in (unknown_fields(), unknown_fields(), unknown_fields()),
    ) -> Value {
        let mut annotations = match annotations {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        annotations.insert("envoy-drainer.dev/inject".into(), json!("true"));
        if let Some(form) = native_sidecar {
            annotations.insert("envoy-drainer.dev/native-sidecar".into(), json!(form));
        }
        if native_envoy {
            envoy["restartPolicy"] = json!("Always");
            let list = init.get_or_insert_default().get_or_insert_default();
            list.insert(envoy_at.index(list.len() + 1), envoy);
        } else {
            containers.insert(envoy_at.index(containers.len() + 1), envoy);
        }
        let metadata = [
            ("name", Some(json!("p"))),
            ("annotations", Some(Value::Object(annotations))),
            ("labels", labels),
        ];
        let spec = [
            ("initContainers", init.map(|list| list.map_or(Value::Null, Value::from))),
            ("containers", Some(json!(containers))),
            ("volumes", volumes),
            ("terminationGracePeriodSeconds", grace),
        ];
        let (of_pod, of_metadata, of_spec) = unknown;
        let fields = [
            ("apiVersion", Some(json!("v1"))),
            ("kind", Some(json!("Pod"))),
            ("metadata", Some(object(metadata, of_metadata))),
            ("spec", Some(object(spec, of_spec))),
        ];
        object(fields, of_pod)
    }
}

/// Every place in a document, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| places(item, &format!("{at}/{n}"), found)),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| places(item, &format!("{at}/{}", escaped(key)), found)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_pod_survives(pod in pod()) {
        assert_survives(&pod);
    }

    #[test]
    fn a_pod_with_something_wrong_in_it_is_admitted_or_refused_but_never_a_bug(
        mut pod in pod(),
        at in any::<Index>(),
        wrong in anything(),
    ) {
        let mut found = Vec::new();
        places(&pod, "", &mut found);
        *pod.pointer_mut(&found[at.index(found.len())]).unwrap() = wrong;
        let told = admit(&pod);
        prop_assert_ne!(told.outcome, Outcome::Failed(Code::InternalError));
        prop_assert_eq!(told.allowed, told.outcome != Outcome::Denied);
    }

    #[test]
    fn any_bytes_are_answered_or_refused(bytes in vec(any::<u8>(), 0..64)) {
        prop_assert!(answer(&bytes, &defaults()).is_err());
    }

    #[test]
    fn a_review_cut_short_is_refused(pod in pod(), end in any::<Index>()) {
        let bytes = Review::of(&pod).bytes();
        prop_assert!(answer(&bytes[..end.index(bytes.len())], &defaults()).is_err());
    }
}

#[test]
fn a_pod_of_three_mebibytes_survives() {
    let variable = |n: usize| json!({"name": format!("VARIABLE_{n}"), "value": "\"quoted\" and $(expanded) / ~".repeat(4)});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big", "annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {"containers": [{"name": "envoy", "env": (0..22_000).map(variable).collect::<Vec<_>>()}]},
    });
    assert!(serde_json::to_vec(&pod).unwrap().len() > 3 << 20);
    assert_survives(&pod);
}

#[test]
fn metadata_that_is_missing_asks_for_nothing() {
    for pod in [
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": {"annotations": null}, "spec": null}),
    ] {
        let told = admit(&pod);
        assert_eq!(
            (told.outcome, told.patch.0),
            (Outcome::NotAsked, vec![]),
            "{pod}"
        );
    }
}

#[test]
fn a_skip_is_decided_anew_when_another_webhook_brings_the_envoy() {
    let mut pod = json!({
        "metadata": {"annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {"containers": [{"name": "app"}, {"name": "cache"}]},
    });
    let skipped = admit(&pod);
    assert_eq!(skipped.outcome, Outcome::Skipped(Code::NoEnvoy));
    assert_eq!(
        skipped.pod["metadata"]["annotations"][STATUS],
        r#"{"skipped":"DRN009"}"#
    );
    let same = admit(&skipped.pod);
    assert_eq!(
        (same.outcome, same.patch.0),
        (Outcome::Skipped(Code::NoEnvoy), vec![])
    );

    pod = skipped.pod;
    push(&mut pod["spec"]["containers"], json!({"name": "envoy"}));
    assert_survives(&pod);
}
