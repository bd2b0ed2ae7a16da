//! Envoy's configuration, as manifests show it: `--config-yaml` among the arguments of a container, and the file of
//! `-c` in a ConfigMap.

use std::collections::BTreeMap;
use std::path::Path;

use admission::{Bootstrap, Container, EnvoyConfiguration};
use drainer::{AdminAddress, InvalidValue};
use manifest::{Document, Manifest};
use serde_json::Value;

/// The data of the ConfigMaps of a namespace: texts by name and key.
pub(super) type ConfigMaps = BTreeMap<String, BTreeMap<String, String>>;

/// The file that Envoy's image runs it with.
/// <https://github.com/envoyproxy/envoy/blob/main/distribution/docker/Dockerfile-envoy>
const DEFAULT_FILE: &str = "/etc/envoy/envoy.yaml";

/// Maximum length of a bootstrap that is parsed, in bytes.
const MAX_YAML_LEN: usize = 64 << 10;

/// What a bootstrap contains in which there is something to read.
const KEYS: [&str; 3] = ["admin", "port_value", "portValue"];

/// Returns the file that a container's Envoy is started with, and the name of its ConfigMap, if that is known.
pub(super) fn file_of<'c>(
    envoy: &Container<'_>,
    mounts: &Value,
    volumes: &Value,
    config_maps: &[&'c ConfigMaps],
) -> Option<(&'c str, &'c str)> {
    let path = file_flag(envoy);
    // Of a shell, that is its script.
    let mut words = path.into_iter().flat_map(str::split_whitespace);
    let in_script = words.find(|it| ["-c", "--config-path"].contains(it));
    let path = in_script.and_then(|_| words.next()).or(path);
    let is_default = envoy.command_line().next().is_none();
    let path = Path::new(path.or(is_default.then_some(DEFAULT_FILE))?);
    let covering = mounts.as_array()?.iter().filter_map(|mount| {
        let mount_path = mount["mountPath"].as_str().filter(|path| !path.is_empty());
        Some((mount, path.strip_prefix(mount_path?).ok()?))
    });
    // The longest mount path leaves the shortest rest.
    let (mount, rest) = covering.min_by_key(|(_, rest)| rest.as_os_str().len())?;
    let in_volume = Path::new(mount["subPath"].as_str().unwrap_or_default()).join(rest);
    let in_volume = in_volume.to_str()?.trim_end_matches('/');
    let mut volumes = volumes.as_array()?.iter();
    let volume = volumes.find(|volume| volume["name"] == mount["name"])?;
    let projected = volume["projected"]["sources"].as_array();
    let sources = projected.into_iter().flatten().chain([volume]);
    sources.map(|it| &it["configMap"]).find_map(|config_map| {
        let name = config_map["name"].as_str()?;
        let (name, data) = config_maps.iter().find_map(|it| it.get_key_value(name))?;
        // The keys that become files; without a list of them, each becomes one of its name.
        let mut items = config_map["items"].as_array().into_iter().flatten();
        let item = items.find(|item| item["path"] == in_volume);
        let key = item.and_then(|item| item["key"].as_str());
        Some((&**name, &**data.get(key.unwrap_or(in_volume))?))
    })
}

/// Returns what names Envoy's file among its arguments.
fn file_flag<'e>(envoy: &'e Container<'_>) -> Option<&'e str> {
    envoy.flag("-c").or_else(|| envoy.flag("--config-path"))
}

/// Returns true if the whole configuration of a container's Envoy is known, and has no admin interface.
pub(crate) fn has_no_admin(envoy: &Container<'_>, configuration: &EnvoyConfiguration) -> bool {
    let lacks_in_file = match &configuration.file {
        Some((_, file)) => file.admin.is_none(),
        // The entry point of another image may name a file.
        None => file_flag(envoy).is_none() && envoy.image().contains("envoyproxy/envoy"),
    };
    lacks_in_file && configuration.arguments.admin.is_none()
}

/// Reads a bootstrap as it is written: `$(NAME)`, which Kubernetes expands, is not inserted, since the values may be of
/// any size together.
/// <https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/>
pub(super) fn read_bootstrap(yaml: &str) -> Result<Bootstrap, String> {
    if !KEYS.iter().any(|key| yaml.contains(key)) {
        return Ok(Bootstrap::default());
    }
    if yaml.len() > MAX_YAML_LEN {
        return Err(format!("{} bytes are too many to parse", yaml.len()));
    }
    let (bytes, line) = (yaml.as_bytes(), 1);
    let message = Manifest::read(&Document { bytes, line });
    let message = message.map_err(|error| format!("line {}: {error}", error.line))?;
    let message = message.value();
    if !message.is_object() || field(message, "admin").is_some_and(|admin| !admin.is_object()) {
        return Err("it is not a mapping".to_owned());
    }
    let admin = field(message, "admin").and_then(|admin| field(admin, "address"));
    let listeners = field(message, "static_resources").and_then(|it| field(it, "listeners"));
    let listeners = listeners.and_then(Value::as_array).into_iter().flatten();
    let addresses = listeners.flat_map(|it| {
        let others = field(it, "additional_addresses").and_then(Value::as_array);
        others.into_iter().flatten().chain([it])
    });
    let sockets = addresses.filter_map(|it| field(field(it, "address")?, "socket_address"));
    let tcp = sockets.filter(|it| field(it, "protocol").is_none_or(|protocol| protocol != "UDP"));
    Ok(Bootstrap {
        admin: admin.map(admin_address),
        ports: tcp.filter_map(port).collect(),
        checks_all: checks_all(message),
    })
}

/// Returns true if a value has a health check filter for all requests, at any depth.
/// <https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/health_check_filter>
fn checks_all(value: &Value) -> bool {
    let is_filter = value["@type"]
        .as_str()
        .is_some_and(|it| it.ends_with(".HealthCheck"));
    let passes = field(value, "pass_through_mode").is_some_and(|it| *it == true);
    let has_headers = field(value, "headers").is_some_and(|it| it[0].is_object());
    let mut values: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Object(entries) => Box::new(entries.values()),
        Value::Array(items) => Box::new(items.iter()),
        _ => return false,
    };
    is_filter && passes && !has_headers || values.any(checks_all)
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
    let text = |value, name| {
        let text = field(value, name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
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
    address.map_err(|error: InvalidValue| error.to_string())
}

fn port(socket: &Value) -> Option<u16> {
    field(socket, "port_value")?.as_u64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use admission::PodView;
    use serde_json::json;

    use super::*;
    use crate::offline::ManifestContext;

    /// The admin's address in a bootstrap, or why it cannot be read.
    fn admin(yaml: &str) -> Result<Option<String>, String> {
        let bootstrap = read_bootstrap(yaml)?;
        Ok(bootstrap
            .admin
            .transpose()?
            .map(|address| address.to_string()))
    }

    #[test]
    fn bootstrap_is_read_in_every_notation() {
        let table = [
            (
                "admin:\n  address:\n    socket_address: {address: 0.0.0.0, port_value: 9000}",
                "127.0.0.1:9000",
            ),
            (
                "admin: {address: {socket_address: {protocol: TCP, address: '::1', port_value: 1}}}",
                "[::1]:1",
            ),
            (
                r#"{"admin":{"address":{"socketAddress":{"address":"127.0.0.1","portValue":2}}}}"#,
                "127.0.0.1:2",
            ),
            (
                "node: {id: a}\nadmin:\n  access_log: []\n  address: {pipe: {path: /run/a.sock, mode: 438}}",
                "unix:/run/a.sock",
            ),
            (
                "admin: {address: {pipe: {path: \"@admin\"}}}",
                "unix:@admin",
            ),
        ];
        for (yaml, address) in table {
            assert_eq!(admin(yaml), Ok(Some(address.to_owned())), "{yaml}");
        }
    }

    #[test]
    fn configuration_is_read_by_the_containers_name() {
        let yaml = "admin: {address: {pipe: {path: '@a'}}}";
        for container in [
            json!({"args": ["-c", "x", "--config-yaml", yaml]}),
            json!({"command": ["envoy", format!("--config-yaml={yaml}")]}),
            json!({"command": ["envoy", "--config-yaml"], "args": [yaml]}),
        ] {
            let mut container = container;
            container["name"] = json!("proxy");
            let pod =
                json!({"spec": {"containers": [{"name": "app", "args": ["-c", "x"]}, container]}});
            let text = pod.to_string();
            let view = PodView::decode(&text).unwrap();
            let found = ManifestContext::default().configurations(None, &view, &pod);
            let admin = found["proxy"].arguments.admin.clone();
            assert_eq!(admin, Some(Ok("unix:@a".parse().unwrap())), "{pod}");
            assert_eq!(found.len(), 1, "{pod}");
        }
    }

    #[test]
    fn configuration_of_an_envoy_behind_a_shell_is_read() {
        let mounts = json!([{"name": "c", "mountPath": "/etc/envoy"}]);
        let volumes = json!([{"name": "c", "configMap": {"name": "boot"}}]);
        let files = BTreeMap::from([("envoy.yaml".to_owned(), "admin: {}".to_owned())]);
        let config_maps = BTreeMap::from([("boot".to_owned(), files)]);
        for (words, is_known) in [
            (json!(["envoy", "-c", "/etc/envoy/envoy.yaml"]), true),
            (
                json!(["sh", "-c", "exec envoy -c /etc/envoy/envoy.yaml -l info"]),
                true,
            ),
            (
                json!(["sh", "-c", "exec envoy --config-path /etc/envoy/envoy.yaml"]),
                true,
            ),
            (json!(["sh", "-c", "exec envoy -c /tmp/envoy.yaml"]), false),
            (json!(["sh", "-c", "/start.sh"]), false),
        ] {
            let container = json!({"name": "envoy", "command": words}).to_string();
            let container = serde_json::from_str(&container).unwrap();
            let file = file_of(&container, &mounts, &volumes, &[&config_maps]);
            assert_eq!(file.is_some(), is_known, "{words}");
        }
    }

    #[test]
    fn ports_of_listeners_are_those_of_each_tcp_address() {
        let address = |port: u16, protocol: &str| json!({"address": {"socket_address": {"address": "::", "port_value": port, "protocol": protocol}}});
        let mut listener = address(8080, "TCP");
        listener["additional_addresses"] = json!([address(8081, "TCP"), address(8082, "UDP")]);
        let yaml = json!({"static_resources": {"listeners": [listener, address(8083, "TCP")]}});
        let mut ports = read_bootstrap(&yaml.to_string()).unwrap().ports;
        ports.sort_unstable();
        assert_eq!(ports, [8080, 8081, 8083]);
    }

    #[test]
    fn variable_may_hide_the_address() {
        for (yaml, want) in [
            ("admin: $(ADMIN)", Err("it is not a mapping")),
            (
                "admin: {address: {socket_address: {address: 127.0.0.1, port_value: $(PORT)}}}",
                Err("its port_value is not a port"),
            ),
            (
                "admin: {address: {socket_address: {address: $(POD_IP), port_value: 1}}}",
                Err("it contains a variable"),
            ),
            (
                "admin: {address: {pipe: {path: /run/$$x/a.sock}}}",
                Err("it contains a variable"),
            ),
            ("node: {id: $(POD_NAME)}", Ok(None)),
        ] {
            assert_eq!(admin(yaml), want.map_err(str::to_owned), "{yaml}");
        }
    }

    #[test]
    fn bootstrap_may_have_no_admin() {
        for yaml in [
            "",
            "node: {id: a}",
            "admin:",
            "admin: {}",
            "admin: {access_log_path: /dev/null}",
            "name: admin",
        ] {
            assert_eq!(admin(yaml), Ok(None), "{yaml}");
        }
    }

    #[test]
    fn large_bootstrap_is_read() {
        let cluster = |n: usize| {
            format!(
                "  - name: cluster_{n}\n    connect_timeout: 1s\n    type: STRICT_DNS\n    load_assignment:\n      \
                 cluster_name: cluster_{n}\n      endpoints:\n      - lb_endpoints:\n        - endpoint: {{address: \
                 {{socket_address: {{address: shop, port_value: 80}}}}}}\n"
            )
        };
        let clusters: String = (0..200).map(cluster).collect();
        let yaml = format!(
            "static_resources:\n  clusters:\n{clusters}admin: {{address: {{pipe: {{path: '@a'}}}}}}\n"
        );
        assert!(yaml.len() > 44 << 10, "{}", yaml.len());
        assert_eq!(admin(&yaml), Ok(Some("unix:@a".to_owned())));
    }

    #[test]
    fn unreadable_admin_has_a_reason() {
        let long = format!("admin: {{}}\n#{}", "x".repeat(64 << 10));
        let aliases = format!(
            "admin: {{}}\na: &a [{}]\nb: [{}]",
            "1,".repeat(5_000),
            "*a,".repeat(5_000)
        );
        for yaml in [
            "admin: {address: {socket_address: {address: localhost, port_value: 1}}}",
            "admin: {address: {socket_address: {address: 127.0.0.1, named_port: admin}}}",
            "admin: {address: {envoy_internal_address: {server_listener_name: a}}}",
            "admin: [",
            "admin: &a [*a, *a]\nadmin: 1",
            "- admin",
            &long,
            &aliases,
        ] {
            assert!(admin(yaml).is_err(), "{yaml}");
        }
    }
}
