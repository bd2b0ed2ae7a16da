//! Reads a cluster with the rights of the user, and changes nothing.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::{GroupVersionKind, ObjectList, Request, Selector, Status};
use kube::{Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::config::connect;
use crate::read_error::{ReadError, api_call};
use crate::requests::{self, Item};

/// Longer than a healthy API server takes for a page.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// Longer than an API server takes to create a pod while webhooks do not respond: 34 s.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/rest.go>
const DRY_RUN_DEADLINE: Duration = Duration::from_secs(40);

/// How many objects of a long list are in memory at once.
const PAGE_SIZE: u32 = 100;

/// A cluster. Each method fails if the objects, or some of them, cannot be read.
#[derive(Clone)]
pub struct ClusterReader {
    pub(crate) client: Client,
    server: String,
    pub(crate) report: fn(&ReadError),
    has_left_out: Arc<AtomicBool>,
}

/// A kind of the API, as k8s-openapi defines it.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned> Object for K {}

/// Which objects of a kind to read: by default all of the cluster.
#[derive(Debug, Clone, Default)]
pub struct ObjectSelector {
    /// Their namespace; `None` for all.
    pub namespace: Option<String>,
    /// The selectors of labels and fields.
    pub params: ListParams,
}

/// The pod as it would be created, or the message of its rejection.
pub type DryRunResult = Result<Pod, String>;

// === impl ClusterReader ===

impl ClusterReader {
    /// Creates a client. It does not connect yet. `report` gets the errors of objects that are left out of lists and
    /// watches, since they cannot be decoded, and those after which a watch goes on.
    ///
    /// # Errors
    /// When the configuration is unusable.
    pub fn from_config(config: Config, report: fn(&ReadError)) -> anyhow::Result<Self> {
        let server = config.cluster_url.to_string();
        let client = connect(config)?;
        Ok(Self {
            client,
            server,
            report,
            has_left_out: Arc::default(),
        })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether an object was left out so far.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out.load(Ordering::Relaxed)
    }

    /// The object, unless it is left out.
    pub(crate) fn keep<K>(&self, item: Item<K>, call: &str) -> Option<K> {
        let Item { name, object, .. } = item;
        if object.is_none() {
            let call = call.to_owned();
            (self.report)(&ReadError::Undecodable { name, call });
            self.has_left_out.store(true, Ordering::Relaxed);
        }
        object
    }

    /// The client, for calls that change something.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads the API server's version.
    pub async fn version(&self) -> Result<Info, ReadError> {
        let call = api_call("get", "/version", None);
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
    pub async fn list<K: Object>(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<K>, ReadError> {
        let mut all = Vec::new();
        let labels: Selector = labels.clone().into_iter().collect();
        let selector = ObjectSelector {
            namespace: Some(namespace.to_owned()),
            params: ListParams::default().labels_from(&labels),
        };
        self.select(&selector, |object| all.push(object)).await?;
        Ok(all)
    }

    /// Reads the objects of all namespaces with these labels (`key=value`), which should be few, of a kind that is
    /// known at run time only.
    pub async fn objects(
        &self,
        kind: &GroupVersionKind,
        labels: &str,
    ) -> Result<Vec<DynamicObject>, ReadError> {
        let resource = ApiResource::from_gvk(kind);
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let call = api_call("list", &resource.plural, None);
        let params = ListParams::default().labels(labels);
        let list = with_deadline(DEADLINE, call, api.list(&params)).await?;
        Ok(list.items)
    }

    /// Reads an object of a kind that is known at run time only; `None` if there is none.
    pub async fn object(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let resource = ApiResource::from_gvk(kind);
        let client = self.client.clone();
        let api = Api::<DynamicObject>::namespaced_with(client, namespace, &resource);
        let call = api_call("get", &resource.plural, Some(namespace));
        with_deadline(DEADLINE, call, requests::get(&api, name)).await
    }

    /// Visits the objects of a kind that a selector matches, but for those that are left out. Returns the version of the
    /// list, from which [`ClusterReader::watch`] continues.
    pub async fn select<K: Object>(
        &self,
        selector: &ObjectSelector,
        mut visit: impl FnMut(K),
    ) -> Result<String, ReadError> {
        let (objects, call) = selector.objects::<K>("list");
        let mut page = selector.params.clone().limit(PAGE_SIZE);
        loop {
            let list = async {
                let request = objects.list(&page).map_err(kube::Error::BuildRequest)?;
                self.client.request(request).await
            };
            let list: ObjectList<_> = with_deadline(DEADLINE, call.clone(), list).await?;
            let items = list.items.into_iter();
            let kept = items.filter_map(|item| self.keep(item, &call));
            kept.for_each(&mut visit);
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(list.metadata.resource_version.unwrap_or_default()),
            }
        }
    }

    /// Returns true if a ValidatingAdmissionPolicy has this name, and a binding as well.
    pub async fn has_policy(&self, name: &str) -> Result<bool, ReadError> {
        let policy: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let binding: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        Ok(get(&policy, name).await?.is_some() && get(&binding, name).await?.is_some())
    }

    /// Creates a pod as a dry run.
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>
    ///
    /// # Errors
    /// When the user may not create pods, or there is no response.
    pub async fn dry_run_pod(&self, namespace: &str, pod: &Pod) -> Result<DryRunResult, ReadError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        // Without the namespace, so that one error of several namespaces is reported once.
        let call = api_call("create", "pods", None);
        let response = async {
            match api.create(&params, pod).await {
                Err(kube::Error::Api(status)) if is_pod_rejection(&status) => {
                    Ok(Err(status.message))
                }
                created => created.map(Ok),
            }
        };
        with_deadline(DRY_RUN_DEADLINE, call, response).await
    }
}

// === impl ObjectSelector ===

impl ObjectSelector {
    /// What sends requests for objects of a kind, and the call of this verb as errors name it.
    pub(crate) fn objects<K: Object>(&self, verb: &str) -> (Request, String) {
        let namespace = self.namespace.as_deref();
        let objects = Request::new(K::url_path(&(), namespace));
        (objects, api_call(verb, &K::plural(&()), namespace))
    }
}

/// Returns true if the pod is rejected, and not the user or the request.
fn is_pod_rejection(status: &Status) -> bool {
    let details = status.details.as_ref();
    match status.code {
        // RBAC names the resource, policies the pod, and webhooks what they want to.
        // <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go>
        403 => details.is_none_or(|it| it.kind != "pods" || !it.name.is_empty()),
        // Among others, a webhook does not support dry runs.
        // <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects>
        400 => status.reason != "BadRequest",
        401 | 404 | 408 | 409 | 429 | 503 | 504 => false,
        code => code >= 400,
    }
}

/// Reads an object; `None` if there is none.
async fn get<K: Object>(api: &Api<K>, name: &str) -> Result<Option<K>, ReadError> {
    let call = api_call("get", &K::plural(&()), api.namespace());
    with_deadline(DEADLINE, call, api.get_opt(name)).await
}

/// Waits for a response.
pub async fn with_deadline<T>(
    deadline: Duration,
    call: String,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReadError> {
    match timeout(deadline, response).await {
        Ok(result) => result.map_err(|error| ReadError::from_kube(call, error)),
        Err(_) => Err(ReadError::Timeout(call)),
    }
}
