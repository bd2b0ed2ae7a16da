//! A TCP stream that talks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::failure::{Failure, FailureKind};
use super::{BODY, Slots};
use crate::listener::Protocol;
use crate::service::{Connection, Service};

/// A stream between two messages.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    start: Instant,
}

/// Sends a message on the stream, or on a new one, and waits for its echo. A stream is open on
/// purpose, so whatever ends it before its time is a failure of the message that finds it so.
pub(super) async fn message(
    service: Arc<Service>,
    slots: Arc<Slots<Session>>,
    length: Duration,
) -> Result<(), Failure> {
    let turn = slots.turn();
    let mut session = match slots.take(turn) {
        Some(session) => session,
        None => Session::open(&service).await?,
    };
    let echo = session.say().await;
    let echo = echo.map_err(|error| Failure::new(FailureKind::CutInFlight, error.to_string()))?;
    if echo != BODY {
        let detail = format!("`{}`", echo.escape_ascii());
        return Err(Failure::new(FailureKind::BadAnswer, detail));
    }
    let goes_on = session.start.elapsed() < length;
    slots.put(turn, goes_on.then_some(session));
    Ok(())
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
