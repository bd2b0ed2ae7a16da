//! What a drain that runs is waiting for, as its drainer says.

use admission::CutCounts;
use drainer::{DrainPhase, Progress, Remaining};

use crate::text::plural;

/// Describes a drain that runs: its phase, and what holds it.
pub fn describe(progress: &Progress) -> String {
    let Progress {
        phase,
        health_kept,
        remaining,
        unknown,
        disagreement,
        waiting_for,
        ..
    } = progress;
    let mut parts = vec![phase.to_string()];
    parts.extend(waiting_for.as_ref().map(|what| format!("waits for {what}")));
    if let Some(remaining) = remaining.as_ref().filter(|_| is_draining(*phase)) {
        parts.push(describe_remaining(remaining));
    }
    if *health_kept {
        parts.push("health not failed yet".to_owned());
    }
    parts.extend(disagreement.map(|_| "the kernel knows of more".to_owned()));
    parts.extend(unknown.as_ref().map(|why| format!("not known: {why}")));
    parts.join(", ")
}

/// Describes the time to the deadline, to be printed behind [`describe`]. It is apart since it changes with every poll;
/// empty if there is no deadline.
pub fn describe_deadline(progress: &Progress) -> String {
    let deadline = progress.deadline_in;
    let text = deadline.map(|seconds| format!(", deadline in {seconds}s"));
    text.unwrap_or_default()
}

fn is_draining(phase: DrainPhase) -> bool {
    matches!(phase, DrainPhase::Draining | DrainPhase::SoftDraining)
}

fn describe_remaining(remaining: &Remaining) -> String {
    let uses = CutCounts {
        connections: 0,
        ..CutCounts::from(remaining)
    };
    let mut text = plural(remaining.connections, "connection");
    if uses != CutCounts::default() {
        text += &format!(" with {uses}");
    }
    let listeners = remaining.by_listener.iter();
    let listeners: Vec<_> = listeners
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !listeners.is_empty() {
        text += &format!(" ({})", listeners.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use drainer::Disagreement;

    use super::*;

    #[test]
    fn drain_says_what_holds_it() {
        let remaining = Remaining {
            connections: 3,
            requests: Some(2),
            upgrades: Some(0),
            tcp: Some(1),
            by_listener: [("edge".to_owned(), 2), ("tcp".to_owned(), 1)].into(),
            ..Remaining::default()
        };
        let table = [
            (
                Progress {
                    phase: DrainPhase::Draining,
                    deadline_in: Some(41),
                    remaining: Some(remaining.clone()),
                    ..Progress::default()
                },
                "draining, 3 connections with 2 requests and 1 TCP connection (edge 2, tcp 1)",
            ),
            (
                Progress {
                    phase: DrainPhase::Delaying,
                    remaining: Some(remaining),
                    waiting_for: Some("another ready endpoint of Service edge".to_owned()),
                    ..Progress::default()
                },
                "delaying, waits for another ready endpoint of Service edge",
            ),
            (
                Progress {
                    phase: DrainPhase::Draining,
                    health_kept: true,
                    disagreement: Some(Disagreement::default()),
                    unknown: Some("no response".to_owned()),
                    ..Progress::default()
                },
                "draining, health not failed yet, the kernel knows of more, not known: no response",
            ),
        ];
        for (progress, want) in table {
            assert_eq!(describe(&progress), want);
            let deadline = progress.deadline_in.map_or("", |_| ", deadline in 41s");
            assert_eq!(describe_deadline(&progress), deadline);
        }
    }
}
