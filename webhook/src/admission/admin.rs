//! Where Envoy's admin interface is, as far as the pod tells.

use std::fmt;

use drainer::AdminAddress;

use super::bootstrap;
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
    match config_yaml(envoy).map(bootstrap::admin_address) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(
        envoy: &serde_json::Value,
        annotated: Option<&str>,
    ) -> (String, AdminFoundBy, Vec<Notice>) {
        let envoy = envoy.to_string();
        let envoy = serde_json::from_str(&envoy).unwrap();
        let annotated = annotated.map(|address| address.parse().unwrap());
        let mut warnings = Vec::new();
        let admin = find(
            &envoy,
            annotated.as_ref(),
            &Defaults::new("", ""),
            &mut warnings,
        );
        (admin.address.to_string(), admin.found, warnings)
    }

    #[test]
    fn the_annotation_wins_over_the_port_and_the_port_over_the_arguments() {
        let mut envoy = json!({
            "ports": [{"name": "admin", "containerPort": 19000}],
            "args": ["--config-yaml", "{admin: {address: {pipe: {path: '@a'}}}}"],
        });
        let check = |envoy: &serde_json::Value, annotated, address: &str, by| {
            assert_eq!(found(envoy, annotated), (address.to_owned(), by, vec![]));
        };
        check(&envoy, Some("unix:@b"), "unix:@b", AdminFoundBy::Annotation);
        check(&envoy, None, "127.0.0.1:19000", AdminFoundBy::ContainerPort);
        envoy["ports"][0]["name"] = json!("envoy-admin");
        check(&envoy, None, "127.0.0.1:19000", AdminFoundBy::ContainerPort);
        envoy["ports"][0]["name"] = json!("administration");
        check(&envoy, None, "unix:@a", AdminFoundBy::ConfigYaml);
        envoy["args"] = json!(null);
        check(&envoy, None, "127.0.0.1:9901", AdminFoundBy::Default);
    }

    #[test]
    fn a_bootstrap_is_read_in_every_notation() {
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
            let want = (address.to_owned(), AdminFoundBy::ConfigYaml, vec![]);
            assert_eq!(
                found(&json!({"args": ["-c", "x", "--config-yaml", yaml]}), None),
                want,
                "{yaml}"
            );
            assert_eq!(
                found(
                    &json!({"command": ["envoy", format!("--config-yaml={yaml}")]}),
                    None
                ),
                want,
                "{yaml}"
            );
            assert_eq!(
                found(
                    &json!({"command": ["envoy", "--config-yaml"], "args": [yaml]}),
                    None
                ),
                want,
                "{yaml}"
            );
        }
    }

    #[test]
    fn a_bootstrap_without_an_admin_leaves_it_to_the_default() {
        for yaml in [
            "",
            "node: {id: a}",
            "admin:",
            "admin: {}",
            "admin: {access_log_path: /dev/null}",
            "name: admin",
        ] {
            let want = ("127.0.0.1:9901".to_owned(), AdminFoundBy::Default, vec![]);
            assert_eq!(
                found(&json!({"args": ["--config-yaml", yaml]}), None),
                want,
                "{yaml}"
            );
        }
        for args in [
            json!(["--config-yaml"]),
            json!(["--config-yamls", "admin: 1"]),
            json!([]),
        ] {
            assert_eq!(
                found(&json!({ "args": args }), None).1,
                AdminFoundBy::Default,
                "{args}"
            );
        }
    }

    #[test]
    fn an_admin_that_cannot_be_read_is_a_warning() {
        let long = format!("admin: {{}}\n#{}", "x".repeat(bootstrap::LONGEST_YAML));
        for yaml in [
            "admin: {address: {socket_address: {address: $(POD_IP), port_value: 1}}}",
            "admin: {address: {socket_address: {address: localhost, port_value: 1}}}",
            "admin: {address: {socket_address: {address: 127.0.0.1, named_port: admin}}}",
            "admin: {address: {envoy_internal_address: {server_listener_name: a}}}",
            "admin: [",
            "admin: &a [*a, *a]\nadmin: 1",
            "- admin",
            &long,
        ] {
            let (address, by, warnings) = found(&json!({"args": ["--config-yaml", yaml]}), None);
            assert_eq!(
                (&*address, by),
                ("127.0.0.1:9901", AdminFoundBy::Default),
                "{yaml}"
            );
            let [warning] = &warnings[..] else {
                panic!("{yaml}: {warnings:?}")
            };
            assert_eq!(warning.code, Code::AdminNotRead);
            assert!(
                warning.detail.ends_with("; 127.0.0.1:9901 is used"),
                "{}",
                warning.detail
            );
        }
    }
}
