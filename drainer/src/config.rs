//! The drainer's settings: what the webhook writes as flags and the sidecar reads back.

use std::ffi::OsString;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use tracing::Level;

use crate::admin_address::AdminAddress;
use crate::duration;
use crate::flags;
use crate::given::{ArgParser, InvalidArgs};
use crate::listener_selector::{ListenerSelector, parse_listeners};
use crate::quiet::ReadinessProbe;
use crate::timing::{Durations, Timing, parse_idle_exit};
use crate::token::Token;
use crate::value::{parse_list, parse_port};

/// The port on which the drainer listens where nothing else is asked.
pub const DEFAULT_PORT: NonZeroU16 = NonZeroU16::new(9902).expect("9902 is not zero");

/// Where the drainer's emptyDir is mounted: its Unix socket and its marker.
pub const RUN_DIR: &str = "/run/envoy-drainer";

/// Where the kubelet reads a container's last words by default.
/// <https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/>
const TERMINATION_LOG: &str = "/dev/termination-log";

/// All that `drainer serve` is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where Envoy's admin interface is.
    pub admin_address: AdminAddress,
    /// The port for Envoy's hook.
    pub port: NonZeroU16,
    /// With the node's network, the drainer listens on 127.0.0.1 only.
    pub host_network: bool,
    /// The secret in the path of the hooks.
    pub token: Token,
    /// The timings of the drain.
    pub timing: Timing,
    /// So many connections may remain when the drain ends.
    pub exit_at_connections: u64,
    /// Listeners whose connections are not counted.
    pub ignore_listeners: Vec<ListenerSelector>,
    /// The pod's readiness probes, which connect to the end and must not pass for clients.
    pub readiness_probes: Vec<ReadinessProbe>,
    /// The directory of the Unix socket and the marker.
    pub run_dir: PathBuf,
    /// The file for the last words.
    pub termination_log: PathBuf,
    /// What is logged.
    pub log_level: Level,
}

// === impl Config ===

impl Config {
    /// A configuration with the product's defaults.
    #[must_use]
    pub fn new(admin_address: AdminAddress, token: Token) -> Self {
        Self {
            admin_address,
            port: DEFAULT_PORT,
            host_network: false,
            token,
            timing: Timing::default(),
            exit_at_connections: 0,
            ignore_listeners: Vec::new(),
            readiness_probes: Vec::new(),
            run_dir: RUN_DIR.into(),
            termination_log: TERMINATION_LOG.into(),
            log_level: Level::INFO,
        }
    }

    /// The flags that [`Config::parse`] reads back as this configuration. All timings are written
    /// out, since `kubectl describe` shows them; of the rest what differs from the default.
    #[must_use]
    pub fn args(&self) -> Vec<String> {
        flags::args(self)
    }

    /// Reads the flags of `drainer serve`, and from `env` what they leave out.
    ///
    /// # Errors
    /// All that is wrong, in one error.
    pub fn parse(
        args: impl IntoIterator<Item = OsString>,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, InvalidArgs> {
        let mut given = ArgParser::read(args, env);
        let admin_address = given.required("admin-address", str::parse::<AdminAddress>);
        let token = given.required("token", str::parse::<Token>);
        let (admin_address, token) = match (admin_address, token) {
            (Some(admin_address), Some(token)) => (admin_address, token),
            // Read on with stand-ins, to tell the other errors too; `finish` refuses the result.
            (address, token) => (
                address.unwrap_or(AdminAddress::Abstract(String::new())),
                token.unwrap_or(Token::new(0)),
            ),
        };
        let mut config = Self::new(admin_address, token);
        let mut durations = *config.timing;
        let Durations {
            drain_delay,
            min_drain_duration,
            drain_timeout,
            idle_exit,
            quiet_period,
            poll_interval,
        } = &mut durations;
        given.set("port", parse_port, &mut config.port);
        given.set("host-network", str::parse::<bool>, &mut config.host_network);
        given.set("drain-delay", duration::parse, drain_delay);
        given.set("min-drain-duration", duration::parse, min_drain_duration);
        given.set("drain-timeout", duration::parse, drain_timeout);
        given.set("idle-exit", parse_idle_exit, idle_exit);
        given.set("quiet-period", duration::parse, quiet_period);
        given.set("poll-interval", duration::parse, poll_interval);
        given.set(
            "exit-at-connections",
            str::parse::<u64>,
            &mut config.exit_at_connections,
        );
        given.set(
            "ignore-listeners",
            parse_listeners,
            &mut config.ignore_listeners,
        );
        given.set(
            "readiness-probes",
            parse_list::<ReadinessProbe>,
            &mut config.readiness_probes,
        );
        given.set("run-dir", str::parse::<PathBuf>, &mut config.run_dir);
        given.set(
            "termination-log",
            str::parse::<PathBuf>,
            &mut config.termination_log,
        );
        given.set("log-level", str::parse::<Level>, &mut config.log_level);
        match Timing::try_new(durations) {
            Ok(timing) => config.timing = timing,
            Err(misfits) => given.errors.extend(misfits.iter().map(ToString::to_string)),
        }
        given.finish(config)
    }

    /// The path of Envoy's hook.
    #[must_use]
    pub fn hook_path(&self) -> String {
        format!("/drained/{}", self.token)
    }

    /// The Unix socket through which `drain` and `status` reach the drainer.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.run_dir)
    }
}

/// The drainer's own Unix socket in its directory.
pub(crate) fn socket_in(run_dir: &Path) -> PathBuf {
    run_dir.join("drainer.sock")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(args: &[&str], env: &[(&str, &str)]) -> Result<Config, InvalidArgs> {
        let env = |name: &str| {
            let found = env.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).into())
        };
        Config::parse(args.iter().map(OsString::from), env)
    }

    fn config() -> Config {
        Config::new("127.0.0.1:9901".parse().unwrap(), Token::new(0xc0ffee))
    }

    fn round_trip(config: &Config) {
        let args = config.args();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        assert_eq!(parse(&args, &[]).as_ref(), Ok(config), "{args:?}");
    }

    #[test]
    fn a_config_survives_the_trip_through_its_args() {
        round_trip(&config());
        round_trip(&Config {
            admin_address: "unix:@admin".parse().unwrap(),
            port: NonZeroU16::MAX,
            host_network: true,
            token: Token::new(u64::MAX),
            timing: Timing::try_new(Durations {
                drain_delay: Duration::from_millis(1500),
                min_drain_duration: Duration::ZERO,
                drain_timeout: Duration::from_secs(3600),
                idle_exit: None,
                quiet_period: Duration::ZERO,
                poll_interval: Duration::from_micros(1),
            })
            .unwrap(),
            exit_at_connections: 7,
            ignore_listeners: parse_listeners("8001, probes,0.0.0.0_80").unwrap(),
            readiness_probes: vec!["8080/2s".parse().unwrap(), "9/1m0s".parse().unwrap()],
            run_dir: "/tmp/a b".into(),
            termination_log: "/tmp/log".into(),
            log_level: Level::DEBUG,
        });
    }

    #[test]
    fn a_flag_wins_over_its_variable() {
        let flags = [
            "--admin-address=127.0.0.1:1",
            "--token=0000000000000001",
            "--port",
            "7",
        ];
        let env = [("DRAINER_PORT", "8"), ("DRAINER_IDLE_EXIT", "off")];
        let config = parse(&flags, &env).unwrap();
        assert_eq!(config.port.get(), 7);
        assert_eq!(config.timing.idle_exit, None);
    }

    #[test]
    fn all_errors_are_told_at_once() {
        let flags = [
            "--token=xyz",
            "--bogus=3",
            "--drain-timeout=5s",
            "--ignore-listeners=web,0",
            "--readiness-probes=80/0s",
            "stray",
        ];
        let told = parse(&flags, &[]).unwrap_err().to_string();
        assert_eq!(
            told.lines().collect::<Vec<_>>(),
            [
                "unknown flag `--bogus`",
                "unexpected argument \"stray\"",
                "--admin-address is missing",
                "--token `xyz`: invalid token `xyz`: 16 digits of 0-9 and a-f",
                "--ignore-listeners `web,0`: invalid port `0`: a number from 1 to 65535",
                "--readiness-probes `80/0s`: invalid readiness probe `80/0s`: a port and a period like 8080/2s",
                "drain-timeout 5s is less than min-drain-duration 10s (default): raise the one or lower the other",
            ]
        );
    }
}
