//! The scenarios, in the order in which they run. A scenario fails if the claim in its name does not hold.

mod absent;
mod admin;
mod adopt;
mod advice;
mod all_envoys;
mod ca_rotation;
mod calls;
mod check;
mod documents;
mod drains;
mod drill;
mod evictions;
mod front;
mod http3;
mod jobs;
mod lag;
mod lifecycle;
mod live;
mod liveness;
mod modes;
mod order;
mod replacement;
mod rights;
mod rollouts;
mod shapes;

use crate::scenario::{Scenario, WebhookScope};

/// Lists scenarios: whose webhook admits its pods, its slug, its steps, and its claim.
macro_rules! scenarios {
    ($($webhook:ident $slug:literal => $module:ident::$steps:ident: $claim:literal;)*) => {
        &[$(Scenario {
            name: $claim,
            slug: $slug,
            webhook: WebhookScope::$webhook,
            run: |fixture| Box::pin($module::$steps(fixture)),
        }),*]
    };
}

/// Groups that run in parallel; the scenarios of a group run one after the other. Only one group generates
/// heavy load, since the others would distort its rates.
pub(crate) const PARALLEL_GROUPS: [&[Scenario]; 4] = [HEAVY, ENDPOINTS, LIGHT, ADMISSION];

/// Scenarios with all kinds of clients, at hundreds of requests per second.
const HEAVY: &[Scenario] = scenarios! {
    Shared "rollouts" => rollouts::mixed_traffic_survives: "rollouts lose no request";
    Shared "baseline" => rollouts::baseline_loses_requests_of_each_kind:
        "rollouts without a drainer lose requests of each kind";
    Shared "drill" => drill::under_mixed_load:
        "drills under all kinds of clients find losses of SIGTERM and of a sleep, and none of a drainer";
    Shared "strategy" => rollouts::immediate_strategy_loses_no_request:
        "rollouts of MODIFY_ONLY listeners with `drain-strategy: immediate` lose no request";
    Shared "gradual" => rollouts::default_strategy_loses_requests:
        "rollouts of MODIFY_ONLY listeners without it lose requests";
    Shared "kubectl-drain" => evictions::kubectl_drain_needs_no_flag:
        "`kubectl drain` takes injected pods without `--delete-emptydir-data`";
    Shared "evictions" => evictions::evicted_envoys_lose_no_request: "evictions lose no request";
    Dedicated "webhooks" => evictions::evicted_webhook_loses_no_request:
        "evictions of the webhook during a rollout lose no request";
    Dedicated "lifecycle" => lifecycle::leaves_only_injected_pods:
        "a release that Helm installs, upgrades, rolls back and uninstalls leaves only injected pods";
    Dedicated "helm4" => lifecycle::with_helm_4: "the same with Helm 4";
};

/// Scenarios about endpoints, with a light load. Those that measure a pod's end are the first, since the last ones of
/// [`ADMISSION`] keep the API server busy.
const ENDPOINTS: &[Scenario] = scenarios! {
    Shared "adopt-gateway" => adopt::envoy_gateway_loses_no_request:
        "an adopted pod of Envoy Gateway loses no request behind endpoints that lag 15 s, and ends within 14 s beside an idle client";
    Shared "gateway" => adopt::gateway_annotations_lose_no_request:
        "pods as Envoy Gateway builds them with a Gateway's annotations lose no request";
    Shared "keep-gateway" => adopt::envoy_gateway_loses_requests_with_its_manager:
        "the same pod with its shutdown manager loses requests, and waits for the idle client";
    Shared "adopt-contour" => adopt::contour_loses_no_request:
        "an adopted pod of Contour loses no request behind endpoints that lag 15 s, and ends within 14 s beside an idle client";
    Shared "keep-contour" => adopt::contour_loses_requests_with_its_manager:
        "the same pod with its shutdown manager loses requests, and waits for the idle client";
    Shared "lag" => lag::of_15_s_loses_no_request: "rollouts behind endpoints that lag 15 s lose no request";
    Shared "drill-lag" => drill::behind_lag:
        "drills behind endpoints that lag 15 s find losses of SIGTERM, a sleep of 15 s and both managers, and none of a drainer";
    Dedicated "drill-sole" => drill::of_sole_pods:
        "drills of the eviction of an only pod find losses of each of them, and none of a drainer that waits for a replacement";
    Shared "drill-http3" => drill::under_http3:
        "drills under HTTP/3 requests find losses of SIGTERM, and none of a drainer";
    Shared "sparse" => rollouts::sparse_traffic_survives:
        "rollouts behind kube-proxy lose no request of sparse traffic";
    Dedicated "replacement" => replacement::only_pod_loses_no_request:
        "the eviction of an only pod with `wait-for-replacement` loses no request";
    Shared "replacement-without" => replacement::only_pod_loses_requests_without:
        "the eviction of an only pod without it loses requests";
    Dedicated "replacement-webhook-away" => replacement::absent_webhook_loses_no_request:
        "a wait for a replacement without the webhook lasts to its limit and loses no request";
    Dedicated "replacement-services" => replacement::each_service_is_waited_for:
        "a wait for a replacement is for each Service of the pod";
    Dedicated "replacement-quota" => replacement::missing_successor_ends_with_the_limit:
        "a wait for a replacement that cannot start ends at its limit";
    Dedicated "replacement-node" => replacement::evicted_node_loses_no_request:
        "evictions of all pods one after the other with `wait-for-replacement` lose no request";
    Dedicated "replacement-together" => replacement::pods_evicted_together_lose_no_request:
        "evictions of all pods at the same moment with `wait-for-replacement` lose no request";
    Shared "http3" => http3::kept_health_loses_no_request:
        "rollouts of QUIC listeners behind kube-proxy lose no HTTP/3 request";
    Shared "http3-zero-delay" => http3::zero_delay_loses_requests:
        "rollouts of QUIC listeners with `health-failure-delay: 0s` lose HTTP/3 requests";
};

/// Scenarios about pods and their containers, with a light load.
const LIGHT: &[Scenario] = scenarios! {
    Shared "scale" => rollouts::scaling_loses_no_request: "scaling down and up loses no request";
    Shared "deletions" => rollouts::short_deletions_lose_no_request_of_5_s:
        "deletions with a grace period of 8 s lose no request of 5 s";
    Shared "killed" => live::killed_drainer_does_not_affect_envoy: "a killed drainer does not affect Envoy";
    Shared "image" => live::replaced_drainer_does_not_affect_envoy:
        "a drainer whose image is replaced does not affect Envoy";
    Shared "memory" => live::oom_killed_drainer_does_not_affect_envoy:
        "a drainer that exceeds its memory limit does not affect Envoy";
    Shared "liveness" => liveness::failure_restarts_envoy_within_30_s:
        "an Envoy that fails its liveness probe is restarted within 30 s";
    Shared "liveness-deletion" => liveness::deletion_during_a_restart_is_drained:
        "a pod that is deleted while its Envoy is restarted is drained";
    Shared "admin-rollouts" => admin::unnamed_address_loses_no_request:
        "Envoys whose admin interface nothing in their manifest names lose no request, and end within 14 s beside an idle client";
    Shared "admin-wrong" => admin::wrong_address_loses_requests:
        "the same Envoys with a wrong `admin-address` lose requests, and wait for the idle client";
    Shared "admin-found" => admin::is_found_wherever_it_is: "the admin interface is found wherever it is";
    Dedicated "admin-none" => admin::absent_one_is_a_plain_delay:
        "an Envoy without an admin interface holds its pod for the minimum";
    Shared "admin-later" => admin::later_envoy_is_drained:
        "an Envoy that starts after another one of its pod is drained";
    Shared "drill-interrupt" => drill::that_is_interrupted_leaves_nothing:
        "a drill that is interrupted leaves nothing";
    Shared "all-envoys" => all_envoys::get_drainers_without_annotation:
        "Envoys in a namespace with `injection: all` lose no request without an annotation";
    Shared "front" => front::requests_are_waited_for:
        "a rollout of Envoys on loopback behind a front proxy cuts no request of 20 s";
    Shared "front-ignored" => front::ignored_listener_loses_requests:
        "a rollout of the same Envoys whose listener is ignored cuts requests";
    Shared "strict" => shapes::strict_namespace_loses_no_request:
        "a rollout under a quota and limits loses no request";
    Shared "plain" => shapes::plain_drainer_loses_no_request: "a drainer as a plain container loses no request";
    Shared "native" => shapes::native_envoy_loses_no_request:
        "an Envoy as a native sidecar of an app loses no request";
    Shared "socket" => shapes::admin_socket_loses_no_request:
        "an Envoy with its admin on a Unix socket loses no request";
    Shared "oldest" => shapes::oldest_envoy_loses_no_request: "the oldest Envoy loses no request";
    Shared "host" => shapes::host_network_loses_no_request: "an Envoy in the host network loses no request";
    Shared "jobs" => jobs::complete_within_3_s_of_their_work: "Jobs complete within 3 s of their work";
    Shared "job-native" => jobs::with_annotation_complete_like_those_without_envoy:
        "a Job with `envoy-native-sidecar` completes within 3 s of a Job without an Envoy";
    Shared "job-plain" => jobs::without_annotation_never_complete:
        "a Job with an Envoy among its containers never completes without it";
    Shared "order" => order::hooked_app_finishes_its_requests:
        "an app with `extra-lifecycle-hooks` that stops listening at SIGTERM fails no request";
    Shared "order-without" => order::app_without_hook_fails_requests:
        "an app without it that stops listening at SIGTERM fails requests";
    Shared "order-native" => order::native_envoy_outlives_its_app:
        "an app that works on for 20 s after SIGTERM fails no call through a native sidecar Envoy";
    Shared "order-plain" => order::plain_envoy_fails_its_apps_last_calls:
        "an app that works on for 20 s after SIGTERM fails calls through a plain Envoy";
    Shared "order-both" => order::both_fail_nothing: "an app with both annotations fails no request and no call";
};

/// Scenarios about the webhook, most of which create pods in a loop.
const ADMISSION: &[Scenario] = scenarios! {
    Dedicated "rotations" => ca_rotation::twenty_rotations_fail_no_admission: "20 CA rotations fail no admission";
    Dedicated "lost" => ca_rotation::lost_secret_fails_no_admission: "a lost CA fails no admission";
    Dedicated "modes" => modes::changes_fail_no_admission: "changes of the certificate mode fail no admission";
    Dedicated "rolling" => modes::rollouts_fail_no_admission: "a rollout of the webhook fails no admission";
    Dedicated "absent" => absent::webhook_is_reported_by_policy:
        "pods start without the webhook, and the policy reports them";
    Dedicated "calls" => calls::are_one_per_pod: "the webhook is called once per pod";
    Shared "token" => calls::drainer_has_no_token: "the drainer has no service account token";
    Shared "advice" => advice::is_shown_by_kubectl_apply: "kubectl apply warns about an invalid annotation";
    Shared "events" => advice::is_published_as_event: "an Event on a workload reports why its pods have no drainer";
    Dedicated "drains" => drains::are_known_after_their_pods_are_gone:
        "a drain that cuts requests is known after its pod is gone";
    Dedicated "drains-without" => drains::are_unknown_without_reports: "without reports such a drain is unknown";
    Dedicated "check" => check::reports_whether_a_release_works: "check reports whether a release works";
    Dedicated "rights" => rights::are_minimal: "the webhook's service account has the least rights";
    Dedicated "documents" => documents::restart_no_replica:
        "documents built to exhaust the webhook restart no replica";
};
