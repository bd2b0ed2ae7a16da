//! Generates pods of every kind that request a drainer.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use tests::json::push;

/// Numbers that no f64 can represent, as strings until the document is written.
pub(crate) const NUMBERS: [&str; 3] = [
    "1e400",
    "-123456789012345678901234567890",
    "0.1234567890123456789012345",
];

/// Keys that a JSON pointer must escape, and arbitrary ones.
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

/// Any JSON.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(key(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// An object whose fields no version of Kubernetes knows.
fn unknown_fields() -> impl Strategy<Value = Value> {
    let fields = btree_map(key().prop_map(|key| format!("x-{key}")), any_json(), 0..3);
    fields.prop_map(|fields| fields.into_iter().collect())
}

/// A map of strings: missing, `null`, empty or with unusual keys.
fn string_map() -> impl Strategy<Value = Option<Value>> {
    let filled = btree_map(key(), ".{0,12}".prop_map(Value::from), 0..4)
        .prop_map(|map| Some(Value::Object(map.into_iter().collect())));
    prop_oneof![Just(None), Just(Some(Value::Null)), filled]
}

fn optional(values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(Value::Null)),
        select(values).prop_map(Some)
    ]
}

/// An object of `fields.json`, with unknown fields. Each field there is missing, `null` or has one of its values.
fn object(name: &'static str) -> impl Strategy<Value = Value> {
    let table: Result<BTreeMap<String, BTreeMap<String, Vec<Value>>>, _> =
        serde_json::from_str(include_str!("fields.json"));
    let fields = table.unwrap().remove(name).unwrap().into_iter();
    let fields = fields.map(|(key, values)| {
        optional(values).prop_map(move |value| value.map(|value| (key.clone(), value)))
    });
    (fields.collect::<Vec<_>>(), unknown_fields()).prop_map(|(fields, mut object)| {
        for (key, value) in fields.into_iter().flatten() {
            object[key] = value;
        }
        object
    })
}

fn container(name: String) -> impl Strategy<Value = Value> {
    object("container").prop_map(move |mut container| {
        container["name"] = json!(name);
        container["image"] = json!("example/image");
        container
    })
}

/// Up to three containers with other names, and Envoy's position among them.
fn containers() -> impl Strategy<Value = (Vec<Value>, Index)> {
    let containers_by_name = (0..3).map(|n| container(format!("c{n}")));
    (
        containers_by_name.collect::<Vec<_>>(),
        0..4_usize,
        any::<Index>(),
    )
        .prop_map(|(mut all, count, position)| {
            all.truncate(count);
            (all, position)
        })
}

/// The drainer's annotations, each missing or with a valid value. Durations are in the drainer's own format.
fn settings() -> impl Strategy<Value = Vec<(&'static str, Option<&'static str>)>> {
    let table: [(&str, &[&str]); 19] = [
        (
            "admin-address",
            &["127.0.0.1:15000", "[::1]:9901", "unix:@admin", SOCKET],
        ),
        ("port", &["15020"]),
        ("drain-delay", &["400ms", "5s"]),
        ("min-drain-duration", &["0s", "1s"]),
        ("drain-timeout", &["30s", "1200s"]),
        ("idle-exit", &["off", "90s"]),
        ("quiet-period", &["0s"]),
        ("health-failure-delay", &["0s", "20s"]),
        ("exit-at-connections", &["3"]),
        ("ignore-kernel", &["true"]),
        ("ignore-listeners", &["web", "8001,probes"]),
        ("count-listeners", &["egress,8002"]),
        ("native-sidecar", &["auto", "true", "false"]),
        ("existing-hook", &["keep", "replace"]),
        ("extra-lifecycle-hooks", &["*", "c0"]),
        ("envoy-native-sidecar", &["true", "false"]),
        ("cpu-limit", &["200m"]),
        ("memory-request", &["32Mi"]),
        // From an admission before another webhook added the Envoy.
        ("status", &[r#"{"skipped":"DRN009"}"#]),
    ];
    let setting = |(name, values): (&'static str, &'static [&'static str])| {
        prop_oneof![1 => Just(None), 1 => select(values).prop_map(Some)]
            .prop_map(move |value| (name, value))
    };
    table.map(setting).to_vec()
}

const EXTRA_HOOKS: &str = "envoy-drainer.dev/extra-lifecycle-hooks";

/// An admin address on a socket in one of Envoy's mounts.
const SOCKET: &str = "unix:/var/run/envoy/admin.sock";

/// Mounts for [`SOCKET`].
fn socket_mount() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"name": "run", "mountPath": "/var/run/envoy", "readOnly": true, "x-m/": 0}),
        json!({"name": "run", "mountPath": "/var/run/envoy", "subPath": "a/b"}),
        json!({"name": "run", "mountPath": "/var/run", "subPath": "c"}),
    ])
}

prop_compose! {
    /// A pod that requests a drainer and can have one, unless Envoy has a hook of its own.
    pub(crate) fn pod()(
        annotations in string_map(),
        labels in string_map(),
        (mut containers, envoy_position) in containers(),
        mut init in prop_oneof![Just(None), Just(Some(None)), vec(container("i0".into()), 0..2).prop_map(|list| Some(Some(list)))],
        mut envoy in container("envoy".into()),
        (native_envoy, native_init) in any::<(bool, bool)>(),
        settings in settings(),
        socket_mount in socket_mount(),
        mut spec in object("spec"),
        (mut metadata, mut pod) in (unknown_fields(), unknown_fields()),
    ) -> Value {
        let mut annotations = match annotations {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        annotations.insert("envoy-drainer.dev/inject".into(), json!("true"));
        for (name, value) in settings {
            if let Some(value) = value {
                annotations.insert(format!("envoy-drainer.dev/{name}"), json!(value));
            }
            if value == Some(SOCKET) {
                push(&mut envoy["volumeMounts"], socket_mount.clone());
                let volume = json!({"name": "run", "emptyDir": {}});
                push(&mut spec["volumes"], volume);
            }
        }
        // The pod would be denied with these.
        let has = |key: &str, value: &str| annotations.get(key) == Some(&json!(value));
        let names_no_container = containers.is_empty() && has(EXTRA_HOOKS, "c0");
        let cannot_move = containers.is_empty() || has("envoy-drainer.dev/native-sidecar", "false");
        if names_no_container {
            annotations.remove(EXTRA_HOOKS);
        }
        if !native_envoy && cannot_move {
            annotations.remove("envoy-drainer.dev/envoy-native-sidecar");
        }
        let inits = init.iter_mut().flatten().flatten();
        for container in inits.filter(|_| native_init) {
            container["restartPolicy"] = json!("Always");
        }
        if native_envoy {
            envoy["restartPolicy"] = json!("Always");
            let list = init.get_or_insert_default().get_or_insert_default();
            list.insert(envoy_position.index(list.len() + 1), envoy);
        } else {
            containers.insert(envoy_position.index(containers.len() + 1), envoy);
        }
        metadata["name"] = json!("p");
        metadata["annotations"] = Value::Object(annotations);
        if let Some(labels) = labels {
            metadata["labels"] = labels;
        }
        if let Some(list) = init {
            spec["initContainers"] = list.map_or(Value::Null, Value::from);
        }
        spec["containers"] = json!(containers);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"] = metadata;
        pod["spec"] = spec;
        pod
    }
}
