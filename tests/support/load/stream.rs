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
use super::open_loop::{MAX_IN_FLIGHT, OpenLoop};
use super::pace::Pace;
use super::report::Tally;
use crate::listener::Protocol;
use crate::service::{Open, Service};

/// The half of a stream that speaks.
#[derive(Debug)]
struct Speaker {
    write: OwnedWriteHalf,
    /// Tells the listening half when the echo of each message is due.
    due: mpsc::Sender<Instant>,
    hangs_up: Instant,
}

/// The half of a stream that waits for echoes.
#[derive(Debug)]
struct Hearer {
    read: OwnedReadHalf,
    due: mpsc::Receiver<Instant>,
    _open: Open,
}

/// Says each message when it is due, whether the echo of the one before it has come or not. After
/// `length` it hangs up and connects anew. A stream is open on purpose, so whatever ends
/// it before fails the messages that are under way.
pub(super) async fn talk(service: &Service, clients: OpenLoop, length: Duration) {
    let OpenLoop {
        rate,
        limit,
        tally,
        stop,
    } = clients;
    let mut pace = Pace::new(rate, stop);
    let mut hearers = JoinSet::new();
    let mut speaker: Option<Speaker> = None;
    while let Some(()) = pace.next().await {
        tally.sent();
        let goes_on = speaker.take().filter(|s| Instant::now() < s.hangs_up);
        let current = match goes_on {
            Some(speaker) => speaker,
            None => match connect(service, length).await {
                Ok((speaker, hearer)) => {
                    hearers.spawn(hearer.listen(Arc::clone(&tally)));
                    speaker
                }
                Err(failure) => {
                    tally.ended(Err(failure));
                    continue;
                }
            },
        };
        match current.say(Instant::now() + limit).await {
            Ok(goes_on) => speaker = Some(goes_on),
            Err(failure) => tally.ended(Err(failure)),
        }
    }
    drop(speaker);
    while hearers.join_next().await.is_some() {}
}

async fn connect(service: &Service, length: Duration) -> Result<(Speaker, Hearer), Failure> {
    let connection = service
        .connect(Protocol::Tcp)
        .await
        .map_err(|error| Failure::new(FailureKind::Refused, error.to_string()))?;
    let (read, write) = connection.stream.into_split();
    let (tell, due) = mpsc::channel(MAX_IN_FLIGHT);
    let speaker = Speaker {
        write,
        due: tell,
        hangs_up: Instant::now() + length,
    };
    let hearer = Hearer {
        read,
        due,
        _open: connection.open,
    };
    Ok((speaker, hearer))
}

// === impl Speaker ===

impl Speaker {
    /// Says one message, whose echo is due then. Its failure is told here only if nobody listens for
    /// the echo.
    async fn say(mut self, due: Instant) -> Result<Self, Failure> {
        let cut = |why: String| Failure::new(FailureKind::CutInFlight, why);
        let written = timeout_at(due, self.write.write_all(BODY)).await;
        let written = written.map_err(|_| Failure::new(FailureKind::TimedOut, "cannot write"))?;
        written.map_err(|error| cut(error.to_string()))?;
        let told = self.due.try_send(due);
        told.map_err(|_| cut("the stream has ended".to_owned()))?;
        Ok(self)
    }
}

// === impl Hearer ===

impl Hearer {
    /// Waits for the echoes, until the speaker hangs up or the stream fails.
    async fn listen(mut self, tally: Arc<Tally>) {
        let mut alive = true;
        while let Some(due) = self.due.recv().await {
            let heard = if alive {
                self.hear(due).await
            } else {
                Err(Failure::new(
                    FailureKind::CutInFlight,
                    "the stream has ended",
                ))
            };
            if heard.is_err() {
                alive = false;
                self.due.close();
            }
            tally.ended(heard);
        }
    }

    async fn hear(&mut self, due: Instant) -> Result<(), Failure> {
        let mut echo = [0; BODY.len()];
        let heard = timeout_at(due, self.read.read_exact(&mut echo)).await;
        let heard = heard.map_err(|_| Failure::new(FailureKind::TimedOut, "no echo"))?;
        heard.map_err(|error| Failure::new(FailureKind::CutInFlight, error.to_string()))?;
        if echo == BODY {
            return Ok(());
        }
        let detail = format!("`{}`", echo.escape_ascii());
        Err(Failure::new(FailureKind::BadAnswer, detail))
    }
}
