//! Which installation there is, and of how many.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::report::{CheckResult, Subject};
use super::text::join;
use crate::kubernetes::ReadError;

/// The entry of a webhook configuration by which an installation is known, whatever its release is
/// called.
pub const PODS_ENTRY: &str = "pods.envoy-drainer.dev";

/// What tells of pods that nobody asked about.
const POLICY_SUFFIX: &str = "-seen";

/// What lets the webhook's account write no field but the caBundle.
const CA_BUNDLE_POLICY_SUFFIX: &str = "-cabundle";

/// The name of the point that says whether there is one.
const FOUND: &str = "found";

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An installation, as API servers know it.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The name of its webhook configuration, and of most else.
    pub name: String,
    /// When that was made.
    pub installed_at: Option<Time>,
    /// The namespace of its Service.
    pub namespace: String,
    /// The name of its Service.
    pub service: String,
    /// The port of its Service that API servers call.
    pub port: i32,
    /// Its labels.
    labels: BTreeMap<String, String>,
    /// Its entries.
    pub entries: Vec<MutatingWebhook>,
    /// The names of other installations.
    other_installations: Vec<String>,
}

/// Why the flags of an installation's webhook cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeArgsError {
    /// This program does not know them: they are another version's.
    #[error("{0}")]
    Unknown(String),
    /// It knows them, and not with these values.
    #[error("{0}")]
    Invalid(String),
}

/// The installation that API servers ask first, or that of the configuration called `chosen`.
///
/// # Errors
/// When there is none: a point that says so.
pub fn find(
    configurations: Vec<MutatingWebhookConfiguration>,
    chosen: Option<&str>,
) -> Result<Installation, Box<CheckResult>> {
    let mut found: Vec<_> = configurations
        .into_iter()
        .filter_map(from_configuration)
        .collect();
    // The order in which API servers ask.
    // <https://github.com/kubernetes/apiserver/blob/master/pkg/admission/configuration/mutating_webhook_manager.go>
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let all: Vec<_> = found.iter().map(|found| found.name.clone()).collect();
    let wanted = |found: &Installation| chosen.is_none_or(|chosen| chosen == found.name);
    match found.into_iter().find(wanted) {
        Some(found) => Ok(Installation {
            other_installations: all.into_iter().filter(|name| *name != found.name).collect(),
            ..found
        }),
        None => Err(Box::new(not_found(chosen, &all))),
    }
}

fn not_found(chosen: Option<&str>, all: &[String]) -> CheckResult {
    let Some(chosen) = chosen else {
        return CheckResult::error(FOUND, "envoy-drainer is not installed in this cluster")
            .remedy("install its chart")
            .command(
                "helm install envoy-drainer charts/envoy-drainer --namespace envoy-drainer --create-namespace",
            );
    };
    let message =
        format!("no MutatingWebhookConfiguration `{chosen}` has the entry `{PODS_ENTRY}`");
    let point = CheckResult::error(FOUND, message);
    match all {
        [] => point,
        all => point.remedy(format!("there is {}", join(all.iter().map(String::as_str)))),
    }
}

/// `None` for one that is not the chart's: that one has API servers call a Service.
fn from_configuration(configuration: MutatingWebhookConfiguration) -> Option<Installation> {
    let entries = configuration.webhooks.unwrap_or_default();
    let pods = entries.iter().find(|entry| entry.name == PODS_ENTRY)?;
    let service = pods.client_config.service.clone()?;
    let ObjectMeta {
        name,
        labels,
        creation_timestamp,
        ..
    } = configuration.metadata;
    Some(Installation {
        name: name.unwrap_or_default(),
        installed_at: creation_timestamp,
        namespace: service.namespace,
        service: service.name,
        // The default of the API.
        port: service.port.unwrap_or(443),
        labels: labels.unwrap_or_default(),
        entries,
        other_installations: Vec::new(),
    })
}

/// Says that it cannot be known whether there is an installation.
#[must_use]
pub fn unknown_installation(error: &ReadError) -> CheckResult {
    CheckResult::unknown_blocking(FOUND, "whether envoy-drainer is installed", error)
        .remedy("ask somebody who may see the cluster's webhook configurations")
}

// === impl Installation ===

impl Installation {
    /// The name by which API servers call it.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// The name of its policy, and of the binding.
    #[must_use]
    pub fn policy(&self) -> String {
        format!("{}{POLICY_SUFFIX}", self.name)
    }

    /// The name of the policy for its service account, and of the binding.
    #[must_use]
    pub fn ca_bundle_policy(&self) -> String {
        format!("{}{CA_BUNDLE_POLICY_SUFFIX}", self.name)
    }

    /// The entry that asks about pods.
    #[must_use]
    pub fn pods_entry(&self) -> Option<&MutatingWebhook> {
        self.entries.iter().find(|entry| entry.name == PODS_ENTRY)
    }

    /// Judges what it is. `unread` says why the flags of its webhook cannot be read.
    #[must_use]
    pub fn results(&self, args_error: Option<&ServeArgsError>) -> Vec<CheckResult> {
        let mut points = vec![self.summary()];
        points.extend(self.several_installations());
        points.extend(self.version_mismatch(args_error));
        points
    }

    /// Its label `app.kubernetes.io/NAME`.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        let key = format!("app.kubernetes.io/{name}");
        self.labels.get(&key).map(String::as_str)
    }

    fn summary(&self) -> CheckResult {
        let version = self.label("version").map(|version| format!(" {version}"));
        let release = self.label("instance").unwrap_or(&self.name);
        let message = format!(
            "envoy-drainer{} is the release `{release}` in the namespace `{}`",
            version.unwrap_or_default(),
            self.namespace
        );
        CheckResult::ok(FOUND, message).subject(Subject::cluster_scoped(
            "MutatingWebhookConfiguration",
            &self.name,
        ))
    }

    fn several_installations(&self) -> Option<CheckResult> {
        let [first, ..] = &self.other_installations[..] else {
            return None;
        };
        let others = join(self.other_installations.iter().map(String::as_str));
        let message = format!(
            "there are others, {others}: the first by name changes the pods of all, and only `{}` is looked at",
            self.name
        );
        let point = CheckResult::warning("several", message)
            .remedy("uninstall all but one; to look at another")
            .command(format!(
                "envoy-drainer check --webhook-configuration {first}"
            ));
        Some(point)
    }

    fn version_mismatch(&self, args_error: Option<&ServeArgsError>) -> Option<CheckResult> {
        const NAME: &str = "version";
        let installed = self.label("version").filter(|version| *version != VERSION);
        let message = match (installed, args_error) {
            (None, None) => return None,
            (Some(installed), None) => {
                format!("this program is of version {VERSION}, the installation of {installed}")
            }
            (None, Some(ServeArgsError::Invalid(why))) => return Some(self.invalid_values(why)),
            (_, Some(unread)) => {
                format!("the webhook's flags are not those of this program, {VERSION}: {unread}")
            }
        };
        let remedy = "check with the program of the installation's version";
        Some(CheckResult::warning(NAME, message).remedy(remedy))
    }

    /// Older replicas may have better values, and go on to work.
    fn invalid_values(&self, why: &str) -> CheckResult {
        let message = format!("the webhook does not start with its values: {why}");
        let release = self.label("instance").unwrap_or(&self.name);
        CheckResult::warning("values", message)
            .remedy(
                "correct the chart's values and upgrade the release, or go back to those before",
            )
            .command(format!(
                "helm rollback {release} --namespace {}",
                self.namespace
            ))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;

    /// An installation's, changed.
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
    fn an_installation_is_known_by_its_entry_whatever_it_is_called() {
        let strangers =
            || configuration("a", |value| value["webhooks"][0]["name"] = json!("other"));
        let found = find(vec![strangers(), installed("mine")], None).expect("there is one");
        assert_eq!(found.name, "mine");
        assert_eq!(found.host(), "mine.infra.svc");
        assert_eq!(found.port, 443);
        let none = find(vec![strangers()], None).unwrap_err();
        assert_eq!(none.severity, Severity::Error);
        assert_eq!(
            none.message,
            "envoy-drainer is not installed in this cluster"
        );
        assert!(find(Vec::new(), None).is_err());
    }

    #[test]
    fn of_several_the_one_that_is_asked_first_is_looked_at_or_the_one_that_is_chosen() {
        let both = || vec![installed("b"), installed("a")];
        let first = find(both(), None).expect("there are two");
        assert_eq!(first.name, "a");
        let told = &first.results(None)[1];
        assert_eq!((told.name, told.severity), ("several", Severity::Warning));
        assert_eq!(find(both(), Some("b")).expect("it is there").name, "b");
        let none = find(both(), Some("c")).unwrap_err();
        assert_eq!(none.remedy.as_deref(), Some("there is `a`, `b`"));
    }

    #[test]
    fn an_installation_of_another_version_is_told() {
        let other = configuration("a", |value| {
            value["metadata"]["labels"]["app.kubernetes.io/version"] = json!("9.9.9");
        });
        let other = find(vec![other], None).expect("it is there");
        let told = &other.results(None)[1];
        assert_eq!((told.name, told.severity), ("version", Severity::Warning));
    }

    #[test]
    fn values_that_are_wrong_are_told_from_flags_of_another_version() {
        let unknown = || ServeArgsError::Unknown("unexpected argument '--new' found".to_owned());
        let invalid = || ServeArgsError::Invalid("drain-timeout 5s is too short".to_owned());
        let upgrade = "check with the program of the installation's version";
        let correct =
            "correct the chart's values and upgrade the release, or go back to those before";
        let table = [
            (VERSION, unknown(), "version", upgrade),
            (VERSION, invalid(), "values", correct),
            // Of another version, this one does not know which values are wrong.
            ("9.9.9", invalid(), "version", upgrade),
        ];
        for (version, unread, name, remedy) in table {
            let installed = configuration("a", |value| {
                value["metadata"]["labels"]["app.kubernetes.io/version"] = json!(version);
            });
            let installed = find(vec![installed], None).expect("it is there");
            let told = &installed.results(Some(&unread))[1];
            assert_eq!((told.name, told.severity), (name, Severity::Warning));
            assert!(told.message.ends_with(&unread.to_string()), "{told:?}");
            assert_eq!(told.remedy.as_deref(), Some(remedy));
        }
    }
}
