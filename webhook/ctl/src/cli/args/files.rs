//! The files of manifests that `inject` and `explain` read.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::offline::Input;
use crate::printable::printable;

/// The files to read.
#[derive(Debug, clap::Args)]
pub struct FilesArgs {
    /// Files of YAML or JSON documents; `-` or no file reads stdin.
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    files: Vec<PathBuf>,
}

// === impl FilesArgs ===

impl FilesArgs {
    /// Takes out the arguments that are no files, and that `parse` reads.
    pub fn extract<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let parse = |path: &mut PathBuf| match path.exists() {
            true => None,
            false => parse(path.to_str()?),
        };
        let mut extracted = Vec::new();
        self.files
            .retain_mut(|path| parse(path).map(|it| extracted.push(it)).is_none());
        extracted
    }

    /// Reads all files. One that cannot be read is an error in its place, as is a stdin that is a terminal.
    pub fn read(self) -> Vec<anyhow::Result<Input>> {
        let input = |path: &PathBuf| match path == Path::new("-") {
            true => read_stdin(),
            false => read_file(path),
        };
        self.files.iter().map(input).collect()
    }
}

fn read_stdin() -> anyhow::Result<Input> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        bail!("stdin is a terminal: pass files, or pipe documents to it");
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
