//! What may redirect the kubelet's call of Envoy's hook: the proxy of a service mesh, or an init container that sets up
//! such a redirection. The proxy's answer ends the hook, or the drain waits for that call too.

use std::num::NonZeroU16;

use crate::diagnostics::{Code, Diagnostics};
use crate::excerpt::excerpt;
use crate::names::is_of_mesh;
use crate::pod::{Container, MAX_MESSAGE_TEXT_LEN, PodView};

/// The containers of service meshes' proxies, to which they may redirect all inbound traffic of a pod, and the annotations
/// that exclude ports from that; docs/vendors.md has the sources.
const MESHES: [&str; 4] = [
    "istio-proxy traffic.sidecar.istio.io/excludeInboundPorts",
    "linkerd-proxy config.linkerd.io/skip-inbound-ports",
    "kuma-sidecar traffic.kuma.io/exclude-inbound-ports",
    "consul-dataplane consul.hashicorp.com/transparent-proxy-exclude-inbound-ports",
];

/// The flags with which programs leave ports out of a redirection, by what their containers mention.
const FLAGS: [(&str, &str); 5] = [
    ("istioiptables", "-d"),
    ("linkerd", "--inbound-ports-to-ignore"),
    ("kuma", "--exclude-inbound-ports"),
    ("consul", "-exclude-inbound-port"),
    ("proxyinit", "-w"),
];

/// Returns true for the container of a mesh's proxy, which the mesh may add later.
pub(super) fn is_mesh_proxy(name: &str) -> bool {
    exclusion_by_mesh(name).is_some()
}

/// Returns the annotation that excludes ports from the redirection to the proxy in this container.
fn exclusion_by_mesh(name: &str) -> Option<&'static str> {
    let mut meshes = MESHES.iter().filter_map(|mesh| mesh.split_once(' '));
    meshes.find_map(|(proxy, annotation)| (proxy == name).then_some(annotation))
}

/// Warns of what may redirect the call of Envoy's hook on this port, unless the port is excluded.
pub(super) fn check_redirection(
    pod: &PodView<'_>,
    port: NonZeroU16,
    diagnostics: &mut Diagnostics,
) {
    let mut containers = pod.long_running_containers();
    let by_mesh = containers.find_map(|(_, it)| Some((it.name(), exclusion_by_mesh(it.name())?)));
    let detail = if let Some((proxy, annotation)) = by_mesh {
        let mut annotations = pod.annotations().into_iter().flat_map(|all| all.iter());
        if annotations.any(|(key, value)| is_of_mesh(key) && lists_port(value, port)) {
            return;
        }
        format!(
            "the call of Envoy's hook on port {port} may be redirected to `{proxy}`: list the port in `{annotation}`"
        )
    } else {
        let mut containers = pod.spec.init_containers.iter().flatten();
        let Some(container) = containers.find(|it| may_redirect(it) && !excludes(it, port)) else {
            return;
        };
        format!(
            "the init container `{}` may redirect the call of Envoy's hook on port {port} to a proxy, whose answer \
             would end the hook at once: {}",
            container.name(),
            exclusion(container, port)
        )
    };
    diagnostics.warn(Code::HookRedirected.diagnostic(detail));
}

/// Returns true if an init container may change the pod's iptables rules: by its name, its image, its script, or its
/// capabilities, unless it goes on to run.
fn may_redirect(container: &Container<'_>) -> bool {
    let is_redirector = |text: &str| {
        let text = text.replace(['-', '_'], "").to_ascii_lowercase();
        text.contains("proxyinit") || text.contains("iptables")
    };
    let in_script = |word: &str| {
        let mut programs = word.split_whitespace();
        word.contains("iptables") || programs.any(|it| it.rsplit('/').next() == Some("nft"))
    };
    let completes = container.restart_policy.as_deref() != Some("Always");
    is_redirector(container.name())
        || is_redirector(container.image())
        || container.command_line().any(in_script)
        || completes && container.has_capability(&["NET_ADMIN", "NET_RAW", "ALL"])
}

/// Returns true if the port is among the exceptions of a container's redirection: the value of such a flag, or in a rule
/// that does not redirect.
fn excludes(container: &Container<'_>, port: NonZeroU16) -> bool {
    let is_excluding = |flag: &str| {
        let words = ["exclude", "ignore", "skip", "whitelist"];
        ["-w", "-d"].contains(&flag) || words.iter().any(|word| flag.contains(word))
    };
    let mut flag = "";
    let lines = container.command_line();
    let mut lines = lines.flat_map(|word| word.split(['\n', ';', '&', '|']));
    lines.any(|line| {
        let words = line.split(|c: char| c.is_whitespace() || "=\"'".contains(c));
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let mut lowercase = words.iter().map(|word| word.to_ascii_lowercase());
        let is_exception = lowercase.any(|word| ["return", "accept"].contains(&&*word));
        words.iter().enumerate().any(|(index, word)| {
            if word.starts_with('-') {
                flag = word;
                return false;
            }
            let before = &words[index.saturating_sub(2)..index];
            let is_negated = before.contains(&"!");
            lists_port(word, port) && (is_exception || is_negated || is_excluding(flag))
        })
    })
}

/// Returns true for `8080,15902`, and for the range `15000:16000`.
fn lists_port(list: &str, port: NonZeroU16) -> bool {
    let number = |text: &str| text.trim().parse::<u16>().ok();
    list.split(',').any(|item| {
        let (first, last) = item.split_once([':', '-']).unwrap_or((item, item));
        let range = number(first).zip(number(last));
        range.is_some_and(|(first, last)| (first..=last).contains(&port.get()))
    })
}

/// What excludes a port from the redirection that a container sets up.
fn exclusion(container: &Container<'_>, port: NonZeroU16) -> String {
    let mut texts = vec![container.name(), container.image()];
    texts.extend(container.command_line());
    let text = texts.join(" ").replace(['-', '_'], "");
    let flag = FLAGS.iter().find(|(mark, _)| text.contains(mark));
    if let Some((_, flag)) = flag {
        let present = container.flag(flag).filter(|ports| !ports.is_empty());
        let present = present.map(|ports| excerpt(ports, MAX_MESSAGE_TEXT_LEN) + ",");
        format!(
            "start it with `{flag} {}{port}`",
            present.unwrap_or_default()
        )
    } else if text.contains("iptables") {
        format!(
            "end its script with `iptables -t nat -I PREROUTING -p tcp --dport {port} -j RETURN`"
        )
    } else {
        "if it redirects ports, exclude this one by its arguments".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::diagnostics::Effect;

    const PORT: NonZeroU16 = NonZeroU16::new(15902).unwrap();

    /// What is said of a pod with this specification.
    fn detail(spec: &Value) -> Option<String> {
        let pod = json!({ "spec": spec }).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let mut diagnostics = Diagnostics::default();
        check_redirection(&pod, PORT, &mut diagnostics);
        let mut warnings = diagnostics.warnings.into_iter();
        let warning = warnings.next()?;
        assert_eq!(warning.code.effect(), Effect::Assumption);
        Some(warning.detail)
    }

    fn of_init(container: &Value) -> Option<String> {
        detail(&json!({"containers": [{"name": "envoy"}], "initContainers": [container]}))
    }

    fn net_admin(args: &[&str]) -> Value {
        let capabilities = json!({"add": ["NET_ADMIN"], "drop": ["ALL"]});
        json!({"name": "init", "image": "acme/init", "args": args, "securityContext": {"capabilities": capabilities}})
    }

    #[test]
    fn init_container_that_may_redirect_is_told_with_the_exclusion() {
        let script = |script: &str| json!({"name": "i", "command": ["sh", "-c", script]});
        let redirect =
            "iptables -t nat -A PREROUTING -p tcp ! -d 127.0.0.1 -j REDIRECT --to-port 8000";
        let table = [
            (
                json!({"name": "proxy-init", "image": "x", "args": ["-p", "8000", "-u", "1111", "-w", "8282"]}),
                "start it with `-w 8282,15902`",
            ),
            (
                json!({"name": "setup", "image": "openpolicyagent/proxy_init:v8", "args": ["-p 8000 -u 1111"]}),
                "start it with `-w 15902`",
            ),
            (
                json!({"name": "setup", "image": "acme/proxyinit"}),
                "start it with `-w 15902`",
            ),
            (
                json!({"name": "linkerd-init", "image": "cr.l5d.io/linkerd/proxy-init:v2", "args": ["--inbound-ports-to-ignore", "4190"]}),
                "start it with `--inbound-ports-to-ignore 4190,15902`",
            ),
            (
                json!({"name": "i", "args": ["istio-iptables", "-p", "15001", "-d", ""]}),
                "start it with `-d 15902`",
            ),
            (
                json!({"name": "setup", "image": "acme/istio-iptables-1"}),
                "start it with `-d 15902`",
            ),
            (
                script(redirect),
                "end its script with `iptables -t nat -I PREROUTING -p tcp --dport 15902 -j RETURN`",
            ),
            (
                script("/usr/sbin/nft -f /rules"),
                "exclude this one by its arguments",
            ),
            (net_admin(&[]), "exclude this one by its arguments"),
            (
                net_admin(&["--port=15902"]),
                "exclude this one by its arguments",
            ),
        ];
        for (container, want) in table {
            let detail = of_init(&container).unwrap_or_default();
            assert!(detail.ends_with(want), "{container}: {detail}");
        }
        for capability in ["NET_RAW", "CAP_NET_ADMIN", "ALL"] {
            let container =
                json!({"name": "i", "securityContext": {"capabilities": {"add": [capability]}}});
            assert!(of_init(&container).is_some(), "{capability}");
        }
    }

    #[test]
    fn excluded_port_and_other_containers_are_not_told() {
        let script = |script: &str| json!({"name": "i", "command": ["sh", "-c", script]});
        let rest = "; iptables -t nat -A PREROUTING -p tcp -j REDIRECT --to-port 8000";
        for container in [
            json!({"name": "proxy-init", "args": ["-p", "8000", "-w", "8282,15902"]}),
            json!({"name": "proxy-init", "args": ["-p 8000 -w 15902 -u 1111"]}),
            json!({"name": "proxy-init", "args": ["--inbound-ports-to-ignore=4190,15000-16000"]}),
            json!({"name": "i", "args": ["istio-iptables", "-d", "15090,15902"]}),
            script(&format!(
                "iptables -t nat -A PREROUTING -p tcp --dport 15902 -j RETURN{rest}"
            )),
            script(
                "iptables -t nat -A PREROUTING -p tcp -m multiport ! --dports 8282,15902 -j REDIRECT --to-port 8000",
            ),
            script("nft add rule ip nat prerouting tcp dport 15902 accept"),
            net_admin(&["--exclude-inbound-ports", "15902"]),
            json!({"name": "i", "securityContext": {"capabilities": {"add": null, "drop": ["ALL"]}}}),
            json!({"name": "vpn", "restartPolicy": "Always", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}),
            json!({"name": "wait", "command": ["sh", "-c", "until nc -z db 5432; do sleep 1; done"]}),
        ] {
            assert_eq!(of_init(&container), None, "{container}");
        }
        let app = json!({"containers": [{"name": "iptables"}]});
        assert_eq!(detail(&app), None);
    }

    #[test]
    fn port_in_a_rule_that_redirects_is_not_excluded() {
        for rule in [
            "iptables -t nat -A PREROUTING -p tcp --dport 15902 -j REDIRECT --to-port 8000",
            "iptables -t nat -A PREROUTING ! -s 10.0.0.1 -p tcp --dport 15902 -j REDIRECT",
            "iptables -t nat -A PREROUTING -p tcp --dport 80 -j RETURN; iptables -A PREROUTING --dport 15902 -j REDIRECT",
        ] {
            let container = json!({"name": "i", "command": ["sh", "-c", rule]});
            assert!(of_init(&container).is_some(), "{rule}");
        }
    }

    #[test]
    fn mesh_names_the_annotation_of_the_exclusion() {
        for (proxy, annotation) in MESHES.map(|mesh| mesh.split_once(' ').unwrap()) {
            let detail = detail(&json!({"containers": [{"name": "envoy"}, {"name": proxy}]}));
            let want = format!("list the port in `{annotation}`");
            assert!(
                detail.is_some_and(|detail| detail.ends_with(&want)),
                "{proxy}"
            );
            assert!(is_of_mesh(annotation));
        }
    }
}
