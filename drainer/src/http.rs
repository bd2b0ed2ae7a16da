//! HTTP/1.1 as far as the drainer needs it.

pub(crate) mod client;
pub(crate) mod server;
