//! `envoy-drainer explain`: what the webhook would do with the pods of manifests, and why.

mod model;
mod render;
mod settings;
mod timeline;

pub use model::{
    AdminModel, DrainerModel, EnvoyModel, Explanation, InjectionOutcome, PlanModel, ProbeModel,
    ReasonModel,
};
pub use settings::SettingsModel;
pub use timeline::TimelineEvent;

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde::Serialize;

use super::args::files::FilesArgs;
use super::args::output::{ColorArgs, OutputArgs, OutputFormat};
use super::args::pod_defaults::PodDefaultsArgs;
use crate::admission::Defaults;
use crate::cli::terminal::{exit_code, print, to_json};
use crate::manifest;
use crate::offline::{DocumentReview, Input, Message};
use crate::printable::printable;

/// Text of `--help` below the flags.
const HELP: &str = "\
Reads the same documents as `inject`, and changes nothing. The label `envoy-drainer.dev/injection` of
namespaces is not checked. The JSON output is an object with the lists `pods` and `errors`.

Exit codes: 0 success; 1 a pod is denied, or a document cannot be read or changed; 2 invalid usage.";

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
// No output depends on the drainer's image.
#[command(mut_arg("image", |image| image.required(false).default_value("drainer").hide(true)))]
pub struct Args {
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    color: ColorArgs,
    #[command(flatten)]
    defaults: PodDefaultsArgs,
}

/// The output of `explain`.
#[derive(Debug, Default, Serialize)]
pub struct ExplainReport {
    /// All pods and pod templates, in the order of the files.
    pub pods: Vec<Explanation>,
    /// The errors of documents that cannot be read or changed.
    pub errors: Vec<DocumentError>,
}

/// Why a document cannot be read or changed.
#[derive(Debug, Serialize)]
pub struct DocumentError {
    /// Its file, or `stdin`.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, if it is about a single character.
    pub column: Option<usize>,
    /// The error.
    pub message: String,
}

/// Prints explanations of the pods of files or stdin.
///
/// # Errors
/// If flags contradict each other, or stdout cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        files,
        output: OutputArgs { output },
        color,
        defaults,
    } = args;
    let defaults = defaults.into_defaults()?;
    let mut read_errors = Vec::new();
    let inputs = files.read().into_iter();
    let inputs: Vec<_> = inputs
        .filter_map(|input| input.map_err(|error| read_errors.push(error)).ok())
        .collect();
    let report = ExplainReport::new(&inputs, &defaults);
    match output {
        OutputFormat::Json => print(report.to_json().as_bytes())?,
        OutputFormat::Text => {
            let styled = color.is_enabled_for(&io::stdout());
            print(report.to_text(styled).as_bytes())?;
            for error in &report.errors {
                eprintln!("{}", printable(&error.to_string()));
            }
            let is_empty = report.pods.is_empty() && report.errors.is_empty();
            if is_empty && read_errors.is_empty() {
                eprintln!("no pods or pod templates found");
            }
        }
    }
    for error in &read_errors {
        eprintln!("error: {}", printable(&format!("{error:#}")));
    }
    Ok(exit_code(report.is_success() && read_errors.is_empty()))
}

// === impl ExplainReport ===

impl ExplainReport {
    /// Explains all pods and pod templates of some streams.
    pub fn new(inputs: &[Input], defaults: &Defaults) -> Self {
        let mut report = Self::default();
        for Input { name, bytes } in inputs {
            for document in manifest::documents(bytes) {
                match DocumentReview::try_new(&document, defaults) {
                    Ok(review) => report.add(name, &review),
                    Err(error) => report.add_error(name, error.into()),
                }
            }
        }
        report
    }

    fn add(&mut self, file: &str, review: &DocumentReview<'_>) {
        let injected = review.injected_text();
        let is_unchanged = review.is_denied() || injected.is_err();
        let pods = review.workloads.iter();
        let pods = pods.map(|workload| Explanation::new(file, workload, is_unchanged));
        self.pods.extend(pods);
        if let Err(error) = injected {
            self.add_error(file, error.into());
        }
    }

    fn add_error(&mut self, file: &str, message: Message) {
        self.errors.push(DocumentError {
            file: file.to_owned(),
            line: message.line,
            column: message.column,
            message: message.text,
        });
    }

    /// Returns true if all documents can be read and changed, and no pod is denied.
    pub fn is_success(&self) -> bool {
        self.errors.is_empty()
            && self
                .pods
                .iter()
                .all(|pod| pod.outcome != InjectionOutcome::Denied)
    }

    /// Formats the explanations for people; the errors are printed to stderr.
    pub fn to_text(&self, styled: bool) -> String {
        render::render(&self.pods, styled)
    }

    /// Formats the report for programs.
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

// === impl DocumentError ===

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
        } = self;
        write!(f, "{file}:{line}:")?;
        if let Some(column) = column {
            write!(f, "{column}:")?;
        }
        write!(f, " error: {message}")
    }
}
