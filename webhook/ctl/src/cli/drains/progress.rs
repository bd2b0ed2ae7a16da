//! What drains that run wait for, as it changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::cli::terminal::report;
use crate::drains::DrainLog;
use crate::drains::progress::{describe, describe_deadline};
use crate::kubernetes::ClusterReader;

/// The interval between two reads.
const INTERVAL: Duration = Duration::from_secs(1);

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
            let progress = reader.drain_progress(&pod.0, &pod.1).await;
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
