//! A real drainer process, and the preStop hooks that call it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use drainer::{AdminAddress, Config, DrainPhase, Progress, Timing, Token};
use http_body_util::Full;
use hyper::{Request, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::binaries;
use crate::envoy::Envoy;
use crate::http::{Client, exchange};
use crate::port::Port;
use crate::process::{Process, Signal};
use crate::timing::{SECOND, TIMEOUT};
use crate::until::wait_until;

/// Longer than any drain in the tests.
const HOOK_TIMEOUT: Duration = Duration::from_secs(120);

/// A drainer before its start, by default with the built-in defaults.
#[derive(Debug)]
pub struct DrainerBuilder {
    /// `None` for the one that is built now.
    program: Option<PathBuf>,
    /// `None` for that of the test.
    user: Option<u32>,
    config: Config,
    dir: TempDir,
    /// The program that starts the drainer, with its arguments; empty if the test does.
    launcher: Vec<String>,
    _port: Port,
}

/// A drainer process that runs or has exited.
#[derive(Debug)]
pub struct Drainer {
    /// Dropped before `builder`: in a failing test it then prints its log, which is in the builder's directory.
    process: Process,
    builder: DrainerBuilder,
}

/// A called hook, which is cancelled when this is dropped.
#[derive(Debug)]
pub struct HookCall {
    called_at: Instant,
    result: watch::Receiver<Option<HookResult>>,
    _task: JoinSet<()>,
}

/// When a hook returned, and whether the kubelet takes that for a success.
type HookResult = (Instant, Result<(), String>);

/// Both hooks of a pod's termination.
#[derive(Debug)]
pub struct PodHooks {
    called_at: Instant,
    envoy: HookCall,
    drainer: HookCall,
}

/// Prepares a drainer for the Envoy with this admin address.
///
/// # Errors
/// When there is no free port, or the directory cannot be created.
pub fn drainer(admin: &AdminAddress) -> Result<DrainerBuilder> {
    let dir = TempDir::with_prefix("drainer-")?;
    let port = Port::free()?;
    let mut config = Config {
        termination_log: dir.path().join("termination-log"),
        admin_address: Some(admin.clone()),
        ..Config::new(Token(0x0123_4567_89ab_cdef))
    };
    config.settings.port = port.number().try_into()?;
    Ok(DrainerBuilder {
        program: None,
        user: None,
        config,
        dir,
        launcher: Vec::new(),
        _port: port,
    })
}

/// Prepares a drainer as [`drainer()`] does, which exits as soon as no connection is open.
///
/// # Errors
/// As [`drainer()`].
pub fn quick_drainer(admin: &AdminAddress) -> Result<DrainerBuilder> {
    Ok(drainer(admin)?.exit_without_minimum())
}

/// Starts the drainer of an Envoy with changed durations.
///
/// # Errors
/// As [`DrainerBuilder::start`].
pub async fn start_drainer_with(
    envoy: &Envoy,
    change: impl FnOnce(&mut Timing),
) -> Result<Drainer> {
    drainer(envoy.admin_address())?.timing(change).start().await
}

/// Starts a [`quick_drainer`] of an Envoy with changed durations.
///
/// # Errors
/// As [`DrainerBuilder::start`].
pub async fn start_quick_drainer(
    envoy: &Envoy,
    change: impl FnOnce(&mut Timing),
) -> Result<Drainer> {
    let drainer = quick_drainer(envoy.admin_address())?;
    drainer.timing(change).start().await
}

// === impl DrainerBuilder ===

impl DrainerBuilder {
    /// Runs this program instead of the one that is built now.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Runs the drainer with the profile of its image, for a test that measures it.
    ///
    /// # Errors
    /// When it does not build.
    pub async fn optimized(self) -> Result<Self> {
        let program = spawn_blocking(binaries::optimized_drainer).await??;
        Ok(self.program(&program))
    }

    /// Runs as this user, for which the test must be root. The drainer then accepts no call of its hook or its status
    /// from the test.
    pub fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Changes the timing.
    ///
    /// # Panics
    /// When the durations contradict each other.
    pub fn timing(mut self, change: impl FnOnce(&mut Timing)) -> Self {
        let timing = &mut self.config.settings.timing;
        change(timing);
        assert!(timing.errors().is_empty(), "{:?}", timing.errors());
        self
    }

    /// Lets the drainer exit as soon as no connection is open: without a minimum duration and a quiet period.
    pub fn exit_without_minimum(self) -> Self {
        self.timing(|timing| {
            timing.min_drain_duration = Duration::ZERO;
            timing.quiet_period = Duration::ZERO;
        })
    }

    /// Changes other settings.
    pub fn with_config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts the drainer, and the commands of [`DrainerBuilder::run`], through this program, which gets them as
    /// further arguments.
    pub fn launcher(mut self, words: &[&str]) -> Self {
        self.launcher = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The arguments of `drainer serve`, as the webhook writes them.
    pub fn serve_args(&self) -> Vec<String> {
        let args = self.config.args().into_iter();
        ["serve".to_owned()].into_iter().chain(args).collect()
    }

    /// Starts the drainer, and waits until it serves.
    ///
    /// # Errors
    /// When it does not build or start.
    pub async fn start(self) -> Result<Drainer> {
        let drainer = self.launch().await?;
        drainer.wait_until_serving().await?;
        Ok(drainer)
    }

    /// Starts the drainer, and does not wait.
    ///
    /// # Errors
    /// When it does not build or cannot be started.
    pub async fn launch(self) -> Result<Drainer> {
        // On a thread of its own, since a build would delay the timers of concurrent cases.
        if self.program.is_none() {
            spawn_blocking(binaries::drainer).await??;
        }
        Ok(Drainer {
            process: self.run("drainer", &self.serve_args())?,
            builder: self,
        })
    }

    /// Runs the drainer's program with these arguments, and with the port of this drainer. `name` is for messages.
    ///
    /// # Errors
    /// When it does not build or cannot be started.
    pub fn run(&self, name: &str, args: &[impl AsRef<OsStr>]) -> Result<Process> {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => Command::new(binaries::drainer()?),
        };
        if let [launcher, args @ ..] = &self.launcher[..] {
            let program = command.as_std().get_program().to_owned();
            command = Command::new(launcher);
            command.args(args).arg(program);
        }
        command.args(args).env_clear();
        if let Some(user) = self.user {
            command.uid(user);
        }
        // `serve_args` has `--port` already.
        if args.first().is_some_and(|arg| arg.as_ref() != "serve") {
            command.arg(format!("--port={}", self.config.settings.port));
        }
        Process::start(name, command, &self.dir.path().join("log"))
    }
}

// === impl Drainer ===

impl Drainer {
    /// Calls Envoy's hook, as the kubelet does. The call has no timeout of its own.
    #[must_use]
    pub fn call_envoy_hook(&self) -> HookCall {
        self.call_hook(self.builder.config.hook_path())
    }

    /// Calls the hook of another container that waits for the drain.
    #[must_use]
    pub fn call_container_hook(&self, container: &str) -> HookCall {
        self.call_hook(self.builder.config.container_hook_path(container))
    }

    /// Calls the drainer's own hook, which is a process in its container.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn call_drainer_hook(&self) -> Result<HookCall> {
        let process = self.builder.run("drain", &["drain"])?;
        Ok(HookCall::spawn(async move {
            let status = process.wait().await;
            ensure!(status.success(), "the drainer's hook: {status}");
            Ok(())
        }))
    }

    /// Calls both hooks, as the kubelet does when a pod terminates.
    ///
    /// # Errors
    /// As [`Drainer::call_drainer_hook`].
    pub fn call_pod_hooks(&self) -> Result<PodHooks> {
        Ok(PodHooks {
            called_at: Instant::now(),
            drainer: self.call_drainer_hook()?,
            envoy: self.call_envoy_hook(),
        })
    }

    /// Calls both hooks, waits until both have returned, and returns how long Envoy's took.
    ///
    /// # Errors
    /// As [`PodHooks::wait_for_return`].
    pub async fn drain_pod(&self) -> Result<Duration> {
        self.call_pod_hooks()?.wait_for_return().await
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// The builder that it was started from.
    pub fn builder(&self) -> &DrainerBuilder {
        &self.builder
    }

    /// The process of `drainer serve`.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it by SIGTERM.
    ///
    /// # Errors
    /// When it does not exit soon, or with another code than 0.
    pub async fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM);
        let status = self.process.wait_within(TIMEOUT).await?;
        ensure!(status.code() == Some(0), "{status}");
        Ok(())
    }

    /// Waits until the process has exited, and starts another in the same directory, as the kubelet restarts a
    /// container.
    ///
    /// # Errors
    /// When it does not exit within two minutes, or does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.relaunch().await?;
        self.wait_until_serving().await
    }

    /// The same, but does not wait until the other serves.
    ///
    /// # Errors
    /// When it does not exit within two minutes, or cannot be started.
    pub async fn relaunch(&mut self) -> Result<()> {
        self.process.wait_within(HOOK_TIMEOUT).await?;
        self.process = self.builder.run("drainer", &self.builder.serve_args())?;
        Ok(())
    }

    /// The address of its hooks.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.builder.config.settings.port.get()).into()
    }

    /// The response to `GET /status`.
    ///
    /// # Errors
    /// When it does not respond.
    pub async fn status(&self) -> Result<Progress> {
        let socket = format!("envoy-drainer:{}", self.builder.config.settings.port);
        let client = Client::new(AdminAddress::Abstract(socket));
        let response = client.get("/status").await?;
        ensure!(response.status == StatusCode::OK, "{response:?}");
        Ok(serde_json::from_str(&response.body)?)
    }

    /// Waits until it is in this phase.
    ///
    /// # Errors
    /// When it is not within two minutes, or does not respond.
    pub async fn wait_for_phase(&self, phase: DrainPhase) -> Result<()> {
        let reached = || async { Ok(self.status().await?.phase == phase) };
        wait_until(&format!("phase {phase}"), HOOK_TIMEOUT, reached).await
    }

    /// The lines of its log, over all restarts.
    pub fn log(&self) -> Vec<Value> {
        let log = self.process.log();
        let lines = log.lines().map(serde_json::from_str);
        lines.filter_map(Result::ok).collect()
    }

    /// The calls that Envoy has accepted from it to drain, in order.
    pub fn accepted_calls(&self) -> Vec<String> {
        let log = self.log().into_iter();
        let accepted = log.filter(|line| line["message"] == "Envoy accepted the call");
        let calls = accepted.filter_map(|line| Some(line["call"].as_str()?.to_owned()));
        calls.collect()
    }

    /// Waits until it can read Envoy's admin interface.
    ///
    /// # Errors
    /// When it does not soon.
    pub async fn wait_for_envoy(&self) -> Result<()> {
        self.wait_for_log("Envoy is responding", TIMEOUT).await?;
        Ok(())
    }

    /// Waits until its log has a warning whose message contains this text.
    ///
    /// # Errors
    /// When it has none soon, or the line is no warning.
    pub async fn wait_for_warning(&self, text: &str) -> Result<Value> {
        let line = self.wait_for_log(text, TIMEOUT).await?;
        ensure!(line["level"] == "WARN", "{line}");
        Ok(line)
    }

    /// Waits until its status is as `what` says.
    ///
    /// # Errors
    /// When it is not soon, or the drainer does not respond.
    pub async fn wait_for_status(
        &self,
        what: &str,
        is_reached: impl Fn(&Progress) -> bool,
    ) -> Result<()> {
        let reached = || async { Ok(is_reached(&self.status().await?)) };
        wait_until(what, TIMEOUT, reached).await
    }

    /// Waits until it has counted so many open connections.
    ///
    /// # Errors
    /// As [`Drainer::wait_for_status`].
    pub async fn wait_for_count(&self, connections: u64) -> Result<()> {
        let is_reached = |status: &Progress| {
            let open = status.remaining.as_ref();
            open.is_some_and(|open| open.connections == connections)
        };
        self.wait_for_status(&format!("{connections} counted"), is_reached)
            .await
    }

    /// The last line of its log whose message contains this text.
    pub fn find_log(&self, text: &str) -> Option<Value> {
        let matches = |line: &Value| line["message"].as_str().is_some_and(|m| m.contains(text));
        self.log().into_iter().rfind(matches)
    }

    /// Waits until its log has a line whose message contains this text.
    ///
    /// # Errors
    /// When it has none within `limit`.
    pub async fn wait_for_log(&self, text: &str, limit: Duration) -> Result<Value> {
        wait_until(&format!("`{text}` in the log"), limit, || async {
            Ok(self.find_log(text).is_some())
        })
        .await?;
        self.find_log(text).context("the line was found before")
    }

    /// Its termination message.
    ///
    /// # Errors
    /// When there is none, or it is not JSON.
    pub fn termination_message(&self) -> Result<Value> {
        let path = &self.builder.config.termination_log;
        let message = fs::read(path).context("no termination message")?;
        Ok(serde_json::from_slice(&message)?)
    }

    fn call_hook(&self, path: String) -> HookCall {
        let address = AdminAddress::Tcp(self.address());
        HookCall::spawn(async move {
            let request = Request::get(&path)
                .header("host", address.to_string())
                .body(Full::default())?;
            let response = exchange(&address, request).await.context(path)?;
            ensure!(response.status == StatusCode::OK, "{response:?}");
            Ok(())
        })
    }

    /// Asserts that its termination message has these fields, among others.
    ///
    /// # Errors
    /// As [`Drainer::termination_message`].
    ///
    /// # Panics
    /// When a field is missing or has another value.
    #[track_caller]
    pub fn assert_message(&self, fields: &Value) -> Result<()> {
        fn has(value: &Value, part: &Value) -> bool {
            match part {
                Value::Object(fields) => fields.iter().all(|(key, part)| has(&value[key], part)),
                part => value == part,
            }
        }
        let message = self.termination_message()?;
        assert!(has(&message, fields), "{fields} is not in {message}");
        Ok(())
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// When it has exited, or does not serve soon, with its output.
    pub async fn wait_until_serving(&self) -> Result<()> {
        wait_until("the drainer serves", TIMEOUT, || async {
            ensure!(self.process.is_running(), "it exited on start");
            Ok(self.status().await.is_ok())
        })
        .await
        .with_context(|| format!("output of the drainer:\n{}", self.process.log()))
    }
}

// === impl HookCall ===

impl HookCall {
    fn spawn(hook: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        let called_at = Instant::now();
        let (sender, receiver) = watch::channel(None);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let result = hook.await.map_err(|error| format!("{error:#}"));
            sender.send_replace(Some((Instant::now(), result)));
        });
        Self {
            called_at,
            result: receiver,
            _task: task,
        }
    }

    /// When it was called.
    pub fn called_at(&self) -> Instant {
        self.called_at
    }

    /// Returns true if it has not returned yet.
    pub fn is_waiting(&self) -> bool {
        self.result.borrow().is_none()
    }

    /// Waits until it has returned, and returns the time since the call.
    ///
    /// # Errors
    /// When it fails, or does not return within two minutes.
    pub async fn wait_for_return(&self) -> Result<Duration> {
        let mut receiver = self.result.clone();
        let returned = timeout(HOOK_TIMEOUT, receiver.wait_for(Option::is_some)).await;
        let returned = returned.context("the hook does not return")??.clone();
        let (at, result) = returned.context("the hook has a result")?;
        result.map_err(|error| anyhow!(error))?;
        Ok(at - self.called_at)
    }
}

// === impl PodHooks ===

impl PodHooks {
    /// When the hooks were called.
    pub fn called_at(&self) -> Instant {
        self.called_at
    }

    /// Returns true if neither hook has returned yet.
    pub fn is_waiting(&self) -> bool {
        self.envoy.is_waiting() && self.drainer.is_waiting()
    }

    /// Waits until both hooks have returned, and returns the time from the call to the return of Envoy's.
    ///
    /// # Errors
    /// When one fails, does not return, or returns more than three seconds before the other.
    pub async fn wait_for_return(&self) -> Result<Duration> {
        let envoy = self.envoy.called_at - self.called_at + self.envoy.wait_for_return().await?;
        let drainer =
            self.drainer.called_at - self.called_at + self.drainer.wait_for_return().await?;
        // The drainer's is a process, which takes a moment to start and to exit.
        let difference = envoy.abs_diff(drainer);
        ensure!(difference < 3 * SECOND, "{envoy:?} and {drainer:?}");
        Ok(envoy)
    }
}
