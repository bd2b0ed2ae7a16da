//! Envoys whose bootstrap is in a ConfigMap, so that nothing in their pods' manifests shows where their admin interface is.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tests::load::{EchoLoad, load};
use tokio::time::Instant;

use super::adopt::{MAX_END, Observation, end_with_idle_client};
use super::drains::{count, watch_drains};
use super::jobs::{time_between, timestamp};
use super::live::wait_for_restarts;
use crate::cluster_fixture::ClusterFixture;
use crate::debug_container;
use crate::echo;
use crate::edge::{
    CONFIG_FOLDER, EnvoyDeployment, containers, deployment, drainer_status, move_bootstrap,
    reconfigure,
};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::termination_message::DRAINER_CONTAINER;
use crate::traffic::Traffic;

/// The ConfigMap with the bootstraps.
const CONFIG: &str = "bootstraps";

/// Clients that keep their connections, some of which always have a request in flight.
fn clients() -> EchoLoad {
    load()
        .keep_alive(50.0)
        .connection_per_request(20.0)
        .http2(20.0)
        .slow(4.0, Duration::from_secs(3))
        .slow_http2(2.0, Duration::from_secs(3))
}

const ROLLOUTS: usize = 2;

/// Shorter than the default, for the pods that are not drained, and longer than [`MAX_END`].
const DRAIN_TIMEOUT: &str = "20s";

/// An admin interface at an address that no hint names is found: rollouts lose no request, and a pod does not wait for
/// an idle client.
pub(crate) async fn unnamed_address_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    roll(fixture, None).await?.ensure_no_loss()
}

/// The same pods do both where an annotation names the usual address: otherwise [`unnamed_address_loses_no_request`] would
/// prove nothing.
pub(crate) async fn wrong_address_loses_requests(fixture: &ClusterFixture<'_>) -> Result<()> {
    let observation = roll(fixture, Some("127.0.0.1:9901")).await?;
    observation.ensure_loss()
}

/// Rolls Envoys with their admin interface at 127.0.0.1:19000, then deletes one that has an idle client.
async fn roll(fixture: &ClusterFixture<'_>, annotated: Option<&str>) -> Result<Observation> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut workload = deployment(2, upstream)?;
    let template = &mut workload["spec"]["template"];
    reconfigure(template, |bootstrap| {
        bootstrap["admin"] = admin("127.0.0.1:19000");
    })?;
    let bootstrap = move_bootstrap(template, CONFIG, "envoy.json")?;
    let annotations = &mut template["metadata"]["annotations"];
    annotations["envoy-drainer.dev/drain-timeout"] = json!(DRAIN_TIMEOUT);
    if let Some(address) = annotated {
        annotations["envoy-drainer.dev/admin-address"] = json!(address);
    }
    apply_bootstraps(&namespace, &json!({ "envoy.json": bootstrap })).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &workload).await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, clients()).await?;
    for _ in 0..ROLLOUTS {
        edge.rollout_restart().await?;
    }
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    let end = end_with_idle_client(fixture, &edge).await?;
    fixture.report_drains(&namespace)?;
    Ok(Observation { report, end })
}

/// A pod with one or more Envoys, and what its drainer knows of their admin interfaces.
struct Case {
    name: &'static str,
    /// The admin interface of each Envoy. The container of the first one is called `envoy`.
    admins: &'static [&'static str],
    what: What,
    known: Known,
}

/// What is special about a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    /// Another server listens at the default of the admin interface.
    OtherServer,
    /// As [`Self::RestartedDrainer`], and the other Envoy ends after the drain.
    HeldEnvoys,
    /// The other Envoy starts some seconds before the one with the hook.
    OtherEnvoyFirst,
    /// Envoy routes all requests to its own admin interface.
    RouteToAdmin,
    /// Envoy starts a minute after the drainer.
    LateEnvoy,
    /// Envoy restarts with its admin interface at [`MOVED`].
    RestartedEnvoy,
    /// The drainer restarts when all is ready.
    RestartedDrainer,
    /// The drainer restarts while so many connections are open in the pod's network namespace.
    Connections(u64),
}

/// What a drainer knows of the admin interface.
#[derive(Clone, Copy)]
enum Known {
    At(&'static str),
    /// Why it knows none.
    Absent(&'static str),
}

/// Where the admin interface of an Envoy is after its restart.
const MOVED: &str = "127.0.0.1:19005";

/// How long after the pod's other containers a late Envoy starts, in seconds.
const LATE: u64 = 60;

/// How long after another Envoy one starts, in seconds.
const LATER: u64 = 5;

/// Pods whose admin interface is found.
const FOUND: [Case; 11] = [
    Case::found("loopback", &["127.0.0.1:19000"], What::Nothing),
    Case::found("port-15000", &["127.0.0.1:15000"], What::Nothing),
    Case {
        known: Known::At("127.0.0.1:8001"),
        ..Case::found("wildcard", &["0.0.0.0:8001"], What::Nothing)
    },
    Case::found("ipv6", &["[::1]:9901"], What::Nothing),
    Case::found("abstract", &["unix:@admin"], What::Nothing),
    // The hint is taken.
    Case::found(
        "hinted",
        &["127.0.0.1:9901", "127.0.0.1:19000"],
        What::Nothing,
    ),
    Case::found("other-server", &["127.0.0.1:19000"], What::OtherServer),
    Case::found("route-to-admin", &["127.0.0.1:19000"], What::RouteToAdmin),
    Case::found("late", &["127.0.0.1:19000"], What::LateEnvoy),
    Case::found("moved", &["127.0.0.1:19000"], What::RestartedEnvoy),
    Case::found("restart", &["127.0.0.1:19000"], What::RestartedDrainer),
];

/// As [`FOUND`]; it starts when these are done, since its clients keep the machine busy.
const CROWDED: Case = Case::found(
    "connections",
    &["127.0.0.1:19000"],
    What::Connections(10_000),
);

/// A pod whose drainer finds no admin interface at its start, and the expected outcome of its termination.
struct Absence {
    case: Case,
    /// The drainer's setup warning.
    warning: &'static str,
    outcome: &'static str,
}

const ABSENT: [Absence; 3] = [
    Absence {
        case: Case {
            name: "none",
            admins: &[""],
            what: What::Nothing,
            known: Known::Absent("no admin interface of an Envoy was found"),
        },
        warning: "admin-none",
        outcome: "unreachable",
    },
    // The other Envoy has no hook and ends at once, so that the one with the hook is left and found.
    Absence {
        case: Case::of_two("two", What::RestartedDrainer),
        warning: "admin-ambiguous",
        outcome: "drained",
    },
    Absence {
        case: Case::of_two("two-held", What::HeldEnvoys),
        warning: "admin-ambiguous",
        outcome: "unreachable",
    },
];

/// The admin interface is found wherever it is, whenever its Envoy starts, and whatever else listens in the pod.
pub(crate) async fn is_found_wherever_it_is(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    for cases in [&FOUND[..], &[CROWDED]] {
        start(&namespace, cases, upstream).await?;
        try_join_all(cases.iter().map(|case| case.observe(fixture, &namespace))).await?;
    }
    Ok(())
}

/// An Envoy without an admin interface holds its pod as long as endpoints take to be removed, and no longer. So do two
/// that both have one. The termination message, `drains`, a metric and a setup warning say so.
pub(crate) async fn absent_one_is_a_plain_delay(fixture: &ClusterFixture<'_>) -> Result<()> {
    let drainer_api =
        json!({ "drainerAPI": { "enabled": true, "replacement": false, "reports": true } });
    let (namespace, release) = &fixture.release(drainer_api).await?;
    let upstream = echo::start(namespace).await?;
    start(namespace, ABSENT.iter().map(|it| &it.case), upstream).await?;
    try_join_all(ABSENT.iter().map(|it| it.case.observe(fixture, namespace))).await?;
    let ensure_counted = async |metric: &str, of: fn(&Absence) -> &str, value: &str| {
        let expected = ABSENT.iter().filter(|it| of(it) == value).count() as u64;
        eventually(&format!("{metric} counts {value}"), || async {
            Ok(count(release, &[metric, &format!("=\"{value}\"")]).await? == expected)
        })
        .await
    };
    for warning in ["admin-none", "admin-ambiguous"] {
        ensure_counted("setup_warnings_total{", |it| it.warning, warning).await?;
    }
    let drains = watch_drains(namespace)?;
    let ended = ABSENT.iter().map(|Absence { case, .. }| async move {
        let started = Instant::now();
        namespace.run(&format!("delete pod {}", case.name)).await?;
        let end = started.elapsed();
        ensure!(end <= MAX_END, "{} ended after {end:?}", case.name);
        Ok(end)
    });
    let ends = try_join_all(ended).await?;
    ensure_counted("drains_total{", |it| it.outcome, "unreachable").await?;

    let messages = namespace.termination_messages.read_all()?;
    for (Absence { case, outcome, .. }, end) in ABSENT.iter().zip(ends) {
        let message = messages.iter().find(|it| it.pod() == case.name);
        let message = message.with_context(|| format!("{} has no message", case.name))?;
        let shown = format!("{:.1} s; {}", end.as_secs_f64(), message.text());
        fixture.add_row(&format!("{}: pod's end", case.name), shown);
        let told = message.outcome().map(|(outcome, _)| outcome);
        ensure!(told.as_deref() == Some(outcome), "{message}");
        eventually("`drains` shows the outcome", || async {
            let shown = drains.documents()?;
            let mut of_pod = shown.iter().filter(|drain| drain["pod"] == *case.name);
            Ok(of_pod.any(|drain| drain["outcome"] == *outcome))
        })
        .await?;
    }
    Ok(())
}

/// The Envoy with the hook is drained although another one, which answers first and ends at once, was all that the drainer
/// could find at its start.
pub(crate) async fn later_envoy_is_drained(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let case = Case::of_two("later", What::OtherEnvoyFirst);
    start(&namespace, [&case], upstream).await?;
    case.wait_until_ready(&namespace).await?;
    let status = drainer_status(&namespace, case.name).await?;
    fixture.add_row("status", status.to_string());
    namespace.run(&format!("delete pod {}", case.name)).await?;
    let messages = || namespace.termination_messages.read_all();
    eventually("the drain has ended", || async {
        Ok(!messages()?.is_empty())
    })
    .await?;
    let message = messages()?.pop().context("there is one")?;
    fixture.add_row("pod's end", message.text());
    let outcome = message.outcome().map(|(outcome, _)| outcome);
    ensure!(outcome.as_deref() == Some("drained"), "{message}");
    Ok(())
}

/// Applies the bootstraps of all pods, and then the pods.
async fn start<'c>(
    namespace: &Namespace,
    cases: impl IntoIterator<Item = &'c Case>,
    upstream: SocketAddr,
) -> Result<()> {
    let (mut pods, mut bootstraps) = (Vec::new(), json!({}));
    for case in cases {
        pods.push(case.pod(upstream, &mut bootstraps)?);
    }
    apply_bootstraps(namespace, &bootstraps).await?;
    try_join_all(pods.into_iter().map(|pod| namespace.apply(pod))).await?;
    Ok(())
}

async fn apply_bootstraps(namespace: &Namespace, files: &Value) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG },
        "data": files,
    });
    namespace.apply(config).await.map(drop)
}

/// Returns the bootstrap's `admin` for an address; null for none.
fn admin(address: &str) -> Value {
    let address = match address.parse::<SocketAddr>() {
        Ok(address) => {
            let (ip, port) = (address.ip().to_string(), address.port());
            json!({ "socket_address": { "address": ip, "port_value": port } })
        }
        Err(_) => match address.strip_prefix("unix:") {
            Some(path) => json!({ "pipe": { "path": path } }),
            None => return Value::Null,
        },
    };
    json!({ "address": address })
}

/// The container of [`fortio`].
const FORTIO: &str = "fortio";

/// The other ports of fortio's server, none of which is needed.
const OTHER_PORTS: [&str; 6] = [
    "-grpc-port",
    "disabled",
    "-redirect-port",
    "disabled",
    "-udp-port",
    "disabled",
];

/// Returns a container that runs fortio.
fn fortio(args: &[&str]) -> Result<Value> {
    Ok(json!({
        "name": FORTIO,
        "image": images::backend()?,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "securityContext": restricted::container(),
    }))
}

/// Sends a request from the container of [`fortio`], and returns the body of the response.
async fn curl(namespace: &Namespace, pod: &str, args: &str) -> Result<String> {
    let exec = format!("exec {pod} --container {FORTIO} -- /usr/bin/fortio curl -quiet {args}");
    namespace.run(&exec).await
}

// === impl Case ===

impl Case {
    /// A pod whose first Envoy's admin interface is found.
    const fn found(name: &'static str, admins: &'static [&'static str], what: What) -> Self {
        let known = match what {
            What::RestartedEnvoy => MOVED,
            _ => admins[0],
        };
        let known = Known::At(known);
        Self {
            name,
            admins,
            what,
            known,
        }
    }

    /// A pod of two Envoys, neither of which is taken.
    const fn of_two(name: &'static str, what: What) -> Self {
        Self {
            name,
            admins: &["127.0.0.1:19000", "127.0.0.1:19001"],
            what,
            known: Known::Absent("127.0.0.1:19000, 127.0.0.1:19001"),
        }
    }

    /// Returns the pod, and adds its bootstraps.
    fn pod(&self, upstream: SocketAddr, bootstraps: &mut Value) -> Result<Value> {
        let mut pod = Value::Null;
        for (number, address) in (0..).zip(self.admins) {
            let mut template = deployment(1, upstream)?["spec"]["template"].take();
            reconfigure(&mut template, |bootstrap| {
                bootstrap["admin"] = admin(address);
                let resources = &mut bootstrap["static_resources"];
                let socket = &mut resources["listeners"][0]["address"]["socket_address"];
                socket["port_value"] = json!(8080 + number);
                let endpoint = "/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint";
                if let (What::RouteToAdmin, Some(endpoint)) =
                    (self.what, resources.pointer_mut(endpoint))
                {
                    *endpoint = admin(address);
                }
            })?;
            let key = format!("{}-{number}.json", self.name);
            bootstraps[&key] = json!(move_bootstrap(&mut template, CONFIG, &key)?);
            if number == 0 {
                pod = template;
                continue;
            }
            let mut other = template["spec"]["containers"][0].take();
            other["name"] = json!(format!("envoy-{number}"));
            other["ports"] = Value::Null;
            other["readinessProbe"] = Value::Null;
            containers(&mut pod)?.push(other);
        }
        self.change(&mut pod)?;
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(self.name);
        Ok(pod)
    }

    fn change(&self, pod: &mut Value) -> Result<()> {
        if self.what == What::HeldEnvoys {
            pod["metadata"]["annotations"]["envoy-drainer.dev/extra-lifecycle-hooks"] = json!("*");
        }
        if self.restarts_drainer() {
            // Process 1 cannot be killed from within its own PID namespace.
            pod["spec"]["shareProcessNamespace"] = json!(true);
        }
        let server = |http: &str| {
            let args = ["server", "-http-port", http, "-tcp-port", "127.0.0.1:8078"];
            fortio(&[&args[..], &OTHER_PORTS].concat())
        };
        let containers = containers(pod)?;
        match self.what {
            What::Nothing | What::HeldEnvoys | What::RouteToAdmin | What::RestartedDrainer => {}
            What::OtherEnvoyFirst => {
                let mut other = containers.remove(1);
                other["lifecycle"]["postStart"]["sleep"]["seconds"] = json!(LATER);
                containers.insert(0, other);
            }
            What::OtherServer => containers.push(server("127.0.0.1:9901")?),
            What::LateEnvoy => {
                // The kubelet starts the containers in order, each after the hook of the one before it.
                let mut first = server("127.0.0.1:8081")?;
                first["lifecycle"]["postStart"]["sleep"]["seconds"] = json!(LATE);
                containers.insert(0, first);
            }
            What::RestartedEnvoy => {
                let mut server = server("127.0.0.1:8081")?;
                server["volumeMounts"] = containers[0]["volumeMounts"].clone();
                containers.push(server);
            }
            What::Connections(count) => {
                let count = count.to_string();
                let load = "load -quiet -qps 100 -t 0 -timeout 30s -httpbufferkb 1 -c";
                let load = load
                    .split(' ')
                    .chain([&*count, "http://127.0.0.1:8080/ready"]);
                containers.push(fortio(&load.collect::<Vec<_>>())?);
            }
        }
        Ok(())
    }

    /// Waits until the drainer knows what it should, and adds that to the report with the time that the search took: since
    /// the drainer was there, and an Envoy whose start is known to the second.
    async fn observe(&self, fixture: &ClusterFixture<'_>, namespace: &Namespace) -> Result<()> {
        self.wait_until_ready(namespace).await?;
        match self.what {
            What::RestartedEnvoy => self.restart_envoy(namespace).await?,
            What::Connections(count) => self.wait_for_connections(namespace, count).await?,
            _ => {}
        }
        if self.restarts_drainer() {
            // Process 1 of the drainer's container, which the kubelet starts again at once.
            debug_container::exec_in_pod(namespace, self.name, &["kill", "drainer"]).await?;
            wait_for_restarts(namespace, self.name, 1).await?;
        }
        self.wait_until_known(namespace, self.known).await?;
        let shown = match self.known {
            Known::At(address) => {
                let time = self.search_time(namespace).await?;
                format!("{address}, after {:.3} s", time.as_secs_f64())
            }
            Known::Absent(reason) => reason.to_owned(),
        };
        fixture.add_row(self.name, shown);
        Ok(())
    }

    fn restarts_drainer(&self) -> bool {
        matches!(
            self.what,
            What::RestartedDrainer | What::HeldEnvoys | What::Connections(_)
        )
    }

    async fn wait_until_ready(&self, namespace: &Namespace) -> Result<()> {
        let wait = "wait --for=condition=Ready --timeout=120s";
        let wait = format!("{wait} pod/{}", self.name);
        namespace.run(&wait).await.map(drop)
    }

    /// Waits until so many clients of Envoy are connected.
    async fn wait_for_connections(&self, namespace: &Namespace, count: u64) -> Result<()> {
        let stat = "listener.0.0.0.0_8080.downstream_cx_active";
        let url = format!("http://{}/stats?filter={stat}", self.admins[0]);
        eventually("the connections are open", || async {
            let stats = curl(namespace, self.name, &url).await?;
            let open = stats.lines().find_map(|line| {
                let open = line.strip_prefix(stat)?.strip_prefix(": ")?;
                open.parse::<u64>().ok()
            });
            Ok(open.is_some_and(|open| open >= count))
        })
        .await
    }

    async fn wait_until_known(&self, namespace: &Namespace, known: Known) -> Result<()> {
        let what = format!("the admin interface of {} is known", self.name);
        eventually(&what, || async {
            let status = drainer_status(namespace, self.name).await;
            Ok(status.is_ok_and(|status| match known {
                Known::At(address) => status["admin"] == address,
                Known::Absent(reason) => {
                    let unknown = status["unknown"].as_str().unwrap_or_default();
                    status["admin"].is_null() && unknown.contains(reason)
                }
            }))
        })
        .await
    }

    /// Has Envoy restarted with its admin interface at [`MOVED`], once the drainer has found the first one.
    async fn restart_envoy(&self, namespace: &Namespace) -> Result<()> {
        let first = Known::At(self.admins[0]);
        self.wait_until_known(namespace, first).await?;
        let file = format!("{}-0.json", self.name);
        let config = ["get", "configmap", CONFIG];
        let mut files = namespace.json(&config).await?["data"].take();
        let mut bootstrap: Value =
            serde_json::from_str(files[&file].as_str().context("it has no bootstrap")?)?;
        bootstrap["admin"] = admin(MOVED);
        files[&file] = json!(bootstrap.to_string());
        apply_bootstraps(namespace, &files).await?;
        // The kubelet updates the files of a pod when the pod changes.
        let label = format!("label pod {} changed=true", self.name);
        namespace.run(&label).await?;
        let echo = format!("-payload-file {CONFIG_FOLDER}/{file} http://127.0.0.1:8081/");
        eventually("the bootstrap is updated", || async {
            let bootstrap = curl(namespace, self.name, &echo).await?;
            Ok(bootstrap.contains("19005"))
        })
        .await?;
        let quit = format!("-X POST http://{}/quitquitquit", self.admins[0]);
        curl(namespace, self.name, &quit).await.map(drop)
    }

    async fn search_time(&self, namespace: &Namespace) -> Result<Duration> {
        let logs = ["logs", self.name, "--container", DRAINER_CONTAINER];
        let logs = namespace.kubectl(&logs).await?;
        let logged_at = |message: &str| {
            let lines = logs.lines().rev();
            let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let line = lines.find(|line| line["message"] == *message);
            timestamp(&line.with_context(|| format!("not logged: {message}"))?["timestamp"])
        };
        let envoy = namespace.container_status(self.name, "envoy").await?;
        let envoy_started = timestamp(&envoy["state"]["running"]["startedAt"])?;
        let started = logged_at("Drainer started")?.max(envoy_started);
        Ok(time_between(
            started,
            logged_at("Found Envoy's admin interface")?,
        ))
    }
}
