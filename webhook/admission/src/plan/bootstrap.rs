//! What is read of Envoy's bootstrap configuration: the address of its admin interface, and the ports of its listeners.

use drainer::{AdminAddress, InvalidValue};
use serde_json::Value;
use serde_saphyr::{Options, budget, options};

use crate::excerpt::excerpt;

/// A bootstrap configuration, as far as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bootstrap {
    /// The address of the admin interface, `None` without one; or why it cannot be read.
    pub admin: Result<Option<AdminAddress>, String>,
    /// The TCP ports of static listeners.
    pub ports: Vec<u16>,
}

/// Maximum length of a bootstrap that is parsed, in bytes; with at most 16,000 events that takes some 10 ms.
const MAX_YAML_LEN: usize = 64 << 10;

/// Maximum length of a parser's message, in bytes, since it may repeat the input.
const MAX_REASON_LEN: usize = 256;

// === impl Bootstrap ===

impl Bootstrap {
    /// Reads a bootstrap as it is written: `$(NAME)`, which Kubernetes expands, is not inserted, since the values may be of any
    /// size together.
    /// <https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/>
    pub(super) fn parse(yaml: &str) -> Self {
        let message = match parse(yaml) {
            Ok(message) => message,
            Err(reason) => {
                return Self {
                    admin: Err(reason),
                    ports: Vec::new(),
                };
            }
        };
        let admin = field(&message, "admin").and_then(|admin| field(admin, "address"));
        let listeners = field(&message, "static_resources").and_then(|it| field(it, "listeners"));
        let listeners = listeners.and_then(Value::as_array).into_iter().flatten();
        let sockets = listeners.filter_map(|it| field(field(it, "address")?, "socket_address"));
        let tcp =
            sockets.filter(|it| field(it, "protocol").is_none_or(|protocol| protocol != "UDP"));
        Self {
            admin: admin.map(admin_address).transpose(),
            ports: tcp.filter_map(port).collect(),
        }
    }
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self {
            admin: Ok(None),
            ports: Vec::new(),
        }
    }
}

fn parse(yaml: &str) -> Result<Value, String> {
    if !["admin", "port_value", "portValue"]
        .iter()
        .any(|key| yaml.contains(key))
    {
        return Ok(Value::Null);
    }
    if yaml.len() > MAX_YAML_LEN {
        return Err(format!("{} bytes are too many to parse", yaml.len()));
    }
    let message: Result<Value, _> = serde_saphyr::from_str_with_options(yaml, parser_options());
    let message = message.map_err(|error| {
        let error = error.to_string();
        excerpt(error.lines().next().unwrap_or_default(), MAX_REASON_LEN)
    })?;
    if !message.is_object() || field(&message, "admin").is_some_and(|admin| !admin.is_object()) {
        return Err("it is not a mapping".to_owned());
    }
    Ok(message)
}

/// Returns a field of a message by its name in protobuf, or else by that in its JSON.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto>
fn field<'v>(message: &'v Value, name: &str) -> Option<&'v Value> {
    let in_json = |name: &str| {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |text, word| {
            text + &word[..1].to_uppercase() + &word[1..]
        })
    };
    let value = message.get(name).or_else(|| message.get(in_json(name)));
    value.filter(|value| !value.is_null())
}

fn admin_address(address: &Value) -> Result<AdminAddress, String> {
    let text = |value: &Value, name| {
        field(value, name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let address = match (field(address, "pipe"), field(address, "socket_address")) {
        (Some(pipe), _) => format!("unix:{}", text(pipe, "path")),
        (None, Some(socket)) => {
            let port = port(socket).ok_or("its port_value is not a port")?;
            match text(socket, "address") {
                v6 if v6.contains(':') => format!("[{v6}]:{port}"),
                address => format!("{address}:{port}"),
            }
        }
        (None, None) => return Err("neither socket_address nor pipe".to_owned()),
    };
    // Kubernetes replaces `$(NAME)` and removes one of two `$`.
    if address.contains('$') {
        return Err("it contains a variable".to_owned());
    }
    let address = address.parse();
    address.map_err(|error: InvalidValue| excerpt(&error.to_string(), MAX_REASON_LEN))
}

fn port(socket: &Value) -> Option<u16> {
    field(socket, "port_value")?.as_u64()?.try_into().ok()
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
