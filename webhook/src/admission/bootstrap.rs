//! The admin interface in an Envoy's bootstrap.

use drainer::{AdminAddress, InvalidAddress};
use serde::Deserialize;

/// In bytes. A longer one is parsed no more: at some 3 MB/s it would hold up other pods.
pub(super) const LONGEST_YAML: usize = 64 * 1024;

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

/// Reads the admin address of a bootstrap, if it has one.
///
/// # Errors
/// With what is in the way of reading it.
pub(super) fn admin_address(yaml: &str) -> Result<Option<AdminAddress>, String> {
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
        .map_err(|error: InvalidAddress| error.to_string())
}
