//! A real cluster, by `kubectl` and the `KUBECONFIG` of the environment.

use std::io::Write;
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What a command printed.
#[derive(Debug, Clone)]
pub struct Told {
    /// On stdout.
    pub output: String,
    /// On stderr: warnings among it.
    pub warnings: String,
}

/// A namespace of a test's own, deleted when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Runs kubectl, with an object on its stdin if there is one.
///
/// # Errors
/// When it cannot be started; when it fails, with what it says.
pub fn kubectl(args: &[&str], object: Option<&Value>) -> Result<Told> {
    let mut child = Command::new("kubectl")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting kubectl")?;
    let mut stdin = child.stdin.take().context("kubectl has no stdin")?;
    if let Some(object) = object {
        stdin.write_all(object.to_string().as_bytes())?;
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("kubectl {}: {}", args.join(" "), warnings.trim());
    }
    let output = String::from_utf8(output.stdout).context("reading what kubectl prints")?;
    Ok(Told { output, warnings })
}

/// Reads one object, or a list of them.
///
/// # Errors
/// As [`kubectl`].
pub fn get(args: &[&str]) -> Result<Value> {
    let told = kubectl(&[&["get", "--output=json"], args].concat(), None)?;
    serde_json::from_str(&told.output).context("reading an object")
}

// === impl Namespace ===

impl Namespace {
    /// Makes a namespace whose name begins with `purpose`.
    ///
    /// # Errors
    /// As [`kubectl`].
    pub fn create(purpose: &str) -> Result<Self> {
        let name = format!("{purpose}-{}", process::id());
        kubectl(&["create", "namespace", &name], None)?;
        Ok(Self { name })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets one of its labels, as in `key=value`.
    ///
    /// # Errors
    /// As [`kubectl`].
    pub fn label(&self, label: &str) -> Result<()> {
        kubectl(
            &["label", "namespace", &self.name, "--overwrite", label],
            None,
        )?;
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = kubectl(&["delete", "namespace", &self.name], None) {
            eprintln!("{error:#}");
        }
    }
}
