//! Pings over WebSocket, which every server answers (RFC 6455, section 5.5.2).

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::header::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::failure::{Failure, FailureKind, error_chain};
use crate::messages::{AnswerReader, MessageClient, MessageWriter};
use crate::target::{ConnectionGuard, Connector, Protocol, Stream};
use crate::url::LoadUrl;

type Socket = WebSocketStream<Box<dyn Stream>>;

/// Clients of a WebSocket server.
pub(crate) struct WebSocketClient {
    pub(crate) connector: Connector,
    pub(crate) url: LoadUrl,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

pub(crate) struct PingWriter(SplitSink<Socket, Message>);

pub(crate) struct PongReader {
    socket: SplitStream<Socket>,
    _guard: ConnectionGuard,
}

fn cut(error: &Error) -> Failure {
    Failure::new(FailureKind::CutInFlight, error_chain(error))
}

// === impl WebSocketClient ===

impl MessageClient for WebSocketClient {
    type Writer = PingWriter;
    type Reader = PongReader;

    async fn open(&self) -> Result<(PingWriter, PongReader), Failure> {
        let (stream, guard) = self.connector.connect(Protocol::Http).await?;
        let url = self.url.to_string().replacen("http", "ws", 1);
        let mut request = url.into_client_request().map_err(|error| cut(&error))?;
        request.headers_mut().extend(self.headers.iter().cloned());
        let socket = match client_async(request, stream).await {
            Ok((socket, _)) => socket,
            Err(Error::Http(response)) => {
                let detail = format!("{} in place of an upgrade", response.status());
                return Err(Failure::new(FailureKind::BadResponse, detail));
            }
            Err(error) => return Err(cut(&error)),
        };
        let (write, read) = socket.split();
        let reader = PongReader {
            socket: read,
            _guard: guard,
        };
        Ok((PingWriter(write), reader))
    }
}

// === impl PingWriter ===

impl MessageWriter for PingWriter {
    async fn send(&mut self) -> Result<(), Failure> {
        let ping = Message::Ping(Bytes::new());
        self.0.send(ping).await.map_err(|error| cut(&error))
    }

    async fn close(mut self) {
        // A connection that has failed is closed.
        let _ = self.0.close().await;
    }
}

// === impl PongReader ===

impl AnswerReader for PongReader {
    async fn read(&mut self) -> Result<(), Failure> {
        loop {
            let ended = match self.socket.next().await {
                Some(Ok(Message::Pong(_))) => return Ok(()),
                Some(Ok(Message::Close(frame))) => format!("closed by the server: {frame:?}"),
                Some(Ok(_)) => continue,
                Some(Err(error)) => error_chain(&error),
                None => "the end of the connection".to_owned(),
            };
            return Err(Failure::new(FailureKind::CutInFlight, ended));
        }
    }
}
