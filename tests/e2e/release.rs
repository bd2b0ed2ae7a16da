//! The chart, installed with its real webhook.

use std::rc::Rc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tests::helm::CHART;

use crate::admissions::pod_with_inject;
use crate::eventually::eventually;
use crate::helm::Helm;
use crate::kubectl;
use crate::namespace::Namespace;

/// The longest that Helm waits for the webhook to be ready.
const HELM_TIMEOUT: &str = "--timeout=180s";

/// The chart's `metricsPort`.
const METRICS_PORT: u16 = 8080;

/// A release, in a namespace of the same name. Its objects have that name too.
#[derive(Debug)]
pub(crate) struct Release {
    helm: Helm,
    /// Where it is installed.
    pub(crate) namespace: Rc<Namespace>,
    excluded_namespaces: Vec<String>,
}

// === impl Release ===

impl Release {
    /// A release that is not installed yet, and leaves these namespaces alone.
    pub(crate) fn new(helm: Helm, namespace: Rc<Namespace>, excluded: &[String]) -> Self {
        let excluded = excluded.to_vec();
        Self {
            helm,
            namespace,
            excluded_namespaces: excluded,
        }
    }

    /// What it is called, and all of its objects.
    pub(crate) fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Installs it, and waits until the API server reaches its webhook with the pods of this namespace:
    /// kube-proxy learns of the first replica a moment after that is ready.
    ///
    /// # Errors
    /// When it does not become ready, or is not reached.
    pub(crate) async fn install(&self, values: Value, with: &Namespace) -> Result<()> {
        self.apply_values("install", values).await?;
        eventually("the API server reaches the webhook", || async {
            // With `failurePolicy: Fail` pods are refused until then.
            let pod = with.dry_run(pod_with_inject()).await;
            Ok(pod.is_ok_and(|pod| pod.stdout.contains("envoy-drainer.dev/injected")))
        })
        .await
    }

    /// Changes its values into the chart's own and these, and waits until they are in force.
    ///
    /// # Errors
    /// When they do not come into force.
    pub(crate) async fn upgrade(&self, values: Value) -> Result<()> {
        self.apply_values("upgrade", values).await
    }

    /// Goes back to what it was when it was installed.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) async fn rollback(&self) -> Result<()> {
        let args = ["rollback", self.name(), "1", "--wait", HELM_TIMEOUT];
        self.run(&args, None).await
    }

    /// Removes it; that it is not there is well.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) async fn uninstall(&self) -> Result<()> {
        let args = ["uninstall", self.name(), "--ignore-not-found"];
        self.run(&args, None).await
    }

    async fn apply_values(&self, command: &str, mut values: Value) -> Result<()> {
        values["admission"]["excludedNamespaces"] = json!(self.excluded_namespaces);
        let args = [command, self.name(), CHART, "--wait", HELM_TIMEOUT];
        self.run(&args, Some(&values)).await
    }

    async fn run(&self, args: &[&str], values: Option<&Value>) -> Result<()> {
        let args = [args, &["--namespace", self.name()]].concat();
        self.helm.run(&args, values).await.map(drop)
    }

    /// Replaces the webhook's pods, and waits until the new ones are ready. The old ones may be there for a
    /// while.
    ///
    /// # Errors
    /// When that does not come.
    pub(crate) async fn rollout_restart(&self) -> Result<()> {
        let deployment = format!("deployment/{}", self.name());
        let restart = ["rollout", "restart", &deployment];
        self.namespace.kubectl(&restart).await?;
        self.wait_until_ready().await
    }

    /// Waits until as many of the webhook's newest pods are ready as are wanted.
    ///
    /// # Errors
    /// When that does not come.
    pub(crate) async fn wait_until_ready(&self) -> Result<()> {
        let deployment = format!("deployment/{}", self.name());
        let status = ["rollout", "status", &deployment, "--timeout=180s"];
        self.namespace.kubectl(&status).await.map(drop)
    }

    /// Changes the number of the webhook's pods, and waits until it is reached.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        let deployment = format!("deployment/{}", self.name());
        let replicas = format!("--replicas={replicas}");
        let scale = ["scale", &deployment, &replicas];
        self.namespace.kubectl(&scale).await?;
        self.wait_until_stable().await
    }

    /// Waits until as many of the webhook's pods are ready as are wanted, and none is ending.
    ///
    /// # Errors
    /// When that does not come.
    pub(crate) async fn wait_until_stable(&self) -> Result<()> {
        self.wait_until_ready().await?;
        let deployment = format!("deployment/{}", self.name());
        let wanted = self.namespace.json(&["get", &deployment]).await?;
        let wanted = wanted["spec"]["replicas"].as_u64();
        eventually("the webhook's old pods are gone", || async {
            Ok(Some(self.pods().await?.len() as u64) == wanted)
        })
        .await
    }

    /// The names of the webhook's pods, those that end included.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) async fn pods(&self) -> Result<Vec<String>> {
        let selector = format!("app.kubernetes.io/instance={}", self.name());
        let pods = self.namespace.pods(&selector).await?;
        let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str());
        let names = names.map(|name| name.map(str::to_owned));
        names.collect::<Option<_>>().context("a pod has a name")
    }

    /// One metric of each of the webhook's pods: the sum over those of its lines that hold all of
    /// `words`.
    ///
    /// # Errors
    /// When a pod does not tell its metrics.
    pub(crate) async fn metric(&self, words: &[&str]) -> Result<Vec<u64>> {
        let mut metrics = Vec::new();
        for pod in self.pods().await? {
            let pods = format!("/api/v1/namespaces/{}/pods", self.name());
            let path = format!("{pods}/{pod}:{METRICS_PORT}/proxy/metrics");
            let told = kubectl::kubectl(&["get", "--raw", &path]).await?;
            let lines = told.lines().filter(|line| !line.starts_with('#'));
            let ours = lines.filter(|line| words.iter().all(|word| line.contains(word)));
            let values =
                ours.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
            let sum = values.sum::<Result<u64, _>>();
            metrics.push(sum.with_context(|| format!("the metrics of {pod}"))?);
        }
        Ok(metrics)
    }

    /// The entries of its webhook configuration.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn webhooks(&self) -> Result<Vec<Value>> {
        let get = ["get", "mutatingwebhookconfiguration", self.name()];
        let mut live = kubectl::json(&get).await?;
        let Value::Array(webhooks) = live["webhooks"].take() else {
            bail!("a webhook configuration without webhooks");
        };
        Ok(webhooks)
    }

    /// The Secret of its authority.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn secret(&self) -> Result<Value> {
        self.namespace
            .json(&["get", "secret", &self.secret_name()])
            .await
    }

    /// The name of the Secret of its authority.
    pub(crate) fn secret_name(&self) -> String {
        format!("{}-ca", self.name())
    }
}
