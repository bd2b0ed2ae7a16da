//! `envoy-drainer explain`: what would become of the pods in manifests, and why.

mod end;
mod explanation;
mod page;
mod settings;

pub use end::Moment;
pub use explanation::{Admin, Drainer, Envoy, Explanation, Outcome, Plan, Probe, Reason};
pub use settings::{Settings, Value};

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde::Serialize;

use super::print;
use crate::admission::Defaults;
use crate::args::color::ColorArgs;
use crate::args::defaults::DefaultsArgs;
use crate::args::files::FilesArgs;
use crate::args::output::{Format, OutputArgs};
use crate::manifest;
use crate::offline::{Input, Remark, Review};
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
    defaults: DefaultsArgs,
}

/// All that `explain` has to say.
#[derive(Debug, Default, Serialize)]
pub struct Explanations {
    /// Every pod and pod template, in the order of the files.
    pub pods: Vec<Explanation>,
    /// The documents that cannot be read or changed.
    pub errors: Vec<Error>,
}

/// Why a document cannot be read or changed.
#[derive(Debug, Serialize)]
pub struct Error {
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
    let mut unread = Vec::new();
    let read = files.read().into_iter();
    let inputs: Vec<_> = read
        .filter_map(|input| input.map_err(|error| unread.push(error)).ok())
        .collect();
    let explanations = Explanations::of(&inputs, &defaults);
    match output {
        Format::Json => print(explanations.to_json().as_bytes())?,
        Format::Text => {
            let styled = color.styles(&io::stdout());
            print(explanations.to_text(styled).as_bytes())?;
            for error in &explanations.errors {
                eprintln!("{}", printable(&error.to_string()));
            }
            let nothing = explanations.pods.is_empty() && explanations.errors.is_empty();
            if nothing && unread.is_empty() {
                eprintln!("no pod and no pod template found");
            }
        }
    }
    for error in &unread {
        eprintln!("error: {}", printable(&format!("{error:#}")));
    }
    Ok(match explanations.are_fine() && unread.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

// === impl Explanations ===

impl Explanations {
    /// Explains every pod and pod template of some streams.
    #[must_use]
    pub fn of(inputs: &[Input], defaults: &Defaults) -> Self {
        let mut explanations = Self::default();
        for Input { name, bytes } in inputs {
            for document in manifest::documents(bytes) {
                match Review::of(&document, defaults) {
                    Ok(review) => explanations.add(name, &review),
                    Err(error) => explanations.fail(name, error.into()),
                }
            }
        }
        explanations
    }

    fn add(&mut self, file: &str, review: &Review<'_>) {
        let injected = review.injected();
        let stays = review.is_refused() || injected.is_err();
        let explained = review
            .cases
            .iter()
            .map(|case| Explanation::of(file, case, stays));
        self.pods.extend(explained);
        if let Err(error) = injected {
            self.fail(file, error.into());
        }
    }

    fn fail(&mut self, file: &str, remark: Remark) {
        self.errors.push(Error {
            file: file.to_owned(),
            line: remark.line,
            column: remark.column,
            message: remark.text,
        });
    }

    /// True if everything could be read and changed, and no pod is refused.
    #[must_use]
    pub fn are_fine(&self) -> bool {
        self.errors.is_empty() && self.pods.iter().all(|pod| pod.outcome != Outcome::Refused)
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self, styled: bool) -> String {
        page::page(&self.pods, styled)
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

// === impl Error ===

impl fmt::Display for Error {
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
