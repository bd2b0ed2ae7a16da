//! The admission webhook of envoy-drainer and its command line.

pub mod admission;
pub mod args;
pub mod certificates;
pub mod check;
pub mod commands;
pub mod events;
pub mod kubernetes;
pub mod manifest;
pub mod offline;
pub mod report;
pub mod server;
pub mod signals;
