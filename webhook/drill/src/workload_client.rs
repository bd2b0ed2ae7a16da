//! Acts on a workload and its pods, with the rights of the user: the calls of `drill`.

use anyhow::Context;
use ctl::cli::object_arg::ObjectArg;
use ctl::restart::restart;
use futures_util::AsyncBufRead;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, EvictParams, ListParams, LogParams, PostParams};
use kubernetes::{ClusterReader, DEADLINE, ReadError, api_call, with_deadline};
use serde_json::json;

use crate::disruption::{Disruption, LoadOrigin};
use crate::job::{LABEL, NAME};
use crate::workload::Workload;

/// A workload of a cluster, and what may be done to it.
#[derive(Clone)]
pub(super) struct WorkloadClient {
    pub(super) reader: ClusterReader,
    pub(super) namespace: String,
    name: ObjectArg,
}

// === impl WorkloadClient ===

impl WorkloadClient {
    pub(super) fn new(reader: ClusterReader, namespace: String, name: ObjectArg) -> Self {
        Self {
            reader,
            namespace,
            name,
        }
    }

    /// The rights for a drill that the user lacks, such as `patch deployments`.
    ///
    /// # Errors
    /// If they cannot be reviewed, which does not say that one is lacking.
    ///
    /// # Panics
    /// Never: a review is constant but for texts.
    pub(super) async fn missing_rights(
        &self,
        disruption: Disruption,
        origin: LoadOrigin,
    ) -> Result<Vec<String>, ReadError> {
        let workload = ApiResource::from_gvk(&self.name.kind);
        let api = Api::<SelfSubjectAccessReview>::all(self.reader.client());
        let params = PostParams::default();
        let mut missing = Vec::new();
        for [verb, group, resource] in disruption.rights(&workload, origin) {
            let is_workload = (group, resource) == (&workload.group, &workload.plural);
            let (kind, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let review = json!({"spec": {"resourceAttributes": {
                "namespace": self.namespace, "name": is_workload.then_some(&self.name.name),
                "verb": verb, "group": group, "resource": kind, "subresource": subresource,
            }}});
            let review = serde_json::from_value(review).expect("the object is a review");
            let reviewed = api.create(&params, &review);
            let reviewed = self.call("create", "selfsubjectaccessreviews", reviewed);
            let status = reviewed.await?.status;
            // An authorizer that has failed denies nothing.
            // <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>
            if status.is_some_and(|it| !it.allowed && it.evaluation_error.is_none()) {
                missing.push(format!("{verb} {resource}"));
            }
        }
        Ok(missing)
    }

    /// Reads the workload; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is of another shape.
    pub(super) async fn workload(&self) -> anyhow::Result<Option<Workload>> {
        let ObjectArg { kind, name } = &self.name;
        let object = self.reader.object(kind, &self.namespace, name).await?;
        let workload = object.map(Workload::read).transpose();
        workload.with_context(|| self.name.to_string())
    }

    /// Restarts it.
    pub(super) async fn restart(&self) -> Result<(), ReadError> {
        let ObjectArg { kind, name } = &self.name;
        restart(&self.reader, kind, &self.namespace, name).await
    }

    /// Evicts a pod. Returns the reason if a disruption budget does not allow it now.
    pub(super) async fn evict(&self, pod: &str) -> Result<Option<String>, ReadError> {
        const TOO_MANY_REQUESTS: u16 = 429;
        let (api, params) = (self.pods(), EvictParams::default());
        let evicted = async {
            match api.evict(pod, &params).await {
                Err(kube::Error::Api(status)) if status.code == TOO_MANY_REQUESTS => {
                    Ok(Some(status.message))
                }
                evicted => evicted.map(|_| None),
            }
        };
        self.call("create", "pods/eviction", evicted).await
    }

    /// Deletes a pod.
    pub(super) async fn delete_pod(&self, pod: &str) -> Result<(), ReadError> {
        let (api, params) = (self.pods(), DeleteParams::default());
        let deleted = api.delete(pod, &params);
        self.call("delete", "pods", deleted).await.map(drop)
    }

    /// Creates a Job, and returns its name and its uid.
    pub(super) async fn create_job(&self, job: &Job) -> Result<(String, String), ReadError> {
        let (api, params) = (self.jobs(), PostParams::default());
        let created = api.create(&params, job);
        let job = self.call("create", "jobs", created).await?;
        let ObjectMeta { name, uid, .. } = job.metadata;
        Ok((name.unwrap_or_default(), uid.unwrap_or_default()))
    }

    /// Deletes a Job and its pod, which gets SIGTERM. A Job that is gone is no error.
    pub(super) async fn delete_job(&self, name: &str) -> Result<(), ReadError> {
        const NOT_FOUND: u16 = 404;
        let (api, params) = (self.jobs(), DeleteParams::background());
        let deleted = async {
            match api.delete(name, &params).await {
                Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
                deleted => deleted.map(drop),
            }
        };
        self.call("delete", "jobs", deleted).await
    }

    /// The pods that the Job with this uid controls, by their owner: each user who may create pods may label them.
    pub(super) async fn job_pods(&self, job_uid: &str) -> Result<Vec<Pod>, ReadError> {
        let api = self.pods();
        let params = ListParams::default().labels(&format!("{LABEL}={NAME}"));
        let mut pods = self.call("list", "pods", api.list(&params)).await?.items;
        pods.retain(|pod| {
            let mut owners = pod.owner_references().iter();
            owners.any(|owner| owner.uid == job_uid && owner.controller == Some(true))
        });
        Ok(pods)
    }

    /// The logs of a pod with one container, until it ends.
    pub(super) async fn follow_logs(
        &self,
        pod: &str,
    ) -> Result<impl AsyncBufRead + use<>, ReadError> {
        let params = LogParams {
            follow: true,
            ..LogParams::default()
        };
        let api = self.pods();
        let logs = api.log_stream(pod, &params);
        self.call("get", "pods/log", logs).await
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.reader.client(), &self.namespace)
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.reader.client(), &self.namespace)
    }

    /// Waits for the response to a call.
    async fn call<T>(
        &self,
        verb: &str,
        resource: &str,
        response: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ReadError> {
        let call = api_call(verb, resource, Some(&self.namespace));
        with_deadline(DEADLINE, call, response).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;

    use k8s_openapi::jiff::Timestamp;
    use kubernetes::{Change, ObjectSelector};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api;

    /// The verb, the API group and the resource of a request, as in RBAC.
    fn right(request: &str) -> [String; 3] {
        let (line, _) = request.rsplit_once(' ').unwrap();
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (api, objects) = path.split_once("/namespaces/shop/").unwrap();
        let group = api
            .strip_prefix("/apis/")
            .and_then(|it| it.split('/').next());
        let mut segments = objects.split('/');
        let (resource, name, subresource) = (segments.next(), segments.next(), segments.next());
        let verb = match method {
            "POST" => "create",
            "GET" if query.contains("watch=") => "watch",
            "GET" if name.is_none() => "list",
            method => &method.to_lowercase(),
        };
        let resource = resource.into_iter().chain(subresource).collect::<Vec<_>>();
        [verb, group.unwrap_or_default(), &resource.join("/")].map(ToOwned::to_owned)
    }

    /// Does all that a drill does.
    async fn drill(client: &WorkloadClient, disruption: Disruption, origin: LoadOrigin) {
        client.workload().await.unwrap();
        let pods = ObjectSelector {
            namespace: Some(client.namespace.clone()),
            ..ObjectSelector::default()
        };
        let reader = &client.reader;
        let version = reader.select(&pods, |_: Pod| {}).await.unwrap();
        let visit = |_: Change<Pod>| ControlFlow::Break(());
        reader.watch(&pods, version, visit).await.unwrap();
        match disruption {
            Disruption::Rollout => client.restart().await.unwrap(),
            Disruption::Evict => drop(client.evict("edge-0").await.unwrap()),
            Disruption::Delete => client.delete_pod("edge-0").await.unwrap(),
        }
        if origin == LoadOrigin::Cluster {
            client.create_job(&Job::default()).await.unwrap();
            client.job_pods("1").await.unwrap();
            drop(client.follow_logs("load").await.unwrap());
            client.delete_job("drill-1").await.unwrap();
        }
    }

    /// What the API server answers to a request of this right.
    fn answer([verb, _, resource]: [&str; 3]) -> Value {
        match (verb, resource) {
            ("list", _) => json!({"metadata": {"resourceVersion": "1"}, "items": []}),
            ("watch", _) => json!({"type": "ADDED", "object": {"metadata": {}}}),
            ("delete", _) | (_, "pods/eviction") => json!({"kind": "Status", "status": "Success"}),
            ("create", _) => json!({"metadata": {}}),
            _ => {
                let template = json!({"spec": {"containers": []}});
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}})
            }
        }
    }

    #[tokio::test]
    async fn drill_needs_the_rights_that_are_reviewed() {
        for (name, disruption, origin) in [
            ("deploy/edge", Disruption::Rollout, LoadOrigin::Cluster),
            ("rollout/edge", Disruption::Rollout, LoadOrigin::Here),
            ("deploy/edge", Disruption::Evict, LoadOrigin::Here),
            ("deploy/edge", Disruption::Delete, LoadOrigin::Cluster),
        ] {
            let (client, requests) = fake_api::start(name, |request| {
                let right = right(request);
                (
                    200,
                    answer(right.each_ref().map(String::as_str)).to_string(),
                )
            });
            drill(&client, disruption, origin).await;
            let used: BTreeSet<_> = requests.try_iter().map(|it| right(&it)).collect();
            let workload = ApiResource::from_gvk(&client.name.kind);
            let reviewed = disruption.rights(&workload, origin).into_iter();
            let reviewed = reviewed.map(|right| right.map(ToOwned::to_owned));
            assert_eq!(used, reviewed.collect(), "{name} {disruption} {origin:?}");
        }
    }

    /// The rights that a drill in the cluster lacks by these answers to reviews, and the attributes that were reviewed.
    async fn review(
        disruption: Disruption,
        respond: impl Fn(&Value) -> (u16, Value) + Send + 'static,
    ) -> (Result<Vec<String>, ReadError>, Vec<Value>) {
        const REVIEWS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews? ";
        let attributes = |request: &str| {
            let review: Value = request.strip_prefix(REVIEWS).unwrap().parse().unwrap();
            review["spec"]["resourceAttributes"].clone()
        };
        let (client, requests) = fake_api::start("rollout/edge", move |request| {
            let (status, body) = respond(&attributes(request));
            (status, body.to_string())
        });
        let missing = client.missing_rights(disruption, LoadOrigin::Cluster).await;
        let reviewed = requests.try_iter().map(|it| attributes(&it));
        (missing, reviewed.collect())
    }

    #[tokio::test]
    async fn all_rights_that_a_drill_lacks_are_named_at_once() {
        let respond = |right: &Value| {
            let is_allowed = right["verb"] != "create" && right["subresource"] != "log";
            (201, json!({"spec": {}, "status": {"allowed": is_allowed}}))
        };
        let (missing, reviewed) = review(Disruption::Evict, respond).await;
        let want = ["create pods/eviction", "create jobs", "get pods/log"];
        assert_eq!(missing.unwrap(), want);
        let workload = json!({
            "namespace": "shop", "verb": "get", "group": "argoproj.io", "resource": "rollouts", "subresource": "",
            // A role may name it.
            "name": "edge",
        });
        assert_eq!(reviewed[0], workload);
        let eviction = json!({
            "namespace": "shop", "verb": "create", "group": "", "resource": "pods", "subresource": "eviction",
        });
        assert_eq!(reviewed[3], eviction);
    }

    /// An authorizer may have failed, and the API server may refuse the reviews themselves.
    #[tokio::test]
    async fn right_that_cannot_be_reviewed_is_not_missing() {
        let unknown = json!({"allowed": false, "evaluationError": "no response"});
        let respond = move |_: &Value| (201, json!({"spec": {}, "status": unknown}));
        let (missing, reviewed) = review(Disruption::Rollout, respond).await;
        assert_eq!(missing.unwrap(), Vec::<String>::new());
        assert_eq!(reviewed.len(), 7);
        let forbidden =
            json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no"});
        let respond = move |_: &Value| (403, forbidden.clone());
        let (missing, reviewed) = review(Disruption::Rollout, respond).await;
        assert!(missing.is_err(), "{missing:?}");
        assert_eq!(reviewed.len(), 1);
    }

    #[tokio::test]
    async fn custom_resources_are_read_and_restarted() {
        for (name, group, kind, path, field) in [
            (
                "rollout/edge",
                "argoproj.io/v1alpha1",
                "Rollout",
                "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/edge",
                "/spec/restartAt",
            ),
            (
                "clonesets.v1alpha1.apps.kruise.io/edge",
                "apps.kruise.io/v1alpha1",
                "CloneSet",
                "/apis/apps.kruise.io/v1alpha1/namespaces/shop/clonesets/edge",
                "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt",
            ),
        ] {
            let template = json!({"spec": {"containers": []}});
            let object = json!({"apiVersion": group, "kind": kind, "spec": {"template": template}});
            let (client, requests) = fake_api::start(name, move |_| (200, object.to_string()));
            assert!(client.workload().await.unwrap().is_some(), "{name}");
            client.restart().await.unwrap();
            let requests: Vec<_> = requests.try_iter().collect();
            assert_eq!(requests[0], format!("GET {path} "));
            let (line, body) = requests[1].rsplit_once("? ").unwrap();
            assert_eq!(line, format!("PATCH {path}"));
            let mut patch: Value = body.parse().unwrap();
            let time = patch.pointer_mut(field).unwrap().take();
            time.as_str().unwrap().parse::<Timestamp>().unwrap();
            assert_eq!(
                patch.to_string().matches(':').count(),
                field.matches('/').count()
            );
        }
    }

    #[tokio::test]
    async fn right_that_a_drill_lacks_is_named() {
        let (client, _requests) = fake_api::start("rollout/edge", |_| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "no",
            });
            (403, status.to_string())
        });
        let error = client.workload().await.unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "forbidden: get rollouts in the namespace `shop`"
        );
        let error = client.restart().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "forbidden: patch rollouts in the namespace `shop`"
        );
    }
}
