//! Long connections with regular messages, each of which is answered: an echo over TCP, or a ping over WebSocket.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Sink, SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::failure::{Failure, FailureKind};
use crate::open_loop::{MAX_IN_FLIGHT, OpenLoopParams};
use crate::report::Tally;

/// The half of a connection that sends messages. Once it is closed, the server closes the connection.
pub(super) type MessageSink = Pin<Box<dyn Sink<(), Error = Failure> + Send>>;

/// The half of a connection that reads the answers, and counts as an open connection until it is dropped. It ends with
/// the connection.
pub(super) type AnswerStream = BoxStream<'static, Result<(), Failure>>;

/// A connection that is open for more messages.
struct OpenConnection {
    messages: MessageSink,
    /// Tells the task that reads the answers when each message was sent. Closed with the connection.
    pending: mpsc::Sender<Instant>,
    closes_at: Instant,
}

/// Sends each message when it is due, whether or not earlier ones were answered. After `session` the client closes the
/// connection and opens another by `connect`. What ends a connection earlier fails the messages without an answer.
pub(super) async fn run_messages<F>(
    mut params: OpenLoopParams,
    session: Duration,
    connect: impl Fn() -> F,
) where
    F: Future<Output = Result<(MessageSink, AnswerStream), Failure>>,
{
    let (tally, limit) = (params.tally, params.request_timeout);
    let mut readers = JoinSet::new();
    let mut current: Option<OpenConnection> = None;
    while let Some(()) = params.schedule.next().await {
        let sent_at = tally.record_sent();
        if let Some(expired) = current.take_if(|open| Instant::now() >= open.closes_at) {
            expired.close().await;
        }
        let mut open = match current.take() {
            Some(open) => open,
            None => match connect().await {
                Ok((messages, answers)) => {
                    let (sender, receiver) = mpsc::channel(MAX_IN_FLIGHT);
                    readers.spawn(read_answers(answers, receiver, limit, Arc::clone(&tally)));
                    OpenConnection {
                        messages,
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
        match open.send(sent_at, limit).await {
            Ok(()) => current = Some(open),
            Err(failure) => tally.record_result(sent_at, Err(failure)),
        }
    }
    if let Some(open) = current {
        open.close().await;
    }
    while readers.join_next().await.is_some() {}
}

/// Reads the answers until the client closes the connection or it fails.
async fn read_answers(
    mut answers: AnswerStream,
    mut pending: mpsc::Receiver<Instant>,
    limit: Duration,
    tally: Arc<Tally>,
) {
    let mut lost = None;
    while let Some(sent_at) = pending.recv().await {
        let result = match &lost {
            None => read_answer(&mut answers, sent_at + limit).await,
            Some(failure) => Err(Failure::clone(failure)),
        };
        if let Err(failure) = &result {
            lost.get_or_insert_with(|| failure.clone());
            pending.close();
        }
        tally.record_result(sent_at, result);
    }
}

async fn read_answer(answers: &mut AnswerStream, deadline: Instant) -> Result<(), Failure> {
    let answer = timeout_at(deadline, answers.next()).await;
    let answer = answer.map_err(|_| Failure::new(FailureKind::TimedOut, "no answer"))?;
    let ended = || Failure::new(FailureKind::CutInFlight, "the end of the connection");
    answer.ok_or_else(ended).flatten()
}

// === impl OpenConnection ===

impl OpenConnection {
    /// Sends a message within this time. Fails only if the reader cannot count the failure.
    async fn send(&mut self, sent_at: Instant, limit: Duration) -> Result<(), Failure> {
        let sent = timeout_at(sent_at + limit, self.messages.send(())).await;
        sent.map_err(|_| Failure::new(FailureKind::TimedOut, "cannot write"))
            .flatten()?;
        let ended = |_| Failure::new(FailureKind::CutInFlight, "the connection has ended");
        self.pending.try_send(sent_at).map_err(ended)
    }

    async fn close(mut self) {
        // A connection that has failed is closed.
        let _ = self.messages.close().await;
    }
}
