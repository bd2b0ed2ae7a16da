//! The program `webhook-client`, which the drainer runs to call the webhook: the drainer itself has no TLS.
//!
//! It reads requests from stdin, a line each, and writes the response to each as a line to stdout:
//!
//! ```text
//! GET /replacement         ─► 200 {"services":1,"unready":[],"terminating":true}
//! POST /report {"…":"…"}   ─► 204
//!                          ─► error connection refused
//! ```
//!
//! It ends with its stdin, and so with the drainer.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "blocking code has no clock of tokio's"
)]

mod client;
mod deadline_stream;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use client::{Client, Request, Response};

/// Exit code for an invalid command line, from BSD's sysexits.h.
const EX_USAGE: u8 = 64;

/// Maximum length of a line of stdin, in bytes: a report of 16 KiB, which the webhook accepts at most, and its path.
const MAX_LINE: u64 = (16 << 10) + 64;

const HELP: &str = "Calls the webhook of envoy-drainer: reads requests from stdin, a line each.\n\n\
    webhook-client --address=HOST:PORT [--ip=IP] --ca=BASE64,… --token=FILE\n\n  \
    --address HOST:PORT  address of the webhook; its certificate must be valid for HOST\n  \
    --ip IP              address that is tried before HOST is resolved\n  \
    --ca LIST            CAs that the certificate may be issued by: DER in base64, comma-separated\n  \
    --token FILE         file of the service account token\n";

/// The command line.
#[derive(Debug, Default)]
struct Args {
    address: String,
    ip: Option<IpAddr>,
    ca: String,
    token: PathBuf,
}

fn main() -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    match args.first().and_then(|arg| arg.to_str()) {
        Some("--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some("--version" | "-V") => {
            println!("webhook-client {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let client = Args::parse(args).and_then(|args| {
        let Args {
            address,
            ip,
            ca,
            token,
        } = args;
        Client::try_new(&address, ip, &ca, token)
    });
    let result = match client {
        Ok(client) => serve(client, &mut io::stdin().lock(), &mut io::stdout().lock()),
        Err(error) => {
            // The drainer reads it as the response to its first request. It fails if the drainer has gone.
            let _ = writeln!(io::stdout(), "{}", response_line(Err(error)));
            return ExitCode::from(EX_USAGE);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The drainer has ended, or takes no more responses.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Answers each request of `input`, until it ends.
///
/// # Errors
/// If a line is too long, or a response cannot be written.
fn serve(mut client: Client, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        let length = input.by_ref().take(MAX_LINE).read_line(&mut line)?;
        if length == 0 {
            return Ok(());
        }
        let Some(request) = line.strip_suffix('\n') else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let response = Request::parse(request).and_then(|request| client.send(&request));
        writeln!(output, "{}", response_line(response))?;
        output.flush()?;
    }
}

/// Formats a response as one line.
fn response_line(response: anyhow::Result<Response>) -> String {
    let text = match response {
        Ok(Response { status, body }) => format!("{status} {body}"),
        Err(error) => format!("error {error:#}"),
    };
    let line: String = text.lines().collect::<Vec<_>>().join(" ");
    line.trim_end().to_owned()
}

// === impl Args ===

impl Args {
    fn parse(args: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        use lexopt::Arg::Long;
        let mut parsed = Self::default();
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            let text = |value: OsString| match value.into_string() {
                Ok(text) => Ok(text),
                Err(value) => bail!("{} is not UTF-8", value.display()),
            };
            match arg {
                Long("address") => parsed.address = text(parser.value()?)?,
                Long("ip") => {
                    let ip = text(parser.value()?)?;
                    parsed.ip = Some(ip.parse().with_context(|| format!("--ip {ip}"))?);
                }
                Long("ca") => parsed.ca = text(parser.value()?)?,
                Long("token") => parsed.token = parser.value()?.into(),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(parsed)
    }
}
