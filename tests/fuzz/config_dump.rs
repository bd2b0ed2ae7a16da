//! Envoy's listeners in `/config_dump`, which say what is counted.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| drainer::fuzz::config_dump(body));
