//! The preStop hook of a container, as far as it is understood.

use serde::Deserialize;

use super::{Container, Scalar};

/// A preStop hook.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "'de: 'a")]
pub(crate) enum Hook<'a> {
    /// A command in the container.
    Exec { command: Vec<String> },
    /// A GET request to the pod, or to a host.
    HttpGet {
        path: String,
        port: Scalar<'a>,
        scheme: Option<String>,
        host: Option<String>,
    },
}

// === impl Hook ===

impl<'a> Hook<'a> {
    /// Reads the preStop hook of a container; `None` if it has none, or one with other fields.
    pub(crate) fn parse(container: &Container<'a>) -> Option<Self> {
        let hook = container.short_pre_stop()?;
        serde_json::from_str(hook.get()).ok()
    }

    /// Returns true for a request to the pod, or to the local host, without TLS.
    pub(crate) fn gets(&self, wanted_path: &str, wanted_port: u16) -> bool {
        let Self::HttpGet {
            path,
            port,
            scheme,
            host,
        } = self
        else {
            return false;
        };
        path == wanted_path
            && port.text().parse() == Ok(wanted_port)
            && matches!(scheme.as_deref(), None | Some("" | "HTTP"))
            && matches!(host.as_deref(), None | Some("" | "127.0.0.1" | "localhost"))
    }
}
