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

    /// Returns true if it is a plain `sleep`, perhaps by a shell.
    pub fn is_sleep(&self) -> bool {
        match self {
            Self::Sleep { .. } => true,
            Self::Exec { command } => {
                let words: Vec<_> = match &command[..] {
                    [_, flag, script] if flag.starts_with('-') && flag.ends_with('c') => {
                        script.split_whitespace().collect()
                    }
                    words => words.iter().map(|word| &**word).collect(),
                };
                matches!(words[..], [name, time] | ["exec", name, time]
                    if name.ends_with("sleep") && !time.contains([';', '&', '|']))
            }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_that_do_more_than_sleep_are_no_sleep() {
        let table = [
            (json!(["sleep", "15"]), true),
            (json!(["/bin/sleep", "15"]), true),
            (json!(["/bin/sh", "-c", "sleep 15"]), true),
            (json!(["bash", "-ec", "exec sleep $WAIT"]), true),
            (json!(["sh", "-c", "nginx -s quit; sleep 15"]), false),
            (json!(["sh", "-c", "sleep 15; nginx -s quit"]), false),
            (json!(["nginx", "-s", "quit"]), false),
        ];
        for (command, want) in table {
            let hook = json!({ "exec": { "command": command } }).to_string();
            let hook: &RawValue = serde_json::from_str(&hook).unwrap();
            assert_eq!(Hook::parse(hook).unwrap().is_sleep(), want, "{command}");
        }
    }
}
