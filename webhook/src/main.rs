//! `envoy-drainer`: the admission webhook and its command line.

fn main() {}
