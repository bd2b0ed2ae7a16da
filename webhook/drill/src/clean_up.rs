//! What a drill has changed and takes back at its end, however it ends.

use ctl::cli::terminal::report;
use kubernetes::ReadError;

use crate::workload_client::WorkloadClient;

/// How a change is taken back.
#[derive(Debug, Clone, PartialEq, Eq, strum::Display)]
pub(super) enum Undo {
    #[strum(to_string = "delete the Job `{0}`")]
    DeleteJob(String),
    #[strum(to_string = "scale the workload back to {0}")]
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
