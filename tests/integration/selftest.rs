//! Tests of the support code: Envoys, the kubelet, the load generator and Services behave as real ones do.

mod envoy;
mod kubelet;
mod load;
mod load_program;
mod service;
