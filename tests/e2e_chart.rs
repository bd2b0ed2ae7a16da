//! The chart on a real cluster: what is live survives Helm, rights are the least, the policy speaks,
//! and nothing is left behind. The program itself is not run.
//!
//! `cargo test --package tests --test e2e_chart -- --ignored --test-threads 1`, with `KUBECONFIG`, and
//! with kubectl and helm on `PATH`; `HELM4` names a Helm 4 to be tested beside a Helm 3.

#![expect(clippy::unwrap_used, reason = "a test's helpers may, as its tests do")]

use std::collections::BTreeSet;
use std::env;
use std::thread::sleep;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::helm::{self, CHART, Helm, RELEASE};
use tests::kubectl::{Namespace, get, kubectl};
use webhook::certificates::self_made::SelfMade;
use webhook::certificates::wall_clock;

/// Who writes the caBundle.
const WRITER: &str = "--field-manager=envoy-drainer-cabundle";

/// What comes and goes by itself, or with a namespace.
const RESTLESS: [&str; 4] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
];

/// A release in a namespace of its own name.
struct Release {
    helm: Helm,
    namespace: Namespace,
}

fn helms() -> Vec<Helm> {
    let first = helm::installed().expect("helm is installed");
    let fourth = env::var_os("HELM4").map(Helm::at);
    [first].into_iter().chain(fourth).collect()
}

/// Every object of the cluster, but for what is restless.
fn everything() -> BTreeSet<String> {
    let kinds = ["api-resources", "--verbs=list", "--output=name"];
    let kinds = kubectl(&kinds, None).unwrap().output;
    let is_calm = |kind: &&str| !RESTLESS.contains(kind);
    let kinds = Vec::from_iter(kinds.lines().filter(is_calm)).join(",");
    let columns = "--output=custom-columns=:kind,:metadata.namespace,:metadata.name";
    let args = ["get", &kinds, "--all-namespaces", "--no-headers", columns];
    let objects = kubectl(&args, None).unwrap().output;
    objects.lines().map(str::to_owned).collect()
}

/// A pod that asks for a drainer.
fn asking(namespace: &Namespace) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "edge",
            "namespace": namespace.name(),
            "annotations": {"envoy-drainer.dev/inject": "true"},
        },
        "spec": {"containers": [{"name": "envoy", "image": "envoy"}]},
    })
}

/// Has the API server admit an object that it does not keep, and returns its warnings.
fn admit(object: &Value) -> anyhow::Result<String> {
    let told = kubectl(
        &["create", "--dry-run=server", "--filename=-"],
        Some(object),
    )?;
    Ok(told.warnings)
}

/// Asks until it is so: the API server takes a moment to heed a policy.
fn soon(is_so: impl Fn() -> bool) {
    let tries = 60;
    for _ in 0..tries {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(250));
    }
    panic!("it is not so, after {tries} tries");
}

#[test]
#[ignore = "needs a cluster"]
fn helm_leaves_alone_what_the_webhook_wrote_and_leaves_nothing_behind() {
    let (authority, _) = SelfMade::try_new(vec!["a".to_owned()], wall_clock()).unwrap();
    let bundle = STANDARD.encode(authority.ca_pem());
    let data = json!({"ca.crt": bundle});
    for helm in helms() {
        let namespace = Namespace::create("chart-live").unwrap();
        let before = everything();
        let release = Release { helm, namespace };
        let assert_kept = |timeout: u64| {
            let webhooks = release.webhooks();
            assert_eq!(webhooks[0]["timeoutSeconds"], timeout);
            for webhook in webhooks {
                assert_eq!(webhook["clientConfig"]["caBundle"], *bundle);
            }
            assert_eq!(release.secret()["data"], data);
        };
        release.install(&[]);
        release.write_bundle(&bundle);
        release.write_secret(&data);
        release.upgrade(&["admission.timeoutSeconds=6", "commonLabels.team=edge"]);
        assert_kept(6);
        release.upgrade(&[
            "admission.timeoutSeconds=7",
            "aks=true",
            "policy.action=Deny",
        ]);
        assert_kept(7);
        // Whoever wrote last is in nobody's way.
        release.write_bundle(&bundle);
        release.helm(&["rollback", release.name(), "1"]);
        assert_kept(5);
        release.helm(&["uninstall", release.name()]);
        let after = everything();
        // All that is the chart's has the release's name; others may be at work in the cluster.
        let ours = |line: &&String| line.contains(release.name());
        let left = Vec::from_iter(after.symmetric_difference(&before).filter(ours));
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
#[ignore = "needs a cluster"]
fn the_account_may_do_what_is_listed_and_no_more() {
    let release = Release::new("chart-rights");
    release.install(&[]);
    let full = release.full();
    let (secret, account) = (format!("{full}-ca"), release.account());
    let rights = |account: &str| {
        let args = ["auth", "can-i", "--list", "--no-headers", account];
        let scope = ["--namespace", release.name()];
        let told = kubectl(&[&args[..], &scope].concat(), None).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        told.output.lines().map(words).collect::<BTreeSet<_>>()
    };
    // What every account may, which has no rights of its own.
    let nobody = format!("--as=system:serviceaccount:{}:nobody", release.name());
    let own: Vec<_> = rights(&account)
        .difference(&rights(&nobody))
        .cloned()
        .collect();
    assert_eq!(
        own,
        [
            "events.events.k8s.io [] [] [create patch]".to_owned(),
            format!(
                "mutatingwebhookconfigurations.admissionregistration.k8s.io [] [{full}] [get list watch patch]"
            ),
            format!("secrets [] [{secret}] [create get list watch patch]"),
        ]
    );

    // To create means: this Secret, by server-side apply.
    let lost = ["delete", "secret", &secret, "--namespace", release.name()];
    kubectl(&lost, None).unwrap();
    let empty = |name: &str| {
        let namespace = release.name();
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}})
    };
    let apply = [
        "apply",
        "--server-side",
        "--validate=false",
        "--filename=-",
        &account,
    ];
    kubectl(&apply, Some(&empty("another"))).expect_err("it may not");
    kubectl(&apply, Some(&empty(&secret))).unwrap();
    release.upgrade(&[]);
    let labels = &release.secret()["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm");
}

#[test]
#[ignore = "needs a cluster"]
fn the_policy_tells_of_pods_that_the_webhook_did_not_see() {
    let release = Release::new("chart-policy");
    let shop = Namespace::create("chart-policy-shop").unwrap();
    shop.label("envoy-drainer.dev/injection=enabled").unwrap();
    release.install(&[]);
    let with = |pointer: &str, value: Value| {
        let mut pod = asking(&shop);
        pod["metadata"][pointer] = value;
        pod
    };
    let annotations = |more: Value| {
        let mut pod = asking(&shop);
        let all = pod["metadata"]["annotations"].as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        pod
    };
    let mut windows = asking(&shop);
    windows["spec"]["os"] = json!({"name": "windows"});
    let mut mirror = annotations(json!({"kubernetes.io/config.mirror": "a"}));
    mirror["spec"]["nodeName"] = json!("node");
    let silent = [
        with("labels", json!({"envoy-drainer.dev/injected": "true"})),
        with("annotations", json!({})),
        with("annotations", json!({"envoy-drainer.dev/inject": "false"})),
        annotations(json!({"envoy-drainer.dev/status": "{}"})),
        mirror,
        windows,
        asking(&release.namespace),
    ];
    let told = "did not see it";
    let warned = |pod: &Value| admit(pod).unwrap().contains(told);
    soon(|| warned(&asking(&shop)));
    for pod in &silent {
        assert!(!warned(pod), "{pod}");
    }
    shop.label("envoy-drainer.dev/injection=no").unwrap();
    assert!(
        !warned(&asking(&shop)),
        "in a namespace that did not opt in"
    );
    shop.label("envoy-drainer.dev/injection=enabled").unwrap();

    release.upgrade(&["policy.action=Deny"]);
    let refused = |error| format!("{error:#}").contains(told);
    soon(|| admit(&asking(&shop)).is_err_and(refused));
}

#[test]
#[ignore = "needs a cluster"]
fn the_webhooks_own_pod_passes_the_restricted_standard() {
    let release = Release::new("chart-restricted");
    let name = release.name();
    let standard = "pod-security.kubernetes.io/enforce=restricted";
    release.namespace.label(standard).unwrap();
    for values in [[""; 0].as_slice(), &["openshift=true"]] {
        let mut args = vec!["template", name, CHART, "--namespace", name];
        args.extend(values.iter().flat_map(|value| ["--set", value]));
        args.extend([
            "--kube-version=1.30.0",
            "--show-only=templates/deployment.yaml",
        ]);
        let deployment = helm::objects(&release.helm.run(args).unwrap()).remove(0);
        let mut pod = deployment["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("webhook");
        pod["metadata"]["namespace"] = json!(name);
        pod["spec"]["serviceAccountName"] = json!("default");
        admit(&pod).unwrap();
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        admit(&pod).expect_err("the standard is enforced");
    }
}

// === impl Release ===

impl Drop for Release {
    fn drop(&mut self) {
        let args = [
            "uninstall",
            self.name(),
            "--ignore-not-found",
            "--namespace",
            self.name(),
        ];
        if let Err(error) = self.helm.run(args) {
            eprintln!("{error:#}");
        }
    }
}

impl Release {
    fn new(purpose: &str) -> Self {
        let helm = helms().remove(0);
        let namespace = Namespace::create(purpose).unwrap();
        Self { helm, namespace }
    }

    fn name(&self) -> &str {
        self.namespace.name()
    }

    fn full(&self) -> String {
        format!("{}-{RELEASE}", self.name())
    }

    /// The flag by which kubectl acts as the webhook.
    fn account(&self) -> String {
        format!("--as=system:serviceaccount:{}:{}", self.name(), self.full())
    }

    fn helm(&self, args: &[&str]) {
        let args = [args, &["--namespace", self.name()]].concat();
        self.helm.run(args).unwrap();
    }

    fn install(&self, values: &[&str]) {
        self.set("install", values);
    }

    fn upgrade(&self, values: &[&str]) {
        self.set("upgrade", values);
    }

    /// Without replicas, which need an image.
    fn set(&self, command: &str, values: &[&str]) {
        let mut args = vec![command, self.name(), CHART, "--set", "replicas=0"];
        args.extend(values.iter().flat_map(|value| ["--set", value]));
        self.helm(&args);
    }

    fn webhooks(&self) -> Vec<Value> {
        let live = get(&["mutatingwebhookconfiguration", &self.full()]).unwrap();
        live["webhooks"].as_array().unwrap().clone()
    }

    /// Writes a caBundle into every entry, as the webhook does.
    fn write_bundle(&self, bundle: &str) {
        let entry =
            |webhook: Value| json!({"name": webhook["name"], "clientConfig": {"caBundle": bundle}});
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self.full()},
            "webhooks": Vec::from_iter(self.webhooks().into_iter().map(entry)),
        });
        let args = [
            "apply",
            "--server-side",
            WRITER,
            "--validate=false",
            "--filename=-",
            &self.account(),
        ];
        kubectl(&args, Some(&configuration)).unwrap();
    }

    fn write_secret(&self, data: &Value) {
        let (name, account) = (format!("{}-ca", self.full()), self.account());
        let patch = json!({"data": data}).to_string();
        let args = [
            "patch",
            "secret",
            &name,
            "--namespace",
            self.name(),
            "--type=merge",
        ];
        let args = [&args[..], &["--patch", &patch, &account]].concat();
        kubectl(&args, None).unwrap();
    }

    fn secret(&self) -> Value {
        let name = format!("{}-ca", self.full());
        get(&["secret", &name, "--namespace", self.name()]).unwrap()
    }
}
