//! The body of an AdmissionReview, which a client of the API server writes in part. Whatever it is, the response is an
//! AdmissionReview, or the body is rejected; and a patch applies to the pod that was reviewed.

#![no_main]

use admission::Defaults;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drainer::Token;
use json_patch::Patch;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let defaults = Defaults::new("registry.example/drainer:1", "envoy-drainer");
    for injects_all in [false, true] {
        let Ok(response) = admission::admit_pod(body, injects_all, &defaults, || Token(7)) else {
            continue;
        };
        // What is skipped may have half of a surrogate pair, which no document of Go's encoder has.
        let Ok(review) = serde_json::from_slice::<Value>(body) else {
            continue;
        };
        let response: Value = serde_json::from_slice(&response.body).expect("a response is JSON");
        let response = &response["response"];
        assert_eq!(response["uid"], review["request"]["uid"]);
        if let Some(patch) = response["patch"].as_str() {
            let patch = STANDARD.decode(patch).expect("a patch is base64");
            let patch: Patch = serde_json::from_slice(&patch).expect("a patch is JSON");
            let mut pod = review["request"]["object"].clone();
            json_patch::patch(&mut pod, &patch).expect("the patch applies");
        }
    }
    // Never an error: a body that is none is rejected.
    let _ = admission::admit_workload(body, &defaults);
});
