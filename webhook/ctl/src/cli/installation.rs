//! Reads the installation of a cluster, with the arguments of its `serve`, for `check` and `explain`.

use admission::Defaults;
use clap::error::ErrorKind;
use clap::{Args as _, Command, FromArgMatches};
use flags::serve;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Service};
use kubernetes::{ClusterReader, Object, ObjectSelector, ReadError};

use crate::check::CheckResult;
use crate::check::certificates::CertificateMode;
use crate::check::installation::{self, Installation, ServeArgsError};

/// What the arguments of the running `serve` decide for pods and certificates, parsed by the same code as its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeArgs {
    /// The defaults of pods.
    pub defaults: Defaults,
    /// Where the certificate comes from.
    pub certificate_mode: CertificateMode,
}

/// Finds the installation of the configuration `chosen`, or the first.
///
/// # Errors
/// When there is none, or webhook configurations cannot be read: the result of `check`.
pub async fn find_installation(
    reader: &ClusterReader,
    chosen: Option<&str>,
) -> Result<Installation, Box<CheckResult>> {
    let mut configurations = Vec::new();
    let all = ObjectSelector::default();
    let read = reader.select(&all, |configuration| configurations.push(configuration));
    let unknown = |error| Box::new(installation::unknown_installation(&error));
    read.await.map_err(unknown)?;
    installation::find(configurations, chosen)
}

/// Lists the objects with the labels by which a Service selects its pods: the pods, or the Deployment.
///
/// # Errors
/// When they or the Service cannot be read.
pub async fn list_selected<K: Object>(
    reader: &ClusterReader,
    namespace: &str,
    service: &Result<Option<Service>, ReadError>,
) -> Result<Vec<K>, ReadError> {
    let service = service.as_ref().map_err(Clone::clone)?;
    let spec = service.as_ref().and_then(|service| service.spec.as_ref());
    match spec.and_then(|spec| spec.selector.as_ref()) {
        Some(labels) => reader.list(namespace, labels).await,
        None => Ok(Vec::new()),
    }
}

/// Finds the Deployment of an installation, behind its Service.
///
/// # Errors
/// When one of the two cannot be read.
pub async fn find_deployment(
    reader: &ClusterReader,
    installation: &Installation,
) -> Result<Option<Deployment>, ReadError> {
    let namespace = &installation.namespace;
    let service = reader.service(namespace, &installation.service).await;
    let deployments = list_selected(reader, namespace, &service).await?;
    Ok(deployments.into_iter().next())
}

/// The container that runs `serve` in the pods of a Deployment.
pub fn serve_container(deployment: &Deployment) -> Option<&Container> {
    let template = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let mut containers = template.containers.iter();
    containers.find(|container| {
        let mut args = container.args.iter().flatten();
        args.next().is_some_and(|arg| arg == "serve")
    })
}

// === impl ServeArgs ===

impl ServeArgs {
    /// The arguments in the Deployment's pods; `None` if no container runs `serve`.
    pub(super) fn of_deployment(
        deployment: &Deployment,
        namespace: &str,
    ) -> Option<Result<Self, ServeArgsError>> {
        Some(Self::read(serve_container(deployment)?, namespace))
    }

    /// Parses the arguments of a container that runs `serve` in a pod of `namespace`.
    ///
    /// # Errors
    /// When this version's `serve` does not know them, or would not start with them.
    pub fn read(container: &Container, namespace: &str) -> Result<Self, ServeArgsError> {
        // In the chart, the only flag that the environment sets.
        let namespace = format!("--release-namespace={namespace}");
        // The first of the container's arguments, `serve`, stands for the name of the command.
        let args = container.args.iter().flatten().cloned().chain([namespace]);
        let args = serve::Args::augment_args(Command::new("serve"))
            .try_get_matches_from(args)
            .and_then(|matches| serve::Args::from_arg_matches(&matches))
            .map_err(|error| parse_error(&error))?;
        let decided = || {
            let drainer_api = args.drainer_api.defaults()?;
            let self_managed = CertificateMode::SelfManaged(args.tls.lifetimes()?);
            let secret = args.tls.tls_secret.map(CertificateMode::Secret);
            Ok(Self {
                defaults: Defaults {
                    drainer_api,
                    ..args.defaults.into_defaults()?
                },
                certificate_mode: secret.unwrap_or(self_managed),
            })
        };
        decided().map_err(|error: anyhow::Error| ServeArgsError::Invalid(error.to_string()))
    }
}

/// The first paragraph of clap's error, in one line; usage follows it.
fn parse_error(error: &clap::Error) -> ServeArgsError {
    let text = error.to_string();
    let paragraph = text.lines().take_while(|line| !line.is_empty());
    let words: Vec<_> = paragraph.flat_map(str::split_whitespace).collect();
    let message = words.join(" ").trim_start_matches("error: ").to_owned();
    match error.kind() {
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => ServeArgsError::Invalid(message),
        _ => ServeArgsError::Unknown(message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use admission::{NativeSidecar, OnInvalid, PodSettings, Settings};
    use pki::lifetimes::Lifetimes;

    fn read(args: &[&str]) -> Result<ServeArgs, ServeArgsError> {
        let deployment = deployment(&json!([{"name": "webhook", "args": args}]));
        ServeArgs::of_deployment(&deployment, "infra").expect("it serves")
    }

    fn deployment(containers: &Value) -> Deployment {
        let template = json!({"spec": {"containers": containers}});
        let deployment = json!({"spec": {"selector": {}, "template": template}});
        serde_json::from_value(deployment).unwrap()
    }

    #[test]
    fn flags_are_parsed_as_by_serve() {
        let args = [
            "serve",
            "--image=drainer:1",
            "--ca-secret=ca",
            "--openshift",
            "--on-invalid=warn",
            "--native-sidecar=false",
        ];
        let args = read(&args).unwrap();
        let want = Defaults {
            openshift: true,
            on_invalid: OnInvalid::Warn,
            settings: Settings::try_new(PodSettings {
                native_sidecar: NativeSidecar::False,
                ..PodSettings::default()
            })
            .unwrap(),
            ..Defaults::new("drainer:1", "infra")
        };
        assert_eq!(args.defaults, want);
        let lifetimes = Lifetimes::default();
        assert_eq!(
            args.certificate_mode,
            CertificateMode::SelfManaged(lifetimes)
        );
        let args = read(&["serve", "--image", "a", "--tls-secret=mine"]).unwrap();
        assert_eq!(
            args.certificate_mode,
            CertificateMode::Secret("mine".to_owned())
        );
    }

    #[test]
    fn unknown_flags_are_reported() {
        let error = read(&["serve", "--image=a", "--new=1"]).unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument '--new' found");
        let error = read(&["serve"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the following required arguments were not provided: --image <IMAGE>"
        );
    }

    #[test]
    fn invalid_values_differ_from_unknown_flags() {
        for args in [
            ["--image=a", "--drain-timeout=5s"],
            ["--image=a", "--drain-timeout=5"],
            ["--image=a", "--on-invalid=shrug"],
            ["--image=a", "--ca-lifetime=1h"],
            ["--image=a", "--drainer-api-listen=[::]:8443"],
        ] {
            let args: Vec<_> = ["serve"].into_iter().chain(args).collect();
            let error = read(&args).unwrap_err();
            assert!(
                matches!(error, ServeArgsError::Invalid(_)),
                "{args:?}: {error:?}"
            );
        }
        let error = read(&["serve", "--image=a", "--new=1"]).unwrap_err();
        assert!(matches!(error, ServeArgsError::Unknown(_)), "{error:?}");
    }

    #[test]
    fn containers_without_serve_are_ignored() {
        let deployment = deployment(&json!([{"name": "mesh"}]));
        assert_eq!(serve_container(&deployment), None);
    }
}
