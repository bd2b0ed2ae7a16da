//! The commands `drainer drain`, which is the drainer's own preStop hook, and `drainer status`: clients
//! of the sidecar's Unix socket.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use hyper::{Method, Response, StatusCode};
use tokio::time::{sleep, timeout};

use crate::drain::progress::Progress;
use crate::http_client::{exchange, request};
use crate::server::local_socket::connect;
use crate::server::{DRAIN_PATH, STATUS_PATH};
use crate::text::printable;

/// The number of attempts to connect to a drainer, which may be restarting, and the pause between them.
const MAX_ATTEMPTS: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Timeout to fetch the status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a response's body, in bytes.
const MAX_BODY: usize = 1 << 20;

/// Calls the hook of the drainer in this container that listens on `port`, with the `flags` of a shutdown manager's hook, and
/// waits until it may return: without a timeout, since the drainer has deadlines for all it does.
///
/// # Errors
/// If the drainer cannot be reached, or exits before it has responded.
pub async fn drain(port: NonZeroU16, flags: &[String]) -> anyhow::Result<()> {
    // Valid values have no other characters, and are shorter.
    let is_other = |c: char| !c.is_ascii_alphanumeric() && !"&-=.:/,".contains(c);
    let query = flags.join("&").replace(is_other, "_");
    let response = call(port, MAX_ATTEMPTS, &format!("{DRAIN_PATH}?{query:.1000}")).await;
    let status = response.with_context(|| failure(port))?.status();
    if status != StatusCode::OK {
        bail!("the drainer responded with {status}");
    }
    Ok(())
}

/// Fetches the status of the drainer in this container that listens on `port`, which is JSON.
///
/// # Errors
/// If the drainer cannot be reached, or does not respond within five seconds.
pub async fn fetch_status(port: NonZeroU16) -> anyhow::Result<Bytes> {
    let response = timeout(STATUS_TIMEOUT, call(port, 1, STATUS_PATH)).await;
    let response = response.unwrap_or_else(|_| Err(anyhow!("no response within 5s")));
    Ok(response.with_context(|| failure(port))?.into_body())
}

/// Calls `path` of the drainer that listens on `port`, with at most so many attempts to connect.
async fn call(port: NonZeroU16, max_attempts: u32, path: &str) -> anyhow::Result<Response<Bytes>> {
    let mut connected = connect(port).await;
    for _ in 1..max_attempts {
        if connected.is_err() {
            sleep(RETRY_DELAY).await;
            connected = connect(port).await;
        }
    }
    Ok(exchange(connected?, request(Method::GET, path), MAX_BODY).await?)
}

fn failure(port: NonZeroU16) -> String {
    format!(
        "cannot call the drainer at port {port} in this container: does it have another `--port`?"
    )
}

/// Formats a status for a terminal, one fact a line.
pub fn describe_status(status: &Progress) -> String {
    let open = status.remaining.as_ref();
    let number = |number: u64| number.to_string();
    let count = |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), number);
    // Of a server, the kernel tells only what is in flight.
    let envoys = open.filter(|it| it.in_flight.is_none());
    let kept = || "not failed yet (health-failure-delay)".into();
    let unseen = Some(status.unseen.join(", "));
    let json = |it| serde_json::json!(it).to_string();
    let are_old = status.unknown.is_some() && open.is_some();
    let rows = [
        ("phase", Some(status.phase.to_string())),
        ("admin", status.admin.clone()),
        ("waiting for", status.waiting_for.clone()),
        ("deadline", status.deadline_in.map(|it| format!("in {it}s"))),
        ("health", status.health_kept.then(kept)),
        ("unknown", status.unknown.clone()),
        ("disagreement", status.disagreement.map(json)),
        ("witness", status.witness.map(|it| <&str>::from(it).into())),
        ("unseen", unseen.filter(|it| !it.is_empty())),
        ("counts", are_old.then(|| "of an earlier poll".into())),
        ("connections", open.map(|open| number(open.connections))),
        ("in flight", open.and_then(|it| it.in_flight).map(number)),
        ("requests", envoys.map(|open| count(open.requests))),
        ("upgrades", envoys.map(|open| count(open.upgrades))),
        ("tcp", envoys.map(|open| count(open.tcp))),
        ("http3", open.and_then(|it| it.http3).map(number)),
    ];
    let listeners = open.into_iter().flat_map(|open| &open.by_listener);
    let listeners = listeners.map(|(name, count)| ("listener", Some(format!("{name} {count}"))));
    let line = |(name, value): (&str, Option<String>)| {
        Some(format!("{name:<12} {}\n", printable(&value?)))
    };
    rows.into_iter().chain(listeners).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::exit_rules::DrainOutcome;
    use crate::drain::progress::DrainPhase;
    use crate::drain::summary::Remaining;
    use crate::kernel::witness::{Disagreement, SoleWitness};

    #[test]
    fn status_round_trips_through_json_and_is_formatted() {
        let status = Progress {
            phase: DrainPhase::Draining,
            admin: Some("127.0.0.1:9901".into()),
            health_kept: true,
            deadline_in: Some(41),
            remaining: Some(Remaining {
                connections: 2,
                requests: Some(0),
                upgrades: Some(0),
                tcp: None,
                http3: Some(1),
                in_flight: None,
                by_listener: [("0.0.0.0_80".to_owned(), 2)].into(),
            }),
            unknown: Some("connection refused".into()),
            disagreement: Some(Disagreement {
                connections: 20,
                unaccepted: 0,
                undelivered_bytes: 7,
            }),
            witness: Some(SoleWitness::Kernel),
            unseen: vec!["0.0.0.0:81".into(), "0.0.0.0:82".into()],
            waiting_for: None,
        };
        let json = serde_json::to_vec(&status).unwrap();
        let parsed: Progress = serde_json::from_slice(&json).unwrap();
        assert_eq!(parsed, status);
        assert_eq!(
            describe_status(&parsed),
            "phase        draining\n\
             admin        127.0.0.1:9901\n\
             deadline     in 41s\n\
             health       not failed yet (health-failure-delay)\n\
             unknown      connection refused\n\
             disagreement {\"connections\":20,\"unaccepted\":0,\"undeliveredBytes\":7}\n\
             witness      kernel\n\
             unseen       0.0.0.0:81, 0.0.0.0:82\n\
             counts       of an earlier poll\n\
             connections  2\n\
             requests     0\n\
             upgrades     0\n\
             tcp          unknown\n\
             http3        1\n\
             listener     0.0.0.0_80 2\n"
        );
        let of_server = Progress {
            remaining: Some(Remaining {
                connections: 2,
                requests: None,
                upgrades: None,
                tcp: None,
                http3: None,
                in_flight: Some(1),
                by_listener: [("80".to_owned(), 2)].into(),
            }),
            ..Progress::default()
        };
        let text = "phase        standby\nconnections  2\nin flight    1\nlistener     80 2\n";
        assert_eq!(describe_status(&of_server), text);
        let waiting = Progress {
            phase: DrainPhase::Delaying,
            waiting_for: Some("Service edge".into()),
            ..Progress::default()
        };
        let text = "phase        delaying\nwaiting for  Service edge\n";
        assert_eq!(describe_status(&waiting), text);
        let done = Progress {
            phase: DrainPhase::Released(DrainOutcome::Idle),
            ..Progress::default()
        };
        assert_eq!(describe_status(&done), "phase        released: idle\n");
        assert_eq!(
            describe_status(&Progress::default()),
            "phase        standby\n"
        );
    }
}
