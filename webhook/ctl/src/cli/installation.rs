//! Reads the installation of a cluster, for `check` and `explain`.

pub mod serve_args;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;

use crate::check::CheckResult;
use crate::check::installation::{self, Installation, ServeArgsError};
use crate::kubernetes::{ClusterReader, ReadError};

use serve_args::{ServeArgs, serve_container};

/// Finds the installation of the configuration `chosen`, or the first.
///
/// # Errors
/// When there is none, or webhook configurations cannot be read: the result of `check`.
pub(super) async fn find_installation(
    reader: &ClusterReader,
    chosen: Option<&str>,
) -> Result<Installation, Box<CheckResult>> {
    let mut configurations = Vec::new();
    let read = reader
        .for_each(|configuration| configurations.push(configuration))
        .await;
    match read {
        Ok(()) => installation::find(configurations, chosen),
        Err(error) => Err(Box::new(installation::unknown_installation(&error))),
    }
}

/// Reads the Deployment whose pods the Service selects; `None` if there is none.
///
/// # Errors
/// When it or the Service cannot be read.
pub(super) async fn read_deployment(
    reader: &ClusterReader,
    installation: &Installation,
    service: Result<&Option<Service>, &ReadError>,
) -> Result<Option<Deployment>, ReadError> {
    let Some(labels) = service.map_err(Clone::clone).map(selector)? else {
        return Ok(None);
    };
    let deployments = reader.list(&installation.namespace, labels).await?;
    Ok(deployments.into_iter().next())
}

/// The labels by which a Service selects its pods.
pub(super) fn selector(service: &Option<Service>) -> Option<&BTreeMap<String, String>> {
    service.as_ref()?.spec.as_ref()?.selector.as_ref()
}

/// The arguments of `serve` in the Deployment's pods; `None` if no container runs it.
pub(super) fn serve_args(
    deployment: &Deployment,
    installation: &Installation,
) -> Option<Result<ServeArgs, ServeArgsError>> {
    let template = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = serve_container(&template.containers)?;
    Some(ServeArgs::read(container, &installation.namespace))
}
