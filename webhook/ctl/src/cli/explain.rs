//! `envoy-drainer explain`: what the webhook would do with the pods of manifests, and why; for objects of a cluster
//! also what runs.

mod cluster;
mod json;
mod render;
mod timeline;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

use admission::Defaults;
use flags::pod_defaults::PodDefaultsArgs;

use super::args::{
    ClusterArgs, ColorArgs, FilesArgs, NamespaceArgs, OutputArgs, OutputFormat, take_errors,
};
use super::object_arg::ObjectArg;
use super::terminal::{exit_status, print, report};
use crate::offline::{DocumentReview, Input, ManifestContext, Message, Verdict, WorkloadResult};
use crate::running_pod::RunningPod;
use crate::runtime::block_on;
use crate::text::PrintableText;

use cluster::{ClusterAdmission, ClusterObject};

/// Text of `--help` below the flags.
const HELP: &str = "\
Examples:
  envoy-drainer explain edge.yaml
  helm template edge ./chart | envoy-drainer explain -
  envoy-drainer explain deploy/edge -n shop   # what admission would do now
  envoy-drainer explain pod/edge-5d8f -n shop # how this pod is drained
  envoy-drainer explain gateway/eg -n shop

For manifests it reads the same documents as `inject`, changes nothing, and does not check the label `envoy-\
drainer.dev/injection` of namespaces.

KIND/NAME reads an object of the cluster: pod, deployment, statefulset, daemonset, replicaset, job, cronjob, \
replicationcontroller or rollout (of Argo), or its short name; KIND.VERSION.GROUP/NAME reads another custom resource, \
and gateway/NAME the workloads of a Gateway. A file of that name is read instead. A pod with a drainer is explained as \
it runs, and anything else as admission would decide now. docs/offline.md names the rights that the command needs.

Exit codes: 0 success; 1 a pod is denied, or asks for a drain and gets none, as far as is known; 2 invalid usage; \
3 that is unknown, or a file, a document or an object cannot be read.";

/// Text of `--help` for the arguments.
const FILES_HELP: &str =
    "Files of YAML or JSON documents, or objects of the cluster; `-` or nothing reads stdin";

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
// No output depends on the drainer's image.
#[command(mut_arg("image", |image| image.required(false).default_value("drainer").hide(true)))]
#[command(mut_arg("files", |files| files.value_name("FILE|KIND/NAME").help(FILES_HELP)))]
pub struct Args {
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    color: ColorArgs,
    #[command(flatten)]
    defaults: PodDefaultsArgs,
}

/// Objects of a cluster, and how pods are admitted in their namespaces, by name.
type ClusterObjects = (
    Vec<anyhow::Result<ClusterObject>>,
    BTreeMap<String, ClusterAdmission>,
);

/// The output of `explain`.
#[derive(Debug, Default)]
pub struct ExplainReport {
    /// All pods and pod templates, each with its file or `stdin`, in the order of the files.
    pub pods: Vec<(String, WorkloadResult)>,
    /// The pods of the cluster, as they run.
    pub running: Vec<RunningPod>,
    /// The errors of documents that cannot be read or changed, with their files.
    pub errors: Vec<(String, Message)>,
    /// Whether a pod that runs requests a drainer and has none.
    lacks_drainer: bool,
}

/// Prints explanations of the pods of files or stdin.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let defaults = args.defaults.into_defaults()?;
    let (mut files, mut read_errors) = (args.files, Vec::new());
    let wanted = take_errors(files.extract(ObjectArg::parse), &mut read_errors);
    let (mut objects, mut admissions) = ClusterObjects::default();
    if !wanted.is_empty() {
        match read_objects(&wanted, args.cluster, args.namespace, &defaults) {
            Ok(read) => (objects, admissions) = read,
            Err(error) => read_errors.push(error),
        }
    }
    let inputs = take_errors(files.read(), &mut read_errors);
    let mut explained = ExplainReport::new(&inputs, &defaults);
    for object in take_errors(objects, &mut read_errors) {
        explained.add_object(&object, admissions.get(&object.namespace));
    }
    if args.output.output == OutputFormat::Json {
        let _ = print(&explained.to_json())?;
    } else {
        let styled = args.color.is_enabled_for(&io::stdout());
        let _ = print(&explained.to_text(styled))?;
        for (file, error) in &explained.errors {
            report(error.display(file, false));
        }
        if explained.is_empty() && read_errors.is_empty() {
            report("no pods or pod templates found");
        }
    }
    let warnings: Vec<_> = admissions.values().flat_map(|it| &it.warnings).collect();
    for warning in &warnings {
        report(format_args!("warning: {warning}"));
    }
    for error in &read_errors {
        report(format_args!("error: {error:#}"));
    }
    let verdict = explained.verdict();
    let is_known = verdict != Verdict::Unknown && !explained.is_empty();
    let is_complete = is_known && warnings.is_empty() && read_errors.is_empty();
    Ok(exit_status(verdict == Verdict::Finding, is_complete))
}

/// Reads objects of the cluster, and how pods are admitted in their namespaces, if that is to be explained. An object
/// that cannot be read is an error in its place.
fn read_objects(
    args: &[ObjectArg],
    cluster: ClusterArgs,
    namespace: NamespaceArgs,
    defaults: &Defaults,
) -> anyhow::Result<ClusterObjects> {
    block_on(async {
        let (reader, namespace) = cluster.connect_in(namespace).await?;
        let mut objects = Vec::new();
        for arg in args {
            match arg.resolve(&reader, &namespace).await {
                Ok(found) => {
                    for (object, namespace) in found {
                        objects.push(object.read(&reader, &namespace).await);
                    }
                }
                Err(error) => objects.push(Err(error)),
            }
        }
        let mut admissions = BTreeMap::new();
        let read = objects.iter().flatten();
        for object in read.filter(|object| !object.has_drainer()) {
            if !admissions.contains_key(&object.namespace) {
                let admission = ClusterAdmission::read(&reader, &object.namespace, defaults).await;
                admissions.insert(object.namespace.clone(), admission);
            }
        }
        Ok((objects, admissions))
    })
}

// === impl ExplainReport ===

impl ExplainReport {
    /// Explains all pods and pod templates of some streams.
    pub fn new(inputs: &[Input], defaults: &Defaults) -> Self {
        let mut report = Self::default();
        let mut context = ManifestContext::read(inputs.iter().map(|input| &input.bytes[..]));
        context.is_for_webhook = true;
        for input in inputs {
            report.add(input, &context, defaults);
        }
        report
    }

    fn add(&mut self, input: &Input, context: &ManifestContext, defaults: &Defaults) {
        let Input { name, bytes } = input;
        for document in manifest::documents(bytes) {
            let review = DocumentReview::new(&document, context, defaults);
            let (pods, error) = (review.workloads.into_iter(), review.error);
            self.pods.extend(pods.map(|pod| (name.clone(), pod)));
            self.errors.extend(error.map(|error| (name.clone(), error)));
        }
    }

    /// Explains an object of a cluster: a pod that has a drainer as it runs, and anything else as admission would
    /// decide on it now.
    fn add_object(&mut self, object: &ClusterObject, admission: Option<&ClusterAdmission>) {
        self.running.extend(object.pod.iter().map(RunningPod::new));
        let Some(admission) = admission.filter(|_| !object.has_drainer()) else {
            return;
        };
        let mut context = object.context.clone();
        context.is_for_webhook = true;
        context.injects_all = admission.injects_all;
        context.services.clone_from(&admission.services);
        let first = self.pods.len();
        self.add(&object.input, &context, &admission.defaults);
        for (_, pod) in &mut self.pods[first..] {
            pod.forget_lines();
            if let Some(exclusion) = &admission.exclusion {
                pod.skip(exclusion.clone());
            }
            self.lacks_drainer |= object.pod.is_some() && pod.requests_drainer();
        }
    }

    fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.running.is_empty() && self.errors.is_empty()
    }

    /// The worst of its verdicts. What cannot be read is unknown.
    pub fn verdict(&self) -> Verdict {
        let unread = (!self.errors.is_empty()).then_some(Verdict::Unknown);
        let is_found = self.lacks_drainer || self.running.iter().any(|pod| pod.is_changed);
        let lacking = is_found.then_some(Verdict::Finding);
        let pods = self.pods.iter().map(|(_, pod)| pod.verdict());
        let verdicts = pods.chain(unread).chain(lacking);
        verdicts.max().unwrap_or(Verdict::Fine)
    }

    /// Formats the explanations for people; the errors are printed to stderr.
    pub fn to_text(&self, styled: bool) -> PrintableText {
        render::render(&self.pods, &self.running, PrintableText::new(styled))
    }

    /// Formats the report for programs.
    pub fn to_json(&self) -> PrintableText {
        PrintableText::json(&json::report(&self.pods, &self.running, &self.errors))
    }
}
