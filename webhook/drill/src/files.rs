//! The files of a drill's report.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The flags of the files.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ReportFiles {
    /// File for a report in JUnit's format.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

// === impl ReportFiles ===

impl ReportFiles {
    /// Fails if a file cannot be written, so that a drill whose report cannot be written disturbs nothing.
    ///
    /// # Errors
    /// If so.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(path) = &self.junit {
            let is_new = !path.exists();
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.with_context(|| cannot_write(path))?;
            if is_new {
                // It may have been removed since.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Writes the report.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn write(&self, junit: &str) -> anyhow::Result<()> {
        if let Some(path) = &self.junit {
            fs::write(path, junit).with_context(|| cannot_write(path))?;
        }
        Ok(())
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
