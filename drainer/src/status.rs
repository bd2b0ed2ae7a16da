//! `drainer status`: what `GET /status` says, for a person.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use hyper::{Method, StatusCode};

use crate::admin_address::AdminAddress;
use crate::config::socket_in;
use crate::http::client::{CallLimits, Client};
use crate::progress::Progress;
use crate::server::STATUS_PATH;

/// Asks the drainer in this container for its status, which is JSON.
///
/// # Errors
/// If there is no drainer, or if it does not answer.
pub async fn fetch(run_dir: &Path) -> anyhow::Result<Bytes> {
    let bounds = CallLimits {
        timeout: Some(Duration::from_secs(5)),
        max_body: 1 << 20,
    };
    let mut client = Client::new(AdminAddress::Path(socket_in(run_dir)));
    let answer = client
        .call(Method::GET, STATUS_PATH, bounds)
        .await
        .with_context(|| format!("no drainer in {}", run_dir.display()))?;
    if answer.status != StatusCode::OK {
        bail!("the drainer answered {}", answer.status);
    }
    Ok(answer.body)
}

/// Describes a status in a few lines.
#[must_use]
pub fn describe(status: &Progress) -> String {
    let mut text = format!("phase        {}\n", status.phase);
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12} {value}");
    };
    if let Some(why) = &status.unknown {
        line("unknown", why);
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
                None => line(name, &"hidden by Envoy"),
            }
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
    fn a_status_survives_its_json_and_is_described() {
        let status = Progress {
            phase: DrainPhase::Done(DrainOutcome::Idle),
            open: Some(Remaining {
                connections: 2,
                requests: Some(0),
                upgrades: Some(0),
                tcp: None,
                by_listener: [("0.0.0.0_80".to_owned(), 2)].into(),
            }),
            unknown: Some("connection refused".into()),
            round: 1,
            hooks_kept_since: None,
        };
        let json = serde_json::to_vec(&status).unwrap();
        let read: Progress = serde_json::from_slice(&json).unwrap();
        assert_eq!(read, status);
        assert_eq!(
            describe(&read),
            "phase        done: idle\n\
             unknown      connection refused\n\
             connections  2\n\
             requests     0\n\
             upgrades     0\n\
             tcp          hidden by Envoy\n\
             listener     0.0.0.0_80 2\n"
        );
        assert_eq!(describe(&Progress::default()), "phase        idle\n");
    }
}
