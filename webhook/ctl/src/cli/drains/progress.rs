//! What drains that run wait for, as it changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use admission::CONTAINER_NAME;
use anyhow::Context;
use drainer::Progress;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use kubernetes::ClusterReader;
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use crate::cli::terminal::report;
use crate::drains::DrainLog;
use crate::drains::progress::{describe, describe_deadline};

/// The interval between two reads.
const INTERVAL: Duration = Duration::from_secs(1);

/// For the whole of a read.
const DEADLINE: Duration = Duration::from_secs(5);

/// The longest status that is read, in bytes.
const MAX_STATUS: u64 = 64 << 10;

/// Prints on stderr what each drain waits for, as often as it changes, if that is wanted.
pub(super) async fn print(
    reader: &ClusterReader,
    log: &RefCell<DrainLog>,
    is_wanted: bool,
) -> Infallible {
    if !is_wanted {
        return pending().await;
    }
    let mut printed = BTreeMap::new();
    loop {
        sleep(INTERVAL).await;
        let running: Vec<_> = log.borrow().running().collect();
        printed.retain(|pod, _| running.contains(pod));
        let read = async |pod: &(String, String)| {
            let progress = read_progress(reader, &pod.0, &pod.1).await;
            let (text, deadline) = match progress {
                Ok(progress) => progress.map(|it| (describe(&it), describe_deadline(&it)))?,
                Err(error) => (format!("{error:#}"), String::new()),
            };
            Some((pod.clone(), text, deadline))
        };
        let read = join_all(running.iter().map(read)).await;
        for (pod, text, deadline) in read.into_iter().flatten() {
            // The time to the deadline always changes, and is no news alone.
            if printed.get(&pod) != Some(&text) {
                report(format_args!("{}/{}: {text}{deadline}", pod.0, pod.1));
                printed.insert(pod, text);
            }
        }
    }
}

/// Asks the drainer of a pod, by its own command, for the progress of its drain; `None` if it has just exited.
///
/// # Errors
/// If the user may not run commands in the pod, or the drainer does not answer in time.
async fn read_progress(
    reader: &ClusterReader,
    namespace: &str,
    pod: &str,
) -> anyhow::Result<Option<Progress>> {
    let api: Api<Pod> = Api::namespaced(reader.client(), namespace);
    let read = async {
        let params = AttachParams::default()
            .container(CONTAINER_NAME)
            .stderr(false);
        let command = ["/drainer", "status", "--output=json"];
        let mut process = api.exec(pod, command, &params).await?;
        let mut json = Vec::new();
        let stdout = process.stdout().context("no output")?;
        stdout.take(MAX_STATUS).read_to_end(&mut json).await?;
        Ok(serde_json::from_slice(&json).ok())
    };
    timeout(DEADLINE, read).await.context("no response")?
}
