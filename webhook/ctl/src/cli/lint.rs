//! `envoy-drainer lint`: finds hand-written drains that do not do what they seem to.

use std::io;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubernetes::{ClusterReader, Object};
use serde::Serialize;
use serde_json::{Value, json};

use super::args::{ClusterArgs, ColorArgs, FilesArgs};
use super::terminal::{exit_code, print, report};
use crate::lint::{LintFinding, LintReport, LintSeverity, to_sarif};
use crate::offline::ManifestContext;
use crate::runtime::block_on;
use crate::text::{PrintableText, plural};

/// The text below the flags in `--help`.
const HELP: &str = "\
Examples:
  envoy-drainer lint deploy/*.yaml
  helm template edge ./chart | envoy-drainer lint -
  envoy-drainer lint --cluster
  envoy-drainer lint --output sarif deploy/*.yaml > lint.sarif

Checks the preStop hooks of Envoys in Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs and CronJobs, \
written by hand or by a vendor, and the grace periods of their pods. Each finding has a code, a remedy, and the \
annotations with which envoy-drainer takes the place of the hook. docs/lint.md describes the codes. It changes nothing.

Exit codes: 0 no error was found; 1 an error was found, or a warning with --strict; 2 invalid usage; 3 a file or a hook \
cannot be read or is of a kind that is not known, or there is no workload to check.";

/// The exit code where something could not be judged.
const UNKNOWN: u8 = 3;

/// The flags of `lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    files: FilesArgs,
    /// Check the workloads of the cluster instead of files.
    #[arg(long, conflicts_with = "files")]
    cluster: bool,
    /// Fail also for warnings.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    cluster_args: ClusterArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: LintFormat,
    #[command(flatten)]
    color: ColorArgs,
}

/// A format of the findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum LintFormat {
    /// Text, for people.
    #[default]
    Text,
    /// JSON, for programs.
    Json,
    /// SARIF 2.1.0, for code hosts.
    Sarif,
}

/// Checks files, stdin or a cluster, and prints the findings.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut linted = LintReport::default();
    let mut read_errors = Vec::new();
    if args.cluster {
        block_on(read_cluster(args.cluster_args, &mut linted))?;
    } else {
        let inputs = args.files.read();
        let readable = inputs.iter().flatten().map(|input| &input.bytes[..]);
        linted.context = ManifestContext::read(readable);
        for input in inputs {
            match input {
                Ok(input) => linted.add(&input.name, &input.bytes, true),
                Err(error) => read_errors.push(error),
            }
        }
    }
    let LintReport {
        findings,
        messages,
        hooks,
        ..
    } = &linted;
    let _ = print(&match args.output {
        LintFormat::Text => to_text(findings, args.color.is_enabled_for(&io::stdout())),
        LintFormat::Json => PrintableText::json(&json!({"findings": findings})),
        LintFormat::Sarif => PrintableText::json(&to_sarif(findings)),
    })?;
    for (source, message) in messages {
        report(message.display(source, false));
    }
    for error in &read_errors {
        report(format_args!("error: {error:#}"));
    }
    let count = |severity| {
        let of_severity = findings.iter().filter(|it| it.severity == severity);
        of_severity.count()
    };
    let (found, warned) = (count(LintSeverity::Error), count(LintSeverity::Warning));
    report(format_args!(
        "{}, {} in {} of Envoys",
        plural(found, "error"),
        plural(warned, "warning"),
        plural(hooks, "hook"),
    ));
    let is_clean = found == 0 && !(args.strict && warned > 0);
    let is_incomplete = linted.is_incomplete() || !read_errors.is_empty();
    let unknown = (is_clean && is_incomplete).then_some(ExitCode::from(UNKNOWN));
    Ok(unknown.unwrap_or(exit_code(is_clean)))
}

/// Checks the workloads of a cluster, and the pods without one.
async fn read_cluster(cluster: ClusterArgs, linted: &mut LintReport) -> anyhow::Result<()> {
    let reader = cluster.connect().await?;
    add_all::<Deployment>(&reader, linted).await?;
    add_all::<StatefulSet>(&reader, linted).await?;
    add_all::<DaemonSet>(&reader, linted).await?;
    add_all::<Pod>(&reader, linted).await
}

async fn add_all<K: Object + Serialize>(
    reader: &ClusterReader,
    linted: &mut LintReport,
) -> anyhow::Result<()> {
    let add = |object: K| {
        let kind = K::kind(&());
        // Its workload is checked in its place. A workload's own owner, such as a Gateway, is not.
        if kind == "Pod" && !object.owner_references().is_empty() {
            return;
        }
        let source = format!("{}/{}", kind.to_lowercase(), object.name_any());
        // Without managedFields and status, which may be large.
        let Ok(mut value) = serde_json::to_value(&object) else {
            return;
        };
        for pointer in ["/metadata/managedFields", "/status"] {
            value.pointer_mut(pointer).map(Value::take);
        }
        linted.add(&source, value.to_string().as_bytes(), false);
    };
    Ok(reader.for_each(add).await?)
}

fn to_text(findings: &[LintFinding], styled: bool) -> PrintableText {
    let mut out = PrintableText::new(styled);
    for finding in findings {
        let color = match finding.severity {
            LintSeverity::Error => AnsiColor::Red,
            LintSeverity::Warning => AnsiColor::Yellow,
        };
        out.push(&finding.source);
        if let Some(line) = finding.line {
            out.push(format_args!(":{line}"));
        }
        out.push(": ");
        let head = format!("{}[{}]", finding.severity, finding.code);
        out.push_styled(color.on_default().bold(), head);
        out.push(format_args!(
            " {}, container {}",
            finding.object, finding.container
        ));
        out.end_line();
        out.push("    ");
        out.push_wrapped(4, &finding.message);
        out.push("    → ");
        out.push_wrapped(6, finding.remedy);
        if !finding.annotations.is_empty() {
            let annotations = finding.annotations.join(", ");
            out.push("    → with envoy-drainer: ");
            out.push_styled(Style::new().bold(), annotations);
            out.end_line();
        }
    }
    out
}
