//! A pod's annotations, which its author writes: a line of the input for each, `name=value`, whose name may be that of
//! a setting. The pod is injected, or the response says why not; and the drainer parses the arguments that it gets.

#![no_main]

use admission::{Decision, Defaults, PodContext, PodView, decide};
use drainer::{Config, Token};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fuzz_target!(|text: &str| {
    let annotation = |line: &str| {
        let (name, value) = line.split_once('=')?;
        Some((format!("envoy-drainer.dev/{name}"), Value::from(value)))
    };
    let mut annotations: Map<_, _> = text.lines().filter_map(annotation).collect();
    annotations.insert("envoy-drainer.dev/inject".to_owned(), "true".into());
    let mut pod = json!({
        "metadata": {"name": "edge", "annotations": annotations},
        "spec": {
            "containers": [
                {"name": "envoy", "image": "envoyproxy/envoy:v1.36.0", "args": ["-c", "/etc/envoy.yaml"]},
                {"name": "app", "image": "app:1", "ports": [{"name": "admin", "containerPort": 9901}]},
            ],
        },
    });
    let manifest = pod.to_string();
    let Ok(view) = PodView::decode(&manifest) else {
        return;
    };
    let defaults = Defaults::new("registry.example/drainer:1", "envoy-drainer");
    let context = PodContext::new(Some("shop"), Token(7));
    match decide(&view, &context, &defaults) {
        Decision::Inject { plan, patch, .. } => {
            json_patch::patch(&mut pod, &patch.operations()).expect("the patch applies");
            let args = plan.drainer.args().into_iter().map(Into::into);
            assert_eq!(Config::parse(args), Ok(plan.drainer.clone()));
        }
        Decision::Deny { reasons, .. } => assert!(!reasons.is_empty()),
        Decision::Skip { .. } | Decision::Repair { .. } => {}
        Decision::NotRequested => panic!("the pod requests a drainer"),
    }
});
