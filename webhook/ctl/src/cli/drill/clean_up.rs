//! What a drill has changed and takes back at its end, however it ends.

use std::cell::RefCell;

use crate::cli::terminal::report;
use crate::kubernetes::{ReadError, WorkloadClient};

/// The changes to take back, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct CleanUp(RefCell<Vec<Undo>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    DeleteJob(String),
    Scale(u32),
}

// === impl CleanUp ===

impl CleanUp {
    pub(super) fn add(&self, undo: Undo) {
        self.0.borrow_mut().push(undo);
    }

    /// Takes the changes back, and reports what fails.
    pub(super) async fn run(&self, client: &WorkloadClient) {
        let changes = self.0.take();
        for undo in changes.iter().rev() {
            if let Err(error) = undo.run(client).await {
                report(format_args!("warning: {undo} by hand: {error}"));
            }
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

impl std::fmt::Display for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DeleteJob(name) => write!(f, "delete the Job `{name}`"),
            Self::Scale(replicas) => write!(f, "scale the workload back to {replicas}"),
        }
    }
}
