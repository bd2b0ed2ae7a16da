//! Tests of the support code: the kubelet and the load generator behave as real ones do.

mod kubelet;
mod load;
mod load_program;
