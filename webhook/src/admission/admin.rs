//! Where Envoy's admin interface is, as far as the pod tells.

use std::fmt;

use drainer::AdminAddress;
use serde::Deserialize;

use super::codes::{Code, Notice};
use super::defaults::Defaults;
use super::view::Container;

/// Envoy's admin interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Where it is.
    pub address: AdminAddress,
    /// How that was found.
    pub found: AdminFoundBy,
}

/// How the admin's address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminFoundBy {
    /// The annotation tells it.
    Annotation,
    /// A container port called `admin` or `envoy-admin`.
    ContainerPort,
    /// The `--config-yaml` among Envoy's arguments.
    ConfigYaml,
    /// The installation's default.
    Default,
}

/// Finds the admin's address. What `--config-yaml` says and cannot be read is a warning.
pub(super) fn find(
    envoy: &Container<'_>,
    annotated: Option<&AdminAddress>,
    defaults: &Defaults,
    warnings: &mut Vec<Notice>,
) -> Admin {
    let named_port = || {
        let mut ports = envoy.ports.iter().flatten();
        let port =
            ports.find(|port| matches!(port.name.as_deref(), Some("admin" | "envoy-admin")))?;
        let port = port.container_port.filter(|port| *port != 0)?;
        Some(AdminAddress::Tcp(([127, 0, 0, 1], port).into()))
    };
    if let Some(address) = annotated {
        return Admin {
            address: address.clone(),
            found: AdminFoundBy::Annotation,
        };
    }
    if let Some(address) = named_port() {
        return Admin {
            address,
            found: AdminFoundBy::ContainerPort,
        };
    }
    match config_yaml(envoy).map(bootstrap_admin) {
        Some(Ok(Some(address))) => {
            return Admin {
                address,
                found: AdminFoundBy::ConfigYaml,
            };
        }
        Some(Err(reason)) => warnings.push(Code::AdminNotRead.about(format!(
            "the admin address in --config-yaml cannot be read: {reason}; {} is used",
            defaults.admin_address
        ))),
        // Envoy lays `--config-yaml` over the file of `-c`, which may hold the admin instead.
        Some(Ok(None)) | None => {}
    }
    Admin {
        address: defaults.admin_address.clone(),
        found: AdminFoundBy::Default,
    }
}

/// The value of `--config-yaml` in the container's command line.
fn config_yaml<'c>(envoy: &'c Container<'_>) -> Option<&'c str> {
    let mut words = envoy
        .command
        .iter()
        .chain(&envoy.args)
        .flatten()
        .map(|word| &**word);
    while let Some(word) = words.next() {
        match word.strip_prefix("--config-yaml") {
            Some("") => return words.next(),
            Some(rest) => {
                if let Some(value) = rest.strip_prefix('=') {
                    return Some(value);
                }
            }
            None => {}
        }
    }
    None
}

/// In bytes. A longer one is parsed no more: at some 3 MB/s it would hold up other pods.
const LONGEST_YAML: usize = 64 * 1024;

/// The admin address of a bootstrap.
fn bootstrap_admin(yaml: &str) -> Result<Option<AdminAddress>, String> {
    if !yaml.contains("admin") {
        return Ok(None);
    }
    if yaml.len() > LONGEST_YAML {
        return Err(format!("{} bytes are too long to look through", yaml.len()));
    }
    let bootstrap: Bootstrap = serde_saphyr::from_str(yaml).map_err(|error| {
        let error = error.to_string();
        error.lines().next().unwrap_or_default().to_owned()
    })?;
    let Some(address) = bootstrap.admin.and_then(|admin| admin.address) else {
        return Ok(None);
    };
    let text = match (address.pipe, address.socket_address) {
        (Some(pipe), _) => format!("unix:{}", pipe.path),
        (None, Some(socket)) if socket.address.contains(':') => {
            format!("[{}]:{}", socket.address, socket.port_value)
        }
        (None, Some(socket)) => format!("{}:{}", socket.address, socket.port_value),
        (None, None) => return Err("neither socket_address nor pipe".into()),
    };
    text.parse()
        .map(Some)
        .map_err(|error: drainer::address::InvalidAddress| error.to_string())
}

/// What is read of a bootstrap, in the names of protobuf and of its JSON.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto>
#[derive(Deserialize)]
struct Bootstrap {
    admin: Option<BootstrapAdmin>,
}

#[derive(Deserialize)]
struct BootstrapAdmin {
    address: Option<Address>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(alias = "socketAddress")]
    socket_address: Option<SocketAddress>,
    pipe: Option<Pipe>,
}

#[derive(Deserialize)]
struct SocketAddress {
    address: String,
    #[serde(alias = "portValue")]
    port_value: u16,
}

#[derive(Deserialize)]
struct Pipe {
    path: String,
}

// === impl AdminFoundBy ===

impl fmt::Display for AdminFoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "told by the annotation `admin-address`",
            Self::ContainerPort => "the container port called `admin` or `envoy-admin`",
            Self::ConfigYaml => "read from `--config-yaml`",
            Self::Default => "the default",
        })
    }
}
