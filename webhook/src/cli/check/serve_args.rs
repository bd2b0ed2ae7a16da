//! What a running webhook was told by its flags, read by the same code as its own.

use std::error::Error;
use std::ffi::OsStr;

use clap::builder::ArgAction;
use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches};
use k8s_openapi::api::core::v1::{Container, EnvVar};

use crate::admission::Defaults;
use crate::check::certificates::CertificateMode;
use crate::check::installation::ServeArgsError;
use crate::cli::{Cli, Command};

/// What the flags of `serve` decide for pods and certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeArgs {
    /// The defaults for pods.
    pub defaults: Defaults,
    /// Who keeps the certificate.
    pub certificate_mode: CertificateMode,
}

/// The container that serves, of those in the pods of a webhook.
#[must_use]
pub fn serve_container(containers: &[Container]) -> Option<&Container> {
    let is_serving = |container: &&Container| {
        let args = container.args.iter().flatten();
        args.take(1).any(|arg| arg == "serve")
    };
    containers.iter().find(is_serving)
}

// === impl ServeArgs ===

impl ServeArgs {
    /// Reads the flags of a container in a pod of `namespace`.
    ///
    /// # Errors
    /// When they are not those of this version's `serve`, or it would not start with them.
    pub fn read(container: &Container, namespace: &str) -> Result<Self, ServeArgsError> {
        // Variables of this process are not the container's.
        let command = Cli::command()
            .mut_subcommand("serve", |serve| serve.mut_args(|arg| arg.env(None::<&str>)));
        let mut args = vec!["envoy-drainer".to_owned()];
        args.extend(container.args.iter().flatten().cloned());
        args.extend(args_from_env(container, namespace));
        let to_flags_error = |error: clap::Error| {
            let text = error.to_string();
            let sentence = text.lines().take_while(|line| !line.is_empty());
            let words: Vec<_> = sentence.flat_map(str::split_whitespace).collect();
            let message = words.join(" ").trim_start_matches("error: ").to_owned();
            match error.kind() {
                ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
                    ServeArgsError::Invalid(message)
                }
                _ => ServeArgsError::Unknown(message),
            }
        };
        let matches = command.try_get_matches_from(args).map_err(to_flags_error)?;
        let args = Cli::from_arg_matches(&matches).map_err(to_flags_error)?;
        let Command::Serve(args) = args.command else {
            return Err(ServeArgsError::Unknown("it does not serve".to_owned()));
        };
        let invalid = |invalid: &dyn Error| ServeArgsError::Invalid(invalid.to_string());
        let lifetimes = args.tls().lifetimes().map_err(|error| invalid(&error))?;
        let keeper = match args.tls().tls_secret() {
            Some(secret) => CertificateMode::Secret(secret.to_owned()),
            None => CertificateMode::SelfManaged(lifetimes),
        };
        let defaults = args.into_defaults().map_err(|error| invalid(&error))?;
        Ok(Self {
            defaults,
            certificate_mode: keeper,
        })
    }
}

/// The flags that a container's environment stands for, but for those that it gives itself.
fn args_from_env(container: &Container, namespace: &str) -> Vec<String> {
    let command = Cli::command();
    let known = command
        .find_subcommand("serve")
        .into_iter()
        .flat_map(clap::Command::get_arguments);
    let args = || container.args.iter().flatten();
    let flag = |arg: &Arg| {
        let long = arg.get_long()?;
        let given = |arg: &String| {
            let arg = arg.strip_prefix("--");
            arg.is_some_and(|arg| arg.split('=').next() == Some(long))
        };
        let variable = arg.get_env()?;
        let mut variables = container.env.iter().flatten();
        let variable = variables.find(|known| OsStr::new(&known.name) == variable)?;
        let value = env_value(variable, namespace).filter(|_| !args().any(given))?;
        match arg.get_action() {
            ArgAction::SetTrue => (value == "true").then(|| format!("--{long}")),
            _ => Some(format!("--{long}={value}")),
        }
    };
    known.filter_map(flag).collect()
}

/// A variable's value; the one of the downward API that the chart uses is known too.
fn env_value<'a>(variable: &'a EnvVar, namespace: &'a str) -> Option<&'a str> {
    let field = || variable.value_from.as_ref()?.field_ref.as_ref();
    match (&variable.value, field()) {
        (Some(value), _) => Some(value),
        (None, Some(field)) if field.field_path == "metadata.namespace" => Some(namespace),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::OnInvalid;
    use crate::certificates::lifetimes::Lifetimes;

    fn read(args: &[&str], env: &Value) -> Result<ServeArgs, ServeArgsError> {
        let container = json!({"name": "webhook", "args": args, "env": env});
        let containers = [serde_json::from_value(container).unwrap()];
        ServeArgs::read(serve_container(&containers).expect("it serves"), "infra")
    }

    #[test]
    fn flags_and_variables_are_read_as_the_program_reads_them() {
        let env = json!([
            {
                "name": "ENVOY_DRAINER_RELEASE_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
            {"name": "ENVOY_DRAINER_OPENSHIFT", "value": "true"},
            {"name": "ENVOY_DRAINER_ON_INVALID", "value": "warn"},
            {"name": "ENVOY_DRAINER_IMAGE", "value": "a flag goes before it"},
            {"name": "OTHER", "value": "x"},
        ]);
        let args = [
            "serve",
            "--image=drainer:1",
            "--ca-secret=ca",
            "--native-sidecar=false",
        ];
        let flags = read(&args, &env).unwrap();
        let wanted = Defaults {
            open_shift: true,
            on_invalid: OnInvalid::Warn,
            native_sidecar: false,
            ..Defaults::new("drainer:1", "infra")
        };
        assert_eq!(flags.defaults, wanted);
        let lifetimes = Lifetimes::default();
        assert_eq!(
            flags.certificate_mode,
            CertificateMode::SelfManaged(lifetimes)
        );
        let flags = read(&["serve", "--image", "a", "--tls-secret=mine"], &json!([])).unwrap();
        assert_eq!(
            flags.certificate_mode,
            CertificateMode::Secret("mine".to_owned())
        );
    }

    #[test]
    fn flags_of_another_version_are_told() {
        let error = read(&["serve", "--image=a", "--new=1"], &json!([])).unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument '--new' found");
        let error = read(&["serve"], &json!([])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the following required arguments were not provided: --image <IMAGE>"
        );
    }

    #[test]
    fn values_with_which_the_program_would_not_start_are_told_as_such() {
        for args in [
            ["--image=a", "--drain-timeout=5s"],
            ["--image=a", "--drain-timeout=5"],
            ["--image=a", "--on-invalid=shrug"],
            ["--image=a", "--ca-lifetime=1h"],
        ] {
            let args: Vec<_> = ["serve"].into_iter().chain(args).collect();
            let error = read(&args, &json!([])).unwrap_err();
            assert!(
                matches!(error, ServeArgsError::Invalid(_)),
                "{args:?}: {error:?}"
            );
        }
        let error = read(&["serve", "--image=a", "--new=1"], &json!([])).unwrap_err();
        assert!(matches!(error, ServeArgsError::Unknown(_)), "{error:?}");
    }

    #[test]
    fn a_container_that_does_not_serve_is_none_of_ours() {
        let other: Container = serde_json::from_value(json!({"name": "mesh"})).unwrap();
        assert_eq!(serve_container(&[other]), None);
    }
}
