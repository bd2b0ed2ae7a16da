//! The flags that subcommands share.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, bail};
use clap::{ColorChoice, ValueEnum};
use kubernetes::{ClusterReader, load_config};

use super::terminal::warn;
use crate::offline::Input;

/// The cluster.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A namespace of the cluster.
#[derive(Debug, clap::Args)]
pub struct NamespaceArgs {
    /// Namespace, instead of the context's.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// The format of the output.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// A format of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text, for people.
    #[default]
    Text,
    /// JSON, for programs.
    Json,
}

/// Whether the output has colors.
#[derive(Debug, clap::Args)]
pub struct ColorArgs {
    /// Whether to print colors; auto does on a terminal, unless NO_COLOR is set or TERM is dumb.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
}

/// The files of manifests.
#[derive(Debug, clap::Args)]
pub struct FilesArgs {
    /// Files of YAML or JSON documents; `-` or no file reads stdin.
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    files: Vec<PathBuf>,
}

// === impl ClusterArgs ===

impl ClusterArgs {
    /// A reader of the cluster.
    ///
    /// # Errors
    /// When there are no credentials, or they are unusable.
    pub async fn connect(self) -> anyhow::Result<ClusterReader> {
        let (reader, _) = self.connect_in(NamespaceArgs { namespace: None }).await?;
        Ok(reader)
    }

    /// A reader of the cluster, and the chosen namespace, or that of the context.
    ///
    /// # Errors
    /// When there are no credentials, or they are unusable.
    pub async fn connect_in(
        self,
        NamespaceArgs { namespace }: NamespaceArgs,
    ) -> anyhow::Result<(ClusterReader, String)> {
        let config = load_config(self.kubeconfig, self.context).await?;
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        Ok((ClusterReader::from_config(config, warn)?, namespace))
    }
}

// === impl ColorArgs ===

impl ColorArgs {
    /// Returns true if the output to `stream` is to have colors.
    pub fn is_enabled_for(&self, stream: &impl IsTerminal) -> bool {
        match self.color {
            // <https://no-color.org>: any value but the empty one.
            ColorChoice::Auto => {
                stream.is_terminal()
                    && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
            }
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        }
    }
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

/// Returns the values, and adds the errors to those that a command reports at its end.
pub fn take_errors<T>(results: Vec<anyhow::Result<T>>, errors: &mut Vec<anyhow::Error>) -> Vec<T> {
    let results = results.into_iter();
    let values = results.filter_map(|it| it.map_err(|error| errors.push(error)).ok());
    values.collect()
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
