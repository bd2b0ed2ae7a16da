//! A namespace of this run's own.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::command::CommandOutput;
use crate::kubectl::{self, kubectl};
use crate::termination_message::TerminationMessages;

/// A namespace that exists for one scenario, or for one release.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    /// What the drainers in it said at their ends.
    pub(crate) termination_messages: TerminationMessages,
}

// === impl Namespace ===

impl Namespace {
    /// Makes it, with these labels.
    ///
    /// # Errors
    /// When it cannot be made.
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

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Creates this object in it, or changes it into this.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) async fn apply(&self, object: Value) -> Result<CommandOutput> {
        kubectl::apply(&self.in_namespace(object)).await
    }

    /// Creates this object in it, which may have a generated name.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) async fn create_object(&self, object: Value) -> Result<CommandOutput> {
        kubectl::create(&self.in_namespace(object)).await
    }

    /// Has the API server admit an object in it and not keep it, and returns what it would be, as JSON.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) async fn dry_run(&self, object: Value) -> Result<CommandOutput> {
        kubectl::dry_run(&self.in_namespace(object)).await
    }

    /// Evicts a pod through the Eviction API; returns false when a budget does not allow it now.
    ///
    /// # Errors
    /// When it cannot be evicted for another reason.
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
    ///
    /// # Errors
    /// When that fails.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubectl(&[&["--namespace", &*self.name], args].concat()).await
    }

    /// Runs `kubectl` in it and reads the JSON that it prints.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) async fn json(&self, args: &[&str]) -> Result<Value> {
        kubectl::json(&[&["--namespace", &*self.name], args].concat()).await
    }

    /// The pods with these labels, those that end included.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) async fn pods(&self, selector: &str) -> Result<Vec<Value>> {
        let mut list = self.json(&["get", "pods", "--selector", selector]).await?;
        let Value::Array(pods) = list["items"].take() else {
            bail!("a list of pods without items");
        };
        Ok(pods)
    }

    /// What is known of a container of a pod: its `status`.
    ///
    /// # Errors
    /// When there is no such container.
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

    /// All that it can tell of why something failed in it.
    pub(crate) async fn diagnostics(&self) -> String {
        let mut all = String::new();
        let mut add = |about: &str, told: Result<String>| {
            let told = told.unwrap_or_else(|error| format!("{error:#}\n"));
            // Writing to a String cannot fail.
            let _ = write!(all, "--- {}: {about}\n{told}", self.name);
        };
        for about in [
            "get pods --output wide",
            "get events --sort-by .metadata.creationTimestamp",
        ] {
            let words: Vec<_> = about.split(' ').collect();
            add(about, self.kubectl(&words).await);
        }
        let names = self.kubectl(&["get", "pods", "--output", "name"]).await;
        for pod in names.unwrap_or_default().lines() {
            let logs = ["logs", pod, "--all-containers", "--prefix", "--tail", "40"];
            add(&format!("logs of {pod}"), self.kubectl(&logs).await);
        }
        let words = self.termination_messages.read_all();
        let words = words.map(|all| all.iter().map(|words| format!("{words}\n")).collect());
        add("last words of drainers", words);
        all
    }

    fn in_namespace(&self, mut object: Value) -> Value {
        object["metadata"]["namespace"] = json!(self.name);
        object
    }
}
