//! How pods of a cluster are admitted: with the defaults of its installation, and only in selected namespaces.

use admission::settings::keys::INJECTION;
use admission::{Code, Defaults, Diagnostic};
use k8s_openapi::api::apps::v1::Deployment;
use kube::core::{Expression, SelectorExt};

use crate::check::Severity;
use crate::check::installation::Installation;
use crate::check::namespaces::opt_in_command;
use crate::check::webhook_configuration::{ENABLED, is_opt_in, opt_in, requirements};
use crate::cli::installation::{ServeArgs, find_installation, list_selected};
use crate::kubernetes::{ClusterReader, ReadError};

/// What decides on the pods of a namespace, besides the pods themselves.
#[derive(Debug)]
pub(super) struct ClusterAdmission {
    /// The defaults of the installation, or those of the flags if one is set or the installation could not be read.
    pub(super) defaults: Defaults,
    /// Why API servers do not call the webhook for these pods; `None` if they do, or if that is unknown.
    pub(super) exclusion: Option<Diagnostic>,
    /// What could not be read, and what is assumed instead: a sentence each.
    pub(super) warnings: Vec<String>,
}

/// The installation's defaults; an error says why they are unknown.
async fn defaults(reader: &ClusterReader, installation: &Installation) -> Result<Defaults, String> {
    let namespace = &installation.namespace;
    let service = reader.service(namespace, &installation.service).await;
    let deployments = list_selected(reader, namespace, &service).await;
    let deployments: Vec<Deployment> = deployments.map_err(|error| error.to_string())?;
    let mut deployments = deployments.iter();
    let args = deployments.next();
    let args = args.and_then(|deployment| ServeArgs::of_deployment(deployment, namespace));
    let args = args.ok_or_else(|| {
        format!("no Deployment in the namespace `{namespace}` runs `envoy-drainer serve`")
    })?;
    Ok(args.map_err(|error| error.to_string())?.defaults)
}

/// Why API servers do not call the webhook for pods of the namespace, by these requirements of its labels.
async fn exclusion(
    reader: &ClusterReader,
    name: &str,
    requirements: &[Expression],
) -> Result<Option<Diagnostic>, ReadError> {
    let Some(namespace) = reader.namespace(name).await? else {
        return Ok(None);
    };
    let labels = namespace.metadata.labels.unwrap_or_default();
    let mut unmet = requirements.iter().filter(|it| !it.matches(&labels));
    let detail = unmet.next().map(|unmet| {
        let has = match labels.get(INJECTION) {
            _ if !is_opt_in(unmet) => {
                let required = format!("since the webhook configuration requires `{unmet}`");
                return format!(
                    "the namespace `{name}` is excluded, {required}: use another namespace"
                );
            }
            None => format!("it has no label {INJECTION}"),
            Some(value) => format!("its label {INJECTION} is `{value}`, not `{ENABLED}`"),
        };
        let command = opt_in_command(name);
        format!("the namespace `{name}` has not opted in: {has}; run `{command}`")
    });
    Ok(detail.map(|detail| Code::NamespaceNotSelected.diagnostic(detail)))
}

// === impl ClusterAdmission ===

impl ClusterAdmission {
    /// Admission with these defaults, in a selected namespace.
    pub(super) fn new(defaults: &Defaults) -> Self {
        Self {
            defaults: defaults.clone(),
            exclusion: None,
            warnings: Vec::new(),
        }
    }

    /// Reads what the user's rights allow of the namespace, and of the installation that API servers call first. `flags`
    /// are the defaults of the flags.
    pub(super) async fn read(reader: &ClusterReader, namespace: &str, flags: &Defaults) -> Self {
        let mut admission = Self::new(flags);
        let is_any_flag_set = *flags != Defaults::new(&*flags.image, &*flags.release_namespace);
        let mut selection = Ok(vec![opt_in()]);
        match find_installation(reader, None).await {
            Ok(installation) => {
                if !is_any_flag_set {
                    match defaults(reader, &installation).await {
                        Ok(defaults) => admission.defaults = defaults,
                        Err(reason) => admission.warn_of_defaults(&reason),
                    }
                }
                selection = requirements(installation.pods_entry.namespace_selector.as_ref());
            }
            Err(result) if result.severity == Severity::Error => {
                let detail = format!("{}: install the chart", result.message);
                admission.exclusion = Some(Code::NamespaceNotSelected.diagnostic(detail));
                return admission;
            }
            Err(result) => admission.warn_of_defaults(&result.message),
        }
        let exclusion = match selection {
            Ok(requirements) => exclusion(reader, namespace, &requirements).await,
            Err(error) => Err(error),
        };
        match exclusion {
            Ok(exclusion) => admission.exclusion = exclusion,
            Err(error) => admission.warnings.push(format!(
                "whether the namespace `{namespace}` has opted in is unknown, and assumed: {error}"
            )),
        }
        admission
    }

    fn warn_of_defaults(&mut self, reason: &str) {
        let assumed = "the installation's defaults are unknown, and those of the flags are used";
        self.warnings.push(format!("{assumed}: {reason}"));
    }
}
