//! The admin interface in an Envoy's bootstrap.

use drainer::{AdminAddress, InvalidAddress};
use serde::Deserialize;
use serde_saphyr::{Options, budget, options};

use crate::admission::excerpt::truncate;

/// In bytes. A longer one is not parsed, and with at most 16,000 events one takes some 10 ms.
const MAX_YAML_LEN: usize = 64 << 10;

/// In bytes. A parser's message may repeat what it could not read.
const MAX_REASON_LEN: usize = 256;

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
pub(crate) fn admin_address(yaml: &str) -> Result<Option<AdminAddress>, String> {
    if !yaml.contains("admin") {
        return Ok(None);
    }
    if yaml.len() > MAX_YAML_LEN {
        return Err(format!("{} bytes are too long to look through", yaml.len()));
    }
    let bootstrap: Bootstrap = serde_saphyr::from_str_with_options(yaml, parser_options())
        .map_err(|error| {
            let error = error.to_string();
            truncate(error.lines().next().unwrap_or_default(), MAX_REASON_LEN)
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
    // Kubernetes puts something else in its place, or takes one of two `$` away.
    if text.contains('$') {
        return Err("it holds a variable".to_owned());
    }
    text.parse()
        .map(Some)
        .map_err(|error: InvalidAddress| truncate(&error.to_string(), MAX_REASON_LEN))
}

/// What a bootstrap may become while it is parsed: anchors and merge keys make much out of little.
fn parser_options() -> Options {
    options! {
        budget: budget! {
            max_events: 16_000,
            max_recorded_anchor_events: 1_000,
            max_recorded_anchor_bytes: 64 << 10,
            max_merge_keys: 16,
        },
    }
}
