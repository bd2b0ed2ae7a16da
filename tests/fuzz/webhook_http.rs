//! What a client sends to the webhook inside TLS.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| webhook::server::fuzz::admission_connection(bytes));
