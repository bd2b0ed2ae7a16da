//! What the kubelet calls for a container: its preStop hook and its probes.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::pod::{Container, Probe, Scalar};

/// A preStop hook.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "'de: 'a")]
pub(super) enum Hook<'a> {
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

/// Maximum length of a hook that is read, in bytes. Those of a shutdown manager are much shorter.
const MAX_HOOK_LEN: usize = 4096;

// === impl Hook ===

impl<'a> Hook<'a> {
    /// Reads the preStop hook of a container; `None` if it has none, or one with other fields.
    pub(super) fn parse(container: &Container<'a>) -> Option<Self> {
        let hook = container.lifecycle.as_ref()?.pre_stop?.get();
        let hook = Some(hook).filter(|hook| hook.len() <= MAX_HOOK_LEN)?;
        serde_json::from_str(hook).ok()
    }

    /// Returns true for a request to the pod, or to the local host, without TLS.
    pub(super) fn gets(&self, wanted_path: &str, wanted_port: u16) -> bool {
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

/// Returns true if a probe or the preStop hook of a container calls a port by its number.
pub(super) fn calls_port(container: &Container<'_>, port: u16) -> bool {
    // A hook has the same actions as a probe.
    let hook = container.pre_stop();
    probes_port(container, port) || hook.is_some_and(|hook| is_on_port(hook, port))
}

/// Returns true if a probe of a container calls a port by its number.
pub(super) fn probes_port(container: &Container<'_>, port: u16) -> bool {
    let readiness = container.readiness_probe.as_ref();
    let others = [container.liveness_probe, container.startup_probe];
    readiness.is_some_and(|probe| connects(probe, port))
        || others.iter().flatten().any(|probe| is_on_port(probe, port))
}

fn is_on_port(probe: &RawValue, port: u16) -> bool {
    serde_json::from_str(probe.get()).is_ok_and(|probe| connects(&probe, port))
}

fn connects(probe: &Probe<'_>, port: u16) -> bool {
    probe.port().is_some_and(|it| it.text() == port.to_string())
}
