//! What the tests, the demo and the benchmarks share.

pub mod authority;
pub mod https;
