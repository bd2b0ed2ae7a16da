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

use crate::scenario::Scenario;

/// Lists scenarios: whose webhook admits its pods, its slug, its steps, and its claim.
macro_rules! scenarios {
    ($($webhook:ident $slug:literal => $module:ident::$steps:ident: $claim:literal;)*) => {
        &[$(Scenario::$webhook($claim, $slug, |fixture| Box::pin($module::$steps(fixture)))),*]
    };
}

/// Groups that run in parallel; the scenarios of a group run one after the other. Only one group generates
/// heavy load, since the others would distort its rates.
pub(crate) const PARALLEL_GROUPS: [&[Scenario]; 4] = [HEAVY, ENDPOINTS, LIGHT, ADMISSION];

/// Scenarios with all kinds of clients, at hundreds of requests per second.
const HEAVY: &[Scenario] = scenarios! {
    shared "rollouts" => rollouts::mixed_traffic_survives: "rollouts lose no request";
    shared "baseline" => rollouts::baseline_loses_requests_of_each_kind:
        "rollouts without a drainer lose requests of each kind";
    shared "drill" => drill::under_mixed_load:
        "drills under all kinds of clients find losses of SIGTERM and of a sleep, and none of a drainer";
    shared "strategy" => rollouts::immediate_strategy_loses_no_request:
        "rollouts of MODIFY_ONLY listeners with `drain-strategy: immediate` lose no request";
    shared "gradual" => rollouts::default_strategy_loses_requests:
        "rollouts of MODIFY_ONLY listeners without it lose requests";
    shared "kubectl-drain" => evictions::kubectl_drain_needs_no_flag:
        "`kubectl drain` takes injected pods without `--delete-emptydir-data`";
    shared "evictions" => evictions::evicted_envoys_lose_no_request: "evictions lose no request";
    isolated "webhooks" => evictions::evicted_webhook_loses_no_request:
        "evictions of the webhook during a rollout lose no request";
    isolated "lifecycle" => lifecycle::leaves_only_injected_pods:
        "a release that Helm installs, upgrades, rolls back and uninstalls leaves only injected pods";
    isolated "helm4" => lifecycle::with_helm_4: "the same with Helm 4";
};

/// Scenarios about endpoints, with a light load. Those that measure a pod's end are the first, since the last ones of
/// [`ADMISSION`] keep the API server busy.
const ENDPOINTS: &[Scenario] = scenarios! {
    shared "adopt-gateway" => adopt::envoy_gateway_loses_no_request:
        "an adopted pod of Envoy Gateway loses no request behind endpoints that lag 15 s, and ends within 14 s beside an idle client";
    shared "gateway" => adopt::gateway_annotations_lose_no_request:
        "pods as Envoy Gateway builds them with a Gateway's annotations lose no request";
    shared "keep-gateway" => adopt::envoy_gateway_loses_requests_with_its_manager:
        "the same pod with its shutdown manager loses requests, and waits for the idle client";
    shared "adopt-contour" => adopt::contour_loses_no_request:
        "an adopted pod of Contour loses no request behind endpoints that lag 15 s, and ends within 14 s beside an idle client";
    shared "keep-contour" => adopt::contour_loses_requests_with_its_manager:
        "the same pod with its shutdown manager loses requests, and waits for the idle client";
    shared "lag" => lag::of_15_s_loses_no_request: "rollouts behind endpoints that lag 15 s lose no request";
    shared "drill-lag" => drill::behind_lag:
        "drills behind endpoints that lag 15 s find losses of SIGTERM, a sleep of 15 s and both managers, and none of a drainer";
    isolated "drill-sole" => drill::of_sole_pods:
        "drills of the eviction of an only pod find losses of each of them, and none of a drainer that waits for a replacement";
    shared "drill-http3" => drill::under_http3:
        "drills under HTTP/3 requests find losses of SIGTERM, and none of a drainer";
    shared "sparse" => rollouts::sparse_traffic_survives:
        "rollouts behind kube-proxy lose no request of sparse traffic";
    isolated "replacement" => replacement::only_pod_loses_no_request:
        "the eviction of an only pod with `wait-for-replacement` loses no request";
    shared "replacement-without" => replacement::only_pod_loses_requests_without:
        "the eviction of an only pod without it loses requests";
    isolated "replacement-webhook-away" => replacement::absent_webhook_loses_no_request:
        "a wait for a replacement without the webhook lasts to its limit and loses no request";
    isolated "replacement-services" => replacement::each_service_is_waited_for:
        "a wait for a replacement is for each Service of the pod";
    isolated "replacement-quota" => replacement::missing_successor_ends_with_the_limit:
        "a wait for a replacement that cannot start ends at its limit";
    isolated "replacement-node" => replacement::evicted_node_loses_no_request:
        "evictions of all pods one after the other with `wait-for-replacement` lose no request";
    isolated "replacement-together" => replacement::pods_evicted_together_lose_no_request:
        "evictions of all pods at the same moment with `wait-for-replacement` lose no request";
    shared "http3" => http3::kept_health_loses_no_request:
        "rollouts of QUIC listeners behind kube-proxy lose no HTTP/3 request";
    shared "http3-zero-delay" => http3::zero_delay_loses_requests:
        "rollouts of QUIC listeners with `health-failure-delay: 0s` lose HTTP/3 requests";
};

/// Scenarios about pods and their containers, with a light load.
const LIGHT: &[Scenario] = scenarios! {
    shared "scale" => rollouts::scaling_loses_no_request: "scaling down and up loses no request";
    shared "deletions" => rollouts::short_deletions_lose_no_request_of_5_s:
        "deletions with a grace period of 8 s lose no request of 5 s";
    shared "killed" => live::killed_drainer_does_not_affect_envoy: "a killed drainer does not affect Envoy";
    shared "image" => live::replaced_drainer_does_not_affect_envoy:
        "a drainer whose image is replaced does not affect Envoy";
    shared "memory" => live::oom_killed_drainer_does_not_affect_envoy:
        "a drainer that exceeds its memory limit does not affect Envoy";
    shared "liveness" => liveness::failure_restarts_envoy_within_30_s:
        "an Envoy that fails its liveness probe is restarted within 30 s";
    shared "liveness-deletion" => liveness::deletion_during_a_restart_is_drained:
        "a pod that is deleted while its Envoy is restarted is drained";
    shared "admin-rollouts" => admin::unnamed_address_loses_no_request:
        "Envoys whose admin interface nothing in their manifest names lose no request, and end within 14 s beside an idle client";
    shared "admin-wrong" => admin::wrong_address_loses_requests:
        "the same Envoys with a wrong `admin-address` lose requests, and wait for the idle client";
    shared "admin-found" => admin::is_found_wherever_it_is: "the admin interface is found wherever it is";
    isolated "admin-none" => admin::absent_one_is_a_plain_delay:
        "an Envoy without an admin interface holds its pod for the minimum";
    shared "admin-later" => admin::later_envoy_is_drained:
        "an Envoy that starts after another one of its pod is drained";
    shared "drill-interrupt" => drill::that_is_interrupted_leaves_nothing:
        "a drill that is interrupted leaves nothing";
    shared "all-envoys" => all_envoys::get_drainers_without_annotation:
        "Envoys in a namespace with `injection: all` lose no request without an annotation";
    shared "front" => front::requests_are_waited_for:
        "a rollout of Envoys on loopback behind a front proxy cuts no request of 20 s";
    shared "front-ignored" => front::ignored_listener_loses_requests:
        "a rollout of the same Envoys whose listener is ignored cuts requests";
    shared "strict" => shapes::strict_namespace_loses_no_request:
        "a rollout under a quota and limits loses no request";
    shared "plain" => shapes::plain_drainer_loses_no_request: "a drainer as a plain container loses no request";
    shared "native" => shapes::native_envoy_loses_no_request:
        "an Envoy as a native sidecar of an app loses no request";
    shared "socket" => shapes::admin_socket_loses_no_request:
        "an Envoy with its admin on a Unix socket loses no request";
    shared "oldest" => shapes::oldest_envoy_loses_no_request: "the oldest Envoy loses no request";
    shared "host" => shapes::host_network_loses_no_request: "an Envoy in the host network loses no request";
    shared "jobs" => jobs::complete_within_3_s_of_their_work: "Jobs complete within 3 s of their work";
    shared "job-native" => jobs::with_annotation_complete_like_those_without_envoy:
        "a Job with `envoy-native-sidecar` completes within 3 s of a Job without an Envoy";
    shared "job-plain" => jobs::without_annotation_never_complete:
        "a Job with an Envoy among its containers never completes without it";
    shared "order" => order::hooked_app_finishes_its_requests:
        "an app with `extra-lifecycle-hooks` that stops listening at SIGTERM fails no request";
    shared "order-without" => order::app_without_hook_fails_requests:
        "an app without it that stops listening at SIGTERM fails requests";
    shared "order-native" => order::native_envoy_outlives_its_app:
        "an app that works on for 20 s after SIGTERM fails no call through a native sidecar Envoy";
    shared "order-plain" => order::plain_envoy_fails_its_apps_last_calls:
        "an app that works on for 20 s after SIGTERM fails calls through a plain Envoy";
    shared "order-both" => order::both_fail_nothing: "an app with both annotations fails no request and no call";
};

/// Scenarios about the webhook, most of which create pods in a loop.
const ADMISSION: &[Scenario] = scenarios! {
    isolated "rotations" => ca_rotation::twenty_rotations_fail_no_admission: "20 CA rotations fail no admission";
    isolated "lost" => ca_rotation::lost_secret_fails_no_admission: "a lost CA fails no admission";
    isolated "modes" => modes::changes_fail_no_admission: "changes of the certificate mode fail no admission";
    isolated "rolling" => modes::rollouts_fail_no_admission: "a rollout of the webhook fails no admission";
    isolated "absent" => absent::webhook_is_reported_by_policy:
        "pods start without the webhook, and the policy reports them";
    isolated "calls" => calls::are_one_per_pod: "the webhook is called once per pod";
    shared "token" => calls::drainer_has_no_token: "the drainer has no service account token";
    shared "advice" => advice::is_shown_by_kubectl_apply: "kubectl apply warns about an invalid annotation";
    shared "events" => advice::is_published_as_event: "an Event on a workload reports why its pods have no drainer";
    isolated "drains" => drains::are_known_after_their_pods_are_gone:
        "a drain that cuts requests is known after its pod is gone";
    isolated "drains-without" => drains::are_unknown_without_reports: "without reports such a drain is unknown";
    isolated "check" => check::reports_whether_a_release_works: "check reports whether a release works";
    isolated "rights" => rights::are_minimal: "the webhook's service account has the least rights";
    isolated "documents" => documents::restart_no_replica:
        "documents built to exhaust the webhook restart no replica";
};
