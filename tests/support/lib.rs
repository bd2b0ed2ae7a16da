//! What the tests, the demo and the benchmarks share.

pub mod admin;
pub mod at_once;
pub mod authority;
pub mod bootstrap;
pub mod built;
pub mod drainer;
pub mod due;
pub mod envoy;
pub mod fake_admin;
pub mod golden;
pub mod held;
pub mod http;
pub mod https;
pub mod installed;
pub mod kubelet;
pub mod listener;
pub mod load;
pub mod memory;
pub mod port;
pub mod process;
pub mod review;
pub mod service;
pub mod until;
pub mod upstream;
pub mod webhook;
