//! The address of Envoy's admin interface, from the pod's annotation, ports or arguments.

use drainer::AdminAddress;
use serde::Serialize;
use strum::Display;

use super::bootstrap;
use crate::diagnostics::{Code, Diagnostics};
use crate::excerpt::excerpt;
use crate::pod::Container;
use crate::settings::{SettingSource, Settings};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminEndpoint {
    pub address: AdminAddress,
    pub source: AdminAddressSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum AdminAddressSource {
    #[strum(to_string = "the annotation `admin-address`")]
    Annotation,
    #[strum(to_string = "the container port named `{0}`")]
    ContainerPort(#[serde(skip)] &'static str),
    /// Among Envoy's arguments.
    #[strum(to_string = "`--config-yaml`")]
    ConfigYaml,
    /// Which the drainer takes the place of.
    #[strum(to_string = "that of the shutdown manager")]
    ShutdownManager,
    #[strum(to_string = "the default; no configuration file is read")]
    Default,
}

/// Usual names of the admin's container port.
const PORT_NAMES: [&str; 2] = ["admin", "envoy-admin"];

/// Finds the admin's address: the annotation's, else a named port's, else that of `--config-yaml`, else a shutdown
/// manager's, else the installation's default. A `--config-yaml` whose admin cannot be read is a warning.
pub(crate) fn find(
    envoy: &Container<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> AdminEndpoint {
    let admin = |address, source| AdminEndpoint { address, source };
    let address = &settings.drain.admin_address;
    let default = match settings.source("admin-address") {
        SettingSource::Annotation => return admin(address.clone(), AdminAddressSource::Annotation),
        SettingSource::ShutdownManager => AdminAddressSource::ShutdownManager,
        _ => AdminAddressSource::Default,
    };
    let number = |name: &'static str| Some((name, envoy.port_named(name)?));
    let mut ports = PORT_NAMES.into_iter().filter_map(number);
    if let Some((name, number)) = ports.find(|(_, number)| *number != 0) {
        let address = AdminAddress::Tcp(([127, 0, 0, 1], number).into());
        return admin(address, AdminAddressSource::ContainerPort(name));
    }
    let yaml = envoy.flag("--config-yaml");
    match yaml.map_or(Ok(None), parse_bootstrap) {
        Ok(Some(address)) => return admin(address, AdminAddressSource::ConfigYaml),
        // Envoy merges `--config-yaml` into the file of `-c`, which may hold the admin instead.
        Ok(None) => {}
        Err(reason) => diagnostics.warn(Code::AdminNotRead.diagnostic(format!(
            "the admin address in --config-yaml cannot be read: {reason}; {address} is used"
        ))),
    }
    admin(address.clone(), default)
}

/// Reads the admin's address in a `--config-yaml` as it is written. Kubernetes expands each `$(NAME)` in it
/// before Envoy reads it; the values are not inserted here, since together they may be of any size.
/// <https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/>
fn parse_bootstrap(yaml: &str) -> Result<Option<AdminAddress>, String> {
    match (bootstrap::admin_address(yaml), first_variable(yaml)) {
        (Err(reason), Some(name)) => Err(format!("{reason} ($({name}) is not expanded)")),
        // The variable is the whole text, or its beginning.
        (Ok(None), Some(name)) if yaml.trim_start().starts_with("$(") => {
            Err(format!("$({name}) is not expanded"))
        }
        (address, _) => address,
    }
}

/// Returns the name of the first `$(NAME)` in a text.
fn first_variable(text: &str) -> Option<String> {
    let (name, _) = text.split_once("$(")?.1.split_once(')')?;
    Some(excerpt(name, MAX_VARIABLE_NAME_LEN))
}

/// Maximum length of a variable's name in a message, in bytes.
const MAX_VARIABLE_NAME_LEN: usize = 63;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diagnostics::Diagnostic;
    use crate::pod::PodView;
    use crate::settings::ParsedSettings;
    use crate::settings::defaults::Defaults;
    use crate::shutdown_manager::ManagerDefault;

    fn find_in(
        envoy: &serde_json::Value,
        annotated: Option<&str>,
    ) -> (String, AdminAddressSource, Vec<Diagnostic>) {
        find_over(envoy, annotated, &[])
    }

    fn find_over(
        envoy: &serde_json::Value,
        annotated: Option<&str>,
        manager_defaults: &[ManagerDefault],
    ) -> (String, AdminAddressSource, Vec<Diagnostic>) {
        let envoy = envoy.to_string();
        let envoy = serde_json::from_str(&envoy).unwrap();
        let annotations = match annotated {
            Some(address) => json!({"envoy-drainer.dev/admin-address": address}),
            None => json!({}),
        };
        let pod = json!({"metadata": {"annotations": annotations}}).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("", "");
        let parsed = ParsedSettings::parse(&pod, false, &defaults, manager_defaults);
        let mut diagnostics = Diagnostics::default();
        let admin = find(&envoy, &parsed.settings, &mut diagnostics);
        (
            admin.address.to_string(),
            admin.source,
            diagnostics.warnings,
        )
    }

    #[test]
    fn annotation_wins_over_port_and_port_over_arguments() {
        let mut envoy = json!({
            "ports": [{"name": "admin", "containerPort": 19000}],
            "args": ["--config-yaml", "{admin: {address: {pipe: {path: '@a'}}}}"],
        });
        let check = |envoy: &serde_json::Value, annotated, address: &str, source| {
            assert_eq!(
                find_in(envoy, annotated),
                (address.to_owned(), source, vec![])
            );
        };
        check(
            &envoy,
            Some("unix:@b"),
            "unix:@b",
            AdminAddressSource::Annotation,
        );
        let by_port = AdminAddressSource::ContainerPort;
        check(&envoy, None, "127.0.0.1:19000", by_port("admin"));
        envoy["ports"][0]["name"] = json!("envoy-admin");
        check(&envoy, None, "127.0.0.1:19000", by_port("envoy-admin"));
        envoy["ports"][0]["name"] = json!("administration");
        check(&envoy, None, "unix:@a", AdminAddressSource::ConfigYaml);
        envoy["args"] = json!(null);
        check(&envoy, None, "127.0.0.1:9901", AdminAddressSource::Default);
    }

    #[test]
    fn shutdown_managers_address_is_the_default() {
        let manager = [ManagerDefault {
            setting: "admin-address",
            value: "unix:/admin/admin.sock".to_owned(),
            origin: String::new(),
        }];
        // Envoy reads both forms of a flag.
        let bootstrap = "--config-yaml admin: {address: {pipe: {path: '@a'}}}";
        let table = [
            (
                json!({}),
                None,
                "unix:/admin/admin.sock",
                AdminAddressSource::ShutdownManager,
            ),
            (
                json!({"args": [bootstrap]}),
                None,
                "unix:@a",
                AdminAddressSource::ConfigYaml,
            ),
            (
                json!({}),
                Some("unix:@b"),
                "unix:@b",
                AdminAddressSource::Annotation,
            ),
        ];
        for (envoy, annotated, address, source) in table {
            let (got, from, warnings) = find_over(&envoy, annotated, &manager);
            assert_eq!(
                (&*got, from, warnings),
                (address, source, vec![]),
                "{envoy}"
            );
        }
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
            let want = (address.to_owned(), AdminAddressSource::ConfigYaml, vec![]);
            assert_eq!(
                find_in(&json!({"args": ["-c", "x", "--config-yaml", yaml]}), None),
                want,
                "{yaml}"
            );
            assert_eq!(
                find_in(
                    &json!({"command": ["envoy", format!("--config-yaml={yaml}")]}),
                    None
                ),
                want,
                "{yaml}"
            );
            assert_eq!(
                find_in(
                    &json!({"command": ["envoy", "--config-yaml"], "args": [yaml]}),
                    None
                ),
                want,
                "{yaml}"
            );
        }
    }

    #[test]
    fn variable_that_hides_the_address_is_a_warning() {
        let env = json!([{"name": "PORT", "value": "19000"}]);
        let socket =
            "admin: {address: {socket_address: {address: 127.0.0.1, port_value: $(PORT)}}}";
        for (yaml, address, hidden) in [
            ("$(ALL)", "127.0.0.1:9901", Some("$(ALL) is not expanded")),
            (
                "  $(ALL)\nnode: {}",
                "127.0.0.1:9901",
                Some("$(ALL) is not expanded"),
            ),
            (
                "admin: $(ADMIN)",
                "127.0.0.1:9901",
                Some("($(ADMIN) is not expanded)"),
            ),
            (socket, "127.0.0.1:9901", Some("($(PORT) is not expanded)")),
            (
                "admin: {address: {socket_address: {address: $(POD_IP), port_value: 1}}}",
                "127.0.0.1:9901",
                Some("it contains a variable ($(POD_IP) is not expanded)"),
            ),
            (
                "admin: {address: {pipe: {path: /run/$(POD)/a.sock}}}",
                "127.0.0.1:9901",
                Some("it contains a variable ($(POD) is not expanded)"),
            ),
            (
                "admin: {address: {pipe: {path: /run/$$x/a.sock}}}",
                "127.0.0.1:9901",
                Some("it contains a variable"),
            ),
            (
                "{node: {id: $(POD_NAME)}, admin: {address: {pipe: {path: /run/a.sock}}}}",
                "unix:/run/a.sock",
                None,
            ),
            ("node: {id: $(POD_NAME)}", "127.0.0.1:9901", None),
        ] {
            let envoy = json!({"args": ["--config-yaml", yaml], "env": env});
            let (got, _, warnings) = find_in(&envoy, None);
            assert_eq!(got, address, "{yaml}");
            match (hidden, &warnings[..]) {
                (None, []) => {}
                (Some(hidden), [warning]) => {
                    let ending = format!("{hidden}; 127.0.0.1:9901 is used");
                    assert!(warning.detail.ends_with(&ending), "{}", warning.detail);
                }
                _ => panic!("{yaml}: {warnings:?}"),
            }
        }
    }

    #[test]
    fn bootstrap_without_admin_means_the_default() {
        for yaml in [
            "",
            "node: {id: a}",
            "admin:",
            "admin: {}",
            "admin: {access_log_path: /dev/null}",
            "name: admin",
        ] {
            let want = (
                "127.0.0.1:9901".to_owned(),
                AdminAddressSource::Default,
                vec![],
            );
            assert_eq!(
                find_in(&json!({"args": ["--config-yaml", yaml]}), None),
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
                find_in(&json!({ "args": args }), None).1,
                AdminAddressSource::Default,
                "{args}"
            );
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
        let (address, source, warnings) = find_in(&json!({"args": ["--config-yaml", yaml]}), None);
        assert_eq!(
            (&*address, source),
            ("unix:@a", AdminAddressSource::ConfigYaml),
            "{warnings:?}"
        );
    }

    #[test]
    fn unreadable_admin_is_a_warning() {
        let long = format!("admin: {{}}\n#{}", "x".repeat(64 << 10));
        let anchors = format!("admin: {{}}\nx: &a [{}]", "1,".repeat(2_000));
        let merged = format!(
            "admin: {{}}\na: &a {{b: 1}}\nc: [{}]",
            "{<<: *a},".repeat(17)
        );
        let numbers = format!("admin: {{}}\nx: [{}]", "1,".repeat(16_000));
        let nested = format!("admin: {{}}\nx: {}{}", "[".repeat(60), "1,".repeat(16_000));
        for yaml in [
            "admin: {address: {socket_address: {address: $(POD_IP), port_value: 1}}}",
            "admin: {address: {socket_address: {address: localhost, port_value: 1}}}",
            "admin: {address: {socket_address: {address: 127.0.0.1, named_port: admin}}}",
            "admin: {address: {envoy_internal_address: {server_listener_name: a}}}",
            "admin: [",
            "admin: &a [*a, *a]\nadmin: 1",
            "- admin",
            &long,
            &anchors,
            &merged,
            &numbers,
            &nested,
        ] {
            let (address, source, warnings) =
                find_in(&json!({"args": ["--config-yaml", yaml]}), None);
            assert_eq!(
                (&*address, source),
                ("127.0.0.1:9901", AdminAddressSource::Default),
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
