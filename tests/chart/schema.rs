//! The schema of the values rejects what the chart would ignore or the program would reject.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use admission::settings::all;
use drainer::duration;
use serde_json::{Value, json};
use tests::golden;
use tests::helm::{self, CHART, find_helm};

use crate::values::{ValuesEntry, entries};
use crate::words;

/// Values that may be removed, since Kubernetes has defaults for them.
const OPTIONAL: &str = "resources podSecurityContext securityContext nodeSelector";

fn schema() -> Value {
    let text = fs::read_to_string(Path::new(CHART).join("values.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The node that a `$ref` leads to.
fn resolve<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(path) => schema.pointer(path.trim_start_matches('#')).unwrap(),
        None => node,
    }
}

/// Values, and a part of the error of each.
const INVALID_VALUES: &str = "
    replica=3                                      | 'replica' not allowed
    drainer.drainTimout=3s                         | 'drainTimout' not allowed
    certificates.self.caLife=3h                    | 'caLife' not allowed
    image.webhook.tag=1                            | 'tag' not allowed
    tolerations[0].keys=a                          | 'keys' not allowed
    drainer.drainTimeout=90                        | /drainer/drainTimeout
    drainer.drainTimeout=90sec                     | /drainer/drainTimeout
    drainer.memoryLimit=64MB                       | /drainer/memoryLimit
    drainer.adminAddress=localhost:9901            | /drainer/adminAddress
    drainer.nativeSidecar=auto                     | /drainer/nativeSidecar
    drainer.idleExit=never                         | 'never' does not match pattern
    webhook.onInvalid=allow                        | /webhook/onInvalid
    webhook.events=off                             | /webhook/events
    webhook.tlsMinVersion=1.1                      | /webhook/tlsMinVersion
    admission.failurePolicy=ignore                 | /admission/failurePolicy
    admission.timeoutSeconds=30                    | /admission/timeoutSeconds
    policy.action=Audit                            | /policy/action
    image.registry=https://example.com             | /image/registry
    image.drainer.digest=sha256:12                 | /image/drainer/digest
    port=443                                       | /port
    healthPort=80                                  | /healthPort
    metricsPort=80                                 | /metricsPort
    webhook.clientCA=-----BEGIN                    | /webhook/clientCA
    certificates.mode=cert-manager                 | /certificates/mode
    certificates.mode=secret                       | certificates.secret.name is empty
    hostNetwork=true                               | port is 10250, which is the kubelet's
    drainerAPI.enabled=true,drainerAPI.replacement=false | drainerAPI.enabled is true, but
    drainerAPI.reports=true                        | set drainerAPI.enabled to true
    healthPort=8080                                | metricsPort and healthPort are both 8080
    drainerAPI.enabled=true,drainerAPI.port=8080   | metricsPort and drainerAPI.port are both 8080
    certificates.secret.name=mine                  | set certificates.mode to secret
    certificates.secret.certManager.enabled=true   | set certificates.mode to secret
    fullnameOverride=a.b                           | /fullnameOverride
    nameOverride=1                                 | /nameOverride
    extraEnv[0].name=ENVOY_DRAINER_IMAGE           | extraEnv sets ENVOY_DRAINER_IMAGE
    serviceMonitor.interval=1.5m                   | /serviceMonitor/interval
    networkPolicy.metricsFrom[0].ipBlok=a          | /networkPolicy/metricsFrom/0
    topologySpreadConstraints[0].labelSelector.matchLabel=a | 'matchLabel' not allowed
    drainer=null                                   | 'drainer'
    port=null                                      | 'port'
    replicaCount=null                              | 'replicaCount'
    admission.failurePolicy=null                   | 'failurePolicy'
    admission.timeoutSeconds=null                  | 'timeoutSeconds'
    image.webhook.repository=null                  | 'repository'
    certificates.mode=null                         | 'mode'
    certificates.secret=null                       | 'secret'
    certificates.secret.certManager=null           | 'certManager'
    networkPolicy.apiServerPorts=null              | 'apiServerPorts'
    drainer.drainTimeout=null                      | 'drainTimeout'
    image.registry=                                | image.registry is empty
    prometheusRule.alerts.EnvoyDrainerUp.enabled=false | 'EnvoyDrainerUp' not allowed
    prometheusRule.runbookBaseURL=docs             | /prometheusRule/runbookBaseURL
";

#[test]
fn misspelled_and_invalid_values_are_rejected() {
    let Some(helm) = find_helm() else { return };
    for row in INVALID_VALUES.trim().lines() {
        let (value, wanted) = row.split_once(" | ").unwrap();
        let (value, wanted) = (value.trim(), wanted.trim());
        let error = helm.render_with(&[value]).expect_err(value);
        let error = format!("{error:#}");
        assert!(error.contains(wanted), "{value}: {error}");
        // Not a template that happens to use the value.
        let names_value = ["schema", "templates/validation/values.yaml"];
        assert!(names_value.iter().any(|it| error.contains(it)), "{error}");
    }
}

/// Helm removes null values before it validates them with the schema.
#[test]
fn values_with_a_default_cannot_be_removed() {
    let (schema, entries) = (schema(), entries());
    for ValuesEntry { path, value, .. } in &entries {
        let inner = format!("{path}.");
        let is_group = entries.iter().any(|other| other.path.starts_with(&inner));
        let is_empty = ["", "{}", "[]", "\"\""].contains(&&**value);
        let may_go = words(OPTIONAL).any(|group| path.starts_with(group));
        if may_go || is_empty && !is_group {
            continue;
        }
        let (group, key) = path.rsplit_once('.').unwrap_or(("", path));
        let group = group.split('.').filter(|key| !key.is_empty());
        let group = group.fold(&schema, |node, key| {
            resolve(&schema, &node["properties"][key])
        });
        let mut required = group["required"].as_array().into_iter().flatten();
        assert!(required.any(|name| name == key), "{path}");
    }
}

#[test]
fn null_values_equal_empty_values() {
    let Some(helm) = find_helm() else { return };
    let entries = entries();
    let empty = entries.iter().filter(|entry| {
        let value = &*entry.value;
        ["{}", "[]", "\"\""].contains(&value) && entry.path != "image.registry"
    });
    let bare = empty.map(|entry| format!("--set={}=null", entry.path));
    let rendered = helm.render(bare).unwrap();
    assert_eq!(rendered, helm.render([""; 0]).unwrap());
    let optional = words(OPTIONAL).map(|path| format!("--set={path}=null"));
    helm.render(optional).unwrap();
}

/// With `UPDATE_GOLDEN=1`, writes the drainer's values, and the descriptions and defaults of all values, to the schema.
#[test]
fn schema_has_every_setting_with_its_description_and_default() {
    let mut schema = schema();
    let of_table = all()
        .iter()
        .filter(|definition| definition.flag_help.is_some());
    let of_table = of_table.map(|definition| {
        let kind = match definition.value_name {
            "ADDRESS" => "adminAddress",
            "BOOL" => "boolean",
            "DURATION" => "duration",
            "DURATION|off" => "durationOrOff",
            "DURATION|auto|end" => "durationOrAutoOrEnd",
            "QUANTITY" => "quantity",
            "QUANTITY|none" => "quantityOrNone",
            other => panic!("the schema has no definition for {other}"),
        };
        (helm::value_name(definition.name), kind)
    });
    let installation = [
        ("imagePullPolicy", "pullPolicy"),
        ("pollInterval", "duration"),
        ("graceMargin", "duration"),
        ("maxDrainDelay", "duration"),
        ("maxWaitForReplacement", "duration"),
        ("maxDrainTimeout", "duration"),
        ("logLevel", "logLevel"),
    ];
    let installation = installation.map(|(name, kind)| (name.to_owned(), kind));
    let properties = of_table.chain(installation);
    let properties =
        properties.map(|(name, kind)| (name, json!({ "$ref": format!("#/definitions/{kind}") })));
    schema["properties"]["drainer"]["properties"] = Value::Object(properties.collect());

    let text = fs::read_to_string(Path::new(CHART).join("values.yaml")).unwrap();
    let values: Value = serde_norway::from_str(&text).unwrap();
    for entry in entries().iter().filter(|entry| !entry.comment.is_empty()) {
        let keys = || entry.path.split('.');
        let pointer: String = keys().map(|key| format!("/properties/{key}")).collect();
        let node = schema.pointer_mut(&pointer);
        let node = node.unwrap_or_else(|| panic!("the schema has no {}", entry.path));
        // Beside a `$ref`, validators ignore them, and editors show them.
        node["description"] = json!(entry.comment);
        node["default"] = keys().fold(&values, |value, key| &value[key]).clone();
    }
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    golden::check_file(&Path::new(CHART).join("values.schema.json"), &schema);
}

#[test]
fn values_of_a_parent_chart_are_valid() {
    let Some(helm) = find_helm() else { return };
    helm.render_with(&["global.storageClass=fast", "enabled=true"])
        .unwrap();
}

#[test]
fn durations_are_valid_if_the_program_parses_them() {
    let Some(helm) = find_helm() else { return };
    for text in [
        "0", "1m30s", "400ms", "1.5h", ".5s", "3µs", "5", "s", "-5s", "1d", "5 s", "1..5s",
    ] {
        let flag = format!("--set-string=drainer.drainDelay={text}");
        let passes = helm.render([flag]).is_ok();
        assert_eq!(passes, duration::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn every_group_of_values_is_closed() {
    fn open(schema: &Value, node: &Value, path: &str, found: &mut Vec<String>) {
        let node = resolve(schema, node);
        if let Some(properties) = node["properties"].as_object() {
            if node["additionalProperties"] != false {
                found.push(path.to_owned());
            }
            for (key, property) in properties {
                open(schema, property, &format!("{path}/{key}"), found);
            }
        }
        if !node["items"].is_null() {
            open(schema, &node["items"], &format!("{path}[]"), found);
        }
    }
    let (schema, mut found) = (schema(), Vec::new());
    open(&schema, &schema, "", &mut found);
    // A parent chart has values there for its other charts.
    assert_eq!(found, ["/global"]);
}

#[test]
fn values_and_schema_have_the_same_keys() {
    fn keys(schema: &Value, node: &Value, path: &str, found: &mut BTreeSet<String>) {
        let node = resolve(schema, node);
        for (key, property) in node["properties"].as_object().into_iter().flatten() {
            let path = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            keys(schema, property, &path, found);
            found.insert(path);
        }
    }
    let (schema, mut known) = (schema(), BTreeSet::new());
    keys(&schema, &schema, "", &mut known);
    // A value of a parent chart, fields of Kubernetes objects, and alerts.
    let inner = [
        "affinity.",
        "certificates.secret.certManager.issuerRef.",
        "podSecurityContext.",
        "securityContext.",
        "prometheusRule.alerts.",
    ];
    let is_value = |path: &String| path != "enabled" && !inner.iter().any(|i| path.starts_with(i));
    known.retain(is_value);
    let written = entries().into_iter().map(|entry| entry.path);
    let written: BTreeSet<_> = written.filter(is_value).collect();
    assert_eq!(written, known);
}
