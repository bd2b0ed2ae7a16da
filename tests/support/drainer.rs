//! A real drainer, and those who come to it when something ends.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use drainer::{AdminAddress, Config, DrainPhase, Durations, Marker, Progress, Timing, Token};
use http_body_util::Full;
use hyper::{Request, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::binaries;
use crate::http::{Client, exchange};
use crate::port::Port;
use crate::process::{Process, Signal};
use crate::timing::{SECOND, TIMEOUT};
use crate::until::wait_until;

/// Longer than any drain in the tests lasts.
const HOOK_TIMEOUT: Duration = Duration::from_secs(120);

/// A drainer that is to run: the product's defaults until said otherwise.
#[derive(Debug)]
pub struct DrainerBuilder {
    /// The one that is built now, if `None`.
    program: Option<PathBuf>,
    config: Config,
    dir: TempDir,
    _port: Port,
}

/// A drainer that runs, or has run.
#[derive(Debug)]
pub struct Drainer {
    /// Before the folder of its log: it prints its end when it is dropped in a failing test.
    process: Process,
    builder: DrainerBuilder,
}

/// A hook that was called. Dropped, it hangs up.
#[derive(Debug)]
pub struct HookCall {
    called_at: Instant,
    result: watch::Receiver<Option<HookResult>>,
    _task: JoinSet<()>,
}

/// When a hook returned, and how the kubelet sees it.
type HookResult = (Instant, Result<(), String>);

/// Both hooks of a pod's end.
#[derive(Debug)]
pub struct PodHooks {
    called_at: Instant,
    envoy: HookCall,
    drainer: HookCall,
}

/// Prepares a drainer of the Envoy whose admin is there.
///
/// # Errors
/// When there is no free port or no room for a folder.
pub fn drainer(admin: &AdminAddress) -> Result<DrainerBuilder> {
    let dir = TempDir::with_prefix("drainer-")?;
    let port = Port::free()?;
    let mut config = Config {
        run_dir: dir.path().join("run"),
        termination_log: dir.path().join("last-words"),
        ..Config::new(admin.clone(), Token::new(0x0123_4567_89ab_cdef))
    };
    config.settings.port = port.number().try_into()?;
    fs::create_dir(&config.run_dir)?;
    Ok(DrainerBuilder {
        program: None,
        config,
        dir,
        _port: port,
    })
}

// === impl Sidecar ===

impl DrainerBuilder {
    /// Runs this program rather than the one that is built now.
    #[must_use]
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Changes timings.
    ///
    /// # Panics
    /// When they do not fit together: a mistake in the test.
    #[must_use]
    pub fn timing(mut self, change: impl FnOnce(&mut Durations)) -> Self {
        let mut durations = *self.config.timing;
        change(&mut durations);
        self.config.timing = Timing::try_new(durations).expect("timings of a test fit together");
        self
    }

    /// Leaves as soon as nothing is open: no minimum, and no quiet.
    #[must_use]
    pub fn exit_without_minimum(self) -> Self {
        self.timing(|timing| {
            timing.min_drain_duration = Duration::ZERO;
            timing.quiet_period = Duration::ZERO;
        })
    }

    /// Changes other settings.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// All that it is told.
    #[must_use]
    pub fn settings(&self) -> &Config {
        &self.config
    }

    /// The command line of `drainer serve`, as the webhook writes it.
    #[must_use]
    pub fn serve_args(&self) -> Vec<String> {
        let args = self.config.args().into_iter();
        ["serve".to_owned()].into_iter().chain(args).collect()
    }

    /// Starts it, and waits until it serves.
    ///
    /// # Errors
    /// When it does not build or does not start.
    pub async fn start(self) -> Result<Drainer> {
        // Building it may take a while, which no other case's clock is to feel.
        if self.program.is_none() {
            spawn_blocking(binaries::drainer).await??;
        }
        let drainer = Drainer {
            process: self.run("drainer", &self.serve_args())?,
            builder: self,
        };
        drainer.wait_until_serving().await?;
        Ok(drainer)
    }

    /// Runs the drainer's program once, called `name` here, in the place of its container.
    ///
    /// # Errors
    /// When it does not build or cannot be started.
    pub fn run(&self, name: &str, args: &[impl AsRef<OsStr>]) -> Result<Process> {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => Command::new(binaries::drainer()?),
        };
        command.args(args).env_clear();
        if args.first().is_some_and(|arg| arg.as_ref() != "serve") {
            command.arg("--run-dir").arg(&self.config.run_dir);
        }
        Process::start(name, command, &self.dir.path().join("log"))
    }
}

// === impl Drainer ===

impl Drainer {
    /// Calls Envoy's hook, as the kubelet does: without a time limit.
    #[must_use]
    pub fn call_envoy_hook(&self) -> HookCall {
        self.call_hook(self.builder.config.hook_path())
    }

    /// Calls the hook of another container that waits for the drain.
    #[must_use]
    pub fn call_container_hook(&self, container: &str) -> HookCall {
        self.call_hook(format!("{}/{container}", self.builder.config.hook_path()))
    }

    /// Calls the drainer's own hook: a process in its container.
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

    /// Calls both hooks, as the kubelet does at a pod's end.
    ///
    /// # Errors
    /// As [`Drainer::own_hook`].
    pub fn call_pod_hooks(&self) -> Result<PodHooks> {
        let called = Instant::now();
        let drainer = self.call_drainer_hook()?;
        let envoy = self.call_envoy_hook();
        Ok(PodHooks {
            called_at: called,
            envoy,
            drainer,
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// What it was told.
    #[must_use]
    pub fn builder(&self) -> &DrainerBuilder {
        &self.builder
    }

    /// The process of `drainer serve`.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until the process has ended, then starts it anew in the same folder, as the kubelet
    /// restarts a container.
    ///
    /// # Errors
    /// When it still runs after a while, or does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.wait_within(HOOK_TIMEOUT).await?;
        self.process = self.builder.run("drainer", &self.builder.serve_args())?;
        self.wait_until_serving().await
    }

    /// Where it listens for hooks.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.builder.config.settings.port.get()).into()
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> Result<Progress> {
        let client = Client::new(AdminAddress::Path(self.builder.config.socket()));
        let answer = client.get("/status").await?;
        ensure!(answer.status == StatusCode::OK, "{answer:?}");
        Ok(serde_json::from_str(&answer.body)?)
    }

    /// Waits until it is in this phase.
    ///
    /// # Errors
    /// When it is not after a while, or does not answer.
    pub async fn wait_for_phase(&self, phase: DrainPhase) -> Result<()> {
        let reached = || async { Ok(self.status().await?.phase == phase) };
        wait_until(&format!("phase {phase}"), HOOK_TIMEOUT, reached).await
    }

    /// Its lines in the log, over all its lives.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        let log = self.process.log();
        let lines = log.lines().map(serde_json::from_str);
        lines.filter_map(Result::ok).collect()
    }

    /// The last line of its log whose message holds this text.
    #[must_use]
    pub fn find_log(&self, text: &str) -> Option<Value> {
        let told = |line: &Value| line["message"].as_str().is_some_and(|m| m.contains(text));
        self.log().into_iter().rfind(told)
    }

    /// Waits until its log has a line whose message holds this text.
    ///
    /// # Errors
    /// When it has not within `limit`.
    pub async fn wait_for_log(&self, text: &str, limit: Duration) -> Result<Value> {
        wait_until(&format!("`{text}` in the log"), limit, || async {
            Ok(self.find_log(text).is_some())
        })
        .await?;
        self.find_log(text).context("it was there just now")
    }

    /// Its termination message.
    ///
    /// # Errors
    /// When there is none, or none that is JSON.
    pub fn termination_message(&self) -> Result<Value> {
        let words = fs::read(&self.builder.config.termination_log).context("no last words")?;
        Ok(serde_json::from_slice(&words)?)
    }

    /// Whether it has left the marker that says it made Envoy fail.
    #[must_use]
    pub fn has_marker(&self) -> bool {
        Marker::new(&self.builder.config.run_dir).is_present()
    }

    fn call_hook(&self, path: String) -> HookCall {
        let address = AdminAddress::Tcp(self.address());
        HookCall::spawn(async move {
            let request = Request::get(&path)
                .header("host", address.to_string())
                .body(Full::default())?;
            let answer = exchange(&address, request).await.context(path)?;
            ensure!(answer.status == StatusCode::OK, "{answer:?}");
            Ok(())
        })
    }

    async fn wait_until_serving(&self) -> Result<()> {
        wait_until("the drainer serves", TIMEOUT, || async {
            ensure!(self.process.is_running(), "it ended as it started");
            Ok(self.status().await.is_ok())
        })
        .await
        .with_context(|| format!("the drainer printed:\n{}", self.process.log()))
    }
}

// === impl Hook ===

impl HookCall {
    fn spawn(hook: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        let called = Instant::now();
        let (tell, returned) = watch::channel(None);
        let mut call = JoinSet::new();
        call.spawn(async move {
            let result = hook.await.map_err(|error| format!("{error:#}"));
            tell.send_replace(Some((Instant::now(), result)));
        });
        Self {
            called_at: called,
            result: returned,
            _task: call,
        }
    }

    /// When it was called.
    #[must_use]
    pub fn called_at(&self) -> Instant {
        self.called_at
    }

    /// Whether it has not returned yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.result.borrow().is_none()
    }

    /// Waits for its return, and tells how long after the call that was.
    ///
    /// # Errors
    /// When it fails, as the kubelet sees it, or does not return within two minutes.
    pub async fn wait_for_return(&self) -> Result<Duration> {
        let mut returned = self.result.clone();
        let returned = timeout(HOOK_TIMEOUT, returned.wait_for(Option::is_some)).await;
        let returned = returned.context("the hook does not return")??.clone();
        let (at, result) = returned.context("it was waited for")?;
        result.map_err(|error| anyhow!(error))?;
        Ok(at - self.called_at)
    }
}

// === impl PodEnd ===

impl PodHooks {
    /// When it began.
    #[must_use]
    pub fn called_at(&self) -> Instant {
        self.called_at
    }

    /// Whether neither hook has returned yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.envoy.is_waiting() && self.drainer.is_waiting()
    }

    /// Waits until both hooks have returned, and tells how long after the begin Envoy's did.
    ///
    /// # Errors
    /// When one fails, does not return, or returns long before the other.
    pub async fn wait_for_return(&self) -> Result<Duration> {
        let envoy = self.envoy.called_at - self.called_at + self.envoy.wait_for_return().await?;
        let drainer =
            self.drainer.called_at - self.called_at + self.drainer.wait_for_return().await?;
        // One is a process, which takes a moment to start and to end.
        let apart = envoy.abs_diff(drainer);
        ensure!(apart < 3 * SECOND, "{envoy:?} and {drainer:?}");
        Ok(envoy)
    }
}
