//! The preStop hook of a container, as far as it is understood.

use drainer::Token;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::value::Scalar;

/// A preStop hook.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "'de: 'a")]
pub enum Hook<'a> {
    /// A command in the container.
    Exec {
        /// Its words.
        command: Vec<String>,
    },
    /// A GET request by the kubelet.
    HttpGet(HookRequest<'a>),
    /// Nothing but a delay.
    Sleep {
        /// How long it takes.
        seconds: u64,
    },
}

/// A GET request to the pod, or to a host.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "'de: 'a")]
pub struct HookRequest<'a> {
    path: Option<String>,
    pub(crate) port: Scalar<'a>,
    scheme: Option<String>,
    /// Where the kubelet sends it; the pod's address by default.
    pub host: Option<String>,
    http_headers: Option<IgnoredAny>,
}

/// The paths of Envoy's admin interface that hooks call to drain or to stop it. They take POST alone.
/// <https://www.envoyproxy.io/docs/envoy/latest/operations/admin>
pub const DRAIN_PATHS: [&str; 3] = ["/healthcheck/fail", "/drain_listeners", "/quitquitquit"];

// === impl HookRequest ===

impl HookRequest<'_> {
    /// Returns its path and query string, if that is one of [`DRAIN_PATHS`].
    pub fn drain_path(&self) -> Option<&str> {
        let path = self.path.as_deref()?;
        let mut paths = DRAIN_PATHS.iter();
        paths.any(|drain| path.starts_with(drain)).then_some(path)
    }
}

// === impl Hook ===

impl<'a> Hook<'a> {
    /// Reads a preStop hook; `None` if it has other fields, or another action.
    pub fn parse(hook: &'a RawValue) -> Option<Self> {
        serde_json::from_str(hook.get()).ok()
    }

    /// Returns the token in a request to a drainer.
    pub(crate) fn drainer_token(&self) -> Option<Token> {
        let Self::HttpGet(request) = self else {
            return None;
        };
        let path = request.path.as_deref()?.strip_prefix("/drained/")?;
        path.split('/').next()?.parse().ok()
    }

    /// Returns true if it is a plain `sleep`.
    pub fn is_sleep(&self) -> bool {
        match self {
            Self::Sleep { .. } => true,
            Self::Exec { command } => command.join(" ").split(' ').any(|word| word == "sleep"),
            Self::HttpGet(_) => false,
        }
    }

    /// Returns true for a request to the pod, or to the local host, without TLS and headers.
    pub(crate) fn gets(&self, path: &str, port: u16) -> bool {
        let Self::HttpGet(request) = self else {
            return false;
        };
        request.path.as_deref() == Some(path)
            && request.port.text().parse() == Ok(port)
            && matches!(request.scheme.as_deref(), None | Some("" | "HTTP"))
            && matches!(
                request.host.as_deref(),
                None | Some("" | "127.0.0.1" | "localhost")
            )
            && request.http_headers.is_none()
    }
}
