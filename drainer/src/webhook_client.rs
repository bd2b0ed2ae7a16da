//! Calls the webhook through the program `webhook-client`, which has the TLS that the drainer lacks: a child process
//! that runs for as long as the drainer needs answers.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tracing::debug;

use crate::config::WebhookAccess;
use crate::replacement::Replacement;
use crate::report::Report;

/// For one request. The client has a shorter one of its own, so that it usually says what failed.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum length of a response, in bytes.
const MAX_RESPONSE: u64 = 16 << 10;

/// The client, whose process is started with the first request.
pub(crate) struct WebhookClient {
    access: WebhookAccess,
    process: Option<Process>,
}

/// A running client. It ends with its stdin.
struct Process {
    child: Child,
    input: pipe::Sender,
    output: BufReader<pipe::Receiver>,
}

// === impl WebhookClient ===

impl WebhookClient {
    pub(crate) fn new(access: &WebhookAccess) -> Self {
        Self {
            access: access.clone(),
            process: None,
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
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.access)
                .map_err(|error| format!("cannot run {}: {error}", self.access.client.display()))?,
        };
        // Without an answer the process is killed, so that the next one is not the answer to this request.
        match timeout(TIMEOUT, process.exchange(line)).await {
            Ok(Ok(response)) => {
                self.process = Some(process);
                Ok(response)
            }
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err("no response within 1s".to_owned()),
        }
    }
}

// === impl Process ===

impl Process {
    fn start(access: &WebhookAccess) -> io::Result<Self> {
        let WebhookAccess {
            address,
            ip,
            ca,
            token,
            client,
            reports: _,
        } = access;
        let mut child = Command::new(client)
            .arg(format!("--address={address}"))
            .args(ip.map(|ip| format!("--ip={ip}")))
            .arg(format!("--ca={ca}"))
            .arg("--token")
            .arg(token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let pipes = input.zip(output).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            child,
            input: pipe::Sender::from_owned_fd(pipes.0.into())?,
            output: BufReader::with_capacity(1024, pipe::Receiver::from_owned_fd(pipes.1.into())?),
        })
    }

    async fn exchange(&mut self, line: &str) -> anyhow::Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let mut response = String::new();
        let mut output = (&mut self.output).take(MAX_RESPONSE);
        output.read_line(&mut response).await?;
        let response = response.strip_suffix('\n');
        let response = response.context("the client of the webhook ended")?;
        match response.strip_prefix("error ") {
            Some(error) => bail!("{error}"),
            None => Ok(response.to_owned()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Reaps it: the drainer is process 1. Both fail only if it has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

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

    #[tokio::test]
    async fn response_is_an_answer_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let unready = Replacement {
            services: 2,
            unready: vec!["edge".to_owned()],
        };
        let table = [
            (
                r#"read line; echo "200 {\"services\": 2, \"unready\": [\"edge\"], \"more\": 1}"; cat"#,
                Ok(unready),
            ),
            ("read line; echo 401; cat", Err("401".to_owned())),
            (
                "read line; echo error connection refused; cat",
                Err("connection refused".to_owned()),
            ),
            ("exit 1", Err("the client of the webhook ended".to_owned())),
            ("sleep 60", Err("no response within 1s".to_owned())),
            (
                "exec cat /dev/zero",
                Err("no response within 1s".to_owned()),
            ),
        ];
        for (script, want) in table {
            let access = access(dir.path(), script);
            let answer = WebhookClient::new(&access).fetch_replacement().await;
            match script {
                // The pipe may break while the request is written; a long line is cut.
                "exit 1" | "exec cat /dev/zero" => assert!(answer.is_err(), "{answer:?}"),
                _ => assert_eq!(answer, want, "{script}"),
            }
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
            let pid = read("pid");
            assert!(
                !Path::new("/proc").join(pid.trim()).exists(),
                "it was reaped"
            );
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
        assert!(!Path::new("/proc").join(pid).exists(), "it was reaped");
    }

    #[tokio::test]
    async fn nothing_runs_without_access() {
        let access = WebhookAccess::default();
        let mut client = WebhookClient::new(&access);
        assert!(client.fetch_replacement().await.is_err());
        assert!(client.process.is_none());
    }
}
