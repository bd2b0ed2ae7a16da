//! Acts on a workload and its pods, with the rights of the user: the calls of `drill`.

use anyhow::Context;
use ctl::restart::restart;
use futures_util::AsyncBufRead;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, LogParams, PostParams};
use kubernetes::{ClusterReader, DEADLINE, ReadError, api_call, with_deadline};

use crate::job::{LABEL, NAME};
use crate::workload::{Workload, WorkloadName};

/// A workload of a cluster, and what may be done to it.
#[derive(Clone)]
pub(super) struct WorkloadClient {
    pub(super) reader: ClusterReader,
    pub(super) namespace: String,
    name: WorkloadName,
}

// === impl WorkloadClient ===

impl WorkloadClient {
    pub(super) fn new(reader: ClusterReader, namespace: String, name: WorkloadName) -> Self {
        Self {
            reader,
            namespace,
            name,
        }
    }

    /// Reads the workload; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is of another shape.
    pub(super) async fn workload(&self) -> anyhow::Result<Option<Workload>> {
        let WorkloadName { kind, name } = &self.name;
        let object = self.reader.object(kind, &self.namespace, name).await?;
        let workload = object.map(Workload::read).transpose();
        workload.with_context(|| self.name.to_string())
    }

    /// Restarts it.
    pub(super) async fn restart(&self) -> Result<(), ReadError> {
        let WorkloadName { kind, name } = &self.name;
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
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use crate::fake_api;

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
