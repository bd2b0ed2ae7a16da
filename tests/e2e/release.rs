//! Releases of the chart.

use std::rc::Rc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tests::helm::CHART;

use crate::admissions::pod_with_inject;
use crate::eventually::eventually;
use crate::helm::Helm;
use crate::kubectl;
use crate::metrics::Metrics;
use crate::namespace::Namespace;

/// How long Helm waits for the webhook to be ready.
const HELM_TIMEOUT: &str = "--timeout=180s";

/// The chart's `metricsPort`.
const METRICS_PORT: u16 = 8080;

/// A release in the namespace of the same name, which is also the name of its objects.
#[derive(Debug)]
pub(crate) struct Release {
    helm: Helm,
    /// The namespace of the release.
    pub(crate) namespace: Rc<Namespace>,
    excluded_namespaces: Vec<String>,
}

// === impl Release ===

impl Release {
    /// Creates a release, not installed yet, that excludes namespaces.
    pub(crate) fn new(
        helm: Helm,
        namespace: Rc<Namespace>,
        excluded_namespaces: &[String],
    ) -> Self {
        Self {
            helm,
            namespace,
            excluded_namespaces: excluded_namespaces.to_vec(),
        }
    }

    /// Returns the name of the release and of its objects.
    pub(crate) fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Installs it, and waits until the API server calls its webhook for pods of `probed`: kube-proxy gets
    /// the first endpoint a moment after that is ready.
    ///
    /// # Errors
    /// If it does not become ready, or the API server does not reach it.
    pub(crate) async fn install(&self, values: Value, probed: &Namespace) -> Result<()> {
        self.apply_values("install", values).await?;
        self.wait_until_called(probed).await
    }

    /// Waits until the API server calls its webhook for pods of `probed`.
    pub(crate) async fn wait_until_called(&self, probed: &Namespace) -> Result<()> {
        eventually("the API server reaches the webhook", || async {
            // With `failurePolicy: Fail` pods are rejected until then.
            let pod = probed.dry_run(pod_with_inject()).await;
            Ok(pod.is_ok_and(|pod| pod.stdout.contains("envoy-drainer.dev/injected")))
        })
        .await
    }

    /// Upgrades it to the chart's defaults with `values`, and waits until it is ready.
    pub(crate) async fn upgrade(&self, values: Value) -> Result<()> {
        self.apply_values("upgrade", values).await
    }

    /// Rolls it back to its first revision.
    pub(crate) async fn rollback(&self) -> Result<()> {
        let args = ["rollback", self.name(), "1", "--wait", HELM_TIMEOUT];
        self.run(&args, None).await
    }

    /// Uninstalls it if it is installed.
    pub(crate) async fn uninstall(&self) -> Result<()> {
        let args = ["uninstall", self.name(), "--ignore-not-found"];
        self.run(&args, None).await
    }

    async fn apply_values(&self, command: &str, mut values: Value) -> Result<()> {
        values["admission"]["excludedNamespaces"] = json!(self.excluded_namespaces);
        values["image"]["registry"] = json!("localhost");
        let args = [command, self.name(), CHART, "--wait", HELM_TIMEOUT];
        self.run(&args, Some(&values)).await
    }

    async fn run(&self, args: &[&str], values: Option<&Value>) -> Result<()> {
        let args = [args, &["--namespace", self.name()]].concat();
        self.helm.run(&args, values).await.map(drop)
    }

    /// Waits until the webhook's rollout is complete.
    pub(crate) async fn wait_until_ready(&self) -> Result<()> {
        let deployment = format!("deployment/{}", self.name());
        let status = format!("rollout status {deployment} --timeout=180s");
        self.namespace.run(&status).await.map(drop)
    }

    /// Scales the webhook, and waits until it is stable.
    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        let scale = format!("scale deployment/{} --replicas={replicas}", self.name());
        self.namespace.run(&scale).await?;
        self.wait_until_stable().await
    }

    /// Waits until the webhook's rollout is complete and none of its pods is terminating.
    pub(crate) async fn wait_until_stable(&self) -> Result<()> {
        self.wait_until_ready().await?;
        let deployment = format!("deployment/{}", self.name());
        let object = self.namespace.json(&["get", &deployment]).await?;
        let replicas = object["spec"]["replicas"].as_u64();
        eventually("the webhook's old pods are deleted", || async {
            Ok(Some(self.pods().await?.len() as u64) == replicas)
        })
        .await
    }

    /// Returns the names of the webhook's pods, including terminating ones.
    pub(crate) async fn pods(&self) -> Result<Vec<String>> {
        let selector = format!("app.kubernetes.io/instance={}", self.name());
        self.namespace.pod_names(&selector).await
    }

    /// Returns a metric for each of the webhook's pods: the sum of the samples whose lines contain all of
    /// `words`.
    ///
    /// # Errors
    /// If the metrics of a pod cannot be read.
    pub(crate) async fn metric(&self, words: &[&str]) -> Result<Vec<u64>> {
        let mut metrics = Vec::new();
        for pod in self.pods().await? {
            metrics.push(self.metrics(&pod).await?.sum(words)? as u64);
        }
        Ok(metrics)
    }

    /// Returns the metrics of one of the webhook's pods.
    pub(crate) async fn metrics(&self, pod: &str) -> Result<Metrics> {
        let pods = format!("/api/v1/namespaces/{}/pods", self.name());
        let metrics = Metrics::read(&format!("{pods}/{pod}:{METRICS_PORT}/proxy/metrics")).await;
        metrics.with_context(|| format!("the metrics of {pod}"))
    }

    /// Returns the name of its MutatingWebhookConfiguration.
    pub(crate) fn configuration_name(&self) -> String {
        format!("zz-{}", self.name())
    }

    /// Returns the webhooks of its MutatingWebhookConfiguration.
    pub(crate) async fn webhooks(&self) -> Result<Vec<Value>> {
        let name = self.configuration_name();
        let get = ["get", "mutatingwebhookconfiguration", &name];
        let mut configuration = kubectl::json(&get).await?;
        let Value::Array(webhooks) = configuration["webhooks"].take() else {
            bail!("the webhook configuration has no webhooks");
        };
        Ok(webhooks)
    }

    /// Returns its CA Secret.
    pub(crate) async fn secret(&self) -> Result<Value> {
        self.namespace
            .json(&["get", "secret", &self.secret_name()])
            .await
    }

    /// Returns the certificate of the active CA, which issues leaves; null if there is none.
    pub(crate) async fn active_ca(&self) -> Result<Value> {
        let name = self.secret_name();
        let get = format!("get secret {name} --ignore-not-found --output json");
        let secret = self.namespace.run(&get).await?;
        if secret.is_empty() {
            return Ok(Value::Null);
        }
        let mut secret: Value = serde_json::from_str(&secret).context("parsing the Secret")?;
        Ok(secret["data"]["active.crt"].take())
    }

    /// Waits until a CA other than `previous` is active, and returns its certificate.
    pub(crate) async fn wait_for_rotation(&self, previous: &Value) -> Result<Value> {
        eventually("another CA is active", || async {
            let now = self.active_ca().await?;
            Ok(now.is_string() && now != *previous)
        })
        .await?;
        self.active_ca().await
    }

    /// Returns the name of its CA Secret.
    pub(crate) fn secret_name(&self) -> String {
        format!("{}-ca", self.name())
    }
}
