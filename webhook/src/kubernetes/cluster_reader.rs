//! Read-only access to a cluster, for `check`.

mod dry_run;
mod list;

pub use dry_run::DryRunResult;

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kube::api::Api;

use self::list::{for_each, get, with_deadline};
use super::client::{ClientConfig, ClientConfigError};
use super::read_error::{ApiCall, ReadError};

/// A cluster, with the rights of the user. Each method fails if the objects, or some of them, cannot
/// be read.
#[derive(Clone)]
pub struct ClusterReader {
    client: Client,
    server: String,
}

// === impl ClusterReader ===

impl ClusterReader {
    /// Creates a client. It does not connect yet.
    ///
    /// # Errors
    /// When no cluster is configured.
    pub async fn open(config: ClientConfig) -> Result<Self, ClientConfigError> {
        let config = config.load().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(ClientConfigError::Client)?;
        Ok(Self { client, server })
    }

    /// The URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Reads the API server's version.
    pub async fn version(&self) -> Result<Info, ReadError> {
        let call = ApiCall {
            verb: "get",
            resource: "/version",
            namespace: None,
        };
        with_deadline(call, self.client.apiserver_version()).await
    }

    /// Reads all webhook configurations. A cluster has few of them.
    pub async fn webhook_configurations(
        &self,
    ) -> Result<Vec<MutatingWebhookConfiguration>, ReadError> {
        let mut all = Vec::new();
        let api = Api::all(self.client.clone());
        for_each(&api, None, |configuration| all.push(configuration)).await?;
        Ok(all)
    }

    /// Reads a Service; `None` if there is none.
    pub async fn service(&self, namespace: &str, name: &str) -> Result<Option<Service>, ReadError> {
        get(&Api::namespaced(self.client.clone(), namespace), name).await
    }

    /// Reads the first Deployment with these labels.
    pub async fn deployment(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Option<Deployment>, ReadError> {
        let api = Api::namespaced(self.client.clone(), namespace);
        let mut first = None;
        for_each(&api, Some(labels), |deployment| {
            first.get_or_insert(deployment);
        })
        .await?;
        Ok(first)
    }

    /// Reads the pods of a namespace with these labels, which should be few.
    pub async fn pods(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Pod>, ReadError> {
        let api = Api::namespaced(self.client.clone(), namespace);
        let mut all = Vec::new();
        for_each(&api, Some(labels), |pod| all.push(pod)).await?;
        Ok(all)
    }

    /// Returns true if a ValidatingAdmissionPolicy has this name, and a binding as well.
    pub async fn has_policy(&self, name: &str) -> Result<bool, ReadError> {
        let policy: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let binding: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        Ok(get(&policy, name).await?.is_some() && get(&binding, name).await?.is_some())
    }

    /// Visits the metadata of every namespace.
    pub async fn for_each_namespace(
        &self,
        mut visit: impl FnMut(ObjectMeta),
    ) -> Result<(), ReadError> {
        let visit = |namespace: Namespace| visit(namespace.metadata);
        for_each(&Api::all(self.client.clone()), None, visit).await
    }

    /// Visits every node.
    pub async fn for_each_node(&self, visit: impl FnMut(Node)) -> Result<(), ReadError> {
        for_each(&Api::all(self.client.clone()), None, visit).await
    }

    /// Visits every pod.
    pub async fn for_each_pod(&self, visit: impl FnMut(Pod)) -> Result<(), ReadError> {
        for_each(&Api::all(self.client.clone()), None, visit).await
    }

    /// Visits every ReplicaSet.
    pub async fn for_each_replica_set(
        &self,
        visit: impl FnMut(ReplicaSet),
    ) -> Result<(), ReadError> {
        for_each(&Api::all(self.client.clone()), None, visit).await
    }
}

impl Debug for ClusterReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterReader")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}
