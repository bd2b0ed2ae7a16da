//! `envoy-drainer inject`: the webhook's change, in manifests.

mod diff;

pub use diff::unified_diff;

use std::io;
use std::process::ExitCode;

use super::args::color::ColorArgs;
use super::args::files::FilesArgs;
use super::args::pod_defaults::PodDefaultsArgs;
use crate::admission::settings::keys::INJECT;
use crate::admission::{Decision, Defaults, Diagnostic};
use crate::cli::terminal::print;
use crate::manifest::{self, Document};
use crate::offline::{DocumentReview, Input, Message, MessageKind, WorkloadResult};

/// What `--help` says below the flags.
const HELP: &str = "\
Each pod that asks for a drainer by the annotation `envoy-drainer.dev/inject: \"true\"` gets one: in Pods,
Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs and Lists of these.
The change is written into the text and every other byte stays; what has a drainer already stays as it is.
Whether a namespace has the label `envoy-drainer.dev/injection` is not known here and does not matter.

What is skipped or refused is told on stderr. Nothing is changed in a document with a refused pod.

Exit codes: 0 fine; 1 a pod was refused, or a document cannot be read or changed; 2 wrong usage.";

/// The flags of `inject`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    files: FilesArgs,
    /// Write the changes as a unified diff instead of the documents.
    #[arg(long, env = "ENVOY_DRAINER_DIFF")]
    diff: bool,
    #[command(flatten)]
    color: ColorArgs,
    #[command(flatten)]
    defaults: PodDefaultsArgs,
}

/// A stream after injection.
#[derive(Debug, Default)]
pub struct InjectReport {
    /// The stream.
    pub bytes: Vec<u8>,
    /// What its author should know, in the order of the text.
    pub messages: Vec<Message>,
    /// How many pods ask for a drainer.
    pub requested: usize,
    /// How many decline one.
    pub opted_out: usize,
    /// How many have got one.
    pub injected: usize,
    /// How many have one already.
    pub already_injected: usize,
    /// How many ask for what they cannot have.
    pub refused: usize,
}

/// Writes the documents of files or stdin with their drainers, or what would change.
///
/// # Errors
/// When flags do not fit together, or something cannot be read or written at all.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        files,
        diff,
        color,
        defaults,
    } = args;
    let defaults = defaults.into_defaults()?;
    // All or nothing: half an output may be applied as if it were the whole.
    let inputs: Vec<_> = files.read().into_iter().collect::<anyhow::Result<_>>()?;
    let injected: Vec<_> = inputs
        .iter()
        .map(|input| inject(&input.bytes, &defaults))
        .collect();
    let streams = || inputs.iter().zip(&injected);
    let output = match diff {
        true => {
            let styled = color.is_enabled_for(&io::stdout());
            let diff = |(input, injected): (&Input, &InjectReport)| {
                unified_diff(&input.name, &input.bytes, &injected.bytes, styled)
            };
            streams().map(diff).collect::<String>().into_bytes()
        }
        false => join_streams(injected.iter().map(|injected| &injected.bytes[..])),
    };
    print(&output)?;
    let styled = color.is_enabled_for(&io::stderr());
    for (input, injected) in streams() {
        for remark in &injected.messages {
            eprintln!("{}", remark.display(&input.name, styled));
        }
    }
    eprintln!("{}", summary(&injected));
    let failed = injected
        .iter()
        .flat_map(|injected| &injected.messages)
        .any(Message::is_failure);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Gives the pods of a stream their drainers. What cannot be read or changed stays as it is.
#[must_use]
pub fn inject(stream: &[u8], defaults: &Defaults) -> InjectReport {
    let mut into = InjectReport::default();
    for document in manifest::documents(stream) {
        match DocumentReview::try_new(&document, defaults) {
            Ok(review) => into.add(&document, &review),
            Err(unreadable) => {
                into.messages.push(unreadable.into());
                into.bytes.extend(document.bytes);
            }
        }
    }
    into.messages.sort_by_key(|remark| remark.line);
    into
}

/// One stream of many: a separator comes between them where none is and one is needed.
#[must_use]
pub fn join_streams<'a>(streams: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    let mut all_json = true;
    for stream in streams {
        all_json &= manifest::is_json(stream);
        if !joined.is_empty() {
            if !joined.ends_with(b"\n") {
                joined.push(b'\n');
            }
            if !all_json && !manifest::starts_with_separator(stream) {
                joined.extend(b"---\n");
            }
        }
        joined.extend(stream);
    }
    joined
}

fn summary(injected: &[InjectReport]) -> String {
    let sum = |count: fn(&InjectReport) -> usize| injected.iter().map(count).sum::<usize>();
    let asked = sum(|injected| injected.requested);
    let [got, present, refused] = [
        sum(|injected| injected.injected),
        sum(|injected| injected.already_injected),
        sum(|injected| injected.refused),
    ];
    let counts = [
        (got, "gets one", "get one"),
        (present, "has one already", "have one already"),
        (asked - got - present - refused, "is skipped", "are skipped"),
        (refused, "is refused", "are refused"),
    ];
    let said = counts.into_iter().filter(|(count, ..)| *count > 0);
    let said = said.map(|(count, one, many)| match count {
        1 => (count, one),
        _ => (count, many),
    });
    let remarks = || injected.iter().flat_map(|injected| &injected.messages);
    match asked {
        0 if remarks().next().is_none() && sum(|injected| injected.opted_out) == 0 => {
            format!("no pod asks for a drainer: annotate its template with {INJECT}: \"true\"")
        }
        0 if remarks().any(|remark| remark.kind == MessageKind::Error) => {
            "no pod asks for a drainer in what could be read".to_owned()
        }
        0 => "no pod asks for a drainer".to_owned(),
        1 => {
            let said: String = said.map(|(_, verb)| verb).collect();
            format!("the one pod that asks for a drainer {said}")
        }
        asked => {
            let said: Vec<_> = said
                .map(|(count, verb)| format!("{count} {verb}"))
                .collect();
            format!(
                "of {asked} pods that ask for a drainer, {}",
                said.join(", ")
            )
        }
    }
}

// === impl InjectReport ===

impl InjectReport {
    fn add(&mut self, document: &Document<'_>, review: &DocumentReview<'_>) {
        let is_refused = review.is_refused();
        for case in &review.workloads {
            if !matches!(case.decision, Decision::NotRequested) {
                self.requested += 1;
                self.already_injected += usize::from(case.has_drainer());
                self.refused += usize::from(case.is_refused());
                self.add_messages(case, is_refused);
            }
            self.opted_out += usize::from(case.opts_out());
            let hints = case.lints.iter().map(|hint| Message::from_lint(case, hint));
            self.messages.extend(hints);
        }
        match review.injected_text() {
            Ok(Some(text)) => {
                self.injected += review
                    .workloads
                    .iter()
                    .filter(|case| case.is_injected())
                    .count();
                self.bytes.extend(text.into_bytes());
                return;
            }
            Ok(None) => {}
            Err(error) => self.messages.push(error.into()),
        }
        self.bytes.extend(document.bytes);
    }

    fn add_messages(&mut self, workload: &WorkloadResult, another_is_refused: bool) {
        let all = |kind, notices: &[Diagnostic]| -> Vec<_> {
            notices
                .iter()
                .map(|notice| Message::from_diagnostic(workload, kind, notice))
                .collect()
        };
        let (first, warnings) = match &workload.decision {
            Decision::NotRequested => return,
            Decision::Inject { warnings, .. } if another_is_refused => {
                let why = "another pod of its document is refused";
                (
                    vec![Message::for_workload(workload, MessageKind::Skipped, why)],
                    warnings,
                )
            }
            Decision::Inject { warnings, .. } => (Vec::new(), warnings),
            Decision::Skip {
                reason, warnings, ..
            } => (
                vec![Message::from_diagnostic(
                    workload,
                    MessageKind::Skipped,
                    reason,
                )],
                warnings,
            ),
            Decision::Deny { reasons, warnings } => (all(MessageKind::Refused, reasons), warnings),
        };
        self.messages.extend(first);
        self.messages.extend(all(MessageKind::Warning, warnings));
    }
}
