//! The admin address in an Envoy bootstrap.

use drainer::{AdminAddress, InvalidValue};
use serde::Deserialize;
use serde_saphyr::{Options, budget, options};

use crate::excerpt::excerpt;

/// Maximum length of a bootstrap that is parsed, in bytes; with at most 16,000 events that takes some 10 ms.
const MAX_YAML_LEN: usize = 64 << 10;

/// Maximum length of a parser's message, in bytes, since it may repeat the input.
const MAX_REASON_LEN: usize = 256;

/// The part of a bootstrap that is read, by the field names of protobuf and of its JSON.
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

/// Reads the admin address of a bootstrap; `None` if it has none.
///
/// # Errors
/// If the bootstrap or the address is invalid or too long, with the reason.
pub(crate) fn admin_address(yaml: &str) -> Result<Option<AdminAddress>, String> {
    if !yaml.contains("admin") {
        return Ok(None);
    }
    if yaml.len() > MAX_YAML_LEN {
        return Err(format!("{} bytes are too many to parse", yaml.len()));
    }
    let bootstrap = serde_saphyr::from_str_with_options(yaml, parser_options());
    let bootstrap: Bootstrap = bootstrap.map_err(|error| {
        let error = error.to_string();
        excerpt(error.lines().next().unwrap_or_default(), MAX_REASON_LEN)
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
    // Kubernetes replaces `$(NAME)` and removes one of two `$`.
    if text.contains('$') {
        return Err("it contains a variable".to_owned());
    }
    let address = text.parse();
    address
        .map(Some)
        .map_err(|error: InvalidValue| excerpt(&error.to_string(), MAX_REASON_LEN))
}

/// Limits of what parsing may expand a bootstrap to: anchors and merge keys multiply their input.
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
