//! Actions on processes, files and servers for images FROM scratch, which have no shell.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tests::http::Client;

/// Sends SIGKILL to all processes of this name.
///
/// # Errors
/// If there is no such process.
pub(crate) fn kill(name: &str) -> Result<()> {
    let mut killed = 0;
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        let comm = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else {
            continue;
        };
        if comm.trim() == name {
            kill_process(pid, Signal::KILL).with_context(|| format!("killing {pid:?}"))?;
            killed += 1;
        }
    }
    ensure!(killed > 0, "no process named {name}");
    Ok(())
}

/// Allocates memory until the kernel kills process 1, after giving that the highest OOM score.
///
/// # Errors
/// If the score of process 1 cannot be written, or the memory limit is not reached.
pub(crate) fn exhaust_memory() -> Result<Infallible> {
    static CHUNK: [u8; 1 << 16] = [1; 1 << 16];
    fs::write("/proc/1/oom_score_adj", "1000").context("setting the OOM score of process 1")?;
    // Memory in /dev/shm counts towards the container's limit but not towards any process, so the
    // kernel picks its victim by the score.
    let path = "/dev/shm/exhaust";
    let mut file = File::create(path).context(path)?;
    fs::remove_file(path).context(path)?;
    loop {
        file.write_all(&CHUNK).context("allocating memory")?;
    }
}

/// Lists a directory, one name per line.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn list(folder: &Path) -> Result<String> {
    let mut names = String::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.push_str(&entry?.file_name().to_string_lossy());
        names.push('\n');
    }
    Ok(names)
}

/// Returns the body of a server's response to a GET request.
///
/// # Errors
/// If the request fails, or its status is not 200.
pub(crate) async fn get(server: SocketAddr, path: &str) -> Result<String> {
    let response = Client::from(server).get(path).await?;
    ensure!(
        response.status == StatusCode::OK,
        "{}: {}",
        response.status,
        response.body
    );
    Ok(response.body)
}

/// Sends a server a body of 1 MiB, which it echoes, and reads the response in 26 s: 4 KiB each 100 ms.
///
/// # Errors
/// If the response is cut: the connection ends, or nothing comes for ten seconds.
pub(crate) fn read_slowly(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let body = vec![b'x'; 1 << 20];
    let head = "POST / HTTP/1.1\r\nhost: edge\r\ncontent-length";
    stream.write_all(format!("{head}: {}\r\n\r\n", body.len()).as_bytes())?;
    stream.write_all(&body)?;
    let (mut response, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        ensure!(response.read_line(&mut head)? > 0, "no response");
    }
    let mut chunk = [0; 4 << 10];
    for _ in 0..body.len() / chunk.len() {
        response.read_exact(&mut chunk)?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
