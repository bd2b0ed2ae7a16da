//! Helm, as a person would call it.

use std::env;
use std::ffi::{OsStr, OsString};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command;

/// An installed Helm.
#[derive(Debug, Clone)]
pub(crate) struct Helm {
    program: OsString,
    /// What it calls itself, such as `v3.21.0`.
    pub(crate) version: String,
}

/// The Helm that `HELM` names, else the one on `PATH`.
///
/// # Errors
/// When there is none.
pub(crate) async fn find_helm() -> Result<Helm> {
    let program = program_from_env("HELM").unwrap_or_else(|| "helm".into());
    let helm = Helm::at(program).await;
    helm.context("helm is needed: put one on PATH, or name it with HELM=path")
}

/// The other Helm, of another version, that `HELM4` names.
///
/// # Errors
/// When the one that is named does not run.
pub(crate) async fn other_version() -> Result<Option<Helm>> {
    let Some(program) = program_from_env("HELM4") else {
        return Ok(None);
    };
    let helm = Helm::at(program).await;
    helm.context("HELM4 names no Helm that runs").map(Some)
}

fn program_from_env(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|name| !name.is_empty())
}

// === impl Helm ===

impl Helm {
    async fn at(program: OsString) -> Result<Self> {
        let told = command::run(&program, &["version", "--short"], None).await?;
        let version = told.stdout.trim().to_owned();
        Ok(Self { program, version })
    }

    /// Runs it, with these values on its stdin if there are any, and returns what it prints.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub(crate) async fn run(&self, args: &[&str], values: Option<&Value>) -> Result<String> {
        let from_stdin: &[&str] = match values {
            Some(_) => &["--values", "-"],
            None => &[],
        };
        let args = [args, from_stdin].concat();
        let told = command::run(OsStr::new(&self.program), &args, values).await?;
        Ok(told.stdout)
    }
}
