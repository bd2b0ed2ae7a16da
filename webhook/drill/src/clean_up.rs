//! What a drill has changed and takes back at its end, however it ends.

use std::fmt;

use ctl::cli::terminal::report;
use kubernetes::ReadError;

use crate::workload_client::WorkloadClient;

/// How a change is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    DeleteJob(String),
    Scale(u32),
}

/// Takes changes back, the last one first, and reports what fails.
pub(super) async fn clean_up(changes: &[Undo], client: &WorkloadClient) {
    for undo in changes.iter().rev() {
        match (undo.run(client).await, undo) {
            (Err(error), _) => report(format_args!("warning: {undo} by hand: {error}")),
            (Ok(()), Undo::Scale(replicas)) => {
                report(format_args!("the workload is scaled to {replicas}"));
            }
            (Ok(()), Undo::DeleteJob(_)) => {}
        }
    }
}

// === impl Undo ===

impl Undo {
    async fn run(&self, client: &WorkloadClient) -> Result<(), ReadError> {
        match self {
            Self::DeleteJob(name) => client.delete_job(name).await,
            Self::Scale(replicas) => client.scale(*replicas).await,
        }
    }
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteJob(name) => write!(f, "delete the Job `{name}`"),
            Self::Scale(replicas) => write!(f, "scale the workload back to {replicas}"),
        }
    }
}
