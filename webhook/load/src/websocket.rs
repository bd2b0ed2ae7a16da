//! Pings over WebSocket, which every server answers (RFC 6455, section 5.5.2).

use std::future::ready;

use futures_util::{SinkExt, StreamExt};
use hyper::header::{HeaderName, HeaderValue};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use crate::failure::{Failure, FailureKind, error_chain};
use crate::messages::{AnswerStream, MessageSink};
use crate::target::{Connector, Protocol};
use crate::url::LoadUrl;

/// Opens a WebSocket, whose messages are pings.
pub(crate) async fn open(
    connector: &Connector,
    url: &LoadUrl,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<(MessageSink, AnswerStream), Failure> {
    let (stream, guard) = connector.connect(Protocol::Http).await?;
    let url = url.to_string().replacen("http", "ws", 1);
    let mut request = url.into_client_request().map_err(|error| cut(&error))?;
    request.headers_mut().extend(headers.iter().cloned());
    let socket = match client_async(request, stream).await {
        Ok((socket, _)) => socket,
        Err(Error::Http(response)) => {
            let detail = format!("{} in place of an upgrade", response.status());
            return Err(Failure::new(FailureKind::BadResponse, detail));
        }
        Err(error) => return Err(cut(&error)),
    };
    let (write, read) = socket.split();
    let ping = |()| ready(Ok(Message::Ping(Bytes::new())));
    let pings = write.sink_map_err(|error| cut(&error)).with(ping);
    let pongs = read.filter_map(move |message| {
        let _counted = &guard;
        ready(answer(message))
    });
    Ok((Box::pin(pings), pongs.boxed()))
}

/// What a message means for the next ping without an answer; `None` for nothing.
fn answer(message: Result<Message, Error>) -> Option<Result<(), Failure>> {
    match message {
        Ok(Message::Pong(_)) => Some(Ok(())),
        Ok(Message::Close(frame)) => {
            let detail = format!("closed by the server: {frame:?}");
            Some(Err(Failure::new(FailureKind::CutInFlight, detail)))
        }
        Ok(_) => None,
        Err(error) => Some(Err(cut(&error))),
    }
}

fn cut(error: &Error) -> Failure {
    Failure::new(FailureKind::CutInFlight, error_chain(error))
}
