//! What is to be shown, and in which order.

mod absent;
mod advice;
mod ca_rotation;
mod calls;
mod check;
mod deletions;
mod documents;
mod evictions;
mod jobs;
mod lag;
mod lifecycle;
mod live;
mod liveness;
mod modes;
mod rights;
mod rollouts;
mod scale;
mod shapes;
mod webhooks;

use crate::scenario::Scenario;

/// Lanes that run side by side, each from its top to its end. Heavy load is in one of them alone: what
/// the others do beside it takes little of a machine.
pub(crate) const LANES: [&[Scenario]; 3] = [HEAVY, LIGHT, CREATED];

const HEAVY: &[Scenario] = &[
    Scenario::shared("rollouts lose nothing", "rollouts", |stage| {
        Box::pin(rollouts::lose_nothing(stage))
    }),
    Scenario::shared(
        "rollouts without a drainer lose of each kind",
        "naked",
        |stage| Box::pin(rollouts::without_a_drainer_lose_of_each_kind(stage)),
    ),
    Scenario::shared("evictions lose nothing", "evictions", |stage| {
        Box::pin(evictions::lose_nothing(stage))
    }),
    Scenario::isolated(
        "evictions of the webhook while Envoys roll lose nothing",
        "webhooks",
        |stage| Box::pin(evictions::of_webhooks_lose_nothing(stage)),
    ),
    Scenario::isolated(
        "a release that Helm installs, upgrades, rolls back and uninstalls leaves but drainers",
        "lifecycle",
        |stage| Box::pin(lifecycle::leaves_nothing_but_drainers(stage)),
    ),
    Scenario::isolated("the same by Helm 4", "helm4", |stage| {
        Box::pin(lifecycle::by_another_helm(stage))
    }),
];

const LIGHT: &[Scenario] = &[
    Scenario::shared(
        "rollouts behind endpoints 15 s late lose nothing",
        "lag",
        |stage| Box::pin(lag::of_15_s_loses_nothing(stage)),
    ),
    Scenario::shared(
        "rollouts behind this kube-proxy lose nothing of sparse traffic",
        "sparse",
        |stage| Box::pin(rollouts::under_sparse_traffic_lose_nothing(stage)),
    ),
    Scenario::shared("scaling down and up loses nothing", "scale", |stage| {
        Box::pin(scale::down_and_up_loses_nothing(stage))
    }),
    Scenario::shared(
        "deletions within 8 s lose no request of 5 s",
        "deletions",
        |stage| Box::pin(deletions::within_8_s_lose_no_request_of_5_s(stage)),
    ),
    Scenario::shared("a killed drainer leaves Envoy alone", "killed", |stage| {
        Box::pin(live::a_killed_drainer_leaves_envoy_alone(stage))
    }),
    Scenario::shared("a new drainer leaves Envoy alone", "image", |stage| {
        Box::pin(live::a_new_drainer_leaves_envoy_alone(stage))
    }),
    Scenario::shared(
        "a drainer over its memory limit leaves Envoy alone",
        "memory",
        |stage| Box::pin(live::a_drainer_out_of_memory_leaves_envoy_alone(stage)),
    ),
    Scenario::shared(
        "an Envoy that fails its liveness probe is restarted within 15 s",
        "liveness",
        |stage| Box::pin(liveness::restarts_envoy_within_15_s(stage)),
    ),
    Scenario::shared(
        "a rollout under quota and limits loses nothing",
        "strict",
        |stage| Box::pin(shapes::in_a_strict_namespace(stage)),
    ),
    Scenario::shared(
        "a drainer as a plain container loses nothing",
        "plain",
        |stage| Box::pin(shapes::plain_container(stage)),
    ),
    Scenario::shared(
        "an Envoy as a native sidecar of an app loses nothing",
        "native",
        |stage| Box::pin(shapes::native_envoy(stage)),
    ),
    Scenario::shared(
        "an Envoy with its admin on a Unix socket loses nothing",
        "socket",
        |stage| Box::pin(shapes::admin_on_a_socket(stage)),
    ),
    Scenario::shared("the oldest Envoy loses nothing", "oldest", |stage| {
        Box::pin(shapes::oldest_envoy(stage))
    }),
    Scenario::shared(
        "an Envoy on the host's network loses nothing",
        "host",
        |stage| Box::pin(shapes::on_the_hosts_network(stage)),
    ),
    Scenario::shared("jobs end within 3 s of their work", "jobs", |stage| {
        Box::pin(jobs::end_within_3_s_of_their_work(stage))
    }),
];

const CREATED: &[Scenario] = &[
    Scenario::isolated(
        "authorities rotated 20 times refuse nobody",
        "rotations",
        |stage| Box::pin(ca_rotation::rotated_refuse_nobody(stage)),
    ),
    Scenario::isolated("a lost authority refuses nobody", "lost", |stage| {
        Box::pin(ca_rotation::lost_refuse_nobody(stage))
    }),
    Scenario::isolated(
        "certificates that come from elsewhere and back refuse nobody",
        "modes",
        |stage| Box::pin(modes::changed_refuse_nobody(stage)),
    ),
    Scenario::isolated("webhooks that roll refuse nobody", "rolling", |stage| {
        Box::pin(webhooks::rolled_refuse_nobody(stage))
    }),
    Scenario::isolated(
        "without the webhook pods start, and the policy tells of them",
        "absent",
        |stage| Box::pin(absent::webhooks_are_told_of(stage)),
    ),
    Scenario::isolated("the webhook is called once a pod", "calls", |stage| {
        Box::pin(calls::come_once_a_pod(stage))
    }),
    Scenario::shared("a drainer has no token", "token", |stage| {
        Box::pin(calls::bring_no_token(stage))
    }),
    Scenario::shared(
        "kubectl apply tells of a bad annotation",
        "advice",
        |stage| Box::pin(advice::comes_with_kubectl_apply(stage)),
    ),
    Scenario::shared(
        "an Event tells a workload why its pods have no drainer",
        "events",
        |stage| Box::pin(advice::comes_by_event(stage)),
    ),
    Scenario::isolated(
        "check tells what works and what does not",
        "check",
        |stage| Box::pin(check::tells_what_works_and_what_does_not(stage)),
    ),
    Scenario::isolated("the webhook's rights are the least", "rights", |stage| {
        Box::pin(rights::are_the_least(stage))
    }),
    Scenario::isolated(
        "documents made to exhaust the webhook restart no replica",
        "documents",
        |stage| Box::pin(documents::restart_no_replica(stage)),
    ),
];
