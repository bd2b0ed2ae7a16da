//! `envoy-drainer explain`: what would become of the pods in manifests, and why.

mod model;
mod render;
mod settings;
mod timeline;

pub use model::{
    AdminModel, DrainerModel, EnvoyModel, Explanation, InjectionOutcome, PlanModel, ProbeModel,
    ReasonModel,
};
pub use settings::{SettingValue, SettingsModel};
pub use timeline::TimelineEvent;

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde::Serialize;

use super::args::color::ColorArgs;
use super::args::files::FilesArgs;
use super::args::output::{OutputArgs, OutputFormat};
use super::args::pod_defaults::PodDefaultsArgs;
use crate::admission::Defaults;
use crate::cli::terminal::print;
use crate::manifest;
use crate::offline::{DocumentReview, Input, Message};
use crate::printable::printable;

/// What `--help` says below the flags.
const HELP: &str = "\
Reads what `inject` reads and changes nothing. Whether a namespace has the label
`envoy-drainer.dev/injection` is not known here and does not matter.
JSON is an object with the lists `pods` and `errors`.

Exit codes: 0 fine; 1 a pod is refused, or a document cannot be read or changed; 2 wrong usage.";

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
// No explanation depends on the drainer's image.
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

/// All that `explain` has to say.
#[derive(Debug, Default, Serialize)]
pub struct ExplainReport {
    /// Every pod and pod template, in the order of the files.
    pub pods: Vec<Explanation>,
    /// The documents that cannot be read or changed.
    pub errors: Vec<DocumentError>,
}

/// Why a document cannot be read or changed.
#[derive(Debug, Serialize)]
pub struct DocumentError {
    /// Its file, or `stdin`.
    pub file: String,
    /// The line that is to blame.
    pub line: usize,
    /// The column, where a single character is to blame; from 1.
    pub column: Option<usize>,
    /// Why.
    pub message: String,
}

/// Explains the pods of files or stdin.
///
/// # Errors
/// When flags do not fit together, or nothing can be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        files,
        output: OutputArgs { output },
        color,
        defaults,
    } = args;
    let defaults = defaults.into_defaults()?;
    let mut read_errors = Vec::new();
    let read = files.read().into_iter();
    let inputs: Vec<_> = read
        .filter_map(|input| input.map_err(|error| read_errors.push(error)).ok())
        .collect();
    let explanations = ExplainReport::new(&inputs, &defaults);
    match output {
        OutputFormat::Json => print(explanations.to_json().as_bytes())?,
        OutputFormat::Text => {
            let styled = color.is_enabled_for(&io::stdout());
            print(explanations.to_text(styled).as_bytes())?;
            for error in &explanations.errors {
                eprintln!("{}", printable(&error.to_string()));
            }
            let nothing = explanations.pods.is_empty() && explanations.errors.is_empty();
            if nothing && read_errors.is_empty() {
                eprintln!("no pod and no pod template found");
            }
        }
    }
    for error in &read_errors {
        eprintln!("error: {}", printable(&format!("{error:#}")));
    }
    Ok(match explanations.is_success() && read_errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

// === impl ExplainReport ===

impl ExplainReport {
    /// Explains every pod and pod template of some streams.
    #[must_use]
    pub fn new(inputs: &[Input], defaults: &Defaults) -> Self {
        let mut explanations = Self::default();
        for Input { name, bytes } in inputs {
            for document in manifest::documents(bytes) {
                match DocumentReview::try_new(&document, defaults) {
                    Ok(review) => explanations.add(name, &review),
                    Err(error) => explanations.add_error(name, error.into()),
                }
            }
        }
        explanations
    }

    fn add(&mut self, file: &str, review: &DocumentReview<'_>) {
        let injected = review.injected_text();
        let stays = review.is_refused() || injected.is_err();
        let explained = review
            .workloads
            .iter()
            .map(|case| Explanation::new(file, case, stays));
        self.pods.extend(explained);
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

    /// True if everything could be read and changed, and no pod is refused.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.errors.is_empty()
            && self
                .pods
                .iter()
                .all(|pod| pod.outcome != InjectionOutcome::Refused)
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self, styled: bool) -> String {
        render::render(&self.pods, styled)
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("strings, finite numbers and maps with string keys");
        json.push('\n');
        json
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
