//! The commands `drainer drain`, which is the drainer's own preStop hook, and `drainer status`: clients
//! of the sidecar's Unix socket.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use hyper::{Method, Response, StatusCode};
use tokio::time::sleep;

use crate::admin_address::AdminAddress;
use crate::config::socket_in;
use crate::http::client::{CallError, Client};
use crate::progress::Progress;
use crate::server::{DRAIN_PATH, STATUS_PATH};

/// The number of attempts to connect to a drainer, which may be restarting, and the pause between them.
const MAX_ATTEMPTS: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Timeout to fetch the status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum sizes of the responses, in bytes.
const MAX_DRAIN_BODY: usize = 1 << 10;
const MAX_STATUS: usize = 1 << 20;

/// Calls the hook of the drainer in this container, and waits until it may return: without a timeout,
/// since the drainer has deadlines for all it does.
///
/// # Errors
/// If the drainer cannot be reached, or exits before it has responded.
pub async fn drain(run_dir: &Path) -> anyhow::Result<()> {
    let mut client = Client::new(AdminAddress::Path(socket_in(run_dir)));
    let mut attempts = 1;
    let result = loop {
        match client
            .call(Method::GET, DRAIN_PATH, None, MAX_DRAIN_BODY)
            .await
        {
            Err(CallError::ConnectionRefused | CallError::Connect(_))
                if attempts < MAX_ATTEMPTS =>
            {
                attempts += 1;
                sleep(RETRY_DELAY).await;
            }
            result => break result,
        }
    };
    body_of(result, run_dir).map(drop)
}

/// Fetches the status of the drainer in this container, which is JSON.
///
/// # Errors
/// If the drainer cannot be reached, or does not respond within five seconds.
pub async fn fetch_status(run_dir: &Path) -> anyhow::Result<Bytes> {
    let mut client = Client::new(AdminAddress::Path(socket_in(run_dir)));
    let call = client.call(Method::GET, STATUS_PATH, Some(STATUS_TIMEOUT), MAX_STATUS);
    body_of(call.await, run_dir)
}

fn body_of(result: Result<Response<Bytes>, CallError>, run_dir: &Path) -> anyhow::Result<Bytes> {
    let response =
        result.with_context(|| format!("cannot call the drainer in {}", run_dir.display()))?;
    if response.status() != StatusCode::OK {
        bail!("the drainer responded with {}", response.status());
    }
    Ok(response.into_body())
}

/// Formats a status for a terminal, one fact a line.
pub fn describe_status(status: &Progress) -> String {
    let mut text = format!("phase        {}\n", status.phase);
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12} {value}");
    };
    if let Some(what) = &status.waiting_for {
        line("waiting for", what);
    }
    if status.health_kept {
        line("health", &"not failed yet (health-failure-delay)");
    }
    if let Some(why) = &status.unknown {
        line("unknown", why);
        if status.open.is_some() {
            line("counts", &"of an earlier poll");
        }
    }
    if let Some(open) = &status.open {
        line("connections", &open.connections);
        let parts = [
            ("requests", open.requests),
            ("upgrades", open.upgrades),
            ("tcp", open.tcp),
        ];
        for (name, count) in parts {
            match count {
                Some(count) => line(name, &count),
                None => line(name, &"not in Envoy's statistics"),
            }
        }
        if let Some(connections) = open.http3 {
            line("http3", &connections);
        }
        for (listener, connections) in &open.by_listener {
            line("listener", &format_args!("{listener} {connections}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit_rules::DrainOutcome;
    use crate::progress::DrainPhase;
    use crate::summary::Remaining;

    #[test]
    fn status_round_trips_through_json_and_is_formatted() {
        let status = Progress {
            phase: DrainPhase::Draining,
            health_kept: true,
            open: Some(Remaining {
                connections: 2,
                requests: Some(0),
                upgrades: Some(0),
                tcp: None,
                http3: Some(1),
                by_listener: [("0.0.0.0_80".to_owned(), 2)].into(),
            }),
            unknown: Some("connection refused".into()),
            waiting_for: None,
            round: 1,
            hooks_kept_since: None,
        };
        let json = serde_json::to_vec(&status).unwrap();
        let parsed: Progress = serde_json::from_slice(&json).unwrap();
        assert_eq!(parsed, status);
        assert_eq!(
            describe_status(&parsed),
            "phase        draining\n\
             health       not failed yet (health-failure-delay)\n\
             unknown      connection refused\n\
             counts       of an earlier poll\n\
             connections  2\n\
             requests     0\n\
             upgrades     0\n\
             tcp          not in Envoy's statistics\n\
             http3        1\n\
             listener     0.0.0.0_80 2\n"
        );
        let waiting = Progress {
            phase: DrainPhase::Delaying,
            waiting_for: Some("Service edge".into()),
            ..Progress::default()
        };
        let text = "phase        delaying\nwaiting for  Service edge\n";
        assert_eq!(describe_status(&waiting), text);
        let done = Progress {
            phase: DrainPhase::Done(DrainOutcome::Idle),
            ..Progress::default()
        };
        assert_eq!(describe_status(&done), "phase        done: idle\n");
        assert_eq!(describe_status(&Progress::default()), "phase        idle\n");
    }
}
