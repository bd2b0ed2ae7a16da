//! The support code behaves as the real things that it stands for.

mod envoy;
mod kubelet;
mod load;
mod load_program;
mod service;
