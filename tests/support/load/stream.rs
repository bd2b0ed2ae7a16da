//! A TCP stream that talks.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::BODY;
use super::failure::{Failure, FailureKind};
use super::open_loop::{MAX_IN_FLIGHT, OpenLoopParams};
use super::pace::RequestSchedule;
use super::report::Tally;
use crate::listener::Protocol;
use crate::service::{ConnectionGuard, Service};

/// The half of a stream that speaks.
#[derive(Debug)]
struct StreamWriter {
    write: OwnedWriteHalf,
    /// Tells the listening half when the echo of each message is due.
    echo_deadlines: mpsc::Sender<Instant>,
    closes_at: Instant,
}

/// The half of a stream that waits for echoes.
#[derive(Debug)]
struct StreamReader {
    read: OwnedReadHalf,
    echo_deadlines: mpsc::Receiver<Instant>,
    _guard: ConnectionGuard,
}

/// Says each message when it is due, whether the echo of the one before it has come or not. After
/// `length` it hangs up and connects anew. A stream is open on purpose, so whatever ends
/// it before fails the messages that are under way.
pub(super) async fn run_stream(service: &Service, clients: OpenLoopParams, length: Duration) {
    let OpenLoopParams {
        rate,
        request_timeout: limit,
        tally,
        stop,
    } = clients;
    let mut pace = RequestSchedule::new(rate, stop);
    let mut hearers = JoinSet::new();
    let mut speaker: Option<StreamWriter> = None;
    while let Some(()) = pace.next().await {
        tally.record_sent();
        let goes_on = speaker.take().filter(|s| Instant::now() < s.closes_at);
        let current = match goes_on {
            Some(speaker) => speaker,
            None => match connect(service, length).await {
                Ok((speaker, hearer)) => {
                    hearers.spawn(hearer.read_echoes(Arc::clone(&tally)));
                    speaker
                }
                Err(failure) => {
                    tally.record_result(Err(failure));
                    continue;
                }
            },
        };
        match current.send(Instant::now() + limit).await {
            Ok(goes_on) => speaker = Some(goes_on),
            Err(failure) => tally.record_result(Err(failure)),
        }
    }
    drop(speaker);
    while hearers.join_next().await.is_some() {}
}

async fn connect(
    service: &Service,
    length: Duration,
) -> Result<(StreamWriter, StreamReader), Failure> {
    let connection = service
        .connect(Protocol::Tcp)
        .await
        .map_err(|error| Failure::new(FailureKind::Refused, error.to_string()))?;
    let (read, write) = connection.stream.into_split();
    let (tell, due) = mpsc::channel(MAX_IN_FLIGHT);
    let speaker = StreamWriter {
        write,
        echo_deadlines: tell,
        closes_at: Instant::now() + length,
    };
    let hearer = StreamReader {
        read,
        echo_deadlines: due,
        _guard: connection.guard,
    };
    Ok((speaker, hearer))
}

// === impl Speaker ===

impl StreamWriter {
    /// Says one message, whose echo is due then. Its failure is told here only if nobody listens for
    /// the echo.
    async fn send(mut self, due: Instant) -> Result<Self, Failure> {
        let cut = |why: String| Failure::new(FailureKind::CutInFlight, why);
        let written = timeout_at(due, self.write.write_all(BODY)).await;
        let written = written.map_err(|_| Failure::new(FailureKind::TimedOut, "cannot write"))?;
        written.map_err(|error| cut(error.to_string()))?;
        let told = self.echo_deadlines.try_send(due);
        told.map_err(|_| cut("the stream has ended".to_owned()))?;
        Ok(self)
    }
}

// === impl Hearer ===

impl StreamReader {
    /// Waits for the echoes, until the speaker hangs up or the stream fails.
    async fn read_echoes(mut self, tally: Arc<Tally>) {
        let mut alive = true;
        while let Some(due) = self.echo_deadlines.recv().await {
            let heard = if alive {
                self.read_echo(due).await
            } else {
                Err(Failure::new(
                    FailureKind::CutInFlight,
                    "the stream has ended",
                ))
            };
            if heard.is_err() {
                alive = false;
                self.echo_deadlines.close();
            }
            tally.record_result(heard);
        }
    }

    async fn read_echo(&mut self, due: Instant) -> Result<(), Failure> {
        let mut echo = [0; BODY.len()];
        let heard = timeout_at(due, self.read.read_exact(&mut echo)).await;
        let heard = heard.map_err(|_| Failure::new(FailureKind::TimedOut, "no echo"))?;
        heard.map_err(|error| Failure::new(FailureKind::CutInFlight, error.to_string()))?;
        if echo == BODY {
            return Ok(());
        }
        let detail = format!("`{}`", echo.escape_ascii());
        Err(Failure::new(FailureKind::BadResponse, detail))
    }
}
