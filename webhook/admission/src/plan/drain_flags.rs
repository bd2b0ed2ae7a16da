//! Envoy's flags for its own drain, which the annotation `drain-strategy` adds to its arguments.
//! <https://www.envoyproxy.io/docs/envoy/latest/operations/cli>

use std::time::Duration;

use super::whole_seconds;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::excerpt::excerpt;
use crate::pod::Container;
use crate::settings::{DrainStrategy, Settings};

const STRATEGY_FLAG: &str = "--drain-strategy";
const TIME_FLAG: &str = "--drain-time-s";

/// Commands that do not pass on arguments behind their script.
const SHELLS: [&str; 7] = ["ash", "bash", "busybox", "dash", "ksh", "sh", "zsh"];

/// Maximum length of an argument in a message, in bytes.
const MAX_ARGUMENT_LEN: usize = 64;

/// Returns the words to add to the end of Envoy's `args`; none without the annotation `drain-strategy`. A flag that is
/// present stays as it is: Envoy exits if one is given twice.
///
/// # Errors
/// If arguments at the end of `args` would not reach Envoy, or if they contain another strategy.
pub(crate) fn missing_flags(
    envoy: &Container<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> Result<Vec<String>, Diagnostic> {
    if settings.drain_strategy == DrainStrategy::Unset {
        return Ok(Vec::new());
    }
    let strategy = &*settings.drain_strategy.to_string();
    let present = envoy.flag(STRATEGY_FLAG);
    if let Some(obstacle) = obstacle(envoy, present.filter(|present| *present != strategy)) {
        let detail = format!("container `{}` {obstacle}", envoy.name());
        let refusal = Code::DrainFlagsNotAdded.diagnostic(detail);
        return Err(refusal.for_annotations(["drain-strategy"]));
    }
    let mut flags = Vec::new();
    if present.is_none() {
        flags.extend([STRATEGY_FLAG.to_owned(), strategy.to_owned()]);
    }
    let drain_timeout = settings.timing().drain_timeout;
    match envoy.flag(TIME_FLAG) {
        None => {
            let seconds = drain_time(drain_timeout);
            flags.extend([TIME_FLAG.to_owned(), seconds.to_string()]);
            let detail = format!(
                "`{TIME_FLAG} {seconds}` is added to Envoy's arguments, and holds for listeners that xDS updates or removes too"
            );
            diagnostics.warn(Code::DrainTimeOfUpdates.diagnostic(detail));
        }
        Some(present) => {
            let warning = too_short(present, drain_timeout);
            diagnostics.warnings.extend(warning);
        }
    }
    Ok(flags)
}

/// Returns why words at the end of `args` would not reach Envoy, or would contradict the other strategy there.
fn obstacle(envoy: &Container<'_>, other_strategy: Option<&str>) -> Option<String> {
    let mut words = envoy.command_line().peekable();
    if words.peek().is_none() {
        let obstacle =
            "has neither `args` nor `command`: arguments would replace those of its image";
        return Some(obstacle.to_owned());
    }
    // What follows the first flag of Envoy's may be a value, of any name.
    let is_flag = |word: &&str| word.starts_with("--") && word.len() > 2;
    let mut before_flags = words.take_while(|word| !is_flag(word));
    // The last segment of the path.
    let is_shell = |word: &&str| {
        word.rsplit('/')
            .next()
            .is_some_and(|name| SHELLS.contains(&name))
    };
    if let Some(shell) = before_flags.find(is_shell) {
        let shell = excerpt(shell, MAX_ARGUMENT_LEN);
        return Some(format!(
            "is started by `{shell}`, which would not pass arguments on to Envoy"
        ));
    }
    other_strategy.map(|other| {
        let other = excerpt(other, MAX_ARGUMENT_LEN);
        format!("has `{STRATEGY_FLAG} {other}` among its arguments already")
    })
}

/// The drain time in seconds, which Envoy requires to be positive.
fn drain_time(drain_timeout: Duration) -> u64 {
    whole_seconds(drain_timeout).max(1)
}

/// Returns a warning about a drain time that is shorter than the drain may be. Envoy itself reports one that is not a
/// number.
fn too_short(drain_time: &str, drain_timeout: Duration) -> Option<Diagnostic> {
    let seconds: u64 = drain_time.parse().ok()?;
    if Duration::from_secs(seconds) >= drain_timeout {
        return None;
    }
    let timeout = drainer::duration::format(drain_timeout);
    let detail = format!("`{TIME_FLAG} {seconds}` is shorter than `drain-timeout` {timeout}");
    Some(Code::ShortDrainTime.diagnostic(detail))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodView;
    use crate::settings::ParsedSettings;
    use crate::settings::defaults::Defaults;

    /// The added flags or the refusal, and the codes of the warnings.
    fn flags(annotations: &Value, container: &Value) -> (Result<String, String>, Vec<Code>) {
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [container]},
        });
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("image", "own");
        let settings = ParsedSettings::parse(&pod, false, &defaults, &[]).settings;
        let (_, envoy) = pod.long_running_containers().next().unwrap();
        let mut diagnostics = Diagnostics::default();
        let flags = missing_flags(envoy, &settings, &mut diagnostics)
            .map(|flags| flags.join(" "))
            .map_err(|refusal| {
                assert_eq!(refusal.code, Code::DrainFlagsNotAdded);
                refusal.detail
            });
        let warnings = diagnostics.warnings.iter();
        (flags, warnings.map(|warning| warning.code).collect())
    }

    fn strategy(strategy: &str) -> Value {
        json!({"envoy-drainer.dev/drain-strategy": strategy})
    }

    #[test]
    fn nothing_is_added_without_the_annotation() {
        let shell = json!({"name": "envoy", "command": ["sh"]});
        assert_eq!(flags(&json!({}), &shell), (Ok(String::new()), vec![]));
    }

    #[test]
    fn only_missing_flags_are_added() {
        let envoy = |args: &str| {
            let args: Vec<_> = args.split(' ').collect();
            json!({"name": "envoy", "args": args})
        };
        let both = "--drain-strategy immediate --drain-time-s 60";
        let updates = vec![Code::DrainTimeOfUpdates];
        let table = [
            ("-c /envoy.yaml", both, updates.clone()),
            (
                "-c /envoy.yaml --drain-strategy immediate",
                "--drain-time-s 60",
                updates,
            ),
            (
                "--drain-time-s 60 -c /envoy.yaml",
                "--drain-strategy immediate",
                vec![],
            ),
            (
                "--drain-time-s 59 -c /envoy.yaml",
                "--drain-strategy immediate",
                vec![Code::ShortDrainTime],
            ),
            (
                "--drain-time-s $(TIME)",
                "--drain-strategy immediate",
                vec![],
            ),
            ("--drain-time-s 600 --drain-strategy immediate", "", vec![]),
            (
                "-c /envoy.yaml --service-cluster dash --service-node sh",
                both,
                vec![Code::DrainTimeOfUpdates],
            ),
        ];
        for (args, want, warnings) in table {
            assert_eq!(
                flags(&strategy("immediate"), &envoy(args)),
                (Ok(want.to_owned()), warnings),
                "{args}"
            );
        }
    }

    #[test]
    fn drain_time_is_the_drain_timeout_in_drain_time() {
        for (timeout, seconds) in [("90500ms", 91), ("1m", 60)] {
            let annotations = json!({
                "envoy-drainer.dev/drain-strategy": "gradual",
                "envoy-drainer.dev/drain-timeout": timeout,
            });
            let envoy = json!({"name": "envoy", "command": ["envoy"]});
            let want = format!("--drain-strategy gradual --drain-time-s {seconds}");
            assert_eq!(flags(&annotations, &envoy).0, Ok(want), "{timeout}");
        }
        assert_eq!(drain_time(Duration::ZERO), 1);
    }

    #[test]
    fn flags_that_would_not_reach_envoy_are_refused() {
        let image = "has neither `args` nor `command`: arguments would replace those of its image";
        let shell = |name: &str| {
            format!("is started by `{name}`, which would not pass arguments on to Envoy")
        };
        let table = [
            (json!({"name": "envoy"}), image.to_owned()),
            (
                json!({"name": "envoy", "args": [], "command": null}),
                image.to_owned(),
            ),
            (
                json!({"name": "envoy", "command": ["/bin/sh", "-c", "envoy"]}),
                shell("/bin/sh"),
            ),
            (
                json!({"name": "envoy", "command": ["tini", "--"], "args": ["bash", "/start"]}),
                shell("bash"),
            ),
            (
                json!({"name": "envoy", "args": ["--drain-strategy", "gradual"]}),
                "has `--drain-strategy gradual` among its arguments already".to_owned(),
            ),
        ];
        for (container, want) in table {
            let want = Err(format!("container `envoy` {want}"));
            let refused = flags(&strategy("immediate"), &container);
            assert_eq!(refused, (want, vec![]), "{container}");
        }
    }
}
