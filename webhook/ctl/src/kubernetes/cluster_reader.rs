//! Read-only access to a cluster, for `check`, `drains` and `explain`.

mod dry_run;
mod list;
mod watch;

pub use dry_run::DryRunResult;
pub use watch::ObjectSelector;

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, Selector};
use kube::{Client, Config};

use self::list::{DEADLINE, NamespacedObject, Object, for_each, get, with_deadline};
use super::client::connect;
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
    /// When the configuration is unusable.
    pub fn from_config(config: Config) -> anyhow::Result<Self> {
        let server = config.cluster_url.to_string();
        let client = connect(config)?;
        Ok(Self { client, server })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Reads the API server's version.
    pub async fn version(&self) -> Result<Info, ReadError> {
        let call = ApiCall::new("get", "/version", None);
        with_deadline(DEADLINE, call, self.client.apiserver_version()).await
    }

    /// Reads a namespace; `None` if there is none.
    pub async fn namespace(&self, name: &str) -> Result<Option<Namespace>, ReadError> {
        get(&Api::all(self.client.clone()), name).await
    }

    /// Reads a Service; `None` if there is none.
    pub async fn service(&self, namespace: &str, name: &str) -> Result<Option<Service>, ReadError> {
        get(&Api::namespaced(self.client.clone(), namespace), name).await
    }

    /// Reads the objects of a namespace with these labels, which should be few.
    pub async fn list<K: NamespacedObject>(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<K>, ReadError> {
        let mut all = Vec::new();
        let api = Api::namespaced(self.client.clone(), namespace);
        let labels: Selector = labels.clone().into_iter().collect();
        let params = ListParams::default().labels_from(&labels);
        for_each(&api, params, |object| all.push(object)).await?;
        Ok(all)
    }

    /// Reads an object of a kind that is known at run time only; `None` if there is none.
    pub async fn object(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, ReadError> {
        let resource = ApiResource::from_gvk(kind);
        let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let call = ApiCall::new("get", &resource.plural, Some(namespace));
        with_deadline(DEADLINE, call, api.get_opt(name)).await
    }

    /// Visits every object of a kind in the cluster.
    pub async fn for_each<K: Object>(&self, visit: impl FnMut(K)) -> Result<(), ReadError> {
        let api = Api::all(self.client.clone());
        for_each(&api, ListParams::default(), visit).await?;
        Ok(())
    }

    /// Returns true if a ValidatingAdmissionPolicy has this name, and a binding as well.
    pub async fn has_policy(&self, name: &str) -> Result<bool, ReadError> {
        let policy: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let binding: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        Ok(get(&policy, name).await?.is_some() && get(&binding, name).await?.is_some())
    }
}
