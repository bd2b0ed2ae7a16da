//! The admission webhook of envoy-drainer and its command line.
pub mod manifest;
