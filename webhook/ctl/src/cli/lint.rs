//! `envoy-drainer lint`: finds hand-written drains that do not do what they seem to.

use std::io;
use std::process::ExitCode;

use admission::keys::PREFIX;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubernetes::{ClusterReader, Object, ObjectSelector};
use serde::Serialize;
use serde_json::{Value, json};

use super::args::{ClusterArgs, ColorArgs, FilesArgs, take_errors};
use super::terminal::{exit_status, print, report};
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

Exit codes: 0 no error was found; 1 an error was found, or a warning with --strict; 2 invalid usage; 3 a file, an object \
or a hook cannot be read or is of a kind that is not known, or there is no workload to check, and no error was found.";

/// The flags of `lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    files: FilesArgs,
    /// Check the workloads of the cluster instead of files.
    #[arg(long, conflicts_with = "files")]
    cluster: bool,
    /// With --cluster, check this namespace only.
    #[arg(short, long, value_name = "NAMESPACE")]
    #[arg(requires = "cluster", conflicts_with = "files")]
    namespace: Option<String>,
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
    let mut has_left_out = false;
    if args.cluster {
        let read = read_cluster(args.cluster_args, args.namespace, &mut linted);
        has_left_out = block_on(read)?;
    } else {
        let inputs = take_errors(args.files.read(), &mut read_errors);
        linted.context = ManifestContext::read(inputs.iter().map(|input| &input.bytes[..]));
        for input in inputs {
            linted.add(&input.name, &input.bytes, true);
        }
    }
    let findings = &linted.findings;
    let _ = print(&match args.output {
        LintFormat::Text => to_text(findings, args.color.is_enabled_for(&io::stdout())),
        LintFormat::Json => PrintableText::json(&json!({"findings": findings})),
        LintFormat::Sarif => PrintableText::json(&to_sarif(findings)),
    })?;
    for (source, message) in &linted.messages {
        report(message.display(source, false));
    }
    for error in &read_errors {
        report(format_args!("error: {error:#}"));
    }
    let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
    let (found, warned) = (count(LintSeverity::Error), count(LintSeverity::Warning));
    let mut summary = format!(
        "{}, {} in {} of {}",
        plural(found, "error"),
        plural(warned, "warning"),
        plural(linted.hooks, "hook"),
        plural(linted.envoys, "Envoy"),
    );
    if linted.undrained > 0 {
        let count = linted.undrained;
        summary += &format!("; SIGTERM cuts the requests of {count} without a hook");
    }
    if linted.sleeping > 0 {
        let hooks = plural(linted.sleeping, "hook");
        summary += &format!("; {hooks} of other servers only sleep: see docs/any-server.md");
    }
    report(summary);
    let is_complete = !has_left_out && read_errors.is_empty() && !linted.is_incomplete();
    let has_finding = found > 0 || args.strict && warned > 0;
    Ok(exit_status(has_finding, is_complete))
}

/// Checks the workloads of a cluster or a namespace, and the pods without one. Returns true if some were left out.
async fn read_cluster(
    cluster: ClusterArgs,
    namespace: Option<String>,
    linted: &mut LintReport,
) -> anyhow::Result<bool> {
    let reader = cluster.connect().await?;
    let selector = ObjectSelector {
        namespace,
        ..ObjectSelector::default()
    };
    add_all::<Deployment>(&reader, &selector, linted).await?;
    add_all::<StatefulSet>(&reader, &selector, linted).await?;
    add_all::<DaemonSet>(&reader, &selector, linted).await?;
    add_all::<Pod>(&reader, &selector, linted).await?;
    Ok(reader.has_left_out())
}

async fn add_all<K: Object + Serialize>(
    reader: &ClusterReader,
    selector: &ObjectSelector,
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
    reader.select(selector, add).await?;
    Ok(())
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
            let annotations = finding.annotations.iter();
            let annotations: Vec<_> = annotations.map(|it| format!("{PREFIX}{it}")).collect();
            out.push("    → with envoy-drainer: ");
            out.push_styled(Style::new().bold(), annotations.join(", "));
            out.end_line();
        }
    }
    out
}
