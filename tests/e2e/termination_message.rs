//! Termination messages of drainers and other containers, collected by a watch since their pods are deleted before they
//! are read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

use anyhow::{Context, Result};
use drainer::DrainSummary;

use crate::command::JsonStream;
use crate::kubectl::KUBECTL;

/// The name of the drainer's container.
pub(crate) const DRAINER_CONTAINER: &str = "envoy-drainer";

/// Collects the termination messages of a namespace until it is dropped.
#[derive(Debug)]
pub(crate) struct TerminationMessages(JsonStream);

/// The termination message of one container.
#[derive(Debug)]
pub(crate) struct TerminationMessage {
    pod: String,
    message: String,
}

// === impl TerminationMessages ===

impl TerminationMessages {
    /// Starts the watch.
    pub(crate) fn watch(namespace: &str) -> Result<Self> {
        // Pending pods have no termination message.
        let started = "--field-selector=status.phase!=Pending";
        let get = ["--namespace", namespace, "get", "pods", started];
        let watch = [&get[..], &["--watch", "--output", "json"]].concat();
        Ok(Self(JsonStream::start(OsStr::new(KUBECTL), &watch)?))
    }

    /// Returns the termination messages of drainers so far: the last one of each pod.
    pub(crate) fn read_all(&self) -> Result<Vec<TerminationMessage>> {
        self.of_container(DRAINER_CONTAINER)
    }

    /// Returns the termination messages of the containers of this name so far: the last one of each pod.
    pub(crate) fn of_container(&self, name: &str) -> Result<Vec<TerminationMessage>> {
        let mut messages = BTreeMap::new();
        for pod in self.0.documents()? {
            let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
            for status in ["containerStatuses", "initContainerStatuses"] {
                let containers = pod["status"][status].as_array().into_iter().flatten();
                for container in containers.filter(|container| container["name"] == name) {
                    if let Some(message) = container["state"]["terminated"]["message"].as_str() {
                        messages.insert(pod_name.to_owned(), message.trim().to_owned());
                    }
                }
            }
        }
        let message = |(pod, message)| TerminationMessage { pod, message };
        Ok(messages.into_iter().map(message).collect())
    }
}

// === impl TerminationMessage ===

impl TerminationMessage {
    /// Returns the name of the container's pod.
    pub(crate) fn pod(&self) -> &str {
        &self.pod
    }

    /// Returns what the container wrote.
    pub(crate) fn text(&self) -> &str {
        &self.message
    }

    /// Returns the summary of the drain.
    ///
    /// # Errors
    /// If the message has another format.
    pub(crate) fn summary(&self) -> Result<DrainSummary> {
        serde_json::from_str(&self.message).with_context(|| self.to_string())
    }
}

impl fmt::Display for TerminationMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pod, self.message)
    }
}
