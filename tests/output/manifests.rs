//! What the manifests of real Envoys show, and what the explanation says of it. Each row was misread once.

use serde_json::Value;
use tests::manifest;

/// Explains a pod of a request, its `metadata` (a flow mapping without braces) and `spec`, and the documents of
/// `others`.
fn explain(annotations: &str, spec: &str, others: &str) -> Value {
    let stream = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: edge\n  annotations: {{envoy-drainer.dev/inject: \"true\"{annotations}}}\n\
         spec: {spec}\n---\n{others}"
    );
    let text = manifest::explain(stream).to_json().to_string();
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{text}");
    report["pods"][0].clone()
}

/// The codes of the reasons and warnings, separated by spaces.
fn codes(pod: &Value) -> String {
    let lists = ["reasons", "warnings"].map(|list| pod[list].as_array().expect("a list"));
    let all = lists.into_iter().flatten();
    let codes = all.map(|it| it["code"].as_str().expect("a code"));
    Vec::from_iter(codes).join(" ")
}

/// The addresses of the admin interface in the order in which they are asked.
fn hints(pod: &Value) -> String {
    let hints = pod["plan"]["admin"]["hints"].as_array();
    let hints = hints.expect("it is injected").iter();
    let addresses = hints.map(|it| it["address"].as_str().expect("an address"));
    Vec::from_iter(addresses).join(" ")
}

/// Both, separated by a bar.
fn hints_and_codes(pod: &Value) -> String {
    format!("{} | {}", hints(pod), codes(pod))
}

const CONFIG_MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  envoy.yaml: |\n    ";
const MOUNTED: &str = "{containers: [{name: envoy, image: 'envoyproxy/envoy:v1.40.0', args: [-c, /etc/envoy/envoy.yaml], \
    volumeMounts: [{name: c, mountPath: /etc/envoy}]}], volumes: [{name: c, configMap: {name: c}}]}";

#[test]
fn admin_is_read_in_the_config_map_of_the_stream() {
    let admin = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 19000}}}\n";
    let found = explain("", MOUNTED, &format!("{CONFIG_MAP}{admin}"));
    assert_eq!(hints_and_codes(&found), "127.0.0.1:19000 127.0.0.1:9901 | ");
    let none = "static_resources: {listeners: []}\n";
    let none = explain("", MOUNTED, &format!("{CONFIG_MAP}{none}"));
    assert_eq!(codes(&none), "DRN076");
    let unknown = explain("", MOUNTED, "");
    assert_eq!(hints_and_codes(&unknown), "127.0.0.1:9901 | ");
    // By the volume's item and a sub-path.
    let mount = "mountPath: /etc/envoy/envoy.yaml, subPath: e.yaml}";
    let volume = "configMap: {name: c, items: [{key: envoy.yaml, path: e.yaml}]}";
    let spec = MOUNTED.replace("mountPath: /etc/envoy}", mount);
    let spec = spec.replace("configMap: {name: c}", volume);
    let found = explain("", &spec, &format!("{CONFIG_MAP}{admin}"));
    assert_eq!(hints(&found), "127.0.0.1:19000 127.0.0.1:9901");
    let elsewhere = CONFIG_MAP.replace("name: c", "name: c, namespace: other");
    let elsewhere = explain("", MOUNTED, &format!("{elsewhere}{admin}"));
    assert_eq!(hints(&elsewhere), "127.0.0.1:9901");
}

#[test]
fn stronger_evidence_of_the_admin_wins_and_contradictions_are_told() {
    for (port, address, want) in [
        (
            8877,
            "127.0.0.1, port_value: 19000",
            "127.0.0.1:19000 127.0.0.1:8877 127.0.0.1:9901 | DRN074",
        ),
        (
            9901,
            "\"::1\", port_value: 9901",
            "[::1]:9901 127.0.0.1:9901 | ",
        ),
    ] {
        let spec = format!(
            "{{containers: [{{name: envoy, image: 'envoyproxy/envoy:v1.40.0', ports: [{{name: admin, containerPort: {port}}}], \
             args: [--config-yaml, 'admin: {{address: {{socket_address: {{address: {address}}}}}}}']}}]}}"
        );
        assert_eq!(hints_and_codes(&explain("", &spec, "")), want);
    }
    let hook = "{containers: [{name: envoy, image: 'envoyproxy/envoy:v1.40.0', lifecycle: {preStop: {exec: {command: \
        [sh, -c, 'curl -X POST http://127.0.0.1:8001/healthcheck/fail; sleep 15']}}}}]}";
    let hook = explain(", envoy-drainer.dev/existing-hook: replace", hook, "");
    assert_eq!(hints_and_codes(&hook), "127.0.0.1:8001 127.0.0.1:9901 | ");
}

#[test]
fn port_in_use_is_shown_by_more_than_ports() {
    let spec = "{containers: [{name: envoy, image: 'envoyproxy/envoy:v1.40.0', FIELD}]}";
    let at =
        |port| format!("address: {{socket_address: {{address: 0.0.0.0, port_value: {port}}}}}");
    let (admin, listener) = (at(9901), at(15902));
    let listener: &str = &format!(
        "args: [--config-yaml, '{{admin: {{{admin}}}, static_resources: {{listeners: [{{{listener}}}]}}}}']"
    );
    for (annotations, field) in [
        ("", listener), // which the webhook does not read
        ("", "readinessProbe: {httpGet: {path: /ready, port: 15902}}"),
        ("", "livenessProbe: {tcpSocket: {port: 15902}}"),
        (", prometheus.io/port: \"15902\"", "command: [envoy]"),
    ] {
        let pod = explain(annotations, &spec.replace("FIELD", field), "");
        assert_eq!(codes(&pod), "DRN058", "{field}");
        let port = if field == listener { 15902 } else { 15903 };
        assert_eq!(pod["plan"]["drainer"]["port"], port, "{field}");
        let annotations = format!("{annotations}, envoy-drainer.dev/port: \"15902\"");
        let denied = explain(&annotations, &spec.replace("FIELD", field), "");
        assert_eq!(codes(&denied), "DRN024", "{field}");
    }
}

#[test]
fn flags_are_added_only_to_envoy() {
    let spec = "{containers: [{name: gw, image: 'registry.example/consul-dataplane:1.9', command: [consul-dataplane], \
        args: [-grpc-port=8502]}]}";
    for (key, value, code) in [
        ("drain-strategy", "immediate", "DRN027"),
        ("add-admin", "\"true\"", "DRN032"),
    ] {
        let pod = explain(&format!(", envoy-drainer.dev/{key}: {value}"), spec, "");
        assert!(codes(&pod).contains(code), "{}", codes(&pod));
        assert_eq!(pod["outcome"], "denied");
    }
    let envoy = "{containers: [{name: envoy, command: [envoy], args: [-c, /envoy.yaml]}]}";
    let pod = explain(", envoy-drainer.dev/add-admin: \"true\"", envoy, "");
    assert_eq!(hints_and_codes(&pod), "unix:@envoy-admin 127.0.0.1:9901 | ");
    let args = &pod["plan"]["envoy"]["addedArgs"];
    assert_eq!(args[0], "--config-yaml");
    let added: Value = serde_json::from_str(args[1].as_str().expect("a text")).expect("it is JSON");
    assert_eq!(added["admin"]["address"]["pipe"]["path"], "@envoy-admin");
    for spec in [
        envoy.replace("containers:", "hostNetwork: true, containers:"),
        envoy.replace("-c, /envoy.yaml", "--config-yaml, 'node: {}'"),
    ] {
        let pod = explain(", envoy-drainer.dev/add-admin: \"true\"", &spec, "");
        assert!(codes(&pod).starts_with("DRN032"), "{spec}");
    }
}

#[test]
fn setting_without_effect_is_told() {
    let immediate = "health-failure-delay: 30s, envoy-drainer.dev/drain-strategy: immediate";
    for (settings, want) in [
        ("health-failure-delay: 60s", "DRN077"),
        ("health-failure-delay: 30s", "DRN077"),
        (immediate, "DRN063"),
        ("idle-exit: 60s", "DRN077"),
        ("idle-exit: 30s", ""),
        ("quiet-period: 61s", "DRN077"),
        ("min-drain-duration: 60s", ""),
        ("drain-timeout: 401s", "DRN062"),
        ("drain-timeout: 400s", ""),
    ] {
        let spec = "{containers: [{name: envoy, command: [envoy], args: [-c, /envoy.yaml]}]}";
        let pod = explain(&format!(", envoy-drainer.dev/{settings}"), spec, "");
        assert_eq!(codes(&pod), want, "{settings}");
    }
}

/// Asserts that the explanation of some documents begins with this headline and has all of these parts, and returns it.
#[track_caller]
fn assert_explained(documents: &[&str], headline: &str, parts: &[&str]) -> String {
    let text = manifest::assert_explained(documents.join("\n---\n"), parts);
    assert!(text.starts_with(headline), "{headline}: {text}");
    text
}

const TEMPLATE: &str = "{metadata: {labels: {app: edge}, annotations: {envoy-drainer.dev/inject: 'true'}}, \
    spec: {containers: [{name: envoy, image: 'envoyproxy/envoy:v1.40.0', args: [-c, /etc/envoy/envoy.yaml]}]}}";

#[test]
fn objects_of_the_same_stream_are_read() {
    let workload =
        |kind: &str| format!("{kind}, metadata: {{name: edge}}, spec: {{template: {TEMPLATE}}}}}");
    let rollout = workload("{apiVersion: argoproj.io/v1alpha1, kind: Rollout");
    let service = "{apiVersion: v1, kind: Service, metadata: {name: front}, \
        spec: {type: LoadBalancer, selector: {app: edge}}}";
    let gets_one = "✔ Rollout edge gets a drainer";
    let in_front = "the Service `front` of type LoadBalancer is in front";
    assert_explained(&[&rollout, service], gets_one, &[in_front]);
    let in_default = service.replace("{name: front}", "{name: front, namespace: default}");
    assert_explained(&[&rollout, &in_default], gets_one, &[in_front]);
    let other = service.replace("app: edge", "app: other");
    let without = assert_explained(&[&rollout, &other], gets_one, &[]);
    assert!(!without.contains("DRN084"), "{without}");
    let gateway = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: eg}, \
        spec: {infrastructure: {annotations: {envoy-drainer.dev/inject: 'true', envoy-drainer.dev/adopt: 'true'}}}}";
    let old = workload("{apiVersion: extensions/v1beta1, kind: Deployment");
    let unknown = "? Gateway eg has pods that are not known here";
    assert_explained(&[gateway], unknown, &["explain gateway/NAME"]);
    let denied = gateway.replace("adopt: 'true'", "port: '0'");
    assert_explained(&[&denied], "✘ Gateway eg is denied", &["DRN020"]);
    let astray = gateway
        .replace("spec: {infrastructure: {", "metadata: {")
        .replace("metadata: {name: eg}, ", "")
        .replace("}}}}", "}}}");
    assert_explained(&[&astray], "! Gateway", &["DRN059"]);
    let one_of = "it is one of `apps/v1`";
    assert_explained(&[&old], "? Deployment edge has pods", &[one_of]);
}

#[test]
fn explanation_says_what_will_happen() {
    let none = format!("{CONFIG_MAP}static_resources: {{}}");
    let metadata = "{name: edge, annotations: {envoy-drainer.dev/inject: 'true'}}";
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {spec}");
    let undrained = "! Pod edge gets a drainer, but cannot be drained";
    let admin = "admin     none that the drainer can call (DRN076)";
    let end = "10s  the hooks end without a drain";
    let shown = assert_explained(&[&pod(MOUNTED), &none], undrained, &[admin, end]);
    assert!(!shown.contains("9901"), "{shown}");
    assert!(!shown.contains("clients reconnect"), "{shown}");
    let probe = "readinessProbe: {httpGet: {path: /ready, port: 80}, periodSeconds: 2}, args:";
    let probed = MOUNTED.replace("args:", probe);
    let failed = "\n          6s  the readiness probe has failed";
    assert_explained(&[&pod(&probed)], "✔ Pod edge gets a drainer  ", &[failed]);
    let redirecting = "{initContainers: [{name: proxy-init, args: [-w, '1']}], containers:";
    let redirected = pod(&probed.replace("{containers:", redirecting));
    let lossy = "! Pod edge gets a drainer, but may lose requests";
    assert_explained(&[&redirected], lossy, &[]);
    let unnamed = pod("{containers: [{image: envoy}]}");
    let want = "DRN026    a container has no name; its image is `envoy`";
    assert_explained(&[&unnamed], "", &[want]);
}

#[test]
fn longer_grace_period_of_the_pod_is_used() {
    let spec = "{terminationGracePeriodSeconds: 315, containers: [{name: envoy}, {name: app}]}";
    for (settings, timeout, grace) in [
        ("", "300s", 315),
        (", envoy-drainer.dev/drain-delay: 20s", "280s", 315),
        (", envoy-drainer.dev/drain-timeout: 90s", "90s", 315),
        // It is the app's own then.
        (", envoy-drainer.dev/extra-lifecycle-hooks: app", "60s", 390),
    ] {
        let plan = &explain(settings, spec, "")["plan"];
        let drain_timeout = &plan["settings"]["drain-timeout"]["value"];
        assert_eq!(drain_timeout, timeout, "{settings}");
        assert_eq!(plan["grace"]["to"], grace, "{settings}");
    }
    let endless = "{terminationGracePeriodSeconds: 9000000000, containers: [{name: envoy}]}";
    let pod = explain("", endless, "");
    assert_eq!(pod["plan"]["settings"]["drain-timeout"]["value"], "86385s");
}

#[test]
fn istios_envoy_is_left_alone_unless_named() {
    let spec = "{containers: [{name: istio-proxy, image: 'registry.example/proxyv2:1.29', args: [proxy, router]}]}";
    assert_eq!(codes(&explain("", spec, "")), "DRN016");
    let named = explain(", envoy-drainer.dev/envoy-container: istio-proxy", spec, "");
    assert_eq!(codes(&named), "DRN075 DRN083");
    assert_eq!(named["outcome"], "injected");
    let excluded = ", envoy-drainer.dev/envoy-container: istio-proxy, \
        traffic.sidecar.istio.io/excludeInboundPorts: \"15902\"";
    assert_eq!(codes(&explain(excluded, spec, "")), "DRN075");
}

#[test]
fn vendors_envoy_is_named_with_what_is_particular() {
    let spec = "{containers: [{name: app}, {name: esp, image: 'gcr.io/endpoints-release/endpoints-runtime:2'}]}";
    let skipped = explain("", spec, "");
    assert_eq!(codes(&skipped), "DRN009");
    let message = skipped["reasons"][0]["message"].as_str().expect("a text");
    assert!(message.contains("the Envoy of ESPv2"), "{message}");
    let named = explain(", envoy-drainer.dev/envoy-container: esp", spec, "");
    assert_eq!(codes(&named), "DRN075");
}

#[test]
fn readable_parts_of_a_configuration_are_used() {
    let spec = |yaml: &str| {
        format!(
            "{{containers: [{{name: envoy, image: 'envoyproxy/envoy:v1.40.0', args: [--config-yaml, '{yaml}']}}]}}"
        )
    };
    let ports = "static_resources: {listeners: [{address: {socket_address: {address: 0.0.0.0, port_value: 15902}}}]}";
    let admin = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: $(PORT)}}}";
    let pod = explain("", &spec(&format!("{{{admin}, {ports}}}")), "");
    assert_eq!(codes(&pod), "DRN087 DRN058");
    // A socket that the drainer cannot reach is no admin interface.
    let pipe = "admin: {address: {pipe: {path: /tmp/admin.sock}}}";
    let pod = explain("", &spec(pipe), "");
    assert_eq!(codes(&pod), "DRN085");
    assert_eq!(pod["outcome"], "injected");
    let both = ", envoy-drainer.dev/add-admin: \"true\", envoy-drainer.dev/admin-address: \"127.0.0.1:9901\"";
    let envoy = "{containers: [{name: envoy, command: [envoy], args: [-c, /envoy.yaml]}]}";
    assert_eq!(codes(&explain(both, envoy, "")), "DRN032");
}
