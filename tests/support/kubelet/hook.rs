//! PreStop hooks, called as the kubelet calls them.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use drainer::AdminAddress;
use http_body_util::Full;
use hyper::Request;
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::sleep;

use super::invocation::Invocation;
use super::mounts::Mounts;
use crate::http::exchange;
use crate::process::Process;

/// The hook of a container's `lifecycle.preStop`.
#[derive(Debug, Clone)]
pub(super) enum Hook {
    /// A request to the pod, without a timeout of its own.
    HttpGet {
        port: u16,
        path: String,
    },
    /// A command inside the container, and how the manifest writes it.
    Exec(Invocation, String),
    Sleep(Duration),
}

// === impl Hook ===

impl Hook {
    /// Reads the hook of a container; `exec` is its program with the arguments to append.
    pub(super) fn for_container(
        container: &k8s::Container,
        exec: &Invocation,
        mounts: &Mounts,
    ) -> Result<Option<Self>> {
        let lifecycle = container.lifecycle.as_ref();
        let Some(handler) = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else {
            return Ok(None);
        };
        if let Some(get) = &handler.http_get {
            let path = get.path.clone().unwrap_or_else(|| "/".to_owned());
            let port = port(&get.port, container)?;
            return Ok(Some(Self::HttpGet { port, path }));
        }
        if let Some(action) = &handler.exec {
            let command = action.command.as_deref().unwrap_or_default();
            let args = command.iter().skip(1).chain(exec.args());
            let args = args.map(|arg| mounts.translate_paths(arg)).collect();
            return Ok(Some(Self::Exec(exec.with_args(args), command.join(" "))));
        }
        if let Some(action) = &handler.sleep {
            let seconds = u64::try_from(action.seconds)?;
            return Ok(Some(Self::Sleep(Duration::from_secs(seconds))));
        }
        bail!(
            "the preStop hook of `{}` has no known action",
            container.name
        )
    }

    /// Calls the hook and waits until it returns. A request succeeds with any response and fails only without one. The
    /// output of a command is appended to the container's `log`.
    /// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/lifecycle/handlers.go>
    pub(super) async fn run(&self, log: &Path) -> Result<()> {
        match self {
            Self::HttpGet { port, path } => {
                let address = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, *port).into());
                let request = Request::get(path)
                    .header("host", address.to_string())
                    .header("user-agent", "kube-lifecycle/1.34")
                    .body(Full::default())?;
                exchange(&address, request).await?;
            }
            Self::Exec(invocation, command) => {
                let process = Process::start(command, invocation.command(), log)?;
                let status = process.wait().await;
                ensure!(status.success(), "{status}");
            }
            Self::Sleep(duration) => sleep(*duration).await,
        }
        Ok(())
    }
}

/// Resolves a port by its number, or by its name in the hook's container.
fn port(port: &IntOrString, container: &k8s::Container) -> Result<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            let named = named.with_context(|| format!("`{}` has no port `{name}`", container.name));
            named?.container_port
        }
    };
    number.try_into().with_context(|| format!("port {number}"))
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HttpGet { port, path } => write!(f, "GET :{port}{path}"),
            Self::Exec(_, command) => f.write_str(command),
            Self::Sleep(duration) => write!(f, "sleep {duration:?}"),
        }
    }
}
