//! Which documents are read.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::offline::Input;
use crate::printable::printable;

/// Where the documents are.
#[derive(Debug, clap::Args)]
pub struct FilesArgs {
    /// Files of YAML or JSON documents; - or none reads stdin.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

// === impl FilesArgs ===

impl FilesArgs {
    /// Reads all of them, before anything is done with the first. One that cannot be read, or a
    /// terminal in the place of stdin, is an error in its place.
    pub fn read(self) -> Vec<anyhow::Result<Input>> {
        let Self { files } = self;
        if files.is_empty() {
            return vec![read_stdin()];
        }
        let input = |path: &PathBuf| match path == Path::new("-") {
            true => read_stdin(),
            false => read_file(path),
        };
        files.iter().map(input).collect()
    }
}

fn read_stdin() -> anyhow::Result<Input> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        bail!("stdin is a terminal: give files, or pipe documents in");
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).context("cannot read stdin")?;
    Ok(Input {
        name: "stdin".to_owned(),
        bytes,
    })
}

fn read_file(path: &Path) -> anyhow::Result<Input> {
    let name = path.display().to_string();
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", printable(&name)))?;
    Ok(Input { name, bytes })
}
