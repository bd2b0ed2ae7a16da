//! The scenarios, in the order in which they run. A scenario fails if the claim in its name does not hold.

mod absent;
mod adopt;
mod advice;
mod ca_rotation;
mod calls;
mod check;
mod deletions;
mod documents;
mod drains;
mod evictions;
mod http3;
mod jobs;
mod lag;
mod lifecycle;
mod live;
mod liveness;
mod modes;
mod modify_only;
mod order;
mod replacement;
mod rights;
mod rollouts;
mod scale;
mod shapes;
mod webhooks;

use crate::scenario::Scenario;

/// Groups that run in parallel; the scenarios of a group run one after the other. Only one group generates
/// heavy load, since the others would distort its rates.
pub(crate) const PARALLEL_GROUPS: [&[Scenario]; 4] = [HEAVY, ENDPOINTS, LIGHT, ADMISSION];

/// Scenarios with all kinds of clients, at hundreds of requests per second.
const HEAVY: &[Scenario] = &[
    Scenario::shared("rollouts lose no request", "rollouts", |fixture| {
        Box::pin(rollouts::mixed_traffic_survives(fixture))
    }),
    Scenario::shared(
        "rollouts without a drainer lose requests of each kind",
        "baseline",
        |fixture| Box::pin(rollouts::baseline_loses_requests_of_each_kind(fixture)),
    ),
    Scenario::shared(
        "rollouts of MODIFY_ONLY listeners with `drain-strategy: immediate` lose no request",
        "strategy",
        |fixture| Box::pin(modify_only::immediate_strategy_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "rollouts of MODIFY_ONLY listeners without it lose requests",
        "gradual",
        |fixture| Box::pin(modify_only::default_strategy_loses_requests(fixture)),
    ),
    Scenario::shared(
        "`kubectl drain` takes injected pods without `--delete-emptydir-data`",
        "kubectl-drain",
        |fixture| Box::pin(evictions::kubectl_drain_needs_no_flag(fixture)),
    ),
    Scenario::shared("evictions lose no request", "evictions", |fixture| {
        Box::pin(evictions::evicted_envoys_lose_no_request(fixture))
    }),
    Scenario::isolated(
        "evictions of the webhook during a rollout lose no request",
        "webhooks",
        |fixture| Box::pin(evictions::evicted_webhook_loses_no_request(fixture)),
    ),
    Scenario::isolated(
        "a release that Helm installs, upgrades, rolls back and uninstalls leaves only injected pods",
        "lifecycle",
        |fixture| Box::pin(lifecycle::leaves_only_injected_pods(fixture)),
    ),
    Scenario::isolated("the same with Helm 4", "helm4", |fixture| {
        Box::pin(lifecycle::with_helm_4(fixture))
    }),
];

/// Scenarios about endpoints, with a light load. Those that measure a pod's end are the first, since the last ones of
/// [`ADMISSION`] keep the API server busy.
const ENDPOINTS: &[Scenario] = &[
    Scenario::shared(
        "an adopted pod of Envoy Gateway loses no request behind endpoints that lag 15 s, and ends within 12 s beside an idle client",
        "adopt-gateway",
        |fixture| Box::pin(adopt::envoy_gateway_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "the same pod with its shutdown manager loses requests, and waits for the idle client",
        "keep-gateway",
        |fixture| {
            Box::pin(adopt::envoy_gateway_loses_requests_with_its_manager(
                fixture,
            ))
        },
    ),
    Scenario::shared(
        "an adopted pod of Contour loses no request behind endpoints that lag 15 s, and ends within 12 s beside an idle client",
        "adopt-contour",
        |fixture| Box::pin(adopt::contour_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "the same pod with its shutdown manager loses requests, and waits for the idle client",
        "keep-contour",
        |fixture| Box::pin(adopt::contour_loses_requests_with_its_manager(fixture)),
    ),
    Scenario::shared(
        "rollouts behind endpoints that lag 15 s lose no request",
        "lag",
        |fixture| Box::pin(lag::of_15_s_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "rollouts behind kube-proxy lose no request of sparse traffic",
        "sparse",
        |fixture| Box::pin(rollouts::sparse_traffic_survives(fixture)),
    ),
    Scenario::isolated(
        "the eviction of an only pod with `wait-for-replacement` loses no request",
        "replacement",
        |fixture| Box::pin(replacement::only_pod_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "the eviction of an only pod without it loses requests",
        "replacement-without",
        |fixture| Box::pin(replacement::only_pod_loses_requests_without(fixture)),
    ),
    Scenario::isolated(
        "a wait for a replacement without the webhook lasts to its limit and loses no request",
        "replacement-webhook-away",
        |fixture| Box::pin(replacement::absent_webhook_loses_no_request(fixture)),
    ),
    Scenario::isolated(
        "a wait for a replacement is for each Service of the pod",
        "replacement-services",
        |fixture| Box::pin(replacement::each_service_is_waited_for(fixture)),
    ),
    Scenario::isolated(
        "a wait for a replacement that cannot start ends at its limit",
        "replacement-quota",
        |fixture| Box::pin(replacement::missing_successor_ends_with_the_limit(fixture)),
    ),
    Scenario::isolated(
        "evictions of all pods one after the other with `wait-for-replacement` lose no request",
        "replacement-node",
        |fixture| Box::pin(replacement::evicted_node_loses_no_request(fixture)),
    ),
    Scenario::isolated(
        "evictions of all pods at the same moment with `wait-for-replacement` lose no request",
        "replacement-together",
        |fixture| Box::pin(replacement::pods_evicted_together_lose_no_request(fixture)),
    ),
    Scenario::shared(
        "rollouts of QUIC listeners behind kube-proxy lose no HTTP/3 request",
        "http3",
        |fixture| Box::pin(http3::kept_health_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "rollouts of QUIC listeners with `health-failure-delay: 0s` lose HTTP/3 requests",
        "http3-zero-delay",
        |fixture| Box::pin(http3::zero_delay_loses_requests(fixture)),
    ),
];

/// Scenarios about pods and their containers, with a light load.
const LIGHT: &[Scenario] = &[
    Scenario::shared("scaling down and up loses no request", "scale", |fixture| {
        Box::pin(scale::down_and_up_loses_no_request(fixture))
    }),
    Scenario::shared(
        "deletions with a grace period of 8 s lose no request of 5 s",
        "deletions",
        |fixture| Box::pin(deletions::within_8_s_lose_no_request_of_5_s(fixture)),
    ),
    Scenario::shared(
        "a killed drainer does not affect Envoy",
        "killed",
        |fixture| Box::pin(live::killed_drainer_does_not_affect_envoy(fixture)),
    ),
    Scenario::shared(
        "a drainer whose image is replaced does not affect Envoy",
        "image",
        |fixture| Box::pin(live::replaced_drainer_does_not_affect_envoy(fixture)),
    ),
    Scenario::shared(
        "a drainer that exceeds its memory limit does not affect Envoy",
        "memory",
        |fixture| Box::pin(live::oom_killed_drainer_does_not_affect_envoy(fixture)),
    ),
    Scenario::shared(
        "an Envoy that fails its liveness probe is restarted within 30 s",
        "liveness",
        |fixture| Box::pin(liveness::failure_restarts_envoy_within_30_s(fixture)),
    ),
    Scenario::shared(
        "a pod that is deleted while its Envoy is restarted is drained",
        "liveness-deletion",
        |fixture| Box::pin(liveness::deletion_during_a_restart_is_drained(fixture)),
    ),
    Scenario::shared(
        "a rollout under a quota and limits loses no request",
        "strict",
        |fixture| Box::pin(shapes::strict_namespace_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "a drainer as a plain container loses no request",
        "plain",
        |fixture| Box::pin(shapes::plain_drainer_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "an Envoy as a native sidecar of an app loses no request",
        "native",
        |fixture| Box::pin(shapes::native_envoy_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "an Envoy with its admin on a Unix socket loses no request",
        "socket",
        |fixture| Box::pin(shapes::admin_socket_loses_no_request(fixture)),
    ),
    Scenario::shared("the oldest Envoy loses no request", "oldest", |fixture| {
        Box::pin(shapes::oldest_envoy_loses_no_request(fixture))
    }),
    Scenario::shared(
        "an Envoy in the host network loses no request",
        "host",
        |fixture| Box::pin(shapes::host_network_loses_no_request(fixture)),
    ),
    Scenario::shared(
        "Jobs complete within 3 s of their work",
        "jobs",
        |fixture| Box::pin(jobs::complete_within_3_s_of_their_work(fixture)),
    ),
    Scenario::shared(
        "a Job with `envoy-native-sidecar` completes within 3 s of a Job without an Envoy",
        "job-native",
        |fixture| {
            Box::pin(jobs::with_annotation_complete_like_those_without_envoy(
                fixture,
            ))
        },
    ),
    Scenario::shared(
        "a Job with an Envoy among its containers never completes without it",
        "job-plain",
        |fixture| Box::pin(jobs::without_annotation_never_complete(fixture)),
    ),
    Scenario::shared(
        "an app with `extra-lifecycle-hooks` that stops listening at SIGTERM fails no request",
        "order",
        |fixture| Box::pin(order::hooked_app_finishes_its_requests(fixture)),
    ),
    Scenario::shared(
        "an app without it that stops listening at SIGTERM fails requests",
        "order-without",
        |fixture| Box::pin(order::app_without_hook_fails_requests(fixture)),
    ),
    Scenario::shared(
        "an app that works on for 20 s after SIGTERM fails no call through a native sidecar Envoy",
        "order-native",
        |fixture| Box::pin(order::native_envoy_outlives_its_app(fixture)),
    ),
    Scenario::shared(
        "an app that works on for 20 s after SIGTERM fails calls through a plain Envoy",
        "order-plain",
        |fixture| Box::pin(order::plain_envoy_fails_its_apps_last_calls(fixture)),
    ),
    Scenario::shared(
        "an app with both annotations fails no request and no call",
        "order-both",
        |fixture| Box::pin(order::both_fail_nothing(fixture)),
    ),
];

/// Scenarios about the webhook, most of which create pods in a loop.
const ADMISSION: &[Scenario] = &[
    Scenario::isolated(
        "20 CA rotations fail no admission",
        "rotations",
        |fixture| Box::pin(ca_rotation::twenty_rotations_fail_no_admission(fixture)),
    ),
    Scenario::isolated("a lost CA fails no admission", "lost", |fixture| {
        Box::pin(ca_rotation::lost_secret_fails_no_admission(fixture))
    }),
    Scenario::isolated(
        "changes of the certificate mode fail no admission",
        "modes",
        |fixture| Box::pin(modes::changes_fail_no_admission(fixture)),
    ),
    Scenario::isolated(
        "a rollout of the webhook fails no admission",
        "rolling",
        |fixture| Box::pin(webhooks::rollouts_fail_no_admission(fixture)),
    ),
    Scenario::isolated(
        "pods start without the webhook, and the policy reports them",
        "absent",
        |fixture| Box::pin(absent::webhook_is_reported_by_policy(fixture)),
    ),
    Scenario::isolated("the webhook is called once per pod", "calls", |fixture| {
        Box::pin(calls::are_one_per_pod(fixture))
    }),
    Scenario::shared(
        "the drainer has no service account token",
        "token",
        |fixture| Box::pin(calls::drainer_has_no_token(fixture)),
    ),
    Scenario::shared(
        "kubectl apply warns about an invalid annotation",
        "advice",
        |fixture| Box::pin(advice::is_shown_by_kubectl_apply(fixture)),
    ),
    Scenario::shared(
        "an Event on a workload reports why its pods have no drainer",
        "events",
        |fixture| Box::pin(advice::is_published_as_event(fixture)),
    ),
    Scenario::isolated(
        "a drain that cuts requests is known after its pod is gone",
        "drains",
        |fixture| Box::pin(drains::are_known_after_their_pods_are_gone(fixture)),
    ),
    Scenario::isolated(
        "without reports such a drain is unknown",
        "drains-without",
        |fixture| Box::pin(drains::are_unknown_without_reports(fixture)),
    ),
    Scenario::isolated(
        "check reports whether a release works",
        "check",
        |fixture| Box::pin(check::reports_whether_a_release_works(fixture)),
    ),
    Scenario::isolated(
        "the webhook's service account has the least rights",
        "rights",
        |fixture| Box::pin(rights::are_minimal(fixture)),
    ),
    Scenario::isolated(
        "documents built to exhaust the webhook restart no replica",
        "documents",
        |fixture| Box::pin(documents::restart_no_replica(fixture)),
    ),
];
