//! What a drill has changed and takes back at its end, however it ends.

use std::cell::{Cell, RefCell};

use ctl::cli::terminal::report;
use ctl::kubernetes::ReadError;

use crate::workload_client::WorkloadClient;

/// The changes to take back, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct CleanUp {
    changes: RefCell<Vec<Undo>>,
    has_disrupted: Cell<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    DeleteJob(String),
    Scale(u32),
}

// === impl CleanUp ===

impl CleanUp {
    pub(super) fn add(&self, undo: Undo) {
        self.changes.borrow_mut().push(undo);
    }

    /// Records that pods are disrupted from now on.
    pub(super) fn record_disruption(&self) {
        self.has_disrupted.set(true);
    }

    pub(super) fn has_disrupted(&self) -> bool {
        self.has_disrupted.get()
    }

    /// Takes the changes back, and reports what fails.
    pub(super) async fn run(&self, client: &WorkloadClient) {
        let changes = self.changes.take();
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
