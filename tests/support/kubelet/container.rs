//! A container: its process, and how the kubelet terminates it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;
use tokio::time::{Instant, sleep, timeout};

use super::Program;
use super::hook::Hook;
use super::invocation::Invocation;
use super::mounts::Mounts;
use super::timeline::{Step, Timeline};
use crate::process::{Process, Signal};

/// The minimum time between SIGTERM and SIGKILL, even after the grace period.
/// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kuberuntime/kuberuntime_container.go#L63>
const MIN_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// A started container.
#[derive(Debug)]
pub(super) struct Container {
    process: Process,
    spec: ContainerSpec,
    timeline: Timeline,
}

/// What a container is started from, also again.
#[derive(Debug, Clone)]
struct ContainerSpec {
    name: String,
    invocation: Invocation,
    hook: Option<Hook>,
    hook_delay: Duration,
    mounts: Mounts,
}

// === impl Container ===

impl Container {
    pub(super) fn start(
        container: &k8s::Container,
        program: &Program,
        mounts: Mounts,
        hook_delay: Duration,
        timeline: &Timeline,
    ) -> Result<Self> {
        // The command's first word is the path of the program in the image.
        let command = container.command.iter().flatten().skip(1);
        let args = command.chain(container.args.iter().flatten());
        let args = args.chain(&program.args);
        let variables = container.env.iter().flatten();
        let variables = variables.filter_map(|variable| {
            let value = mounts.translate_paths(variable.value.as_ref()?);
            Some((variable.name.clone(), value))
        });
        let args = args.map(|arg| mounts.translate_paths(arg)).collect();
        let invocation = Invocation::new(&program.path, args, variables.collect());
        let hook_invocation = invocation.with_args(Vec::new());
        let spec = ContainerSpec {
            name: container.name.clone(),
            hook: Hook::for_container(container, &hook_invocation, &mounts)?,
            hook_delay,
            invocation,
            mounts,
        };
        spec.start(timeline)
    }

    /// Starts the container again.
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

    /// Terminates the container: its preStop hook, the end of the containers in `before`, SIGTERM, SIGKILL.
    /// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kuberuntime/kuberuntime_container.go#L806>
    pub(super) async fn kill(self: Arc<Self>, grace: Duration, before: Vec<Arc<Self>>) {
        if !self.process.is_running() {
            return;
        }
        let start = Instant::now();
        let remaining = || remaining_grace_period(grace, start);
        if let Some(hook) = &self.spec.hook {
            sleep(self.spec.hook_delay).await;
            self.record(Step::HookStarted, hook.to_string());
            match timeout(grace, hook.run(&self.spec.mounts.log)).await {
                Ok(Ok(())) => self.record(Step::HookReturned, ""),
                Ok(Err(error)) => self.record(Step::HookFailed, format!("{error:#}")),
                Err(_) => self.record(Step::HookFailed, "the grace period is over"),
            }
        }
        let before_ended = async {
            for container in &before {
                container.process.wait().await;
            }
        };
        // After the grace period, containers are not ordered any more.
        let _ = timeout(remaining(), before_ended).await;
        if !self.process.is_running() {
            return;
        }
        self.record(Step::Sigterm, "");
        self.process.signal(Signal::TERM);
        let grace = remaining().max(MIN_GRACE_PERIOD);
        if self.process.wait_within(grace).await.is_err() {
            self.record(Step::Sigkill, "");
            self.process.signal(Signal::KILL);
            self.process.wait().await;
        }
    }

    fn record(&self, step: Step, detail: impl Into<String>) {
        self.timeline.record(&self.spec.name, step, detail);
    }
}

/// The rest of the grace period. The kubelet counts the elapsed time in whole seconds, rounded down.
fn remaining_grace_period(grace: Duration, start: Instant) -> Duration {
    grace.saturating_sub(Duration::from_secs(start.elapsed().as_secs()))
}

// === impl ContainerSpec ===

impl ContainerSpec {
    fn start(self, timeline: &Timeline) -> Result<Container> {
        let (name, events) = (self.name.clone(), timeline.clone());
        let exited = move |status: std::process::ExitStatus| {
            events.record(&name, Step::Exited, status.to_string());
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
