//! One Secret and one webhook configuration, as `certificates` asks for them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use axum::http::Uri;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::bell::Bell;
use super::client::{Access, NoCluster};
use super::events::Events;
use crate::certificates::bundle::Bundle;
use crate::certificates::cluster::{
    Call, CallFailed, Cluster, LONGEST_ROTATE, ROTATE, Secret, Webhooks,
};

/// Longer than a healthy API server takes, and shorter than a tick.
const DEADLINE: Duration = Duration::from_secs(10);

/// Who writes `caBundle`s, to the API server: nobody else owns them, so no upgrade of the chart, which
/// writes none, takes them away.
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>
const BUNDLE_MANAGER: &str = "envoy-drainer-cabundle";

/// Who writes the Secret.
const SECRET_MANAGER: &str = "envoy-drainer";

/// The Secret and the webhook configuration, in the cluster that this process runs in or that
/// KUBECONFIG names.
pub struct Objects {
    namespace: String,
    secret: Named<v1::Secret>,
    webhooks: Named<MutatingWebhookConfiguration>,
    /// By which API servers call; of entries for other servers nothing is read or written. Where there are
    /// none, all entries count.
    hosts: Vec<String>,
    bell: Bell,
}

struct Named<K> {
    api: Api<K>,
    name: String,
}

// === impl Objects ===

impl Objects {
    /// Finds the cluster; whether it answers is another question.
    ///
    /// # Errors
    /// When there is none.
    pub async fn open(
        namespace: &str,
        secret: String,
        webhooks: String,
        hosts: Vec<String>,
    ) -> Result<Self, NoCluster> {
        let config = Access::default().config().await?;
        Self::of(config, namespace, secret, webhooks, hosts)
    }

    /// Takes the cluster that `config` tells of.
    ///
    /// # Errors
    /// When there can be no client of it.
    pub fn of(
        mut config: Config,
        namespace: &str,
        secret: String,
        webhooks: String,
        hosts: Vec<String>,
    ) -> Result<Self, NoCluster> {
        // The next tick tries again, from what there is by then.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(NoCluster::Client)?;
        let secret = Named {
            api: Api::namespaced(client.clone(), namespace),
            name: secret,
        };
        let webhooks = Named {
            api: Api::all(client),
            name: webhooks,
        };
        let mut bell = Bell::default();
        bell.watch(secret.api.clone(), &secret.name);
        bell.watch(webhooks.api.clone(), &webhooks.name);
        Ok(Self {
            namespace: namespace.to_owned(),
            secret,
            webhooks,
            hosts,
            bell,
        })
    }

    /// Events of this cluster, written by the replica of this name.
    #[must_use]
    pub fn events(&self, replica: String) -> Events {
        Events::new(self.secret.api.clone().into_client(), replica)
    }
}

impl Cluster for Objects {
    async fn secret(&self) -> Result<Option<Secret>, CallFailed> {
        let Named { api, name } = &self.secret;
        let found = within(Call::ReadSecret, api.get_opt(name)).await?;
        Ok(found.map(|secret| Secret {
            obstacle: obstacle(&secret, &self.namespace, name),
            version: secret.metadata.resource_version.unwrap_or_default(),
            rotate: rotate(secret.metadata.annotations.as_ref()),
            data: secret
                .data
                .into_iter()
                .flatten()
                .map(|(key, ByteString(value))| (key, value))
                .collect(),
        }))
    }

    async fn create_secret(&self) -> Result<(), CallFailed> {
        let Named { api, name } = &self.secret;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name },
        });
        // Applied, not created, as that may be allowed for this one name.
        let params = PatchParams::apply(SECRET_MANAGER);
        let patch = Patch::Apply(secret);
        within(Call::WriteSecret, api.patch(name, &params, &patch)).await?;
        Ok(())
    }

    async fn write_secret(
        &self,
        version: &str,
        keys: BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<(), CallFailed> {
        let Named { api, name } = &self.secret;
        let data: BTreeMap<_, _> = keys
            .into_iter()
            .map(|(key, value)| (key, value.map(ByteString)))
            .collect();
        // With a version, a merge is refused if that is not the Secret's any more.
        // https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply
        let patch = json!({ "metadata": { "resourceVersion": version }, "data": data });
        let params = PatchParams {
            field_manager: Some(SECRET_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        within(Call::WriteSecret, api.patch(name, &params, &patch)).await?;
        Ok(())
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, CallFailed> {
        let Named { api, name } = &self.webhooks;
        let found = within(Call::ReadWebhooks, api.get_opt(name)).await?;
        Ok(found.map(|configuration| Webhooks {
            written: written(&configuration.metadata),
            version: configuration.metadata.resource_version.unwrap_or_default(),
            bundles: configuration
                .webhooks
                .into_iter()
                .flatten()
                .filter(|webhook| calls(&webhook.client_config, &self.hosts))
                .map(|webhook| {
                    let ByteString(pem) = webhook.client_config.ca_bundle.unwrap_or_default();
                    (webhook.name, Bundle::read(&pem))
                })
                .collect(),
        }))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), CallFailed> {
        let Named { api, name } = &self.webhooks;
        let entries: Vec<Value> = webhooks
            .bundles
            .iter()
            .map(|(name, bundle)| {
                let bundle = ByteString(bundle.pem().into_bytes());
                json!({ "name": name, "clientConfig": { "caBundle": bundle } })
            })
            .collect();
        let patch = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": name, "resourceVersion": webhooks.version },
            "webhooks": entries,
        });
        // By force: a caBundle that somebody else once wrote is ours from now on.
        let params = PatchParams::apply(BUNDLE_MANAGER).force();
        let patch = Patch::Apply(patch);
        within(Call::WriteBundles, api.patch(name, &params, &patch)).await?;
        Ok(())
    }

    async fn changed(&self) {
        self.bell.rung().await;
    }
}

/// Returns true if this entry calls one of these hosts.
fn calls(client: &WebhookClientConfig, hosts: &[String]) -> bool {
    let host = match (&client.service, &client.url) {
        (Some(service), _) => Some(format!("{}.{}.svc", service.name, service.namespace)),
        (None, Some(url)) => url
            .parse::<Uri>()
            .ok()
            .and_then(|url| Some(url.host()?.to_owned())),
        (None, None) => None,
    };
    hosts.is_empty() || host.is_some_and(|host| hosts.contains(&host))
}

/// The rotation that an operator requests.
fn rotate(annotations: Option<&BTreeMap<String, String>>) -> Option<String> {
    let mut value = annotations?.get(ROTATE)?.clone();
    value.truncate(value.floor_char_boundary(LONGEST_ROTATE));
    Some(value)
}

/// Why the API server may refuse every write of a Secret, and what its operator can do. An account that may write
/// the Secret can set both, unless a policy restricts it.
/// <https://kubernetes.io/docs/concepts/configuration/secret/#secret-immutable>
fn obstacle(secret: &v1::Secret, namespace: &str, name: &str) -> Option<String> {
    const TYPE: &str = "Opaque";
    let type_ = secret.type_.as_deref().unwrap_or(TYPE);
    let is = match secret.immutable {
        Some(true) => "is immutable".to_owned(),
        // Some types demand keys that are not ours.
        _ if type_ != TYPE => format!("has the type `{type_}` instead of `{TYPE}`"),
        _ => return None,
    };
    let delete = format!("`kubectl delete secret --namespace={namespace} {name}`");
    let finalizers = secret.metadata.finalizers.iter().flatten().next();
    let finalizers = finalizers.map_or("", |_| ", and remove its finalizers");
    Some(format!(
        "the Secret {is}: delete it, and it is made anew: {delete}{finalizers}"
    ))
}

/// When the owner of the `caBundle`s last changed one. Applying what there is changes nothing.
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>
fn written(metadata: &ObjectMeta) -> Option<SystemTime> {
    let entries = metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| entry.manager.as_deref() == Some(BUNDLE_MANAGER));
    let times = ours.filter_map(|entry| entry.time.as_ref());
    times.map(|Time(at)| SystemTime::from(*at)).max()
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("secret", &self.secret.name)
            .field("webhooks", &self.webhooks.name)
            .finish_non_exhaustive()
    }
}

/// Why a call failed. What cannot be read is not quoted, since it may be a Secret.
fn source(error: kube::Error) -> Box<dyn Error + Send + Sync> {
    match error {
        kube::Error::SerdeError(error) => {
            let (line, column) = (error.line(), error.column());
            format!(
                "the answer cannot be read: {:?} at {line}:{column}",
                error.classify()
            )
            .into()
        }
        // It would write all of the answer's status behind that.
        kube::Error::Api(status) => status.message.into(),
        error => error.into(),
    }
}

/// Waits for an answer until [`DEADLINE`].
async fn within<T>(
    call: Call,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallFailed> {
    match timeout(DEADLINE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
            Err(CallFailed::Conflict { call })
        }
        Ok(Err(error)) => Err(CallFailed::Other {
            call,
            source: source(error),
        }),
        Err(_) => Err(CallFailed::Late { call }),
    }
}
