//! HTTP/1.1, no more than hooks and Envoy's admin interface need: both sides, without TLS, every wait bounded.

pub(crate) mod client;
pub(crate) mod server;
