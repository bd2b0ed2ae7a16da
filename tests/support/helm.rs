//! Helm, if it is installed, and the chart as it renders it.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::manifest;

/// The name of the release and of its namespace.
pub const RELEASE: &str = "envoy-drainer";

/// The directory of the chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/envoy-drainer");

/// The values that have no default.
pub const REQUIRED_VALUES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/support/required-values.yaml");

/// The cluster to render for: the first version that supports everything in the chart.
const DEFAULT_CLUSTER: [&str; 1] = ["--kube-version=1.30.0"];

/// The oldest supported cluster, which has no ValidatingAdmissionPolicy.
pub const OLDEST_CLUSTER: [&str; 1] = ["--kube-version=1.29.0"];

/// An installed Helm, 3 or 4.
#[derive(Debug, Clone)]
pub struct Helm {
    path: PathBuf,
}

/// Returns the Helm that `HELM` names, or else the one on `PATH`. `None` without one: the test is to be skipped, which
/// is reported once, past the captured output.
///
/// # Panics
/// When the Helm that `HELM` names does not run.
pub fn find_helm() -> Option<Helm> {
    static FOUND: OnceLock<Option<Helm>> = OnceLock::new();
    FOUND.get_or_init(search_path).clone()
}

fn search_path() -> Option<Helm> {
    let named = env::var_os("HELM").filter(|name| !name.is_empty());
    let path = named.as_deref().unwrap_or(OsStr::new("helm"));
    let helm = Helm { path: path.into() };
    match helm.run(["version"]) {
        Ok(_) => Some(helm),
        Err(error) if named.is_some() => panic!("HELM: {error:#}"),
        Err(_) => {
            let line = b"skipped: the chart's tests need helm on PATH, or HELM=path\n";
            let _ = io::stderr().write_all(line);
            None
        }
    }
}

/// Reads a stream of rendered objects.
pub fn objects(rendered: &str) -> Vec<Value> {
    let objects = manifest::read::<Value>(rendered.as_bytes());
    objects.into_iter().filter(|o| !o.is_null()).collect()
}

/// Returns the object of this kind whose name ends with `suffix`.
///
/// # Panics
/// When there is not exactly one.
pub fn object<'a>(objects: &'a [Value], kind: &str, suffix: &str) -> &'a Value {
    let matches = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["kind"] == kind && name.ends_with(suffix)
    };
    let mut found = objects.iter().filter(matches);
    match (found.next(), found.next()) {
        (Some(object), None) => object,
        _ => panic!("expected one {kind} whose name ends with `{suffix}`"),
    }
}

/// Sorts objects by the names of their files and removes empty lines, in which Helm 3 and 4 differ.
fn normalize(rendered: &str) -> String {
    let lines = rendered.lines().filter(|line| !line.trim().is_empty());
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let mut objects: Vec<_> = text.split("---\n").filter(|o| !o.is_empty()).collect();
    objects.sort_unstable();
    objects
        .iter()
        .map(|object| format!("---\n{object}"))
        .collect()
}

// === impl Helm ===

impl Helm {
    /// The Helm at this path.
    pub fn at(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        Self { path }
    }

    /// Runs Helm and returns its standard output.
    ///
    /// # Errors
    /// When it cannot be started, or fails: then with its standard error.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<String> {
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new(&self.path)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {}", self.path.display()))?;
        if !status.success() {
            bail!("{}", String::from_utf8_lossy(&stderr).trim());
        }
        String::from_utf8(stdout).context("reading the output of helm")
    }

    /// Renders the chart with these flags, for a cluster that supports everything in it.
    ///
    /// # Errors
    /// When the chart rejects the values.
    pub fn render<A: AsRef<OsStr>>(&self, flags: impl IntoIterator<Item = A>) -> Result<String> {
        self.render_for(DEFAULT_CLUSTER, flags)
    }

    /// Renders the chart for the cluster that `cluster` describes, with these flags, without what `helm test` creates.
    ///
    /// # Errors
    /// As [`Helm::render`].
    pub fn render_for<'a, A: AsRef<OsStr>>(
        &self,
        cluster: impl IntoIterator<Item = &'a str>,
        flags: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        let mut args: Vec<_> = ["template", RELEASE, CHART, "--namespace", RELEASE]
            .into_iter()
            .chain(cluster)
            .chain(["--skip-tests", "--values", REQUIRED_VALUES])
            .map(OsStr::new)
            .map(ToOwned::to_owned)
            .collect();
        args.extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        let rendered = self.run(args)?;
        Ok(normalize(&rendered))
    }

    /// Renders the chart with `key=value` pairs.
    ///
    /// # Errors
    /// As [`Helm::render`].
    pub fn render_with(&self, values: &[&str]) -> Result<String> {
        self.render(values.iter().flat_map(|value| ["--set", value]))
    }
}

/// The chart value of a flag: `drain-timeout` is `drainTimeout`.
pub fn value_name(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().map(ToOwned::to_owned);
    let capitalized = words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
    first.into_iter().chain(capitalized).collect()
}
