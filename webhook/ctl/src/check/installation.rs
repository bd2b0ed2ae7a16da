//! Finds the installation by its MutatingWebhookConfiguration.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubernetes::ReadError;

use super::report::CheckResult;
use crate::object_name::ObjectName;
use crate::text::list_names;

/// The entry of a webhook configuration that identifies an installation, whatever the release's name.
pub const PODS_ENTRY: &str = "pods.envoy-drainer.dev";

/// The name of the result that says whether there is an installation.
const FOUND: &str = "found";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An installation, as its MutatingWebhookConfiguration describes it.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The name of the MutatingWebhookConfiguration.
    pub name: String,
    /// When that was created.
    pub installed_at: Option<Time>,
    pub namespace: String,
    /// The name of the Service, and of most other objects.
    pub service: String,
    /// The entries of the MutatingWebhookConfiguration.
    pub entries: Vec<MutatingWebhook>,
    /// The one for pods.
    pub pods_entry: MutatingWebhook,
    labels: BTreeMap<String, String>,
    /// The names of other installations.
    other_installations: Vec<String>,
}

/// Why the arguments of the running `serve` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeArgsError {
    /// A flag is unknown to this version of the program.
    #[error("{0}")]
    Unknown(String),
    /// A flag has an invalid value.
    #[error("{0}")]
    Invalid(String),
}

/// Finds the installation that API servers call first, or that of the configuration `chosen`.
///
/// # Errors
/// When there is none: a result that reports it.
pub fn find(
    configurations: Vec<MutatingWebhookConfiguration>,
    chosen: Option<&str>,
) -> Result<Installation, Box<CheckResult>> {
    let configurations = configurations.into_iter();
    let mut found: Vec<_> = configurations.filter_map(from_configuration).collect();
    // The order in which API servers call webhooks.
    // <https://github.com/kubernetes/apiserver/blob/master/pkg/admission/configuration/mutating_webhook_manager.go>
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let is_chosen = |found: &Installation| chosen.is_none_or(|chosen| found.name == chosen);
    let Some(index) = found.iter().position(is_chosen) else {
        return Err(Box::new(not_found(chosen, &found)));
    };
    let mut installation = found.remove(index);
    installation.other_installations = found.into_iter().map(|other| other.name).collect();
    Ok(installation)
}

fn not_found(chosen: Option<&str>, found: &[Installation]) -> CheckResult {
    let Some(chosen) = chosen else {
        let command = "helm install envoy-drainer CHART --namespace envoy-drainer --create-namespace \
             --set image.registry=REGISTRY";
        return CheckResult::error(FOUND, "envoy-drainer is not installed in this cluster")
            .with_remedy("install the chart, which is charts/envoy-drainer in the source tree")
            .with_command(command);
    };
    let message =
        format!("no MutatingWebhookConfiguration `{chosen}` has the entry `{PODS_ENTRY}`");
    let names = list_names(found.iter().map(|installation| &installation.name));
    let remedy = (!found.is_empty()).then(|| format!("name an existing one: {names}"));
    CheckResult::error(FOUND, message).with_optional_remedy(remedy)
}

/// `None` unless it is the chart's, which has API servers call a Service.
fn from_configuration(configuration: MutatingWebhookConfiguration) -> Option<Installation> {
    let entries = configuration.webhooks.unwrap_or_default();
    let mut all = entries.iter();
    let pods_entry = all.find(|entry| entry.name == PODS_ENTRY)?.clone();
    let service = pods_entry.client_config.service.clone()?;
    let metadata = configuration.metadata;
    Some(Installation {
        name: metadata.name.unwrap_or_default(),
        installed_at: metadata.creation_timestamp,
        namespace: service.namespace,
        service: service.name,
        entries,
        pods_entry,
        labels: metadata.labels.unwrap_or_default(),
        other_installations: Vec::new(),
    })
}

/// The result when webhook configurations cannot be read.
pub fn unknown_installation(error: &ReadError) -> CheckResult {
    CheckResult::unknown_blocking(FOUND, "whether envoy-drainer is installed", error)
        .with_remedy("ask an administrator for the right to list mutatingwebhookconfigurations")
}

// === impl Installation ===

impl Installation {
    /// The name of the policy that reports pods that the webhook did not see, and of its binding.
    pub fn unseen_pods_policy_name(&self) -> String {
        format!("{}-required", self.service)
    }

    /// The name of the policy that restricts the webhook's service account to writing the caBundle, and of its binding.
    pub fn ca_bundle_policy_name(&self) -> String {
        format!("{}-cabundle", self.service)
    }

    /// The name of the Helm release.
    pub(super) fn release(&self) -> &str {
        self.label("instance").unwrap_or(&self.service)
    }

    /// The command that undoes the last upgrade.
    pub(super) fn rollback_command(&self) -> String {
        let (release, namespace) = (self.release(), &self.namespace);
        format!("helm rollback {release} --namespace {namespace}")
    }

    /// Checks its version and the arguments of `serve`.
    pub(crate) fn results(&self, args_error: Option<&ServeArgsError>) -> Vec<CheckResult> {
        let mut results = vec![self.summary()];
        results.extend(self.several_installations());
        results.extend(self.version_mismatch(args_error));
        results
    }

    /// The label `app.kubernetes.io/NAME`.
    fn label(&self, name: &str) -> Option<&str> {
        let key = format!("app.kubernetes.io/{name}");
        self.labels.get(&key).map(String::as_str)
    }

    fn summary(&self) -> CheckResult {
        let version = self.label("version").map(|version| format!(" {version}"));
        let (version, release) = (version.unwrap_or_default(), self.release());
        let namespace = &self.namespace;
        let message = format!(
            "envoy-drainer{version} is installed as release `{release}` in the namespace `{namespace}`"
        );
        let kind = "MutatingWebhookConfiguration";
        CheckResult::ok(FOUND, message).with_subject(ObjectName::cluster_scoped(kind, &self.name))
    }

    fn several_installations(&self) -> Option<CheckResult> {
        let first = self.other_installations.first()?;
        let others = list_names(&self.other_installations);
        let message = format!(
            "there are other installations ({others}): the one whose name sorts first injects the drainers of all. Only `{}` was checked",
            self.name
        );
        let command = format!("envoy-drainer check --webhook-configuration {first}");
        let result = CheckResult::warning("several", message)
            .with_remedy("uninstall all but one, or check another with the following command");
        Some(result.with_command(command))
    }

    fn version_mismatch(&self, args_error: Option<&ServeArgsError>) -> Option<CheckResult> {
        let installed = self.label("version").filter(|version| *version != VERSION);
        let message = match (installed, args_error) {
            (None, None) => return None,
            // A warning, since older replicas may have valid values and keep working.
            (None, Some(ServeArgsError::Invalid(reason))) => {
                let message = format!("the webhook does not start with its values: {reason}");
                let result = CheckResult::warning("values", message)
                    .with_remedy("correct the chart's values and upgrade the release, or roll back")
                    .with_command(self.rollback_command());
                return Some(result);
            }
            (Some(installed), None) => {
                format!("this program has version {VERSION}, the installation {installed}")
            }
            (_, Some(error)) => {
                format!("this program ({VERSION}) cannot read the webhook's flags: {error}")
            }
        };
        let remedy = "use the program of the installation's version";
        Some(CheckResult::warning("version", message).with_remedy(remedy))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;

    /// The MutatingWebhookConfiguration of an installation, changed.
    pub(in crate::check) fn configuration(
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> MutatingWebhookConfiguration {
        let service = json!({"name": name, "namespace": "infra", "path": "/inject", "port": 443});
        let mut configuration = json!({
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/instance": name,
                    "app.kubernetes.io/version": VERSION,
                },
            },
            "webhooks": [{
                "name": PODS_ENTRY,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": service},
                "failurePolicy": "Ignore",
                "sideEffects": "None",
            }],
        });
        change(&mut configuration);
        serde_json::from_value(configuration).unwrap()
    }

    fn installed(name: &str) -> MutatingWebhookConfiguration {
        configuration(name, |_| {})
    }

    #[test]
    fn installation_is_found_by_its_entry() {
        let foreign = || configuration("a", |value| value["webhooks"][0]["name"] = json!("other"));
        let found = find(vec![foreign(), installed("mine")], None).expect("there is one");
        assert_eq!(found.name, "mine");
        assert_eq!((&*found.service, &*found.namespace), ("mine", "infra"));
        let none = find(vec![foreign()], None).unwrap_err();
        assert_eq!(none.severity, Severity::Error);
        assert_eq!(
            none.message,
            "envoy-drainer is not installed in this cluster"
        );
        assert!(find(Vec::new(), None).is_err());
    }

    #[test]
    fn check_reports_first_of_several_installations() {
        let both = || vec![installed("b"), installed("a")];
        let first = find(both(), None).expect("there are two");
        assert_eq!(first.name, "a");
        let result = &first.results(None)[1];
        assert_eq!(
            (result.name, result.severity),
            ("several", Severity::Warning)
        );
        assert_eq!(find(both(), Some("b")).expect("it is there").name, "b");
        let none = find(both(), Some("c")).unwrap_err();
        assert_eq!(
            none.remedy.as_deref(),
            Some("name an existing one: `a`, `b`")
        );
    }

    #[test]
    fn another_version_is_a_warning() {
        let other = configuration("a", |value| {
            value["metadata"]["labels"]["app.kubernetes.io/version"] = json!("9.9.9");
        });
        let other = find(vec![other], None).expect("it is there");
        let result = &other.results(None)[1];
        assert_eq!(
            (result.name, result.severity),
            ("version", Severity::Warning)
        );
    }

    #[test]
    fn invalid_values_differ_from_unknown_flags() {
        let unknown = || ServeArgsError::Unknown("unexpected argument '--new' found".to_owned());
        let invalid = || ServeArgsError::Invalid("drain-timeout 5s is too short".to_owned());
        let upgrade = "use the program of the installation's version";
        let correct = "correct the chart's values and upgrade the release, or roll back";
        let table = [
            (VERSION, unknown(), "version", upgrade),
            (VERSION, invalid(), "values", correct),
            // With another version, it is unclear which values are invalid.
            ("9.9.9", invalid(), "version", upgrade),
        ];
        for (version, error, name, remedy) in table {
            let installed = configuration("a", |value| {
                value["metadata"]["labels"]["app.kubernetes.io/version"] = json!(version);
            });
            let installed = find(vec![installed], None).expect("it is there");
            let result = &installed.results(Some(&error))[1];
            assert_eq!((result.name, result.severity), (name, Severity::Warning));
            assert!(result.message.ends_with(&error.to_string()), "{result:?}");
            assert_eq!(result.remedy.as_deref(), Some(remedy));
        }
    }
}
