//! How the program of a container, or of its exec hook, is started.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// A program with its arguments and environment.
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

// === impl Invocation ===

impl Invocation {
    pub(super) fn new(program: &Path, args: Vec<String>, env: Vec<(String, String)>) -> Self {
        Self {
            program: program.to_owned(),
            args,
            env,
        }
    }

    pub(super) fn args(&self) -> &[String] {
        &self.args
    }

    /// The same program with other arguments, as an exec hook runs it.
    pub(super) fn with_args(&self, args: Vec<String>) -> Self {
        Self {
            args,
            ..self.clone()
        }
    }

    /// The command. Of this process's environment it inherits `PATH` only.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}
