//! The flags of a shutdown manager as settings of a drainer in its place.

use std::time::Duration;

use tracing::warn;

use super::config::Config;
use super::token::Token;
use super::value::InvalidValue;
use crate::shutdown_manager::ShutdownManager;

/// How much longer Envoy Gateway's manager holds Envoy's hook, by its flag `--ready-timeout`, than a drain takes.
/// <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/infrastructure/kubernetes/proxy/resource.go>
const READY_MARGIN: Duration = Duration::from_secs(10);

// === impl Config ===

impl Config {
    /// The configuration of a drainer in the place of a shutdown manager with these flags. Logs those that it ignores.
    pub fn for_manager(manager: &'static ShutdownManager, flags: &[String]) -> Self {
        let mut config = Self::new(Token(0));
        config.manager = Some(manager);
        for (name, value) in manager.settings {
            drop(config.set(name, value));
        }
        config.apply_manager_flags(flags);
        config
    }

    /// Sets what flags of the shutdown manager say. Logs those that are unknown or invalid, which change nothing.
    pub(crate) fn apply_manager_flags(&mut self, flags: &[String]) {
        let known = self.manager.map_or(&[][..], |manager| manager.flags);
        let mut words = flags.iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some(pair) => pair,
                None => (&**word, words.next().map_or("", String::as_str)),
            };
            let set = match known.iter().find(|(flag, _)| *flag == name) {
                None => Err(InvalidValue::new("flag", name, "unknown")),
                Some((_, "ready-timeout")) => self.set("drain-timeout", value),
                // The address is known from the start on.
                Some((_, "" | "admin-address")) => Ok(()),
                Some((_, setting)) => self.set(setting, value),
            };
            let is_set = set.inspect_err(|error| warn!(flag = name, %error, "Ignored a flag"));
            let timing = &mut self.settings.timing;
            if name == "--ready-timeout" && is_set.is_ok() {
                timing.drain_timeout = timing.drain_timeout.saturating_sub(READY_MARGIN);
            }
            timing.min_drain_duration = timing.min_drain_duration.min(timing.drain_timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown_manager::{CONTOUR, ENVOY_GATEWAY, MARIN3R};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The values that differ from those without flags.
    fn changed(manager: &'static ShutdownManager, flags: &str) -> Vec<String> {
        let without = Config::for_manager(manager, &[]).args();
        let mut args = Config::for_manager(manager, &words(flags)).args();
        args.retain(|arg| !without.contains(arg));
        args
    }

    #[test]
    fn flags_become_settings_and_unknown_or_invalid_ones_change_nothing() {
        let table: [(&'static ShutdownManager, &str, &[&str]); 12] = [
            (&ENVOY_GATEWAY, "--ready-timeout=70s", &[]),
            (
                &ENVOY_GATEWAY,
                "--ready-timeout=610s",
                &["--drain-timeout=600s"],
            ),
            (
                &ENVOY_GATEWAY,
                "--drain-timeout=90s --min-drain-duration 400ms --exit-at-connections=2 --health-check-failure-delay=1m0s",
                &[
                    "--min-drain-duration=400ms",
                    "--drain-timeout=90s",
                    "--health-failure-delay=60s",
                    "--exit-at-connections=2",
                ],
            ),
            // It ends at its time-out all the same.
            (
                &ENVOY_GATEWAY,
                "--drain-timeout=5s",
                &["--min-drain-duration=5s", "--drain-timeout=5s"],
            ),
            (
                &ENVOY_GATEWAY,
                "--new-flag=1 --drain-timeout=90s",
                &["--drain-timeout=90s"],
            ),
            (&ENVOY_GATEWAY, "--drain-timeout=soon --new-flag", &[]),
            (
                &CONTOUR,
                "--serve-port=8091 --ready-file=/x --check-interval 9s --admin-address=/admin/admin.sock",
                &["--port=8091"],
            ),
            (
                &CONTOUR,
                "--drain-delay=3s --check-delay=0s --min-open-connections=1",
                &[
                    "--drain-delay=3s",
                    "--min-drain-duration=0s",
                    "--exit-at-connections=1",
                ],
            ),
            // The drainer has asked for the other all the time.
            (&CONTOUR, "--admin-address=/other.sock", &[]),
            (&MARIN3R, "--port 8091", &["--port=8091"]),
            (&MARIN3R, "--check-drain-delay=15", &[]),
            (&MARIN3R, "", &[]),
        ];
        for (manager, flags, want) in table {
            assert_eq!(changed(manager, flags), want, "{flags}");
        }
    }

    #[test]
    fn drainer_has_the_defaults_of_the_manager() {
        let table = [
            (
                &ENVOY_GATEWAY,
                "--port=19002 --drain-timeout=60s --admin-hints=127.0.0.1:19000,[::1]:19000,127.0.0.1:9001 \
                 --ignore-listeners=19001,19003",
            ),
            (
                &CONTOUR,
                "--port=8090 --drain-timeout=285s --admin-hints=unix:/admin/admin.sock \
                 --ignore-listeners=envoy-admin,health,health-om-enforced,stats,stats-health",
            ),
            (
                &MARIN3R,
                "--port=8090 --drain-timeout=285s --admin-hints=127.0.0.1:9901",
            ),
        ];
        for (manager, want) in table {
            let args = Config::for_manager(manager, &[]).args();
            for arg in words(want) {
                assert!(args.contains(&arg), "{arg} is not in {args:?}");
            }
        }
    }
}
