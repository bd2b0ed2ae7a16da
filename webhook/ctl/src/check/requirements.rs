//! What the installation of the chart requires, before there is one.

use kubernetes::{ReadError, Right};

use super::report::{CheckResult, Section};
use crate::text::{list, list_names};

/// The namespace of the chart's documentation.
pub const NAMESPACE: &str = "envoy-drainer";

/// The rights in the whole cluster that an installation requires.
pub const CLUSTER_RIGHTS: [Right; 6] = [
    Right("create", "", "namespaces"),
    Right("create", ADMISSION, "mutatingwebhookconfigurations"),
    Right("create", ADMISSION, "validatingadmissionpolicies"),
    Right("create", ADMISSION, "validatingadmissionpolicybindings"),
    Right("create", RBAC, "clusterroles"),
    Right("create", RBAC, "clusterrolebindings"),
];

/// The rights in the namespace of the release that it requires.
pub const RELEASE_RIGHTS: [Right; 7] = [
    Right("create", "", "secrets"),
    Right("create", "", "serviceaccounts"),
    Right("create", "", "services"),
    Right("create", "apps", "deployments"),
    Right("create", "policy", "poddisruptionbudgets"),
    Right("create", RBAC, "roles"),
    Right("create", RBAC, "rolebindings"),
];

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

const RIGHTS: &str = "rights";

/// Checks the rights of the user, of which some are `missing`, and whether there is an installation already.
pub fn section(
    missing: &Result<Vec<Right>, ReadError>,
    installations: &Result<Vec<String>, ReadError>,
) -> Section {
    Section::new(
        "installation",
        vec![rights(missing), no_other(installations)],
    )
}

fn rights(missing: &Result<Vec<Right>, ReadError>) -> CheckResult {
    match missing {
        Ok(missing) if missing.is_empty() => {
            CheckResult::ok(RIGHTS, "you may create the objects of the chart")
        }
        Ok(missing) => {
            let missing = list(missing.iter().map(ToString::to_string));
            CheckResult::error(RIGHTS, format!("you may not {missing}"))
                .with_remedy("let a cluster administrator install the chart")
        }
        Err(error) => {
            let what = "whether you may create the objects of the chart";
            CheckResult::unknown_blocking(RIGHTS, what, error)
        }
    }
}

fn no_other(installations: &Result<Vec<String>, ReadError>) -> CheckResult {
    const NAME: &str = "other-installations";
    match installations {
        Ok(names) if names.is_empty() => {
            CheckResult::ok(NAME, "envoy-drainer is not installed yet")
        }
        Ok(names) => {
            let names = list_names(names);
            CheckResult::warning(NAME, format!("envoy-drainer is installed already: {names}"))
                .with_remedy("upgrade it instead; without `--pre`, this command checks it")
        }
        Err(error) => CheckResult::unknown(NAME, "whether it is installed already", error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Severity, is_healthy};
    use super::*;

    #[test]
    fn missing_rights_are_errors_and_an_installation_is_a_warning() {
        let severities = |missing: Vec<Right>, installations: Vec<String>| {
            let section = section(&Ok(missing), &Ok(installations));
            let severities = section.results.iter().map(|result| result.severity);
            (severities.collect::<Vec<_>>(), is_healthy(&[section]))
        };
        let ok = (vec![Severity::Ok, Severity::Ok], Some(true));
        assert_eq!(severities(vec![], vec![]), ok);
        let installed = (vec![Severity::Ok, Severity::Warning], Some(true));
        assert_eq!(severities(vec![], vec!["edge".to_owned()]), installed);
        let (of_rights, healthy) = severities(CLUSTER_RIGHTS[..2].to_vec(), vec![]);
        assert_eq!((of_rights[0], healthy), (Severity::Error, Some(false)));
        let section = section(&Ok(CLUSTER_RIGHTS[..2].to_vec()), &Ok(vec![]));
        assert_eq!(
            section.results[0].message,
            "you may not create namespaces, create mutatingwebhookconfigurations.admissionregistration.k8s.io"
        );
    }
}
