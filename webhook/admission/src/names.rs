//! Names that the webhook shares with pods: keys of annotations and labels, container, volume and mount.

/// Prefix of every annotation and label of envoy-drainer.
pub const PREFIX: &str = "envoy-drainer.dev/";

/// The annotation that requests a drainer.
pub const INJECT: &str = "envoy-drainer.dev/inject";

/// The annotation that lets the drainer take the place of a shutdown manager.
pub(super) const ADOPT: &str = "envoy-drainer.dev/adopt";

/// The annotation that names Envoy's container.
pub(super) const ENVOY_CONTAINER: &str = "envoy-drainer.dev/envoy-container";

/// The annotation with the drainer's port.
pub(super) const PORT: &str = "envoy-drainer.dev/port";

/// The annotation in which the webhook records, as JSON, what it did to the pod. Only the webhook sets it.
pub const STATUS: &str = "envoy-drainer.dev/status";

/// The label that opts a namespace in; its value is `enabled`. The chart's namespace selectors match it.
pub const INJECTION: &str = "envoy-drainer.dev/injection";

/// The label of pods that have a drainer, for selectors.
pub const INJECTED: &str = "envoy-drainer.dev/injected";

/// The annotation of a mirror pod, the API server's copy of a static pod.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror>
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation with the port of a pod's metrics, by the convention of Prometheus' example configuration.
pub(super) const SCRAPED_PORT: &str = "prometheus.io/port";

/// The label that names the tool that manages a pod.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The annotation with the AppArmor profile of a shutdown manager. The API server rejects a pod with such an annotation
/// for a container that it does not have.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go>
pub(super) const MANAGER_APPARMOR: &str =
    "container.apparmor.security.beta.kubernetes.io/shutdown-manager";

/// The node labels by which a pod selects an operating system; the second is the older one, which the
/// kubelet still sets.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#beta-kubernetes-io-os>
pub(super) const OS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];

/// Name of the drainer's container, and of the empty volume that it has in place of the service account's token.
pub const CONTAINER_NAME: &str = "envoy-drainer";

/// Path of the drainer in its image.
pub(super) const PROGRAM: &str = "/drainer";

/// Name of the volume with the drainer's token for the webhook.
pub(super) const WEBHOOK_TOKEN_VOLUME: &str = "envoy-drainer-token";

/// The reporting controller of the webhook's Events.
pub const REPORTING_CONTROLLER: &str = "envoy-drainer.dev/webhook";

/// The audience of the drainer's token for the webhook.
pub const WEBHOOK_AUDIENCE: &str = "envoy-drainer";

/// Where the kubelet would mount a service account's token.
/// <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-token-volume>
pub(super) const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns true for the keys of annotations, labels and node selectors on which a decision depends.
pub(super) fn is_relevant_key(key: &str) -> bool {
    key.starts_with(PREFIX)
        || [MIRROR, MANAGED_BY, MANAGER_APPARMOR, SCRAPED_PORT].contains(&key)
        || OS.contains(&key)
        || is_of_mesh(key)
}

/// Returns true for keys by which a pod configures the sidecar of Istio, Linkerd, Kuma or Consul.
pub(super) fn is_of_mesh(key: &str) -> bool {
    let domains = ["istio.io", "linkerd.io", "kuma.io", "consul.hashicorp.com"];
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    domains.iter().any(|domain| prefix.ends_with(domain))
}

/// Maximum length of the name of a container or a volume, a DNS label, in bytes.
pub(super) const MAX_NAME_LEN: usize = 63;

/// Returns true for a DNS label, such as the name of a container.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names>
pub(super) fn is_dns_label(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=MAX_NAME_LEN).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
