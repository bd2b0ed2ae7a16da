//! The drainer's command line.

fn main() {}
