//! One container: its process, and how the kubelet ends it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::Program;
use super::hook::Hook;
use super::mounts::Mounts;
use super::program::PathFlag;
use super::timeline::{Step, Timeline};
use crate::process::{Process, Signal};

/// The least that a container has between SIGTERM and SIGKILL, even when its grace is over.
/// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kuberuntime/kuberuntime_container.go#L63>
const MIN_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// A container that was started.
#[derive(Debug)]
pub(super) struct Container {
    process: Process,
    spec: ContainerSpec,
    timeline: Timeline,
}

/// All that it takes to start a container, once more if need be.
#[derive(Debug, Clone)]
struct ContainerSpec {
    name: String,
    invocation: Invocation,
    hook: Option<Hook>,
    mounts: Mounts,
}

/// A program with its arguments and its environment.
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    program: PathBuf,
    path_flags: Vec<PathFlag>,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

// === impl Container ===

impl Container {
    pub(super) fn start(
        container: &k8s::Container,
        program: &Program,
        mounts: Mounts,
        timeline: &Timeline,
    ) -> Result<Self> {
        let Program {
            path,
            path_variables: told,
            path_flags,
        } = program;
        // The command's first word is the image's program, whatever it is called there.
        let command = container.command.iter().flatten().skip(1);
        let args = command.chain(container.args.iter().flatten());
        let variables = container.env.iter().flatten();
        let variables = variables.filter_map(|v| Some((v.name.clone(), v.value.clone()?)));
        let told = told.iter();
        let told = told.map(|(path, variable)| (variable.clone(), mounts.translate_paths(path)));
        let invocation = Invocation {
            program: path.clone(),
            path_flags: path_flags.clone(),
            args: Vec::new(),
            env: variables.chain(told).collect(),
        };
        let invocation = invocation.with_args(args, &mounts);
        let recipe = ContainerSpec {
            name: container.name.clone(),
            hook: Hook::for_container(container, &invocation, &mounts)?,
            invocation,
            mounts,
        };
        recipe.start(timeline)
    }

    /// Starts the same container anew.
    pub(super) fn restart(&self, timeline: &Timeline) -> Result<Self> {
        self.spec.clone().start(timeline)
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn termination_message(&self) -> String {
        fs::read_to_string(&self.spec.mounts.termination_log).unwrap_or_default()
    }

    pub(super) fn translate_paths(&self, text: &str) -> String {
        self.spec.mounts.translate_paths(text)
    }

    /// Ends the container: its hook, its turn after those in `before`, SIGTERM, SIGKILL.
    /// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kuberuntime/kuberuntime_container.go#L806>
    pub(super) async fn kill(self: Arc<Self>, grace: Duration, before: Vec<Arc<Self>>) {
        if !self.process.is_running() {
            return;
        }
        let start = Instant::now();
        let left = || remaining_grace_period(grace, start);
        if let Some(hook) = self.spec.hook.as_ref().filter(|_| !grace.is_zero()) {
            self.record(Step::HookStarted, hook.to_string());
            match timeout(grace, hook.run(&self.spec.mounts.log)).await {
                Ok(Ok(())) => self.record(Step::HookReturned, ""),
                Ok(Err(error)) => self.record(Step::HookFailed, format!("{error:#}")),
                Err(_) => self.record(Step::HookFailed, "the grace is over"),
            }
        }
        let turn = async {
            for container in &before {
                container.process.wait().await;
            }
        };
        // The grace may be over: then it is every container's turn.
        let _ = timeout(left(), turn).await;
        if !self.process.is_running() {
            return;
        }
        self.record(Step::Sigterm, "");
        self.process.signal(Signal::TERM);
        let patience = left().max(MIN_GRACE_PERIOD);
        if self.process.wait_within(patience).await.is_err() {
            self.record(Step::Sigkill, "");
            self.process.signal(Signal::KILL);
            self.process.wait().await;
        }
    }

    fn record(&self, step: Step, detail: impl Into<String>) {
        self.timeline.record(&self.spec.name, step, detail);
    }
}

/// What is left of the grace. The kubelet counts what has passed in whole seconds, rounded down.
fn remaining_grace_period(grace: Duration, start: Instant) -> Duration {
    grace.saturating_sub(Duration::from_secs(start.elapsed().as_secs()))
}

// === impl Recipe ===

impl ContainerSpec {
    fn start(self, timeline: &Timeline) -> Result<Container> {
        let (name, log) = (self.name.clone(), timeline.clone());
        let exited = move |status: std::process::ExitStatus| {
            log.record(&name, Step::Exited, status.to_string());
        };
        let command = self.invocation.command();
        timeline.record(&self.name, Step::Started, "");
        Ok(Container {
            process: Process::start_watched(&self.name, command, &self.mounts.log, exited)?,
            timeline: timeline.clone(),
            spec: self,
        })
    }
}

// === impl Invocation ===

impl Invocation {
    /// The same program with other arguments, as a hook runs it inside the container.
    pub(super) fn with_args<'a>(
        &self,
        args: impl Iterator<Item = &'a String>,
        mounts: &Mounts,
    ) -> Self {
        let mut args: Vec<_> = args.map(|arg| mounts.translate_paths(arg)).collect();
        let flags = self.path_flags.iter();
        let flags: Vec<_> = flags.filter_map(|flag| flag.arg(&args, mounts)).collect();
        args.extend(flags);
        Self {
            args,
            ..self.clone()
        }
    }

    /// The command, in an environment that has nothing of this process's but the search path.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}
