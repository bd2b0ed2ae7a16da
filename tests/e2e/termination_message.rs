//! What drainers said at their ends: their pods are gone when a scenario wants to know.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};

use anyhow::Result;
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::process::Child;

use crate::edge::DRAINER_CONTAINER;
use crate::kubectl;

/// Listens for last words in a namespace until it is dropped.
#[derive(Debug)]
pub(crate) struct TerminationMessages {
    watch_output: NamedTempFile,
    _watch: Child,
}

/// The last words of one drainer.
#[derive(Debug)]
pub(crate) struct TerminationMessage {
    pod: String,
    message: String,
}

// === impl LastWords ===

impl TerminationMessages {
    /// Begins to listen.
    ///
    /// # Errors
    /// When kubectl cannot be started.
    pub(crate) fn watch(namespace: &str) -> Result<Self> {
        let seen = NamedTempFile::new()?;
        // Pods that never started have none.
        let started = "--field-selector=status.phase!=Pending";
        let words = ["--namespace", namespace, "get", "pods", started];
        let watch = [&words[..], &["--watch", "--output", "json"]].concat();
        let watch = kubectl::start(&watch, File::create(seen.path())?.into())?;
        Ok(Self {
            watch_output: seen,
            _watch: watch,
        })
    }

    /// All that was said until now, one of each pod.
    ///
    /// # Errors
    /// When what kubectl wrote cannot be read.
    pub(crate) fn read_all(&self) -> Result<Vec<TerminationMessage>> {
        let text = fs::read_to_string(self.watch_output.path())?;
        let mut heard = BTreeMap::new();
        // The last document may not be whole yet.
        let pods = serde_json::Deserializer::from_str(&text).into_iter();
        for pod in pods.map_while(Result::<Value, _>::ok) {
            let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
            for status in ["containerStatuses", "initContainerStatuses"] {
                let containers = pod["status"][status].as_array().into_iter().flatten();
                for container in
                    containers.filter(|container| container["name"] == DRAINER_CONTAINER)
                {
                    if let Some(said) = container["state"]["terminated"]["message"].as_str() {
                        heard.insert(pod_name.to_owned(), said.trim().to_owned());
                    }
                }
            }
        }
        let words = |(pod, said)| TerminationMessage { pod, message: said };
        Ok(heard.into_iter().map(words).collect())
    }
}

// === impl Words ===

impl TerminationMessage {
    /// How the drain ended, and how long it took in seconds.
    pub(crate) fn outcome(&self) -> Option<(String, f64)> {
        let said: Value = serde_json::from_str(&self.message).ok()?;
        Some((
            said["outcome"].as_str()?.to_owned(),
            said["seconds"].as_f64()?,
        ))
    }
}

impl fmt::Display for TerminationMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pod, self.message)
    }
}
