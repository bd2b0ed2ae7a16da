//! What a stranger on the pod network sends to the drainer's port.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| drainer::fuzz::hook_connection(bytes));
