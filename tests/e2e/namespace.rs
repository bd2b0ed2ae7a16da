//! A namespace of a scenario's own, gone when the scenario ends.

use std::process;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use tokio::signal::ctrl_c;

use crate::kubectl::{self, kubectl};
use crate::last_words::LastWords;

/// A namespace that exists for one scenario.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    /// What the drainers in it said at their ends.
    pub(crate) last_words: LastWords,
}

/// Runs a scenario in a namespace of its own, called after it, that is opted in and
/// enforces Pod Security `restricted`. If it fails, what
/// the namespace can tell of that is printed; in the end it is deleted.
///
/// # Errors
/// The scenario's, and when the namespace cannot be made.
pub(crate) async fn in_namespace<T>(
    about: &str,
    scenario: impl AsyncFnOnce(&Namespace) -> Result<T>,
) -> Result<T> {
    let name = format!("e2e-{about}-{}", process::id());
    kubectl::apply(&json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "envoy-drainer.dev/injection": "enabled",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    }))
    .await?;
    let last_words = LastWords::of(&name)?;
    let namespace = Namespace { name, last_words };
    let done = tokio::select! {
        done = scenario(&namespace) => done,
        _ = ctrl_c() => Err(anyhow!("interrupted")),
    };
    if done.is_err() {
        namespace.print_all_it_can_tell().await;
    }
    let name = &*namespace.name;
    kubectl(&["delete", "namespace", name, "--timeout=180s"]).await?;
    done
}

// === impl Namespace ===

impl Namespace {
    /// Creates this object in it, or changes it into this.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) async fn apply(&self, mut object: Value) -> Result<()> {
        object["metadata"]["namespace"] = json!(self.name);
        kubectl::apply(&object).await.map(drop)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Posts this object to a path below it.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}/{path}", self.name);
        kubectl::post(&path, object).await.map(drop)
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

    /// The pods with this label `app`, those that end included.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) async fn pods(&self, app: &str) -> Result<Vec<Value>> {
        let mut list = self
            .json(&["get", "pods", "--selector", &format!("app={app}")])
            .await?;
        let Value::Array(pods) = list["items"].take() else {
            bail!("a list of pods without items");
        };
        Ok(pods)
    }

    async fn print_all_it_can_tell(&self) {
        let pods = "get pods --output wide";
        let events = "get events --sort-by .metadata.creationTimestamp";
        for about in [pods, events] {
            let words: Vec<_> = about.split(' ').collect();
            println!("--- kubectl {about}");
            self.print(&words).await;
        }
        let names = self.kubectl(&["get", "pods", "--output", "name"]).await;
        for pod in names.unwrap_or_default().lines() {
            println!("--- logs of {pod}");
            let logs = ["logs", pod, "--all-containers", "--prefix", "--tail", "40"];
            self.print(&logs).await;
        }
        println!("--- last words of drainers");
        for words in self.last_words.heard().unwrap_or_default() {
            println!("{words}");
        }
    }

    async fn print(&self, args: &[&str]) {
        match self.kubectl(args).await {
            Ok(told) => print!("{told}"),
            Err(error) => println!("{error:#}"),
        }
    }
}
