//! `envoy-drainer inject`: the webhook's change, in manifests.

use std::io;
use std::process::ExitCode;

use super::print;
use crate::admission::annotations::INJECT;
use crate::admission::{Defaults, Notice, Verdict};
use crate::args::color::ColorArgs;
use crate::args::defaults::DefaultsArgs;
use crate::args::files::FilesArgs;
use crate::manifest::{self, Document};
use crate::offline::{Case, Input, Remark, RemarkKind, Review};

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
    defaults: DefaultsArgs,
}

/// A stream after injection.
#[derive(Debug, Default)]
pub struct Injected {
    /// The stream.
    pub bytes: Vec<u8>,
    /// What its author should know, in the order of the text.
    pub remarks: Vec<Remark>,
    /// How many pods ask for a drainer.
    pub asked: usize,
    /// How many decline one.
    pub declined: usize,
    /// How many have got one.
    pub injected: usize,
    /// How many have one already.
    pub present: usize,
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
            let styled = color.styles(&io::stdout());
            let diff = |(input, injected): (&Input, &Injected)| {
                manifest::unified(&input.name, &input.bytes, &injected.bytes, styled)
            };
            streams().map(diff).collect::<String>().into_bytes()
        }
        false => joined(injected.iter().map(|injected| &injected.bytes[..])),
    };
    print(&output)?;
    let styled = color.styles(&io::stderr());
    for (input, injected) in streams() {
        for remark in &injected.remarks {
            eprintln!("{}", remark.shown(&input.name, styled));
        }
    }
    eprintln!("{}", summary(&injected));
    let failed = injected
        .iter()
        .flat_map(|injected| &injected.remarks)
        .any(Remark::is_failure);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Gives the pods of a stream their drainers. What cannot be read or changed stays as it is.
#[must_use]
pub fn inject(stream: &[u8], defaults: &Defaults) -> Injected {
    let mut into = Injected::default();
    for document in manifest::documents(stream) {
        match Review::of(&document, defaults) {
            Ok(review) => into.add(&document, &review),
            Err(unreadable) => {
                into.remarks.push(unreadable.into());
                into.bytes.extend(document.bytes);
            }
        }
    }
    into.remarks.sort_by_key(|remark| remark.line);
    into
}

/// One stream of many: a separator comes between them where none is and one is needed.
#[must_use]
pub fn joined<'a>(streams: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
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

fn summary(injected: &[Injected]) -> String {
    let sum = |count: fn(&Injected) -> usize| injected.iter().map(count).sum::<usize>();
    let asked = sum(|injected| injected.asked);
    let [got, present, refused] = [
        sum(|injected| injected.injected),
        sum(|injected| injected.present),
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
    let remarks = || injected.iter().flat_map(|injected| &injected.remarks);
    match asked {
        0 if remarks().next().is_none() && sum(|injected| injected.declined) == 0 => {
            format!("no pod asks for a drainer: annotate its template with {INJECT}: \"true\"")
        }
        0 if remarks().any(|remark| remark.kind == RemarkKind::Error) => {
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

// === impl Injected ===

impl Injected {
    fn add(&mut self, document: &Document<'_>, review: &Review<'_>) {
        let is_refused = review.is_refused();
        for case in &review.cases {
            if !matches!(case.verdict, Verdict::NotAsked) {
                self.asked += 1;
                self.present += usize::from(case.has_one());
                self.refused += usize::from(case.is_refused());
                self.remark(case, is_refused);
            }
            self.declined += usize::from(case.declines());
            let hints = case.hints.iter().map(|hint| Remark::hint(case, hint));
            self.remarks.extend(hints);
        }
        match review.injected() {
            Ok(Some(text)) => {
                self.injected += review
                    .cases
                    .iter()
                    .filter(|case| case.is_injected())
                    .count();
                self.bytes.extend(text.into_bytes());
                return;
            }
            Ok(None) => {}
            Err(error) => self.remarks.push(error.into()),
        }
        self.bytes.extend(document.bytes);
    }

    fn remark(&mut self, case: &Case, another_is_refused: bool) {
        let all = |kind, notices: &[Notice]| -> Vec<_> {
            notices
                .iter()
                .map(|notice| Remark::of(case, kind, notice))
                .collect()
        };
        let (first, warnings) = match &case.verdict {
            Verdict::NotAsked => return,
            Verdict::Inject { warnings, .. } if another_is_refused => {
                let why = "another pod of its document is refused";
                (
                    vec![Remark::about(case, RemarkKind::Skipped, why)],
                    warnings,
                )
            }
            Verdict::Inject { warnings, .. } => (Vec::new(), warnings),
            Verdict::Skip {
                reason, warnings, ..
            } => (
                vec![Remark::of(case, RemarkKind::Skipped, reason)],
                warnings,
            ),
            Verdict::Deny { reasons, warnings } => (all(RemarkKind::Refused, reasons), warnings),
        };
        self.remarks.extend(first);
        self.remarks.extend(all(RemarkKind::Warning, warnings));
    }
}
