//! A TCP stream that talks.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, interval};

use super::BODY;
use super::failure::{Failure, FailureKind};
use super::open_loop::{OpenLoop, within};
use crate::listener::Protocol;
use crate::service::{Connection, Service};

/// A stream between two messages.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    start: Instant,
}

/// Sends a message at each tick, late ones at once, each after the echo of the one before it: a
/// stream that is slow shows in the rate reached.
pub(super) async fn talk(service: &Service, clients: OpenLoop, length: Duration) {
    let OpenLoop {
        rate,
        limit,
        tally,
        mut stopped,
    } = clients;
    let mut tick = interval(Duration::from_secs_f64(rate.recip()));
    let mut session = None;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = tick.tick() => {}
        }
        tally.sent();
        let message = async {
            session = Some(message(service, session.take(), length).await?);
            Ok(())
        };
        tally.ended(within(limit, message).await);
    }
}

/// Sends a message on the stream, or on a new one where it has lasted long enough, and waits for its
/// echo. A stream is open on purpose, so whatever ends it is a failure of the message that finds it
/// so.
async fn message(
    service: &Service,
    session: Option<Session>,
    length: Duration,
) -> Result<Session, Failure> {
    let mut session = match session.filter(|session| session.start.elapsed() < length) {
        Some(session) => session,
        None => Session::open(service).await?,
    };
    let echo = session.say().await;
    let echo = echo.map_err(|error| Failure::new(FailureKind::CutInFlight, error.to_string()))?;
    if echo != BODY {
        let detail = format!("`{}`", echo.escape_ascii());
        return Err(Failure::new(FailureKind::BadAnswer, detail));
    }
    Ok(session)
}

// === impl Session ===

impl Session {
    async fn open(service: &Service) -> Result<Self, Failure> {
        let connection = service
            .connect(Protocol::Tcp)
            .await
            .map_err(|error| Failure::new(FailureKind::Refused, error.to_string()))?;
        let start = Instant::now();
        Ok(Self { connection, start })
    }

    async fn say(&mut self) -> io::Result<[u8; BODY.len()]> {
        let stream = &mut self.connection.stream;
        stream.write_all(BODY).await?;
        let mut echo = [0; BODY.len()];
        stream.read_exact(&mut echo).await?;
        Ok(echo)
    }
}
