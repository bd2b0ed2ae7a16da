//! Rollouts of an app behind a sidecar Envoy. Each request to the app makes two calls to the outside through Envoy's
//! listener on loopback, 500 ms apart.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::json::push;
use tests::load::{EchoLoad, load};
use tests::outbound_report::OutboundReport;

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{EnvoyDeployment, annotate, containers, reconfigure, set_endpoint};
use crate::images;
use crate::namespace::Namespace;
use crate::traffic::{Requests, container, roll_under_load};

/// The app's container.
pub(super) const APP: &str = "app";

/// The app's port.
const APP_PORT: u16 = 8081;

/// The port of Envoy's listener for the app's calls.
const OUTBOUND_PORT: u16 = 8082;

/// Requests of half a second and more, some of which are always in flight.
fn clients() -> EchoLoad {
    load()
        .keep_alive(20.0)
        .connection_per_request(10.0)
        .http2(10.0)
}

pub(super) const HOOKS: (&str, &str) = ("extra-lifecycle-hooks", "*");
pub(super) const NATIVE: (&str, &str) = ("envoy-native-sidecar", "true");

/// What the app does at SIGTERM.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AtSigterm {
    /// It stops listening at once, and finishes the requests in flight.
    StopListening,
    /// It serves on for so long, with calls to the outside all the time. A drain takes 10 to 14 s here.
    ServeOn(Duration),
}

/// What fails during a rollout.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failing {
    Nothing,
    /// Requests to the app.
    Requests,
    /// The app's own calls after SIGTERM.
    Calls,
}

/// Restarts a Deployment of two replicas under load.
pub(crate) async fn roll(
    fixture: &ClusterFixture<'_>,
    at_sigterm: AtSigterm,
    annotations: &[(&str, &str)],
    failing: Failing,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |template| {
        for (name, value) in annotations {
            annotate(template, name, value);
        }
        reconfigure(template, put_before_app)?;
        containers(template)?.push(app(at_sigterm));
        Ok(())
    })
    .await?;
    let inbound = roll_under_load(fixture, &edge, clients(), 1).await?;
    let outbound = outbound_report(&edge.namespace)?;
    fixture.add_row(
        "calls of the app after SIGTERM",
        format!("{} of {} failed", outbound.failed, outbound.sent),
    );
    match failing {
        Failing::Nothing => {
            Requests::Survive.ensure(&inbound)?;
            ensure!(outbound.failed == 0, "calls failed: {outbound:?}");
            let calls = matches!(at_sigterm, AtSigterm::ServeOn(_));
            ensure!(!calls || outbound.sent > 0, "the app made no call");
        }
        Failing::Requests => Requests::Fail.ensure(&inbound)?,
        Failing::Calls => ensure!(outbound.failed > 0, "no call failed: {outbound:?}"),
    }
    Ok(())
}

/// Makes the app the upstream of Envoy's listener, and adds a listener on loopback for calls to the upstream so far.
fn put_before_app(bootstrap: &mut Value) {
    let resources = &mut bootstrap["static_resources"];
    let mut listener = resources["listeners"][0].clone();
    listener["name"] = json!("outbound");
    listener["address"]["socket_address"] =
        json!({ "address": "127.0.0.1", "port_value": OUTBOUND_PORT });
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    manager["stat_prefix"] = json!("outbound");
    let route = &mut manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
    route["cluster"] = json!("outside");
    let inside = &mut resources["clusters"][0];
    let mut cluster = inside.clone();
    cluster["name"] = json!("outside");
    cluster["load_assignment"]["cluster_name"] = json!("outside");
    set_endpoint(inside, ([127, 0, 0, 1], APP_PORT).into());
    push(&mut resources["listeners"], listener);
    push(&mut resources["clusters"], cluster);
}

/// Returns the app's container.
pub(super) fn app(at_sigterm: AtSigterm) -> Value {
    let mut args = vec![
        "app".to_owned(),
        format!("0.0.0.0:{APP_PORT}"),
        format!("127.0.0.1:{OUTBOUND_PORT}"),
    ];
    if let AtSigterm::ServeOn(time) = at_sigterm {
        args.extend(["--serve-on".to_owned(), format!("{}s", time.as_secs())]);
    }
    let mut app = container(APP, images::POD_TOOLS_IMAGE, &args);
    app["readinessProbe"] = json!({ "tcpSocket": { "port": APP_PORT }, "periodSeconds": 1 });
    app
}

/// Returns the sum of the reports of the apps that have ended.
///
/// # Errors
/// If there is none, or one is invalid.
fn outbound_report(namespace: &Namespace) -> Result<OutboundReport> {
    let messages = namespace.termination_messages.of_container(APP)?;
    ensure!(!messages.is_empty(), "no app has ended");
    let mut sum = OutboundReport::default();
    for message in messages {
        let report: OutboundReport =
            serde_json::from_str(message.text()).with_context(|| message.to_string())?;
        sum.sent += report.sent;
        sum.failed += report.failed;
        sum.first_failure = sum.first_failure.or(report.first_failure);
    }
    Ok(sum)
}
