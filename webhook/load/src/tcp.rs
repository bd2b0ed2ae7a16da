//! Messages to an echo server over TCP.

use std::io;

use bytes::BytesMut;
use futures_util::{SinkExt, StreamExt};
use tokio_util::codec::{Decoder, Encoder, Framed};

use crate::failure::{Failure, FailureKind};
use crate::messages::{AnswerStream, MessageSink};
use crate::target::{Connector, Protocol};

/// A message, and its echo.
const MESSAGE: [u8; 16] = *b"a spoon of sugar";

/// Writes messages, and reads as many bytes as an echo has.
struct EchoCodec;

/// Opens a connection to an echo server.
pub(crate) async fn open(connector: &Connector) -> Result<(MessageSink, AnswerStream), Failure> {
    let (stream, guard) = connector.connect(Protocol::Tcp).await?;
    let (messages, echoes) = Framed::new(stream, EchoCodec).split::<()>();
    let messages = messages.sink_map_err(|error| cut(&error));
    let answers = echoes.map(move |echo| {
        let _counted = &guard;
        verify(&echo.map_err(|error| cut(&error))?)
    });
    Ok((Box::pin(messages), answers.boxed()))
}

fn verify(echo: &[u8]) -> Result<(), Failure> {
    if *echo == MESSAGE {
        return Ok(());
    }
    let detail = format!("`{}`", echo.escape_ascii());
    Err(Failure::new(FailureKind::BadResponse, detail))
}

fn cut(error: &io::Error) -> Failure {
    Failure::new(FailureKind::CutInFlight, error.to_string())
}

// === impl EchoCodec ===

impl Encoder<()> for EchoCodec {
    type Error = io::Error;

    fn encode(&mut self, (): (), buffer: &mut BytesMut) -> io::Result<()> {
        buffer.extend_from_slice(&MESSAGE);
        Ok(())
    }
}

impl Decoder for EchoCodec {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        let is_whole = buffer.len() >= MESSAGE.len();
        Ok(is_whole.then(|| buffer.split_to(MESSAGE.len())))
    }
}
