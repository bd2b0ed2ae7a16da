//! HTTP/1.1 without TLS, as far as hooks and Envoy's admin interface need it: a client and a server.

pub(crate) mod client;
pub(crate) mod server;
