//! What `check` looks at, as it is. It changes nothing.

mod dry_run;
mod list;

pub use dry_run::DryRunResult;

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kube::api::Api;
use tokio::time::timeout;

use self::list::{for_each, get, with_deadline};
use super::client::{ClientConfig, ClientConfigError};
use super::read_error::{ApiCall, ReadError};
use super::tunnel::{self, Shown};

/// Longer than a healthy API server takes for a page.
const DEADLINE: Duration = Duration::from_secs(15);

/// A cluster, as whoever calls may see it.
#[derive(Clone)]
pub struct ClusterReader {
    client: Client,
    server: String,
}

// === impl ClusterReader ===

impl ClusterReader {
    /// Finds the cluster; whether it answers is another question.
    ///
    /// # Errors
    /// When there is none.
    pub async fn open(access: ClientConfig) -> Result<Self, ClientConfigError> {
        let config = access.config().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(ClientConfigError::Client)?;
        Ok(Self { client, server })
    }

    /// Where the API server is.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Asks the API server for its version.
    ///
    /// # Errors
    /// When it does not say.
    pub async fn version(&self) -> Result<Info, ReadError> {
        let call = ApiCall {
            verb: "get",
            resource: "/version",
            namespace: None,
        };
        with_deadline(call, self.client.apiserver_version()).await
    }

    /// Reads all webhook configurations. A cluster has a few of them.
    ///
    /// # Errors
    /// When they cannot be seen.
    pub async fn webhook_configurations(
        &self,
    ) -> Result<Vec<MutatingWebhookConfiguration>, ReadError> {
        let mut all = Vec::new();
        let api = Api::all(self.client.clone());
        for_each(&api, None, |configuration| all.push(configuration)).await?;
        Ok(all)
    }

    /// Reads a Service; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub async fn service(&self, namespace: &str, name: &str) -> Result<Option<Service>, ReadError> {
        get(&Api::namespaced(self.client.clone(), namespace), name).await
    }

    /// Reads the first Deployment with these labels.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub async fn deployment(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Option<Deployment>, ReadError> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let mut first = None;
        for_each(&api, Some(labels), |deployment| {
            first.get_or_insert(deployment);
        })
        .await?;
        Ok(first)
    }

    /// Reads the pods of a namespace with these labels, which should be few.
    ///
    /// # Errors
    /// When they cannot be seen.
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

    /// Returns true if there is a ValidatingAdmissionPolicy of this name, and a binding of the same.
    ///
    /// # Errors
    /// When that cannot be seen.
    pub async fn has_policy(&self, name: &str) -> Result<bool, ReadError> {
        let policy: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let binding: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        Ok(get(&policy, name).await?.is_some() && get(&binding, name).await?.is_some())
    }

    /// Hands over every namespace's metadata.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn for_each_namespace(
        &self,
        mut visit: impl FnMut(ObjectMeta),
    ) -> Result<(), ReadError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        for_each(&api, None, |namespace| visit(namespace.metadata)).await
    }

    /// Hands over every node.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn for_each_node(&self, visit: impl FnMut(Node)) -> Result<(), ReadError> {
        for_each(&Api::all(self.client.clone()), None, visit).await
    }

    /// Hands over every pod.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn for_each_pod(&self, visit: impl FnMut(Pod)) -> Result<(), ReadError> {
        for_each(&Api::all(self.client.clone()), None, visit).await
    }

    /// Hands over every ReplicaSet.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn for_each_replica_set(
        &self,
        visit: impl FnMut(ReplicaSet),
    ) -> Result<(), ReadError> {
        for_each(&Api::all(self.client.clone()), None, visit).await
    }

    /// Calls a pod as API servers call it, but through a tunnel, and takes what it shows.
    ///
    /// # Errors
    /// When whoever calls may not, or there is no tunnel.
    pub async fn served_chain(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        host: &str,
    ) -> Result<Shown, ReadError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let call = ApiCall {
            verb: "create",
            resource: "pods/portforward",
            namespace: Some(namespace.to_owned()),
        };
        let forwarded = with_deadline(call.clone(), api.portforward(pod, &[port])).await?;
        match timeout(DEADLINE, tunnel::chain(forwarded, port, host)).await {
            Ok(Ok(chain)) => Ok(Shown::Chain(chain)),
            Ok(Err(why)) => Ok(Shown::Nothing(why)),
            Err(_) => Ok(Shown::Nothing("no answer in time".to_owned())),
        }
    }
}

impl Debug for ClusterReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}
