//! `envoy-drainer drains`: the drains of a cluster's pods, listed or as they happen.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use admission::keys::INJECTED;
use admission::{Cut, DRAIN_CUT};
use anyhow::{Context, bail};
use drainer::duration;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kubernetes::{Change, ClusterReader, ObjectSelector, ReadError, now};

use super::args::{ClusterArgs, NamespaceArgs, OutputArgs, OutputFormat};
use super::terminal::{exit_status, print, report};
use crate::drains::{DrainLog, DrainRecord, DrainTable};
use crate::pod_status::drainer;
use crate::signals::Signals;
use crate::text::PrintableText;

/// The text below the flags in `--help`.
const HELP: &str = "\
Examples:
  envoy-drainer drains -n shop
  envoy-drainer drains -n shop --watch   # start it before a rollout
  envoy-drainer drains -A --since 10m --fail-on-cut

Reads pods with a drainer: which drains are running, and the termination messages of those that have ended. Also \
reads the webhook's Events about drains that cut something. These outlive the pods by an hour. It needs the \
right to list pods and events, and with --watch the right to watch them. It warns of what it may not read. It \
keeps the last 5,000 drains.

OUTCOME is draining, drained, idle, silent, gone, deadline, unreachable, calls-forbidden or hook-missed. It is \
killed if the pod was killed in mid-drain: what is known of it is from shortly before. It is unknown if the drainer \
wrote no summary, because it was killed or there was no Envoy to drain.
LAST NEW is when the last new connection came, in seconds from the start of the drain: a minimum beyond that was \
not needed.
CUT is what was in flight at the end: requests, upgrades and TCP connections, or connections if Envoy hides what \
they are used for. It is unknown without counts.
Kubernetes folds repeated Events about a workload: its first drain has a row, and the others share one without a \
pod. Pods that still exist have their own rows.

docs/json.md describes the JSON, an object per line.

Exit codes: 0 success; 1 with --fail-on-cut, a drain cut something; 2 invalid usage; 3 pods or Events could not be \
read, or with --fail-on-cut, what a drain cut is unknown.";

/// The flags of `drains`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// All namespaces, even with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// After the list, print each drain when it starts and when it ends, until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
    /// List only drains that are running, or ended within this time.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    since: Option<Duration>,
    /// Fail if any of the printed drains cut something, or if that is unknown.
    #[arg(long)]
    fail_on_cut: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The versions of both lists, or why they could not be read.
type Versions = [Result<String, ReadError>; 2];

/// Prints drains.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let watch = args.watch;
    let mut signals = Signals::install().context("cannot handle signals")?;
    let (reader, namespace) = args.cluster.connect_in(args.namespace).await?;
    let namespace = (!args.all_namespaces).then_some(namespace);
    let scope = namespace.as_ref();
    let scope = scope.map(|name| format!("the namespace `{name}`"));
    let scope = scope.unwrap_or_else(|| "the cluster".to_owned());
    let all = ListParams::default();
    let selections = [
        // The drainer in the place of a shutdown manager has no label.
        match namespace {
            Some(_) => all.clone(),
            None => all.clone().labels(INJECTED),
        },
        all.fields(&format!("reason={DRAIN_CUT}")),
    ];
    let selectors = selections.map(|params| ObjectSelector {
        namespace: namespace.clone(),
        params,
    });
    let mut log = DrainLog::default();
    let now = now();
    let mut has_pods = false;
    let add_pod = |pod| {
        has_pods |= drainer(&pod).is_some();
        log.add_pod(&pod, now);
    };
    let [pods, events] = &selectors;
    let pods_version = reader.select(pods, add_pod).await;
    let add_event = |event| drop(log.add_event(&event));
    let versions = [pods_version, reader.select(events, add_event).await];
    let has_read_both = warn_of_errors(&reader, &versions)?;
    let is_text = args.output.output == OutputFormat::Text;
    let printer = DrainPrinter {
        table: is_text.then(|| DrainTable::new(&log, namespace.is_none(), watch)),
        has_cut: Cell::new(false),
        has_unknown_cut: Cell::new(false),
    };
    if log.records().is_empty() && !watch {
        let reason = if versions[0].is_ok() && !has_pods {
            "no pod there has a drainer"
        } else {
            "drains of deleted pods are shown only if they have an Event; use --watch to follow drains"
        };
        report(format_args!("no drains found in {scope}: {reason}"));
        let is_complete = has_read_both && !reader.has_left_out();
        return Ok(exit_status(false, is_complete));
    }
    if watch {
        report(format_args!("watching drains in {scope}"));
    }
    let start = args.since.and_then(|since| now.checked_sub(since).ok());
    let start = Time(start.unwrap_or(Timestamp::MIN));
    let records = log.records().into_iter().filter(|it| it.is_since(&start));
    let forgotten = log.forgotten();
    if forgotten > 0 {
        report(format!("warning: {forgotten} more drains are not shown"));
    }
    let header = printer.table.as_ref().map(DrainTable::header);
    let flow = printer.print(header.unwrap_or_default(), records)?;
    if watch && flow.is_continue() {
        let log = RefCell::new(log);
        let watches = watch_drains(&reader, &selectors, versions, &log, &printer);
        tokio::select! {
            result = watches => result?,
            () = signals.next() => {}
        }
    }
    let is_unknown = args.fail_on_cut && printer.has_unknown_cut.get();
    let has_failed = args.fail_on_cut && printer.has_cut.get();
    let is_complete = has_read_both && !reader.has_left_out() && !is_unknown;
    Ok(exit_status(has_failed, is_complete))
}

/// Prints drains as rows of a table, or else as lines of JSON.
struct DrainPrinter {
    table: Option<DrainTable>,
    /// Whether one that was printed has cut something.
    has_cut: Cell<bool>,
    /// Whether it is unknown of one that was printed.
    has_unknown_cut: Cell<bool>,
}

/// Prints drains as they happen, until stdout is closed. A list that could not be read is not watched.
async fn watch_drains(
    reader: &ClusterReader,
    [pods, events]: &[ObjectSelector; 2],
    versions: Versions,
    log: &RefCell<DrainLog>,
    printer: &DrainPrinter,
) -> anyhow::Result<()> {
    let result = RefCell::new(Ok(()));
    let show = |records: Vec<DrainRecord>| {
        let printed = printer.print(PrintableText::default(), &records);
        printed.unwrap_or_else(|error| {
            *result.borrow_mut() = Err(error);
            ControlFlow::Break(())
        })
    };
    let on_pod = |change: Change<Pod>| {
        let record = log.borrow_mut().add_pod(&change.into_object(), now());
        show(record.into_iter().collect())
    };
    let on_event = |change: Change<Event>| show(log.borrow_mut().add_event(&change.into_object()));
    let [pods_version, events_version] = versions.map(Result::ok);
    let pods = async { Some(reader.watch(pods, pods_version?, on_pod).await) };
    let events = async { Some(reader.watch(events, events_version?, on_event).await) };
    let ended = tokio::select! {
        Some(ended) = pods => ended,
        Some(ended) = events => ended,
        else => Ok(()),
    };
    ended.with_context(|| reader.server().to_owned())?;
    result.into_inner()
}

/// Reports on stderr what could not be read. Returns true if everything could be.
///
/// # Errors
/// If nothing could be read.
fn warn_of_errors(reader: &ClusterReader, versions: &Versions) -> anyhow::Result<bool> {
    let server = reader.server();
    let (missing, error) = match versions {
        [Ok(_), Ok(_)] => return Ok(true),
        [Err(error), Ok(_)] => ("drains that run or cut nothing", error),
        [Ok(_), Err(error)] => ("drains of deleted pods", error),
        [Err(pods), Err(events @ ReadError::Forbidden(_))] => bail!("{server}: {pods}; {events}"),
        [Err(error), Err(_)] => bail!("{server}: {error}"),
    };
    report(format_args!("warning: {missing} are not shown: {error}"));
    Ok(false)
}

// === impl DrainPrinter ===

impl DrainPrinter {
    /// Prints `text` and then the records.
    fn print<'r>(
        &self,
        mut text: PrintableText,
        records: impl IntoIterator<Item = &'r DrainRecord>,
    ) -> anyhow::Result<ControlFlow<()>> {
        for record in records {
            let is_counted = matches!(record.cut, Some(Cut::Counted(_)));
            let (counted, unknown) = (&self.has_cut, &self.has_unknown_cut);
            let has_cut = if is_counted { counted } else { unknown };
            has_cut.set(has_cut.get() || record.has_cut());
            match &self.table {
                Some(table) => table.push_row(&mut text, record),
                None => text.push_json(record),
            }
        }
        print(&text)
    }
}
