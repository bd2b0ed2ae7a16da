//! Namespaces that a run creates.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use drainer::DrainSummary;
use serde_json::{Value, json};

use crate::command::CommandOutput;
use crate::eventually::eventually;
use crate::kubectl::{self, kubectl};
use crate::termination_message::TerminationMessages;

/// The name of the shared release, and the prefix of the names of all releases and namespaces of a run.
pub(crate) const PREFIX: &str = "envoy-drainer-e2e";

/// A namespace that exists for one scenario, or for one release.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    /// The termination messages of its containers.
    pub(crate) termination_messages: TerminationMessages,
}

/// Waits until the namespaces of this run are deleted.
pub(crate) async fn wait_until_gone() -> Result<()> {
    eventually("all namespaces of this run are deleted", || async {
        let existing = kubectl(&["get", "namespaces", "--output", "name"]).await?;
        Ok(!existing.contains(PREFIX))
    })
    .await
}

// === impl Namespace ===

impl Namespace {
    /// Creates it with labels.
    pub(crate) async fn create(name: &str, labels: Value) -> Result<Self> {
        kubectl::apply(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        }))
        .await?;
        Ok(Self {
            name: name.to_owned(),
            termination_messages: TerminationMessages::watch(name)?,
        })
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Applies an object in it.
    pub(crate) async fn apply(&self, object: Value) -> Result<CommandOutput> {
        kubectl::apply(&self.in_namespace(object)).await
    }

    /// Creates an object in it as a server-side dry run, and returns the admitted object as JSON.
    pub(crate) async fn dry_run(&self, object: Value) -> Result<CommandOutput> {
        kubectl::dry_run(&self.in_namespace(object)).await
    }

    /// Evicts a pod through the Eviction API; returns false if a PodDisruptionBudget does not allow it now.
    ///
    /// # Errors
    /// If it cannot be evicted for another reason.
    pub(crate) async fn evict(&self, pod: &str) -> Result<bool> {
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": pod, "namespace": self.name },
        });
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.name);
        match kubectl::post(&path, &eviction).await {
            Ok(_) => Ok(true),
            Err(error) if error.to_string().contains("disruption budget") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs `kubectl` in it.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubectl(&[&["--namespace", &*self.name], args].concat()).await
    }

    /// Runs `kubectl` in it with the words of a line, none of which may contain a space.
    pub(crate) async fn run(&self, line: &str) -> Result<String> {
        self.kubectl(&line.split(' ').collect::<Vec<_>>()).await
    }

    /// Runs `kubectl` in it, and parses its JSON output.
    pub(crate) async fn json(&self, args: &[&str]) -> Result<Value> {
        kubectl::json(&[&["--namespace", &*self.name], args].concat()).await
    }

    /// Returns the pods that match a selector, including terminating ones.
    pub(crate) async fn pods(&self, selector: &str) -> Result<Vec<Value>> {
        let mut list = self.json(&["get", "pods", "--selector", selector]).await?;
        let Value::Array(pods) = list["items"].take() else {
            bail!("the list of pods has no items");
        };
        Ok(pods)
    }

    /// Returns the names of these pods.
    ///
    /// # Errors
    /// If a pod has no name.
    pub(crate) async fn pod_names(&self, selector: &str) -> Result<Vec<String>> {
        let pods = self.pods(selector).await?;
        let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str());
        let names = names.map(|name| name.map(str::to_owned));
        names.collect::<Option<_>>().context("a pod has no name")
    }

    /// Waits until a drainer has ended, and returns the summary of its drain.
    pub(crate) async fn first_summary(&self) -> Result<DrainSummary> {
        let messages = || self.termination_messages.read_all();
        eventually("a drain has ended", || async {
            Ok(!messages()?.is_empty())
        })
        .await?;
        messages()?.first().context("there is one")?.summary()
    }

    /// Returns the status of a container of a pod.
    ///
    /// # Errors
    /// If there is no such container.
    pub(crate) async fn container_status(&self, pod: &str, container: &str) -> Result<Value> {
        let mut pod = self.json(&["get", "pod", pod]).await?;
        let lists = [
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ];
        let statuses = lists.map(|list| pod["status"][list].take());
        let mut statuses = statuses.iter().filter_map(Value::as_array).flatten();
        let status = statuses.find(|status| status["name"] == *container);
        status.cloned().context("the container has no status")
    }

    /// Collects its pods, Events, logs and termination messages, to explain a failure.
    pub(crate) async fn diagnostics(&self) -> String {
        let mut text = String::new();
        let mut add = |title: &str, output: Result<String>| {
            let output = match output {
                Ok(output) if output.is_empty() => "(none)\n".to_owned(),
                Ok(output) => output,
                Err(error) => format!("{error:#}\n"),
            };
            // Writing to a String cannot fail.
            let _ = write!(text, "--- {}: {title}\n{output}", self.name);
        };
        for command in [
            "get pods --output wide",
            "get events --sort-by .metadata.creationTimestamp",
        ] {
            add(command, self.run(command).await);
        }
        let names = self.kubectl(&["get", "pods", "--output", "name"]).await;
        for pod in names.unwrap_or_default().lines() {
            let logs = ["logs", pod, "--all-containers", "--prefix", "--tail", "40"];
            add(&format!("logs of {pod}"), self.kubectl(&logs).await);
        }
        let messages = self.termination_messages.read_all();
        let lines = messages.map(|all| all.iter().map(|message| format!("{message}\n")).collect());
        add("termination messages of drainers", lines);
        text
    }

    fn in_namespace(&self, mut object: Value) -> Value {
        object["metadata"]["namespace"] = json!(self.name);
        object
    }
}
