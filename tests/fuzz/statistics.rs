//! Envoy's statistics, from which the drainer decides that nothing is open.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| drainer::fuzz::statistics(body));
