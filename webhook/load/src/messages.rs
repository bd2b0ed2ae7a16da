//! Long connections with regular messages, each of which is answered: an echo over TCP, or a ping over WebSocket.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::failure::{Failure, FailureKind};
use crate::open_loop::{MAX_IN_FLIGHT, OpenLoopParams};
use crate::report::Tally;

/// Opens connections for messages.
pub(super) trait MessageClient {
    type Writer: MessageWriter;
    type Reader: AnswerReader;

    /// Opens a connection.
    async fn open(&self) -> Result<(Self::Writer, Self::Reader), Failure>;
}

/// The half of a connection that sends messages.
pub(super) trait MessageWriter {
    /// Sends a message. Not cancel safe.
    async fn send(&mut self) -> Result<(), Failure>;

    /// Closes this half, so that the server closes the connection.
    async fn close(self);
}

/// The half of a connection that reads the answers, and counts as an open connection until it is dropped.
pub(super) trait AnswerReader: Send + 'static {
    /// Reads the next answer. Cancel safe.
    fn read(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A connection that is open for more messages.
struct OpenConnection<W> {
    writer: W,
    /// Passes each message to the task that reads the answers. Closed with the connection.
    pending: mpsc::Sender<PendingMessage>,
    closes_at: Instant,
}

/// A message without an answer.
#[derive(Debug, Clone, Copy)]
struct PendingMessage {
    sent_at: Instant,
    deadline: Instant,
}

/// Sends each message when it is due, whether or not earlier ones were answered. After `session` the client closes the
/// connection and opens another. What ends a connection earlier fails the messages without an answer.
pub(super) async fn run_messages<C: MessageClient>(
    client: C,
    mut params: OpenLoopParams,
    session: Duration,
) {
    let tally = params.tally;
    let mut readers = JoinSet::new();
    let mut current: Option<OpenConnection<C::Writer>> = None;
    while let Some(()) = params.schedule.next().await {
        let sent_at = tally.record_sent();
        let expired = current.take_if(|open| Instant::now() >= open.closes_at);
        if let Some(expired) = expired {
            expired.writer.close().await;
        }
        let deadline = sent_at + params.request_timeout;
        let mut open = match current.take() {
            Some(open) => open,
            None => match client.open().await {
                Ok((writer, reader)) => {
                    let (sender, receiver) = mpsc::channel(MAX_IN_FLIGHT);
                    readers.spawn(read_answers(reader, receiver, Arc::clone(&tally)));
                    OpenConnection {
                        writer,
                        pending: sender,
                        closes_at: Instant::now() + session,
                    }
                }
                Err(failure) => {
                    tally.record_result(sent_at, Err(failure));
                    continue;
                }
            },
        };
        match open.send(sent_at, deadline).await {
            Ok(()) => current = Some(open),
            Err(failure) => tally.record_result(sent_at, Err(failure)),
        }
    }
    if let Some(open) = current {
        open.writer.close().await;
    }
    while readers.join_next().await.is_some() {}
}

/// Reads the answers until the client closes the connection or it fails.
async fn read_answers(
    mut reader: impl AnswerReader,
    mut pending: mpsc::Receiver<PendingMessage>,
    tally: Arc<Tally>,
) {
    let mut lost = None;
    while let Some(PendingMessage { sent_at, deadline }) = pending.recv().await {
        let result = match &lost {
            None => read_answer(&mut reader, deadline).await,
            Some(failure) => Err(Failure::clone(failure)),
        };
        if let Err(failure) = &result {
            lost.get_or_insert_with(|| failure.clone());
            pending.close();
        }
        tally.record_result(sent_at, result);
    }
}

async fn read_answer(reader: &mut impl AnswerReader, deadline: Instant) -> Result<(), Failure> {
    let no_answer = |_| Failure::new(FailureKind::TimedOut, "no answer");
    let answer = timeout_at(deadline, reader.read()).await;
    answer.map_err(no_answer).flatten()
}

// === impl OpenConnection ===

impl<W: MessageWriter> OpenConnection<W> {
    /// Sends a message, whose answer the reader expects until `deadline`. Fails only if the reader cannot count the
    /// failure.
    async fn send(&mut self, sent_at: Instant, deadline: Instant) -> Result<(), Failure> {
        let sent = timeout_at(deadline, self.writer.send()).await;
        sent.map_err(|_| Failure::new(FailureKind::TimedOut, "cannot write"))
            .flatten()?;
        let ended = |_| Failure::new(FailureKind::CutInFlight, "the connection has ended");
        let message = PendingMessage { sent_at, deadline };
        self.pending.try_send(message).map_err(ended)
    }
}
