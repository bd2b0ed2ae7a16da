//! Servers that are no Envoy: what rollouts lose of HTTP/1 requests of 0, 6 and 20 s, by how their pods end.

use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, from_str, json};
use strum::VariantArray;
use tests::load::load;
use tests::server_report::{Front, ServerEnd, ServerRun};
use tests::timing::SECOND;
use tokio::time::sleep;

use super::drill::run_drill;
use super::lag::copy_endpoints;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, annotate, deployment, into_pod, reconfigure, remove_inject};
use crate::images;
use crate::namespace::Namespace;
use crate::service;
use crate::traffic::Traffic;

/// How late the Envoy in front learns of endpoints.
const LAG: Duration = Duration::from_secs(3);

/// The Envoy in front: its pod, and the ConfigMap with its endpoints.
const FRONT: &str = "front";

/// How many deployments roll at a time.
const PARALLEL: usize = 6;

/// Restarts servers of each kind with each end, and finds losses of SIGTERM, and none of a drainer. With `RUNS`, it records
/// so many runs of each. Without `E2E_SERVER_IMAGES`, the echo server is the only one, which is Go's.
pub(crate) async fn roll(fixture: &ClusterFixture<'_>, front: Front) -> Result<()> {
    let images = env::var("E2E_SERVER_IMAGES").unwrap_or_default();
    let images = format!("go={} {images}", images::backend()?);
    let cases = images.split_whitespace().flat_map(|server| {
        let ends = ServerEnd::VARIANTS.iter();
        ends.map(move |end| roll_server(fixture, front, server, *end))
    });
    stream::iter(cases)
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

async fn roll_server(
    fixture: &ClusterFixture<'_>,
    front: Front,
    server: &str,
    end: ServerEnd,
) -> Result<()> {
    let (name, image) = server.split_once('=').context("a server is NAME=IMAGE")?;
    let namespace = fixture
        .another_namespace(&format!("{name}-{}", end as u8))
        .await?;
    let echo = echo::start(&namespace).await?;
    let edge = deploy(&namespace, name, image, end, echo).await?;
    let runs = env::var("RUNS").ok();
    for _ in 0..runs.as_deref().map_or(Ok(1), str::parse)? {
        let mut run = ServerRun::new(name, &front.to_string(), end);
        roll_once(&edge, echo, front, &mut run).await?;
        fixture.add_row(name, serde_json::to_string(&run)?);
        if runs.is_some() {
            run.record()?;
        } else {
            ensure!(end != ServerEnd::Sigterm || run.failed > 0, "{run:?}");
            ensure!(
                end != ServerEnd::Drainer || run.failed == 0 || front == Front::Kept,
                "{run:?}"
            );
        }
    }
    Ok(())
}

/// Deploys two servers that end so.
async fn deploy(
    namespace: &Rc<Namespace>,
    name: &str,
    image: &str,
    end: ServerEnd,
    echo: SocketAddr,
) -> Result<EnvoyDeployment> {
    let nginx = include_str!("../servers/nginx.conf").replace("ECHO", &echo.to_string());
    namespace
        .apply(config_map("server", "nginx.conf", &nginx))
        .await?;
    let mut workload: Value =
        from_str(&include_str!("../servers/server.json").replace("IMAGE", image))?;
    let template = &mut workload["spec"]["template"];
    let server = &mut template["spec"]["containers"][0];
    let command: &[&str] = match name {
        "node" => &["node", "-e", include_str!("../servers/server.js")],
        "python" => &["python3", "-c", include_str!("../servers/server.py")],
        "nginx" => &["nginx", "-c", "/srv/nginx.conf", "-e", "stderr"],
        _ => &[],
    };
    if !command.is_empty() {
        (server["command"], server["args"]) = (json!(command), json!([]));
    }
    if let Some(seconds) = end.sleep() {
        server["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": seconds } } });
    }
    if end == ServerEnd::Drainer {
        annotate(template, "inject", "true");
        annotate(template, "server-container", "server");
    }
    EnvoyDeployment::deploy(namespace, &workload).await
}

/// Restarts them under load.
async fn roll_once(
    edge: &EnvoyDeployment,
    echo: SocketAddr,
    front: Front,
    run: &mut ServerRun,
) -> Result<()> {
    let namespace = &*edge.namespace;
    let mut roll = async |address, clients| {
        let traffic = Traffic::start(namespace, "load", address, clients).await?;
        let (_, drill) = run_drill(edge, edge.address, &["--mix=connect", "--rate=1"]).await?;
        // The Envoy in front may still know the last pod.
        sleep(LAG).await;
        let report = traffic.stop_at_any_rate().await?;
        (run.sent, run.failed) = (report.sent(), report.failed());
        let pods = drill["pods"].as_array().into_iter().flatten();
        let seconds = |pod: &Value| Some(pod["goneAt"].as_f64()? - pod["deletedAt"].as_f64()?);
        run.seconds.extend(pods.filter_map(seconds));
        namespace
            .run("wait pod/load --for=delete --timeout=60s")
            .await
            .map(drop)
    };
    let clients = load()
        .connection_per_request(10.0)
        .request_timeout(40 * SECOND);
    let clients = clients.slow(1.0, 6 * SECOND).slow(0.5, 20 * SECOND);
    match front {
        Front::KubeProxy => roll(edge.address, clients).await,
        Front::Kept => roll(edge.address, load().keep_alive(20.0)).await,
        Front::Envoy => {
            let address = start_front(namespace, echo).await?;
            let apply = async |slice| write_endpoints(namespace, &slice).await;
            let rolled = async {
                let ready = format!("wait pod/{FRONT} --for=condition=Ready --timeout=60s");
                namespace.run(&ready).await?;
                roll(address, clients.keep_alive(20.0)).await
            };
            tokio::select! {
                ended = rolled => ended,
                never = copy_endpoints(namespace, LAG, Value::Null, apply) => match never? {},
                never = refresh_files(namespace) => match never? {},
            }
        }
    }
}

/// Starts the Envoy in front, unless it runs, and returns the address of its Service.
async fn start_front(namespace: &Namespace, echo: SocketAddr) -> Result<SocketAddr> {
    namespace.apply(config_map(FRONT, "eds.json", "{}")).await?;
    let mut template = deployment(1, echo)?["spec"]["template"].take();
    remove_inject(&mut template)?;
    let eds: Value = from_str(include_str!("../servers/eds.json"))?;
    reconfigure(&mut template, |bootstrap| {
        bootstrap["node"] = json!({ "id": FRONT, "cluster": FRONT });
        json_patch::merge(&mut bootstrap["static_resources"]["clusters"][0], &eds);
    })?;
    let labels = json!({ "app": FRONT });
    template["metadata"]["labels"] = labels.clone();
    let envoy = &mut template["spec"]["containers"][0];
    envoy["volumeMounts"] = json!([{ "name": "eds", "mountPath": "/eds" }]);
    // It is ready once it has read its endpoints.
    envoy["readinessProbe"] = json!({
        "httpGet": { "path": "/", "port": "http" }, "periodSeconds": 1, "failureThreshold": 60,
    });
    template["spec"]["volumes"] = json!([{ "name": "eds", "configMap": { "name": FRONT } }]);
    namespace.apply(into_pod(template, FRONT)).await?;
    service::create_for_pods(namespace, FRONT, labels, "TCP", "http").await
}

/// Gives the Envoy in front the endpoints of an EndpointSlice, as Envoy Gateway does: those that are terminating and serve
/// drain.
async fn write_endpoints(namespace: &Namespace, slice: &Value) -> Result<()> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let serving = endpoints.filter(|it| it["conditions"]["serving"] == true);
    let endpoints = serving.map(|it| {
        let health = if it["conditions"]["ready"] == true {
            "HEALTHY"
        } else {
            "DRAINING"
        };
        let address = json!({ "address": it["addresses"][0], "port_value": 8080 });
        json!({ "health_status": health, "endpoint": { "address": { "socket_address": address } } })
    });
    let assignment = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "echo", "endpoints": [{ "lb_endpoints": endpoints.collect::<Value>() }],
    });
    let eds = json!({ "resources": [assignment] }).to_string();
    let applied = namespace.apply(config_map(FRONT, "eds.json", &eds)).await;
    applied.map(drop)
}

/// Changes the pod of the Envoy in front each second: then the kubelet updates its files, which it does once a minute else.
async fn refresh_files(namespace: &Namespace) -> Result<Infallible> {
    loop {
        let now = UNIX_EPOCH.elapsed()?.as_millis();
        let annotation = format!("refreshed-at={now}");
        namespace
            .run(&format!("annotate pod {FRONT} --overwrite {annotation}"))
            .await?;
        sleep(SECOND).await;
    }
}

fn config_map(name: &str, key: &str, text: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { key: text } })
}
