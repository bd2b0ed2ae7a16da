//! What the kubelet calls for a container: its preStop hook and its probes.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::pod::{Container, Probe, Scalar};

/// A preStop hook.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// A command in the container.
    Exec(Vec<String>),
    /// A GET request to the pod, or to the local host, without TLS.
    HttpGet { path: String, port: u16 },
}

/// Maximum length of a hook that is read, in bytes. Those of a shutdown manager are much shorter.
const MAX_HOOK_LEN: usize = 4096;

// === impl Hook ===

impl Hook {
    /// Reads the preStop hook of a container; `None` if it has none, or one with other fields.
    pub(super) fn parse(container: &Container<'_>) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Handler<'a> {
            exec: Option<Exec>,
            #[serde(borrow)]
            http_get: Option<HttpGet<'a>>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Exec {
            command: Vec<String>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct HttpGet<'a> {
            path: String,
            #[serde(borrow)]
            port: Scalar<'a>,
            scheme: Option<String>,
            host: Option<String>,
        }

        let hook = container.pre_stop()?.get();
        if hook.len() > MAX_HOOK_LEN {
            return None;
        }
        match serde_json::from_str(hook).ok()? {
            Handler {
                exec: Some(Exec { command }),
                http_get: None,
            } => Some(Self::Exec(command)),
            Handler {
                exec: None,
                http_get: Some(get),
            } if matches!(get.scheme.as_deref(), None | Some("" | "HTTP"))
                && matches!(
                    get.host.as_deref(),
                    None | Some("" | "127.0.0.1" | "localhost")
                ) =>
            {
                Some(Self::HttpGet {
                    path: get.path,
                    port: get.port.text().parse().ok()?,
                })
            }
            _ => None,
        }
    }
}

/// Returns true if a probe or the preStop hook of a container calls a port by its number.
pub(super) fn calls_port(container: &Container<'_>, port: u16) -> bool {
    // A hook has the same actions as a probe.
    probes_port(container, port)
        || container
            .pre_stop()
            .is_some_and(|hook| is_on_port(hook, port))
}

/// Returns true if a probe of a container calls a port by its number.
pub(super) fn probes_port(container: &Container<'_>, port: u16) -> bool {
    let readiness = container.readiness_probe.as_ref();
    let others = [container.liveness_probe, container.startup_probe];
    readiness.is_some_and(|probe| probe.port().is_some_and(|it| it.text() == port.to_string()))
        || others
            .into_iter()
            .flatten()
            .any(|probe| is_on_port(probe, port))
}

fn is_on_port(probe: &RawValue, port: u16) -> bool {
    let probe: Result<Probe<'_>, _> = serde_json::from_str(probe.get());
    let number = probe
        .ok()
        .and_then(|probe| Some(probe.port()?.text().into_owned()));
    number.is_some_and(|number| number == port.to_string())
}
