//! Runs Helm.

use std::env;
use std::ffi::{OsStr, OsString};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command;

/// An installed Helm.
#[derive(Debug, Clone)]
pub(crate) struct Helm {
    program: OsString,
    /// Its version, such as `v3.21.0`.
    pub(crate) version: String,
}

/// Returns the Helm that `HELM` names, or the one on `PATH`.
///
/// # Errors
/// If it does not run.
pub(crate) async fn find_helm() -> Result<Helm> {
    let program = program_from_env("HELM").unwrap_or_else(|| "helm".into());
    let helm = Helm::at(program).await;
    helm.context("cannot run Helm: put it on PATH, or set HELM=path")
}

/// Returns the second Helm, of another version, that `HELM4` names, if it is set.
///
/// # Errors
/// If it does not run.
pub(crate) async fn other_version() -> Result<Option<Helm>> {
    let Some(program) = program_from_env("HELM4") else {
        return Ok(None);
    };
    let helm = Helm::at(program).await;
    helm.context("cannot run the Helm of HELM4").map(Some)
}

fn program_from_env(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|name| !name.is_empty())
}

// === impl Helm ===

impl Helm {
    async fn at(program: OsString) -> Result<Self> {
        let output = command::run(&program, &["version", "--short"], None).await?;
        let version = output.stdout.trim().to_owned();
        Ok(Self { program, version })
    }

    /// Runs it, with the chart's values on stdin if there are any, and returns its stdout.
    ///
    /// # Errors
    /// If it fails, with its stderr.
    pub(crate) async fn run(&self, args: &[&str], values: Option<&Value>) -> Result<String> {
        let values_flag: &[&str] = match values {
            Some(_) => &["--values", "-"],
            None => &[],
        };
        let args = [args, values_flag].concat();
        let output = command::run(OsStr::new(&self.program), &args, values).await?;
        Ok(output.stdout)
    }
}
