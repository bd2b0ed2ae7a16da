//! `envoy-drainer drill`: disrupts pods under load, and reports what was lost.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use ctl::cli::args::{ClusterArgs, NamespaceArgs, OutputArgs, OutputFormat};
use ctl::cli::installation::{find_deployment, find_installation, serve_container};
use ctl::cli::object_arg::ObjectArg;
use ctl::cli::terminal::{UNKNOWN, UsageError, ask, exit_status, print, report};
use ctl::signals::Signals;
use ctl::text::{PrintableText, list_names, plural};
use drainer::duration;
use kubernetes::ClusterReader;
use load::job::LoadJob;
use tokio::sync::watch;

use crate::disruption::{Disruption, LoadOrigin};
use crate::files::ReportFiles;
use crate::junit;
use crate::load_args::LoadArgs;
use crate::pods::PodLog;
use crate::render::to_text;
use crate::report::DrillSubject;
use crate::session::{Phase, Session};
use crate::workload::{Workload, parse_workload};
use crate::workload_client::WorkloadClient;

/// The text below the flags in `--help`.
const HELP: &str = "\
Examples:
  envoy-drainer drill deploy/edge -n shop --url http://edge/
  envoy-drainer drill deploy/edge -n shop --url https://edge/ --mix h2,h3 --evict
  envoy-drainer drill ds/edge -n shop --url http://edge/ --junit drill.xml --yes

Sends requests to a gateway, disrupts its pods, and counts what was lost: by kind of client and of failure, by \
second and by pod. It needs neither the webhook nor a drainer, so that it also shows what is lost without them. \
No request is sent twice. A request fails without a complete response of the expected status. Certificates are \
not verified.

Failures are: refused (no connection, or closed before the request was written), cut in flight (the connection \
ended after the request was written), cut on a reused connection (the same, but within half a second and on a \
kept connection, which the server may have closed before the request), bad response, and timed out.

A custom resource needs `spec.selector`, `spec.template` and a status like a Deployment's. A Rollout of Argo is \
restarted by `spec.restartAt`, all others by the annotation kubectl.kubernetes.io/restartedAt of their template.

It asks before it disrupts anything. Afterwards it undoes its changes, except for that annotation or field. The load \
runs in a Job in the workload's namespace, from the image of the webhook's installation or that of --image. With \
--from here it runs in this process, which must reach the URL.

Times in the report are seconds since the start of the load. GONE AFTER counts from the pod's deletion: with the \
kind `idle`, it shows how long idle clients hold a pod. FAILED MEANWHILE counts all requests that failed from the \
deletion until a second after the pod was gone; one that fails while several pods terminate counts for each. DRAIN \
is the outcome of the pod's drain, and CUT BY DRAINER what was in flight at its end. docs/json.md describes the JSON.

Exit codes: 0 no request failed; 1 a request failed; 2 invalid usage; 3 the drill could not be completed.";

/// The flags of `drill`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The gateway: deploy/NAME, sts/NAME, ds/NAME, rollout/NAME of Argo, or KIND.VERSION.GROUP/NAME.
    #[arg(value_name = "WORKLOAD", value_parser = parse_workload)]
    workload: ObjectArg,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    disruption: DisruptionArgs,
    #[command(flatten)]
    load: LoadArgs,
    /// Where the load runs.
    #[arg(long, value_name = "WHERE", value_enum, default_value = "cluster")]
    from: LoadOrigin,
    /// Image of envoy-drainer for the Job, instead of the installation's.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Maximum time for the disruption.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    timeout: Duration,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    files: ReportFiles,
}

/// What is done to the pods.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct DisruptionArgs {
    /// Restart the workload, as `kubectl rollout restart` does. This is the default.
    #[arg(long)]
    rollout: bool,
    /// Evict its pods one after the other, as `kubectl drain` does.
    #[arg(long)]
    evict: bool,
    /// Delete its pods one after the other.
    #[arg(long)]
    delete: bool,
}

/// Runs a drill. An error has an exit code of its own, since 1 stands for lost requests.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let job = args.load.job()?;
    let files = args.files.clone();
    files.check()?;
    match complete(args, job, &files).await {
        Err(error) if !error.is::<UsageError>() => {
            report(format_args!("error: {error:#}"));
            let written = files.write(&junit::error_to_xml(&format!("{error:#}")));
            let _ = written.inspect_err(|error| report(format_args!("warning: {error:#}")));
            Ok(ExitCode::from(UNKNOWN))
        }
        ended => ended,
    }
}

async fn complete(args: Args, job: LoadJob, files: &ReportFiles) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::install().context("cannot handle signals")?;
    let disruption = args.disruption.disruption();
    let (reader, namespace) = args.cluster.connect_in(args.namespace).await?;
    let client = WorkloadClient::new(reader.clone(), namespace.clone(), args.workload.clone());
    // What cannot be reviewed may be granted.
    let missing = client.missing_rights(disruption, args.from).await;
    let missing = missing.unwrap_or_default().join(", ");
    let place = format!("in the namespace `{namespace}`");
    let lack = format!("you lack these rights {place}: {missing}");
    ensure!(missing.is_empty(), lack);
    let workload = client.workload().await?;
    let name = &args.workload;
    let workload = workload.with_context(|| format!("there is no {name} {place}"))?;
    check_workload(&workload, name, disruption)?;
    let image = match args.from {
        LoadOrigin::Here => None,
        LoadOrigin::Cluster => Some(find_image(&reader, args.image).await?),
    };
    let subject = DrillSubject {
        workload: format!("{} {namespace}/{}", name.kind.kind, name.name),
        disruption: disruption.to_string(),
        url: args.load.url.to_string(),
        cluster: reader.server().to_owned(),
        origin: args.from,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let plan = describe(&subject, &workload, disruption, &job, image.as_deref());
    report(plan);
    if !args.yes {
        confirm()?;
    }
    let session = Session {
        client: &client,
        disruption,
        timeout: args.timeout,
        min_duration: args.load.r#for,
        subject,
        phase: watch::Sender::new(Phase::default()),
        pods: watch::Sender::new(PodLog::default()),
    };
    let mut job_name = None;
    let ended = tokio::select! {
        ended = session.run(&workload, job, image, &mut job_name) => ended,
        () = signals.next() => {
            let has_disrupted = matches!(*session.phase.borrow(), Phase::Disruption(_));
            Err(anyhow!(interruption(disruption, has_disrupted)))
        }
    };
    if let Some(name) = job_name
        && let Err(error) = client.delete_job(&name).await
    {
        report(format_args!(
            "warning: delete the Job `{name}` by hand: {error}"
        ));
    }
    let drill = ended?;
    let text = match args.output.output {
        OutputFormat::Text => to_text(&drill),
        OutputFormat::Json => PrintableText::json(&drill),
    };
    let printed = print(&text);
    files.write(&junit::to_xml(&drill))?;
    // A closed pipe changes no exit code.
    let _ = printed?;
    Ok(exit_status(drill.failed > 0, drill.completed))
}

fn interruption(disruption: Disruption, has_disrupted: bool) -> &'static str {
    match (has_disrupted, disruption) {
        (false, _) => "interrupted; nothing was disrupted",
        (true, Disruption::Rollout) => "interrupted; the rollout goes on",
        (true, _) => "interrupted",
    }
}

/// Fails if the drill would not show what the disruption does.
fn check_workload(
    workload: &Workload,
    name: &ObjectArg,
    disruption: Disruption,
) -> anyhow::Result<()> {
    let counts = workload.counts();
    ensure!(counts.desired > 0, "{name} has no pods");
    ensure!(
        workload.observed_generation().is_some(),
        "{name} has no `status.observedGeneration`, without which a drill cannot tell when its pods are replaced"
    );
    ensure!(
        workload.is_complete(),
        "{name} is being changed or not available: of {}, {} are available and {} up to date",
        plural(counts.desired, "pod"),
        counts.available,
        counts.updated,
    );
    ensure!(!workload.is_paused(), "{name} is paused: resume it first");
    ensure!(
        disruption != Disruption::Rollout || !workload.updates_on_delete(),
        "{name} has the update strategy OnDelete, so that a rollout replaces no pod: use --delete"
    );
    Ok(())
}

/// The image of the webhook, which has the load generator.
async fn find_image(reader: &ClusterReader, chosen: Option<String>) -> anyhow::Result<String> {
    if let Some(image) = chosen {
        return Ok(image);
    }
    let advice = "name envoy-drainer's image with --image, or use --from here";
    let installation = find_installation(reader, None).await;
    let installation = installation
        .map_err(|result| anyhow!("no installation found: {}: {advice}", result.message))?;
    let namespace = &installation.namespace;
    let deployment = find_deployment(reader, &installation).await?;
    let serving = deployment.as_ref().and_then(serve_container);
    let image = serving.and_then(|container| container.image.clone());
    image.with_context(|| format!("the installation in `{namespace}` has no Deployment: {advice}"))
}

/// What a drill will do.
fn describe(
    subject: &DrillSubject,
    workload: &Workload,
    disruption: Disruption,
    job: &LoadJob,
    image: Option<&str>,
) -> String {
    let (what, cluster, url) = (&subject.workload, &subject.cluster, &subject.url);
    let desired = workload.counts().desired;
    let pods = plural(desired, "pod");
    let in_turn = if desired > 1 {
        ", one after the other"
    } else {
        ""
    };
    let action = match disruption {
        Disruption::Rollout => format!("restart {what} ({pods})"),
        Disruption::Evict => format!("evict {pods} of {what}{in_turn}"),
        Disruption::Delete => format!("delete {pods} of {what}{in_turn}"),
    };
    let kinds = list_names(job.load.clients.iter().map(|clients| &clients.name));
    let origin = match image {
        Some(image) => format!("a Job with the image `{image}`"),
        None => "this process".to_owned(),
    };
    let rate = job.load.rate();
    format!(
        "This will {action}, in the cluster of {cluster}, while {origin} sends {rate} requests per second to {url} as \
         {kinds}."
    )
}

/// Asks on the terminal.
///
/// # Errors
/// If the answer is not yes, or there is no terminal.
fn confirm() -> anyhow::Result<()> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(UsageError("cannot ask without a terminal: use --yes".to_owned()).into());
    }
    ask("Continue? [y/N] ");
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.context("cannot read the answer")?;
    let is_yes = matches!(&*answer.trim().to_lowercase(), "y" | "yes");
    ensure!(is_yes, "cancelled; nothing was done");
    Ok(())
}

// === impl DisruptionArgs ===

impl DisruptionArgs {
    fn disruption(&self) -> Disruption {
        // clap lets one of them be set.
        match self {
            Self { evict: true, .. } => Disruption::Evict,
            Self { delete: true, .. } => Disruption::Delete,
            _ => Disruption::Rollout,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[tokio::test]
    async fn drill_that_lacks_rights_does_nothing() {
        let (client, requests) = fake_api::start("deploy/edge", |_| {
            let review = json!({"spec": {}, "status": {"allowed": false}});
            (201, review.to_string())
        });
        let file = |name| env::temp_dir().join(format!("drill-{}-{name}", process::id()));
        let (kubeconfig, junit) = (file("kubeconfig"), file("junit"));
        let config = json!({
            "clusters": [{"name": "a", "cluster": {"server": client.reader.server()}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": {}}],
            "current-context": "a",
        });
        fs::write(&kubeconfig, config.to_string()).unwrap();
        let flags = "drill deploy/edge -n shop --url http://edge/ --evict --from here --yes";
        let files = [
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--junit",
            junit.to_str().unwrap(),
        ];
        let args = Command::parse_from(flags.split(' ').chain(files)).args;
        run(args).await.unwrap();
        let report = fs::read_to_string(&junit).unwrap();
        let want = "you lack these rights in the namespace `shop`: get deployments, list pods, watch pods, create pods/eviction";
        assert!(
            report.contains(&format!("<error message=\"{want}\"/>")),
            "{report}"
        );
        let is_review = |request: String| request.contains("selfsubjectaccessreviews");
        assert!(requests.try_iter().all(is_review));
        for file in [kubeconfig, junit] {
            fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn workload_that_cannot_be_drilled_says_why() {
        type Change = fn(&mut Value);
        let name = parse_workload("rollout/edge").unwrap();
        let table: [(Change, &str); 6] = [
            (|_| {}, ""),
            (
                |it| it["status"]["observedGeneration"] = json!(null),
                "Rollout edge has no `status.observedGeneration`, without which",
            ),
            (
                |it| it["status"]["availableReplicas"] = json!(1),
                "Rollout edge is being changed or not available: of 2 pods, 1 are available and 2 up",
            ),
            (
                |it| it["spec"]["replicas"] = json!(0),
                "Rollout edge has no pods",
            ),
            (
                |it| it["spec"]["paused"] = json!(true),
                "Rollout edge is paused",
            ),
            (
                |it| it["spec"]["updateStrategy"] = json!({"type": "OnDelete"}),
                "Rollout edge has the update strategy OnDelete",
            ),
        ];
        for (change, want) in table {
            let mut object = json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"generation": 1},
                "spec": {"replicas": 2, "template": {"spec": {"containers": []}}},
                "status": {
                    "observedGeneration": "1", "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
                },
            });
            change(&mut object);
            let workload = Workload::read(object).unwrap();
            let checked = check_workload(&workload, &name, Disruption::Rollout);
            let error = checked
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(
                error.starts_with(want) && error.is_empty() == want.is_empty(),
                "{error}"
            );
        }
    }
}
