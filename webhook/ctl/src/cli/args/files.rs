//! The files of manifests that `inject` and `explain` read.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::offline::Input;

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
        let is_object =
            |path: &mut PathBuf| !path.exists() && path.to_str().and_then(&parse).is_some();
        let objects = self.files.extract_if(.., is_object);
        objects.filter_map(|path| parse(path.to_str()?)).collect()
    }

    /// Reads all files. One that cannot be read is an error in its place, as is a stdin that is a terminal.
    pub fn read(self) -> Vec<anyhow::Result<Input>> {
        let files = self.files.iter().map(|path| match path.to_str() {
            Some("-") => read_stdin(),
            _ => read_file(path),
        });
        files.collect()
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
    let bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    Ok(Input { name, bytes })
}
