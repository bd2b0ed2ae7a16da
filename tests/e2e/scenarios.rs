//! The scenarios, in the order in which they run. A scenario fails if the claim in its name does not hold.

mod absent;
mod admin;
mod adopt;
mod advice;
mod all_envoys;
mod any_server;
mod ca_rotation;
mod calls;
mod check;
mod drains;
mod drill;
mod evictions;
mod http3;
mod jobs;
mod lag;
mod lifecycle;
mod live;
mod liveness;
mod modes;
mod order;
mod redirect;
mod replacement;
mod rights;
mod rollouts;
mod second_webhook;
mod shapes;
mod slow_reader;
mod sole;

use tests::drill_reports::Setting;
use tests::server_report::Front;
use tests::timing::SECOND;

use crate::scenario::{Scenario, WebhookScope};
use crate::traffic::Requests;

use admin::CALLS;
use adopt::{Manager, Product};
use order::{AtSigterm, Failing, HOOKS, NATIVE};
use redirect::EXCLUDE_DRAINER;
use second_webhook::Order;

/// Lists scenarios: whose webhook admits its pods, its slug, its steps with their arguments, and its claim. One that
/// expects failures shows that the one before it would prove nothing otherwise.
macro_rules! scenarios {
    ($($webhook:ident $slug:literal => $module:ident::$steps:ident $(($($argument:expr),*))?: $claim:literal;)*) => {
        &[$(Scenario {
            name: $claim,
            slug: $slug,
            webhook: WebhookScope::$webhook,
            run: |fixture| Box::pin($module::$steps(fixture $($(, $argument)*)?)),
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
    Shared "drill" => drill::find_losses(Setting::Mixed):
        "drills under several kinds of clients find losses of SIGTERM, and none of a drainer";
    Dedicated "drill-tuned" => drill::tuned_drainers_lose_nothing:
        "a drainer with settings for HTTP/3 and for an only pod loses no request of either";
    Shared "strategy" => rollouts::of_modify_only_listeners(Some("immediate"), Requests::Survive):
        "rollouts of MODIFY_ONLY listeners with `drain-strategy: immediate` lose no request";
    Shared "gradual" => rollouts::of_modify_only_listeners(None, Requests::Fail):
        "rollouts of MODIFY_ONLY listeners without it lose requests";
    Shared "kubectl-drain" => evictions::kubectl_drain_needs_no_flag:
        "`kubectl drain` takes injected pods without `--delete-emptydir-data`";
    Shared "evictions" => evictions::evicted_envoys_lose_no_request: "evictions lose no request";
    Dedicated "lifecycle" => lifecycle::leaves_only_injected_pods:
        "a release that Helm installs, upgrades, rolls back and uninstalls leaves only injected pods";
    Dedicated "helm4" => lifecycle::with_helm_4: "the same with Helm 4";
};

/// Scenarios about endpoints, with a light load. Those that measure a pod's end are the first, since the last ones of
/// [`ADMISSION`] keep the API server busy.
const ENDPOINTS: &[Scenario] = scenarios! {
    Shared "adopt-gateway" => adopt::loses_no_request(Product::envoy_gateway(), Manager::Adopted):
        "an adopted pod of Envoy Gateway loses no request behind endpoints that lag 15 s, and ends within 14 s beside an idle client";
    Shared "adopt-contour" => adopt::loses_no_request(Product::contour(), Manager::Adopted):
        "an adopted pod of Contour loses no request behind endpoints that lag 15 s, and ends within 14 s beside an idle client";
    Shared "drop-in-gateway" => adopt::loses_no_request(Product::envoy_gateway(), Manager::DropIn):
        "so does a pod of Envoy Gateway whose manager has the drainer's image";
    Shared "drop-in-contour" => adopt::loses_no_request(Product::contour(), Manager::DropIn):
        "so does a pod of Contour whose manager has the drainer's image";
    Shared "drop-in-marin3r" => adopt::loses_no_request(Product::marin3r(), Manager::DropIn):
        "so does a pod of MARIN3R whose manager has the drainer's image";
    Shared "drill-lag" => drill::find_losses(Setting::BehindLag):
        "drills behind endpoints that lag 15 s find losses of SIGTERM, and none of a drainer";
    Shared "drill-http3" => drill::find_losses(Setting::Http3):
        "drills under HTTP/3 requests find losses of SIGTERM";
    Dedicated "replacement-webhook-away" => replacement::absent_webhook_loses_no_request:
        "a wait for a replacement without the webhook lasts to its limit and loses no request";
    Dedicated "replacement-together" => replacement::pods_evicted_together_lose_no_request:
        "evictions of all pods at the same moment with `wait-for-replacement` lose no request";
    Dedicated "sole" => sole::is_out_of_service_no_longer:
        "a StatefulSet of one whose drains keep health is out of service 1.5 s a restart longer at most than with SIGTERM alone, and one of three loses no request";
    Shared "server-proxy" => any_server::roll(Front::KubeProxy):
        "rollouts of servers behind kube-proxy lose requests at SIGTERM, and none with a drainer";
    Shared "http3" => http3::roll(None, Requests::Survive):
        "rollouts of QUIC listeners behind kube-proxy lose no HTTP/3 request";
    Shared "http3-zero-delay" => http3::roll(Some("0s"), Requests::Fail):
        "rollouts of QUIC listeners with `health-failure-delay: 0s` lose HTTP/3 requests";
};

/// Scenarios about pods and their containers, with a light load.
const LIGHT: &[Scenario] = scenarios! {
    Shared "drill-sole" => drill::find_losses(Setting::SolePod):
        "drills of the eviction of an only pod find losses of SIGTERM";
    Shared "drill-surge" => drill::find_losses(Setting::NoSurge):
        "drills of an only pod without surge find losses of SIGTERM";
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
    Shared "admin-rollouts" => admin::roll(None, Requests::Survive):
        "Envoys whose admin interface nothing in their manifest names lose no request, and end within 14 s beside an idle client";
    Shared "admin-wrong" => admin::roll(Some("127.0.0.1:9901"), Requests::Fail):
        "the same Envoys with a wrong `admin-address` lose requests, and wait for the idle client";
    Dedicated "admin-none" => admin::absent_one_is_a_plain_delay:
        "an Envoy without an admin interface holds its pod for the minimum";
    Shared "admin-later" => admin::later_envoy_is_drained:
        "an Envoy that starts after another one of its pod is drained";
    Shared "paths-allowed" => admin::roll_allowing(&CALLS, Requests::Survive):
        "Envoys whose `admin.allow_paths` allows the calls of a drain lose no request";
    Shared "paths-forbidden" => admin::roll_allowing(&[], Requests::Fail):
        "Envoys whose `admin.allow_paths` forbids them lose requests, and their drainers say so";
    Shared "never-up" => admin::envoy_that_never_came_up_holds_nothing:
        "an Envoy that has never come up beside an app that listens does not hold its pod";
    Shared "redirected" => redirect::roll("", Requests::Fail):
        "Envoys whose hooks are redirected to them lose requests, and their drainers say so";
    Shared "redirect-excluded" => redirect::roll(EXCLUDE_DRAINER, Requests::Survive):
        "Envoys whose redirection excludes the drainer's port lose no request";
    Shared "second-first" => second_webhook::roll(Order::First):
        "Envoys whose hook another webhook has added before lose no request with `existing-hook: replace`";
    Shared "second-last" => second_webhook::roll(Order::Last):
        "Envoys whose hook another webhook replaces afterwards lose no request, and an Event says so";
    Shared "second-again" => second_webhook::roll(Order::LastAgain):
        "Envoys whose hook another webhook replaces again lose requests, and the policy and `check` say so";
    Shared "slow-reader" => slow_reader::during_a_rollout("false", Requests::Survive):
        "a client that reads a response slowly gets all of it";
    Shared "slow-reader-unseen" => slow_reader::during_a_rollout("true", Requests::Fail):
        "a client that reads a response slowly loses the rest with `ignore-kernel`";
    Shared "drill-interrupt" => drill::that_is_interrupted_leaves_nothing:
        "a drill that is interrupted leaves nothing";
    Shared "all-envoys" => all_envoys::get_drainers_without_annotation:
        "Envoys in a namespace with `injection: all` lose no request without an annotation";
    Shared "server-envoy" => any_server::roll(Front::Envoy):
        "rollouts of servers behind an Envoy whose endpoints lag 3 s lose requests at SIGTERM, and none with a drainer";
    Shared "strict" => shapes::lose_no_request(|_| Ok(())):
        "a rollout under a quota and limits loses no request";
    Shared "plain" => shapes::lose_no_request(shapes::plain_drainer): "a drainer as a plain container loses no request";
    Shared "native" => shapes::lose_no_request(shapes::native_envoy):
        "an Envoy as a native sidecar of an app loses no request";
    Shared "socket" => shapes::lose_no_request(shapes::admin_socket):
        "an Envoy with its admin on a Unix socket loses no request";
    Shared "oldest" => shapes::lose_no_request(shapes::oldest_envoy): "the oldest Envoy loses no request";
    Shared "host" => shapes::host_network_loses_no_request:
        "an Envoy in the host network loses no request, and its drainer leaves another pod's Envoy alone";
    Shared "job-native" => jobs::with_annotation_complete_like_those_without_envoy:
        "a Job with `envoy-native-sidecar` completes within 3 s of a Job without an Envoy";
    Shared "order" => order::roll(AtSigterm::StopListening, &[HOOKS], Failing::Nothing):
        "an app with `extra-lifecycle-hooks` that stops listening at SIGTERM fails no request";
    Shared "order-without" => order::roll(AtSigterm::StopListening, &[], Failing::Requests):
        "an app without it that stops listening at SIGTERM fails requests";
    Shared "order-native" => order::roll(AtSigterm::ServeOn(20 * SECOND), &[NATIVE], Failing::Nothing):
        "an app that works on for 20 s after SIGTERM fails no call through a native sidecar Envoy";
    Shared "order-plain" => order::roll(AtSigterm::ServeOn(20 * SECOND), &[], Failing::Calls):
        "an app that works on for 20 s after SIGTERM fails calls through a plain Envoy";
    Shared "order-both" => order::roll(AtSigterm::ServeOn(5 * SECOND), &[HOOKS, NATIVE], Failing::Nothing):
        "an app with both annotations fails no request and no call";
};

/// Scenarios about the webhook, most of which create pods in a loop, and about clients that send nothing.
const ADMISSION: &[Scenario] = scenarios! {
    Shared "drill-idle" => drill::find_losses(Setting::Idle):
        "drills beside idle clients find no losses of a drainer, which does not wait for them";
    Dedicated "rotations" => ca_rotation::twenty_rotations_fail_no_admission: "20 CA rotations fail no admission";
    Dedicated "lost" => ca_rotation::lost_secret_fails_no_admission: "a lost CA fails no admission";
    Dedicated "modes" => modes::changes_fail_no_admission: "changes of the certificate mode fail no admission";
    Dedicated "absent" => absent::webhook_is_reported_by_policy:
        "pods start without the webhook, and the policy reports them";
    Dedicated "calls" => calls::are_one_per_pod: "the webhook is called once per pod";
    Shared "token" => calls::drainer_has_no_token: "the drainer has no service account token";
    Shared "advice" => advice::is_shown_by_kubectl_apply: "kubectl apply warns about an invalid annotation";
    Shared "events" => advice::is_published_as_event: "an Event on a workload reports why its pods have no drainer";
    Dedicated "drains" => drains::are_known_after_their_pods_are_gone:
        "a drain that cuts requests is known after its pod is gone";
    Shared "cut" => drains::that_are_killed_have_cut_requests:
        "a drain whose Envoy or drainer is killed shows the requests that it cut";
    Shared "server-kept" => any_server::roll(Front::Kept):
        "rollouts of servers whose clients keep their connections and never pause end at the deadline with a drainer";
    Dedicated "check" => check::reports_whether_a_release_works: "check reports whether a release works";
    Dedicated "rights" => rights::are_minimal: "the webhook's service account has the least rights";
};
