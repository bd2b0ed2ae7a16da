//! What a shell does elsewhere: images FROM scratch have none.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tests::http::Client;

/// Asks process 1 to end.
///
/// # Errors
/// When it cannot be asked.
pub(crate) fn terminate_init() -> Result<()> {
    kill_process(Pid::INIT, Signal::TERM).context("stopping process 1")
}

/// Kills the processes of this name.
///
/// # Errors
/// When there is none.
pub(crate) fn kill(name: &str) -> Result<()> {
    let mut killed = 0;
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        let called = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else {
            continue;
        };
        if called.trim() == name {
            kill_process(pid, Signal::KILL).with_context(|| format!("killing {pid:?}"))?;
            killed += 1;
        }
    }
    ensure!(killed > 0, "no process is called {name}");
    Ok(())
}

/// Takes memory until the kernel kills process 1 for it, which it marks as the one to be killed.
///
/// # Errors
/// When process 1 cannot be marked, or there is more memory than this can take.
pub(crate) fn exhaust_memory() -> Result<Infallible> {
    static CHUNK: [u8; 1 << 16] = [1; 1 << 16];
    fs::write("/proc/1/oom_score_adj", "1000").context("marking process 1")?;
    // It counts for the container, but for none of its processes: the kernel takes the greediest.
    let path = "/dev/shm/exhaust";
    let mut taken = File::create(path).context(path)?;
    fs::remove_file(path).context(path)?;
    loop {
        taken.write_all(&CHUNK).context("taking more memory")?;
    }
}

/// The names in a folder, a line each.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn list(folder: &Path) -> Result<String> {
    let mut names = String::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.push_str(&entry?.file_name().to_string_lossy());
        names.push('\n');
    }
    Ok(names)
}

/// What is at a path of a server.
///
/// # Errors
/// When it does not give it.
pub(crate) async fn get(server: SocketAddr, path: &str) -> Result<String> {
    let answer = Client::from(server).get(path).await?;
    ensure!(
        answer.status == StatusCode::OK,
        "{}: {}",
        answer.status,
        answer.body
    );
    Ok(answer.body)
}
