//! `envoy-drainer explain`: what the webhook would do with the pods of manifests, and why.

mod json;
mod render;
mod timeline;

use std::io;
use std::process::ExitCode;

use super::args::files::FilesArgs;
use super::args::output::{ColorArgs, OutputArgs, OutputFormat};
use super::args::pod_defaults::PodDefaultsArgs;
use crate::admission::Defaults;
use crate::cli::terminal::{exit_code, print, to_json};
use crate::manifest;
use crate::offline::{DocumentReview, InjectionOutcome, Input, Message, WorkloadResult};
use crate::printable::printable;

/// Text of `--help` below the flags.
const HELP: &str = "\
Reads the same documents as `inject`, and changes nothing. The label `envoy-drainer.dev/injection` of
namespaces is not checked. The JSON output is an object with the lists `pods` and `errors`.

Exit codes: 0 success; 1 a pod is denied, or a file or a document cannot be read; 2 invalid usage.";

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
#[derive(Debug, Default)]
pub struct ExplainReport {
    /// All pods and pod templates, each with its file or `stdin`, in the order of the files.
    pub pods: Vec<(String, WorkloadResult)>,
    /// The errors of documents that cannot be read or changed, with their files.
    pub errors: Vec<(String, Message)>,
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
            for (file, error) in &report.errors {
                eprintln!("{}", error.display(file, false));
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
                let review = DocumentReview::new(&document, defaults);
                let pods = review.workloads.into_iter();
                report.pods.extend(pods.map(|pod| (name.clone(), pod)));
                let error = review.error.into_iter();
                report
                    .errors
                    .extend(error.map(|error| (name.clone(), error)));
            }
        }
        report
    }

    /// Returns true if all documents can be read and changed, and no pod is denied.
    pub fn is_success(&self) -> bool {
        let mut pods = self.pods.iter();
        self.errors.is_empty() && pods.all(|(_, pod)| pod.outcome != InjectionOutcome::Denied)
    }

    /// Formats the explanations for people; the errors are printed to stderr.
    pub fn to_text(&self, styled: bool) -> String {
        render::render(&self.pods, styled)
    }

    /// Formats the report for programs.
    pub fn to_json(&self) -> String {
        to_json(&json::report(&self.pods, &self.errors))
    }
}
