//! Manifests for `inject`. What it writes is read again, and is injected no second time.

#![no_main]

use admission::Defaults;
use ctl::offline::{DocumentReview, ManifestContext};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stream: &[u8]| {
    let defaults = Defaults::new("registry.example/drainer:1", "envoy-drainer");
    let context = ManifestContext::default();
    for document in manifest::documents(stream) {
        let review = DocumentReview::new(&document, &context, &defaults);
        let Some(injected) = review.injected_text else {
            continue;
        };
        for document in manifest::documents(injected.as_bytes()) {
            let again = DocumentReview::new(&document, &context, &defaults);
            assert_eq!((again.error, again.injected_text), (None, None));
        }
    }
});
