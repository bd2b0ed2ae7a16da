//! Reads and writes the CA Secret and the caBundles of the webhook configuration for `certificates`.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use axum::http::Uri;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1;
use k8s_openapi::jiff::Timestamp;
use kube::Config;
use kube::api::{Api, Patch, PatchParams};
use kubernetes::{ChangeNotifier, connect, get, patch};
use pki::bundle::Bundle;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::event_writer::EventWriter;
use crate::certificates::cluster::{
    Cluster, MAX_ROTATE_LEN, ROTATE_ANNOTATION, Secret, SecretData, StoreCall, StoreError, Webhooks,
};

/// Longer than a healthy API server takes, and shorter than the interval of reconciles.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long to wait for a connection to the webhook's Service.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The port of that Service for API servers.
const SERVICE_PORT: u16 = 443;

/// The field manager of `caBundle`s. As their only owner it keeps them across upgrades of the chart,
/// which writes none.
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>
const BUNDLE_FIELD_MANAGER: &str = "envoy-drainer-cabundle";

/// The field manager of the Secret.
const SECRET_FIELD_MANAGER: &str = "envoy-drainer";

/// The CA Secret and the webhook configuration.
#[derive(Debug)]
pub struct CertificateStore {
    secret: NamedApi<v1::Secret>,
    webhooks: NamedApi<MutatingWebhookConfiguration>,
    /// The host names by which API servers call. Entries for other hosts are neither read nor written;
    /// without hosts, all entries count.
    hosts: Vec<String>,
    notifier: ChangeNotifier,
}

#[derive(Debug)]
struct NamedApi<K> {
    api: Api<K>,
    name: String,
}

/// What is read of the Secret or of the webhook configuration. The rest may not decode: any client may write times into
/// the metadata that k8s-openapi rejects.
#[derive(Deserialize)]
struct StoredObject {
    metadata: Metadata,
    data: Option<BTreeMap<String, ByteString>>,
    webhooks: Option<Vec<MutatingWebhook>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
    managed_fields: Option<Vec<Value>>,
}

// === impl CertificateStore ===

impl CertificateStore {
    /// Creates a client of the cluster of `config` and starts watching. Connects in the background.
    ///
    /// # Errors
    /// When the configuration is unusable.
    pub fn from_config(
        mut config: Config,
        namespace: &str,
        secret: String,
        webhooks: String,
        hosts: Vec<String>,
    ) -> anyhow::Result<Self> {
        // The next reconcile retries, with the objects as they are then.
        config.default_retry = false;
        let client = connect(config)?;
        let secret = NamedApi {
            api: Api::namespaced(client.clone(), namespace),
            name: secret,
        };
        let webhooks = NamedApi {
            api: Api::all(client),
            name: webhooks,
        };
        let mut notifier = ChangeNotifier::default();
        notifier.watch(&secret.api, &secret.name);
        notifier.watch(&webhooks.api, &webhooks.name);
        Ok(Self {
            secret,
            webhooks,
            hosts,
            notifier,
        })
    }

    /// A writer of Events in this cluster, on behalf of the replica with this name.
    pub fn event_writer(&self, replica: String) -> EventWriter {
        EventWriter::new(self.secret.api.clone().into_client(), replica)
    }
}

impl Cluster for CertificateStore {
    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        let NamedApi { api, name } = &self.secret;
        let found = with_deadline(StoreCall::ReadSecret, get(api, name)).await?;
        Ok(found.map(|secret: StoredObject| Secret {
            resource_version: secret.metadata.resource_version,
            rotate: requested_rotation(secret.metadata.annotations.as_ref()),
            data: secret
                .data
                .into_iter()
                .flatten()
                .map(|(key, ByteString(value))| (key, value))
                .collect(),
        }))
    }

    async fn has_endpoint(&self) -> bool {
        let Some(host) = self.hosts.first() else {
            return true;
        };
        let service = host.split('.').next().unwrap_or_default();
        // <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>
        let variable = format!("{}_SERVICE_HOST", service.to_uppercase().replace('-', "_"));
        let address = env::var(variable).unwrap_or_else(|_| host.clone());
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((address, SERVICE_PORT))).await;
        // kube-proxy rejects connections to a Service without endpoints.
        let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
        !connected.is_ok_and(|connected| connected.is_err_and(refused))
    }

    async fn create_secret(&self) -> Result<(), StoreError> {
        let NamedApi { api, name } = &self.secret;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name },
        });
        // Applied, not created: RBAC can allow `patch` for a single name, but not `create`.
        let params = PatchParams::apply(SECRET_FIELD_MANAGER);
        let secret = Patch::Apply(secret);
        let written = patch(api, name, &params, &secret);
        with_deadline(StoreCall::WriteSecret, written).await
    }

    async fn write_secret(&self, old: &Secret, data: SecretData) -> Result<(), StoreError> {
        let NamedApi { api, name } = &self.secret;
        // A merge removes what is null.
        let removed = old.data.keys().map(|key| (key.clone(), None));
        let data = data.into_iter();
        let written = data.map(|(key, value)| (key, Some(ByteString(value))));
        let data: BTreeMap<_, _> = removed.chain(written).collect();
        // A merge with an outdated resourceVersion is a conflict.
        // https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply
        let version = &old.resource_version;
        let merge = json!({ "metadata": { "resourceVersion": version }, "data": data });
        let params = PatchParams {
            field_manager: Some(SECRET_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let merge = Patch::Merge(merge);
        let written = patch(api, name, &params, &merge);
        with_deadline(StoreCall::WriteSecret, written).await
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, StoreError> {
        let NamedApi { api, name } = &self.webhooks;
        let found = with_deadline(StoreCall::ReadWebhooks, get(api, name)).await?;
        Ok(found.map(|configuration: StoredObject| Webhooks {
            written_at: bundles_written_at(&configuration.metadata),
            resource_version: configuration.metadata.resource_version,
            bundles: configuration
                .webhooks
                .into_iter()
                .flatten()
                .filter(|webhook| calls_any_host(&webhook.client_config, &self.hosts))
                .map(|webhook| {
                    let ByteString(pem) = webhook.client_config.ca_bundle.unwrap_or_default();
                    (webhook.name, Bundle::read(&pem))
                })
                .collect(),
        }))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), StoreError> {
        let NamedApi { api, name } = &self.webhooks;
        let entries: Vec<Value> = webhooks
            .bundles
            .iter()
            .map(|(name, bundle)| {
                let bundle = ByteString(bundle.pem().into_bytes());
                json!({ "name": name, "clientConfig": { "caBundle": bundle } })
            })
            .collect();
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": name, "resourceVersion": webhooks.resource_version },
            "webhooks": entries,
        });
        // By force: it takes over caBundles that another field manager wrote.
        let params = PatchParams::apply(BUNDLE_FIELD_MANAGER).force();
        let configuration = Patch::Apply(configuration);
        let written = patch(api, name, &params, &configuration);
        with_deadline(StoreCall::WriteBundles, written).await
    }

    async fn changed(&self) {
        self.notifier.changed().await;
    }
}

/// Returns true if the entry calls one of these hosts, or there are none.
fn calls_any_host(client: &WebhookClientConfig, hosts: &[String]) -> bool {
    let host = match (&client.service, &client.url) {
        (Some(service), _) => Some(format!("{}.{}.svc", service.name, service.namespace)),
        (None, url) => {
            let url: Option<Uri> = url.as_ref().and_then(|url| url.parse().ok());
            url.and_then(|url| Some(url.host()?.to_owned()))
        }
    };
    hosts.is_empty() || host.is_some_and(|host| hosts.contains(&host))
}

/// The value of the annotation by which an operator requests a rotation.
fn requested_rotation(annotations: Option<&BTreeMap<String, String>>) -> Option<String> {
    let mut value = annotations?.get(ROTATE_ANNOTATION)?.clone();
    value.truncate(value.floor_char_boundary(MAX_ROTATE_LEN));
    Some(value)
}

/// When a `caBundle` was last changed by its owner. Applying an equal one does not count.
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>
fn bundles_written_at(metadata: &Metadata) -> Option<SystemTime> {
    let entries = metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| entry["manager"] == BUNDLE_FIELD_MANAGER);
    let times = ours.filter_map(|entry| entry["time"].as_str()?.parse::<Timestamp>().ok());
    times.map(SystemTime::from).max()
}

/// Removes the response from an error, since it may be a Secret.
fn redact(error: kube::Error) -> Box<dyn Error + Send + Sync> {
    match error {
        kube::Error::SerdeError(error) => {
            let (kind, line, column) = (error.classify(), error.line(), error.column());
            format!("invalid response: {kind:?} at {line}:{column}").into()
        }
        // The error itself would print all of the status after its message.
        kube::Error::Api(status) => status.message.into(),
        error => error.into(),
    }
}

/// Waits for a response until [`DEADLINE`].
async fn with_deadline<T>(
    call: StoreCall,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, StoreError> {
    match timeout(DEADLINE, response).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
            Err(StoreError::Conflict { call })
        }
        Ok(Err(error)) => Err(StoreError::Other {
            call,
            source: redact(error),
        }),
        Err(_) => Err(StoreError::Timeout { call }),
    }
}
