//! Calls the webhook through the program `webhook-client`, which has the TLS that the drainer lacks: a child process
//! that runs for as long as the drainer needs answers.
//!
//! Each child has a thread of its own, which starts and reaps it: both may block, and the main thread serves the hooks. The
//! thread ends with the child, and the exit of the drainer does not wait for it.

use std::convert::Infallible;
use std::io;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::debug;

use crate::config::WebhookAccess;
use crate::replacement::Replacement;
use crate::report::Report;

/// For one request. The client has a shorter one of its own, so that it usually says what failed.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of a response, in bytes.
const MAX_RESPONSE: u64 = 16 << 10;

/// Size of a thread's stack, in bytes: it only starts a process and waits.
const STACK_SIZE: usize = 128 << 10;

/// The client, whose process is started with the first request.
pub(crate) struct WebhookClient {
    access: WebhookAccess,
    process: Option<Process>,
    /// Resolves when the last process has been reaped; `None` if there was none. Another one is not started before.
    reaped: Option<oneshot::Receiver<Infallible>>,
}

/// A running client. When this is dropped, its thread kills and reaps it.
struct Process {
    input: pipe::Sender,
    output: BufReader<pipe::Receiver>,
    _handle: ProcessHandle,
}

/// Tells the thread of a process, when it is dropped, that the process is not needed any more.
type ProcessHandle = mpsc::Sender<Infallible>;

/// What the thread of a process hands over when that has started.
struct StartedProcess {
    stdin: ChildStdin,
    stdout: ChildStdout,
    handle: ProcessHandle,
}

// === impl WebhookClient ===

impl WebhookClient {
    pub(crate) fn new(access: &WebhookAccess) -> Self {
        Self {
            access: access.clone(),
            process: None,
            reaped: None,
        }
    }

    /// Asks which Services of this pod have another ready endpoint.
    ///
    /// # Errors
    /// Why there is no answer, within a second.
    pub(crate) async fn fetch_replacement(&mut self) -> Result<Replacement, String> {
        let response = self.request("GET /replacement").await?;
        let answer = match response.split_once(' ') {
            Some(("200", body)) => serde_json::from_str(body).map_err(|error| error.to_string()),
            _ => Err(response.clone()),
        };
        debug!(response, "The webhook answered");
        answer
    }

    /// Sends a report.
    ///
    /// # Errors
    /// Why the webhook did not take it, within a second.
    pub(crate) async fn send_report(&mut self, report: &Report) -> Result<(), String> {
        // JSON on one line: serde escapes line feeds in strings.
        let json = serde_json::to_string(report).map_err(|error| error.to_string())?;
        let response = self.request(&format!("POST /report {json}")).await?;
        match &*response {
            "204" => Ok(()),
            _ => Err(response),
        }
    }

    /// Sends a request, a line, and returns the line of the response.
    async fn request(&mut self, line: &str) -> Result<String, String> {
        if !self.access.is_enabled() {
            return Err("this drainer may not call the webhook".to_owned());
        }
        let exchange = async {
            let mut process = match self.process.take() {
                Some(process) => process,
                None => self.start_process().await?,
            };
            // Without an answer the process is killed, so that the next one is not the answer to this request.
            let response = process.exchange(line).await?;
            self.process = Some(process);
            Ok(response)
        };
        match timeout(TIMEOUT, exchange).await {
            Ok(result) => result.map_err(|error: anyhow::Error| format!("{error:#}")),
            Err(_) => Err("no response within 1s".to_owned()),
        }
    }

    async fn start_process(&mut self) -> anyhow::Result<Process> {
        if let Some(reaped) = &mut self.reaped {
            // Always an error, since the thread's end is dropped.
            let _ = reaped.await;
        }
        let (alive, reaped) = oneshot::channel();
        self.reaped = Some(reaped);
        let process = Process::start(&self.access, alive).await;
        process.with_context(|| format!("cannot run {}", self.access.client.display()))
    }
}

// === impl Process ===

impl Process {
    /// Starts a client. `alive` is dropped when it has been reaped.
    async fn start(access: &WebhookAccess, alive: oneshot::Sender<Infallible>) -> io::Result<Self> {
        let WebhookAccess {
            address,
            ip,
            ca,
            token,
            client,
            reports: _,
        } = access;
        let mut command = Command::new(client);
        command
            .arg(format!("--address={address}"))
            .args(ip.map(|ip| format!("--ip={ip}")))
            .arg(format!("--ca={ca}"))
            .arg("--token")
            .arg(token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let (sender, started) = oneshot::channel();
        let thread = thread::Builder::new().stack_size(STACK_SIZE);
        thread.spawn(move || run(command, sender, alive))?;
        let started = started.await.map_err(|_| io::ErrorKind::BrokenPipe)??;
        let output = pipe::Receiver::from_owned_fd(started.stdout.into())?;
        Ok(Self {
            input: pipe::Sender::from_owned_fd(started.stdin.into())?,
            output: BufReader::with_capacity(1024, output),
            _handle: started.handle,
        })
    }

    async fn exchange(&mut self, line: &str) -> anyhow::Result<String> {
        // A client that has ended may have said why.
        let _ = self.input.write_all(format!("{line}\n").as_bytes()).await;
        let mut response = String::new();
        let mut output = (&mut self.output).take(MAX_RESPONSE);
        output.read_line(&mut response).await?;
        let Some(response) = response.strip_suffix('\n') else {
            ensure!(output.limit() > 0, "the response is too long");
            bail!("the client of the webhook ended");
        };
        match response.strip_prefix("error ") {
            Some(error) => bail!("{error}"),
            None => Ok(response.to_owned()),
        }
    }
}

/// Runs a process until its [`ProcessHandle`] is dropped: in its thread, the owner of the child from start to end.
fn run(
    mut command: Command,
    started: oneshot::Sender<io::Result<StartedProcess>>,
    _alive: oneshot::Sender<Infallible>,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // Fails if the request was given up.
            let _ = started.send(Err(error));
            return;
        }
    };
    let (handle, dropped) = mpsc::channel();
    let pipes = child.stdin.take().zip(child.stdout.take());
    let process = pipes.map(|(stdin, stdout)| StartedProcess {
        stdin,
        stdout,
        handle,
    });
    // What is not taken is dropped, and the handle with it.
    let _ = started.send(process.ok_or_else(|| io::ErrorKind::BrokenPipe.into()));
    let _ = dropped.recv();
    // Reaps it: the drainer is process 1. Both fail only if it has been reaped.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use tokio::time::sleep;

    use super::*;
    use crate::envoy::setup_warnings::SetupWarningKind;

    /// A client that is a shell script.
    fn access(dir: &Path, script: &str) -> WebhookAccess {
        let client = dir.join("client");
        fs::write(&client, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
        WebhookAccess {
            address: "webhook:1".to_owned(),
            client,
            ..WebhookAccess::default()
        }
    }

    async fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(20), wait).await.expect(what);
    }

    /// Waits until the process has been reaped whose PID is in this file.
    async fn wait_until_reaped(pid: &str) {
        let process = Path::new("/proc").join(pid.trim());
        wait_until("it was reaped", || !process.exists()).await;
    }

    #[tokio::test]
    async fn response_is_an_answer_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let unready = Replacement {
            services: 2,
            unready: vec!["edge".to_owned()],
            terminating: true,
        };
        let lagging = Replacement {
            services: 1,
            unready: Vec::new(),
            terminating: false,
        };
        let table = [
            (
                r#"read line; echo "200 {\"services\": 2, \"unready\": [\"edge\"], \"more\": 1}"; cat"#,
                Ok(unready),
            ),
            (
                r#"read line; echo "200 {\"services\": 1, \"unready\": [], \"terminating\": false}"; cat"#,
                Ok(lagging),
            ),
            ("read line; echo 401; cat", Err("401".to_owned())),
            (
                "read line; echo error connection refused; cat",
                Err("connection refused".to_owned()),
            ),
            // It does not read the request.
            (
                "echo error --ca: not base64; exit 64",
                Err("--ca: not base64".to_owned()),
            ),
            ("exit 1", Err("the client of the webhook ended".to_owned())),
            ("sleep 60", Err("no response within 1s".to_owned())),
            (
                "exec cat /dev/zero",
                Err("the response is too long".to_owned()),
            ),
        ];
        for (script, want) in table {
            let access = access(dir.path(), script);
            let answer = WebhookClient::new(&access).fetch_replacement().await;
            assert_eq!(answer, want, "{script}");
        }
    }

    #[tokio::test]
    async fn report_is_one_line_and_its_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let report = Report::SetupWarnings(vec![SetupWarningKind::QuicGradual]);
        let line = r#"POST /report {"setupWarnings":["quic-gradual"]}"#;
        let script = |answer: &str| {
            let dir = dir.path().display();
            format!(
                r#"echo $$ > {dir}/pid; read -r line; echo "$line" > {dir}/line; {answer}; cat"#
            )
        };
        for (answer, want) in [
            ("echo 204", Ok(())),
            ("echo 400 invalid", Err("400 invalid".to_owned())),
        ] {
            let access = access(dir.path(), &script(answer));
            let sent = WebhookClient::new(&access).send_report(&report).await;
            assert_eq!(sent, want);
            let read = |name| fs::read_to_string(dir.path().join(name)).unwrap();
            assert_eq!(read("line").trim(), line);
            wait_until_reaped(&read("pid")).await;
        }
    }

    #[tokio::test]
    async fn one_process_answers_all_requests() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"while read line; do echo "$$ $line"; done"#;
        let access = access(dir.path(), script);
        let mut client = WebhookClient::new(&access);
        let first = client.request("GET /a").await.unwrap();
        let second = client.request("GET /b").await.unwrap();
        let (pid, line) = first.split_once(' ').unwrap();
        assert_eq!((line, second), ("GET /a", format!("{pid} GET /b")));
        drop(client);
        wait_until_reaped(pid).await;
    }

    #[tokio::test]
    async fn process_that_was_killed_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"while read line; do echo $$; [ "$line" = "GET /b" ] && kill -9 $$; done"#;
        let access = access(dir.path(), script);
        let mut client = WebhookClient::new(&access);
        let first = client.request("GET /a").await.unwrap();
        assert_eq!(client.request("GET /b").await, Ok(first.clone()));
        let error = client.request("GET /c").await;
        assert_eq!(error, Err("the client of the webhook ended".to_owned()));
        let second = client.request("GET /d").await.unwrap();
        assert_ne!(second, first);
        assert!(!Path::new("/proc").join(first).exists(), "it was reaped");
    }

    #[tokio::test]
    async fn process_of_a_cancelled_request_is_reaped() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 60", pid.display());
        let access = access(dir.path(), &script);
        let mut client = WebhookClient::new(&access);
        let read = || fs::read_to_string(&pid).unwrap_or_default();
        tokio::select! {
            biased;
            () = wait_until("it has started", || read().ends_with('\n')) => {}
            answer = client.request("GET /a") => panic!("{answer:?}"),
        }
        wait_until_reaped(&read()).await;
    }

    #[tokio::test]
    async fn nothing_runs_without_access() {
        let access = WebhookAccess::default();
        let mut client = WebhookClient::new(&access);
        assert!(client.fetch_replacement().await.is_err());
        assert!(client.process.is_none());
    }
}
