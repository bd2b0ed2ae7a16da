//! What `check` looks at, as it is. It changes nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Debug};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kube::core::Status;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::client::{Access, NoCluster};
use super::tunnel;
use crate::check::certificates::Shown;
use crate::check::trial::Answer;
use crate::check::{Call, Unseen};

/// Longer than a healthy API server takes for a page.
const DEADLINE: Duration = Duration::from_secs(15);

/// Longer than an API server takes to make a pod, with webhooks that do not answer: 34 s.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/rest.go>
const TRIAL_DEADLINE: Duration = Duration::from_secs(40);

/// How many objects of a long list are in memory at a time.
const PAGE: u32 = 100;

/// A cluster, as whoever calls may see it.
#[derive(Clone)]
pub struct Survey {
    client: Client,
    server: String,
}

// === impl Survey ===

impl Survey {
    /// Finds the cluster; whether it answers is another question.
    ///
    /// # Errors
    /// When there is none.
    pub async fn open(access: Access) -> Result<Self, NoCluster> {
        let config = access.config().await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(NoCluster::Client)?;
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
    pub async fn version(&self) -> Result<Info, Unseen> {
        let call = Call {
            verb: "get",
            resource: "/version",
            namespace: None,
        };
        within(DEADLINE, call, self.client.apiserver_version()).await
    }

    /// Reads all webhook configurations. A cluster has a few of them.
    ///
    /// # Errors
    /// When they cannot be seen.
    pub async fn configurations(&self) -> Result<Vec<MutatingWebhookConfiguration>, Unseen> {
        let mut all = Vec::new();
        let api = Api::all(self.client.clone());
        each(&api, None, |configuration| all.push(configuration)).await?;
        Ok(all)
    }

    /// Reads a Service; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub async fn service(&self, namespace: &str, name: &str) -> Result<Option<Service>, Unseen> {
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
    ) -> Result<Option<Deployment>, Unseen> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let mut first = None;
        each(&api, Some(labels), |deployment| {
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
    ) -> Result<Vec<Pod>, Unseen> {
        let api = Api::namespaced(self.client.clone(), namespace);
        let mut all = Vec::new();
        each(&api, Some(labels), |pod| all.push(pod)).await?;
        Ok(all)
    }

    /// Returns true if there is a ValidatingAdmissionPolicy of this name, and a binding of the same.
    ///
    /// # Errors
    /// When that cannot be seen.
    pub async fn policy(&self, name: &str) -> Result<bool, Unseen> {
        let policy: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let binding: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        Ok(get(&policy, name).await?.is_some() && get(&binding, name).await?.is_some())
    }

    /// Hands over every namespace's metadata.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn each_namespace(&self, mut seen: impl FnMut(ObjectMeta)) -> Result<(), Unseen> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        each(&api, None, |namespace| seen(namespace.metadata)).await
    }

    /// Hands over every node.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn each_node(&self, seen: impl FnMut(Node)) -> Result<(), Unseen> {
        each(&Api::all(self.client.clone()), None, seen).await
    }

    /// Hands over every pod.
    ///
    /// # Errors
    /// When not all of them could be seen.
    pub async fn each_pod(&self, seen: impl FnMut(Pod)) -> Result<(), Unseen> {
        each(&Api::all(self.client.clone()), None, seen).await
    }

    /// Asks what would become of a pod, without making it.
    ///
    /// # Errors
    /// When whoever calls may not ask, or there is no answer.
    pub async fn try_pod(&self, namespace: &str, pod: &Pod) -> Result<Answer, Unseen> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let call = call_of::<Pod>("create", Some(namespace));
        match timeout(TRIAL_DEADLINE, api.create(&params, pod)).await {
            Ok(Err(kube::Error::Api(status))) if refuses(&status) => Ok(Err(status.message)),
            Ok(answer) => answer.map(Ok).map_err(|error| unseen(call, error)),
            Err(_) => Err(Unseen::Late(call)),
        }
    }

    /// Calls a pod as API servers call it, but through a tunnel, and takes what it shows.
    ///
    /// # Errors
    /// When whoever calls may not, or there is no tunnel.
    pub async fn shown(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        host: &str,
    ) -> Result<Shown, Unseen> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let call = Call {
            verb: "create",
            resource: "pods/portforward",
            namespace: Some(namespace.to_owned()),
        };
        let forwarded = within(DEADLINE, call.clone(), api.portforward(pod, &[port])).await?;
        match timeout(DEADLINE, tunnel::chain(forwarded, port, host)).await {
            Ok(Ok(chain)) => Ok(Shown::Chain(chain)),
            Ok(Err(why)) => Ok(Shown::Nothing(why)),
            Err(_) => Ok(Shown::Nothing("no answer in time".to_owned())),
        }
    }
}

impl Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Hands over every object of a list, a page at a time.
async fn each<K>(
    api: &Api<K>,
    labels: Option<&BTreeMap<String, String>>,
    mut seen: impl FnMut(K),
) -> Result<(), Unseen>
where
    K: kube::Resource + k8s_openapi::Resource + Clone + Debug + DeserializeOwned,
{
    let labels = labels.map(|labels| {
        let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
        labels.collect::<Vec<_>>().join(",")
    });
    let mut page = ListParams::default().limit(PAGE);
    page.label_selector = labels;
    loop {
        let call = call_of::<K>("list", api.namespace());
        let list = within(DEADLINE, call, api.list(&page)).await?;
        list.items.into_iter().for_each(&mut seen);
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(()),
        }
    }
}

async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, Unseen>
where
    K: kube::Resource + k8s_openapi::Resource + Clone + Debug + DeserializeOwned,
{
    let call = call_of::<K>("get", api.namespace());
    within(DEADLINE, call, api.get_opt(name)).await
}

fn call_of<K: k8s_openapi::Resource>(verb: &'static str, namespace: Option<&str>) -> Call {
    Call {
        verb,
        resource: K::URL_PATH_SEGMENT,
        namespace: namespace.map(ToOwned::to_owned),
    }
}

async fn within<T>(
    deadline: Duration,
    call: Call,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Unseen> {
    match timeout(deadline, answer).await {
        Ok(answer) => answer.map_err(|error| unseen(call, error)),
        Err(_) => Err(Unseen::Late(call)),
    }
}

fn unseen(call: Call, error: kube::Error) -> Unseen {
    match error {
        kube::Error::Api(status) if status.code == 403 => Unseen::Forbidden(call),
        kube::Error::Api(status) => Unseen::Failed {
            call,
            why: status.message,
        },
        error => Unseen::Failed {
            call,
            why: deepest(&error),
        },
    }
}

/// The source that knows what happened: those above it say only whom they ask.
fn deepest(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Returns true if a pod is refused for what it is, and not whoever asks for who they are.
fn refuses(status: &Status) -> bool {
    match status.code {
        // Access rules speak of users and verbs, everyone else of the pod.
        // <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go>
        403 => !status.message.contains("cannot create resource"),
        401 | 404 | 408 | 409 | 429 | 503 | 504 => false,
        code => code >= 400,
    }
}
