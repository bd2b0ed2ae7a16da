//! `envoy-drainer inject`: injects drainers into the pods of manifests.

use std::io;
use std::process::ExitCode;

use admission::Defaults;
use admission::keys::INJECT;
use anstyle::{AnsiColor, Style};
use drainer::text::printable;
use flags::pod_defaults::PodDefaultsArgs;
use manifest::Document;
use similar::TextDiff;

use super::args::{ColorArgs, FilesArgs};
use super::terminal::{exit_status, print_documents, report};
use crate::offline::{
    DocumentReview, InjectionOutcome, Input, ManifestContext, Message, MessageKind, WorkloadResult,
};
use crate::text::plural;

/// Unchanged lines before and after each change.
const CONTEXT_LINES: usize = 3;

/// Text of `--help` below the flags.
const HELP: &str = "\
Examples:
  envoy-drainer inject --image registry.example.com/drainer:0.1.0 edge.yaml > injected.yaml
  kustomize build . | envoy-drainer inject --image registry.example.com/drainer:0.1.0 --diff -
  envoy-drainer inject --remove injected.yaml > edge.yaml

Injects a drainer into each pod that requests one with the annotation `envoy-drainer.dev/inject: \"true\"`: in \
Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs and Lists of \
these. The change is inserted into the text, and every other byte stays. Pods with a drainer stay unchanged. \
`wait-for-replacement` has no effect: only the webhook adds what it needs.

`--remove` is the inverse, in manifests and in pods that the webhook injected. It refuses a pod of which something was \
not recorded: an adopted shutdown manager, a long preStop hook, or a pod without the annotation `status`.

Skipped and denied pods are reported on stderr. A document with a denied pod is not changed.

Exit codes: 0 success; 1 a pod was denied, its document cannot be changed, or it gets a drainer that cannot drain \
it, or, with --strict, a pod was skipped, something was assumed, or no pod requests a drainer; 2 invalid usage; 3 a \
file or a document cannot be read.";

/// The flags of `inject`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
#[command(mut_arg("image", |image| {
    let image = image.required(false).required_unless_present("remove");
    image.default_value_if("remove", "true", "drainer")
}))]
pub struct Args {
    #[command(flatten)]
    files: FilesArgs,
    /// Print a unified diff instead of the documents.
    #[arg(long)]
    diff: bool,
    /// Take drainers out of the pods that have one. A replaced hook comes back in another notation.
    #[arg(long)]
    remove: bool,
    /// A secret for the tokens in hooks' paths. Without one, who reads the manifest can derive them, and each is one for
    /// all replicas.
    #[arg(long, value_name = "SEED", default_value_t, hide_default_value = true)]
    token_seed: String,
    /// Fail also if a pod that requests a drainer gets none, or if something was assumed.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    color: ColorArgs,
    #[command(flatten)]
    defaults: PodDefaultsArgs,
}

/// The result of injecting a stream of documents.
#[derive(Debug, Default)]
pub struct InjectReport {
    /// The documents.
    pub bytes: Vec<u8>,
    /// In the order of the text.
    pub messages: Vec<Message>,
    /// What happened to each pod and pod template.
    pub outcomes: Vec<InjectionOutcome>,
    /// Whether a pod that requests a drainer gets none, or something was assumed.
    pub is_assumed: bool,
    /// Whether a pod gets a drainer that cannot drain it.
    pub has_obstacle: bool,
}

/// Prints the documents of files or stdin with drainers, or a diff.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    use InjectionOutcome::{Denied, Unchanged};
    let defaults = args.defaults.into_defaults()?;
    let defaults = (!args.remove).then_some(&defaults);
    // All or nothing: half of an output could be applied as if it were complete.
    let inputs = args.files.read().into_iter();
    let inputs: Vec<_> = inputs.collect::<anyhow::Result<_>>()?;
    let mut context = ManifestContext::read(inputs.iter().map(|input| &input.bytes[..]));
    context.token_seed = args.token_seed;
    let change = |input: &Input| match defaults {
        Some(defaults) => inject(&input.bytes, &context, defaults),
        None => remove(&input.bytes),
    };
    let reports: Vec<_> = inputs.iter().map(change).collect();
    let streams = || inputs.iter().zip(&reports);
    if args.diff {
        let styled = args.color.is_enabled_for(&io::stdout());
        for (input, report) in streams() {
            let diff = unified_diff(&input.name, &input.bytes, &report.bytes, styled);
            let _ = print_documents(diff.as_bytes())?;
        }
    } else {
        let streams = reports.iter().map(|report| &report.bytes[..]);
        let _ = print_documents(&join_streams(streams))?;
    }
    let styled = args.color.is_enabled_for(&io::stderr());
    for (input, injected) in streams() {
        for message in &injected.messages {
            report(message.display(&input.name, styled));
        }
    }
    report(match defaults {
        Some(_) => summary(&reports),
        None => removal_summary(&reports),
    });
    let outcomes = || reports.iter().flat_map(|report| &report.outcomes);
    let is_refused = outcomes().any(|it| [Denied, Unchanged].contains(it));
    let has_obstacle = reports.iter().any(|report| report.has_obstacle);
    let is_assumed = reports.iter().any(|report| report.is_assumed);
    let is_idle = defaults.is_some() && !outcomes().any(|it| it.is_requested());
    let has_finding = is_refused || has_obstacle || args.strict && (is_assumed || is_idle);
    let mut messages = reports.iter().flat_map(|report| &report.messages);
    let is_complete = messages.all(|message| message.kind != MessageKind::Error);
    Ok(exit_status(has_finding, is_complete))
}

/// Injects drainers into the pods of a stream. Documents that cannot be read or changed pass unchanged.
pub fn inject(stream: &[u8], context: &ManifestContext, defaults: &Defaults) -> InjectReport {
    review(stream, |document| {
        DocumentReview::new(document, context, defaults)
    })
}

/// Takes the drainers out of the pods of a stream. Documents that cannot be read or changed pass unchanged.
pub fn remove(stream: &[u8]) -> InjectReport {
    review(stream, DocumentReview::without_drainers)
}

fn review(stream: &[u8], review: impl Fn(&Document<'_>) -> DocumentReview) -> InjectReport {
    let mut report = InjectReport::default();
    for document in manifest::documents(stream) {
        let review = review(&document);
        for workload in &review.workloads {
            let messages = messages(workload, review.error.is_some());
            report.messages.extend(messages);
            report.outcomes.push(workload.outcome);
            report.is_assumed |= workload.is_assumed();
            report.has_obstacle |= workload.obstacle().is_some();
        }
        report.messages.extend(review.error);
        let text = review.injected_text.as_ref();
        let bytes = text.map_or(document.bytes, String::as_bytes);
        report.bytes.extend(bytes);
    }
    report.messages.sort_by_key(|message| message.line);
    report
}

/// The messages about a workload, whose document may have an error.
fn messages(workload: &WorkloadResult, has_error: bool) -> Vec<Message> {
    let object = &workload.object;
    let kind = match workload.outcome {
        InjectionOutcome::Denied => MessageKind::Denied,
        _ => MessageKind::Skipped,
    };
    let mut messages = Vec::new();
    if workload.outcome == InjectionOutcome::Unchanged && !has_error {
        let reason = "another pod of its document is denied";
        messages.push(Message::for_object(object, workload.line, kind, reason));
    }
    let reasons = workload.reasons.iter();
    messages.extend(reasons.map(|one| Message::from_diagnostic(object, kind, one)));
    let warnings = workload.warnings.iter();
    let kind = MessageKind::Warning;
    messages.extend(warnings.map(|one| Message::from_diagnostic(object, kind, one)));
    messages
}

/// Joins streams, and adds separators where they are missing.
pub fn join_streams<'a>(streams: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    let mut all_json = true;
    let mut streams = streams.into_iter().peekable();
    while let Some(stream) = streams.next() {
        all_json &= manifest::is_json(stream);
        if !joined.is_empty() && !all_json && !manifest::starts_with_separator(stream) {
            joined.extend(b"---\n");
        }
        if streams.peek().is_none() || stream.is_empty() || stream.ends_with(b"\n") {
            joined.extend(stream);
        } else {
            joined.extend(manifest::end_line(stream));
        }
    }
    joined
}

fn summary(reports: &[InjectReport]) -> String {
    use InjectionOutcome::{AlreadyInjected, Denied, Injected, OptedOut, Skipped, Unchanged};
    let outcomes = || reports.iter().flat_map(|report| &report.outcomes);
    let messages = || reports.iter().flat_map(|report| &report.messages);
    let count = |counted: &[InjectionOutcome]| outcomes().filter(|it| counted.contains(it)).count();
    let counts = [
        (count(&[Injected]), "injected"),
        (count(&[AlreadyInjected]), "already injected"),
        (count(&[Skipped, Unchanged]), "skipped"),
        (count(&[Denied]), "denied"),
    ];
    let pods: usize = counts.iter().map(|(count, _)| count).sum();
    if pods == 0 {
        let addition = if messages().next().is_none() && count(&[OptedOut]) == 0 {
            format!(": annotate its template with {INJECT}: \"true\"")
        } else if messages().any(|message| message.kind == MessageKind::Error) {
            " in the documents that could be read".to_owned()
        } else {
            String::new()
        };
        return format!("no pod requests a drainer{addition}");
    }
    let verb = if pods == 1 { "requests" } else { "request" };
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, outcome)| format!("{count} {outcome}"));
    let (pods, counts) = (plural(pods, "pod"), counts.collect::<Vec<_>>().join(", "));
    format!("{pods} {verb} a drainer: {counts}")
}

fn removal_summary(reports: &[InjectReport]) -> String {
    let outcomes = || reports.iter().flat_map(|report| &report.outcomes);
    let pods = outcomes().count();
    let is_removed = |it: &&InjectionOutcome| **it == InjectionOutcome::Injected;
    let removed = outcomes().filter(is_removed).count();
    let (pods, kept) = (plural(pods, "pod"), pods - removed);
    format!("{pods} with a drainer: {removed} removed, {kept} kept")
}

/// A unified diff of a file or stdin, with colors if `styled`; empty if nothing differs. `patch` applies it, unless a
/// line has a character that a terminal executes or hides, which is escaped.
pub fn unified_diff(name: &str, before: &[u8], after: &[u8], styled: bool) -> String {
    let [before, after] = [before, after].map(String::from_utf8_lossy);
    let [old, new] = [&before, &after].map(|text| Vec::from_iter(text.split_inclusive('\n')));
    let path = printable(name);
    // As `diff` does: to `patch`, a name with spaces ends at a tab.
    let end = if path.contains(' ') { "\t" } else { "" };
    let path = path.trim_start_matches('/');
    let diff = TextDiff::configure()
        .newline_terminated(true)
        .diff_slices(&old, &new)
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&format!("a/{path}{end}"), &format!("b/{path}{end}"))
        .to_string();
    let lines = diff.split_terminator('\n').enumerate();
    let lines = lines.map(|(index, line)| {
        let style = Some(style(line, index < 2)).filter(|_| styled);
        let style = style.unwrap_or_default();
        format!("{style}{}{style:#}\n", printable_line(line))
    });
    lines.collect()
}

/// A line of a file, with escapes but for what does no harm: tabs, a carriage return at its end, a byte order mark.
fn printable_line(line: &str) -> String {
    let chars = line.char_indices().map(|(at, char)| match char {
        '\t' | '\u{feff}' => char.to_string(),
        '\r' if at + 1 == line.len() => char.to_string(),
        _ => printable(&char.to_string()),
    });
    chars.collect()
}

fn style(line: &str, in_header: bool) -> Style {
    match line.as_bytes() {
        _ if in_header => Style::new().bold(),
        [b'+', ..] => AnsiColor::Green.on_default(),
        [b'-', ..] => AnsiColor::Red.on_default(),
        [b'@', ..] => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of `before` that a unified diff makes, as `patch` does it.
    fn apply(before: &str, diff: &str) -> String {
        let mut old = before.split_inclusive('\n');
        let (mut patched, mut at) = (String::new(), 1);
        let mut lines = diff.split_inclusive('\n').skip(2).peekable();
        while let Some(line) = lines.next() {
            let (tag, text) = line.split_at(1);
            let is_unended = lines.next_if(|next| next.starts_with('\\')).is_some();
            let text = text
                .strip_suffix(if is_unended { "\n" } else { "" })
                .unwrap();
            match tag {
                "@" => {
                    let start = text.split(['-', ',', ' ']).nth(2).unwrap();
                    while at < start.parse().unwrap() {
                        patched += old.next().unwrap();
                        at += 1;
                    }
                    continue;
                }
                "+" => {
                    patched += text;
                    continue;
                }
                _ => assert_eq!(old.next(), Some(text), "{line:?}"),
            }
            patched += if tag == " " { text } else { "" };
            at += 1;
        }
        patched + &old.collect::<String>()
    }

    #[test]
    fn diff_can_be_applied() {
        let table = [
            ("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\nE\nf\n"),
            ("a\r\n\tb # c\r\nd\r\n", "a\r\n\tb # c\r\nx: 1\r\nd\r\n"),
            ("\u{feff}a\r\n\t\tb", "\u{feff}a\r\n\t\tb\r\nc\r\n"),
            ("a\n", "a"),
            ("a\rb\nc\n", "a\rb\nd\n"),
        ];
        for (before, after) in table {
            let diff = unified_diff("a b", before.as_bytes(), after.as_bytes(), false);
            assert!(diff.starts_with("--- a/a b\t\n+++ b/a b\t\n"), "{diff:?}");
            let is_escaped = diff.contains(r"\r");
            assert_eq!(is_escaped, before.contains("\rb"), "{diff:?}");
            if !is_escaped {
                assert_eq!(apply(before, &diff), after, "{diff:?}");
            }
        }
        assert_eq!(unified_diff("a", b"a\n", b"a\n", true), "");
        let diff = unified_diff("a", b"a\x1b\xe2\x80\xae\n", b"b\n", false);
        assert!(diff.contains("-a\\u{1b}\\u{202e}\n+b\n"), "{diff:?}");
    }

    #[test]
    fn joined_streams_keep_their_values() {
        let joined = join_streams([&b"a: |\n  x"[..], b"", b"b: |\n  y"]);
        let joined = String::from_utf8(joined).unwrap();
        assert_eq!(joined, "a: |-\n  x\n---\n---\nb: |\n  y");
    }
}
