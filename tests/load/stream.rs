//! A TCP stream with regular messages, each of which is echoed.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::BODY;
use crate::failure::{Failure, FailureKind};
use crate::open_loop::{MAX_IN_FLIGHT, OpenLoopParams};
use crate::report::Tally;
use crate::schedule::RequestSchedule;
use crate::service::Protocol;
use crate::service::{ConnectionGuard, Service};

/// The half of a stream that sends messages.
#[derive(Debug)]
struct StreamWriter {
    write: OwnedWriteHalf,
    /// Passes the deadline of each echo to the reader.
    echo_deadlines: mpsc::Sender<Instant>,
    closes_at: Instant,
}

/// The half of a stream that reads echoes.
#[derive(Debug)]
struct StreamReader {
    read: OwnedReadHalf,
    echo_deadlines: mpsc::Receiver<Instant>,
    _guard: ConnectionGuard,
}

/// Sends each message when it is due, whether or not earlier ones were echoed. After `session` the client closes the
/// stream and opens another. Anything that ends a stream earlier fails its unanswered messages.
pub(super) async fn run_stream(service: &Service, params: OpenLoopParams, session: Duration) {
    let OpenLoopParams {
        rate,
        request_timeout,
        tally,
        stop,
    } = params;
    let mut schedule = RequestSchedule::new(rate, stop);
    let mut readers = JoinSet::new();
    let mut writer: Option<StreamWriter> = None;
    while let Some(()) = schedule.next().await {
        tally.record_sent();
        let open = writer.take();
        let open = open.filter(|open| Instant::now() < open.closes_at);
        let current = match open {
            Some(open) => open,
            None => match connect(service, session).await {
                Ok((opened, reader)) => {
                    readers.spawn(reader.read_echoes(Arc::clone(&tally)));
                    opened
                }
                Err(failure) => {
                    tally.record_result(Err(failure));
                    continue;
                }
            },
        };
        match current.send(Instant::now() + request_timeout).await {
            Ok(open) => writer = Some(open),
            Err(failure) => tally.record_result(Err(failure)),
        }
    }
    drop(writer);
    while readers.join_next().await.is_some() {}
}

async fn connect(
    service: &Service,
    session: Duration,
) -> Result<(StreamWriter, StreamReader), Failure> {
    let (stream, guard) = service
        .connect(Protocol::Tcp)
        .await
        .map_err(Failure::refused)?;
    let (read, write) = stream.into_split();
    let (sender, receiver) = mpsc::channel(MAX_IN_FLIGHT);
    let writer = StreamWriter {
        write,
        echo_deadlines: sender,
        closes_at: Instant::now() + session,
    };
    let reader = StreamReader {
        read,
        echo_deadlines: receiver,
        _guard: guard,
    };
    Ok((writer, reader))
}

// === impl StreamWriter ===

impl StreamWriter {
    /// Sends a message, whose echo the reader expects until `deadline`. Fails only if the reader cannot count the
    /// failure.
    async fn send(mut self, deadline: Instant) -> Result<Self, Failure> {
        let cut = |error: String| Failure::new(FailureKind::CutInFlight, error);
        let written = timeout_at(deadline, self.write.write_all(BODY)).await;
        let written = written.map_err(|_| Failure::new(FailureKind::TimedOut, "cannot write"))?;
        written.map_err(|error| cut(error.to_string()))?;
        let queued = self.echo_deadlines.try_send(deadline);
        queued.map_err(|_| cut("the stream has ended".to_owned()))?;
        Ok(self)
    }
}

// === impl StreamReader ===

impl StreamReader {
    /// Reads the echoes until the writer closes the stream or the stream fails.
    async fn read_echoes(mut self, tally: Arc<Tally>) {
        let mut is_open = true;
        while let Some(deadline) = self.echo_deadlines.recv().await {
            let result = if is_open {
                self.read_echo(deadline).await
            } else {
                Err(Failure::new(
                    FailureKind::CutInFlight,
                    "the stream has ended",
                ))
            };
            if result.is_err() {
                is_open = false;
                self.echo_deadlines.close();
            }
            tally.record_result(result);
        }
    }

    async fn read_echo(&mut self, deadline: Instant) -> Result<(), Failure> {
        let mut echo = [0; BODY.len()];
        let read = timeout_at(deadline, self.read.read_exact(&mut echo)).await;
        let read = read.map_err(|_| Failure::new(FailureKind::TimedOut, "no echo"))?;
        read.map_err(|error| Failure::new(FailureKind::CutInFlight, error.to_string()))?;
        if echo == BODY {
            return Ok(());
        }
        let detail = format!("`{}`", echo.escape_ascii());
        Err(Failure::new(FailureKind::BadResponse, detail))
    }
}
