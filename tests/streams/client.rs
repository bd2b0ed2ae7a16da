//! Clients that are silent for longer than `idle-exit`, from the end of a server's pod on.

use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::http;
use tests::raw_connection::RawConnection;
use tests::timing::SECOND;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::time::sleep;

/// How long each is silent, in seconds.
const SILENCE: u32 = 40;

/// A kind of client.
#[derive(Debug, Clone, Copy, strum::Display, strum::VariantArray)]
pub(crate) enum Client {
    #[strum(
        to_string = "request of HTTP/2 that takes 40 s, while the same connection has other responses for 3 s"
    )]
    Http2Request,
    #[strum(to_string = "stream of HTTP/2 or gRPC, silent for 40 s")]
    Http2Stream,
    #[strum(to_string = "response of HTTP/1 that pauses for 40 s, as server-sent events do")]
    PausedResponse,
    #[strum(to_string = "WebSocket, silent for 40 s")]
    WebSocket,
    #[strum(to_string = "client that connects each 10 s, and knows the endpoint for 25 s")]
    RareConnections,
}

// === impl Client ===

impl Client {
    /// Connects, waits for the end of the pod, and leaves when its request or stream has ended.
    ///
    /// # Errors
    /// If that is cut, or a connection refused.
    pub(crate) async fn run(self, server: SocketAddr, pod_end: &Barrier) -> Result<()> {
        let silence = SECOND * SILENCE;
        let slow = format!("?ms={}", silence.as_millis());
        let paused = format!("?pause={}", silence.as_millis());
        match self {
            Self::Http2Request => {
                let connection = connect(server).await?;
                get(&connection, "").await?;
                pod_end.wait().await;
                let others = async {
                    for _ in 0..3 {
                        sleep(SECOND).await;
                        get(&connection, "").await?;
                    }
                    Ok(())
                };
                tokio::try_join!(get(&connection, &slow), others).map(drop)
            }
            Self::Http2Stream => {
                let connection = connect(server).await?;
                let mut request = connection.clone();
                let response = request.send_request(request_for(&paused)?).await?;
                pod_end.wait().await;
                Ok(response.into_body().collect().await.map(drop)?)
            }
            Self::PausedResponse => {
                pod_end.wait().await;
                let request = request_for(&paused)?;
                http::exchange(&drainer::AdminAddress::Tcp(server), request)
                    .await
                    .map(drop)
            }
            Self::WebSocket => {
                let mut connection = RawConnection::open_upgraded(server).await?;
                pod_end.wait().await;
                sleep(silence).await;
                connection.ping().await
            }
            Self::RareConnections => {
                pod_end.wait().await;
                for seconds in [4, 10, 10] {
                    sleep(SECOND * seconds).await;
                    let request = request_for("")?;
                    http::exchange(&drainer::AdminAddress::Tcp(server), request).await?;
                }
                Ok(())
            }
        }
    }
}

async fn connect(server: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TokioIo::new(TcpStream::connect(server).await?);
    let (requests, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
    // Ends once all requests have.
    tokio::spawn(connection);
    Ok(requests)
}

async fn get(connection: &SendRequest<Full<Bytes>>, query: &str) -> Result<()> {
    let response = connection.clone().send_request(request_for(query)?).await?;
    Ok(response.into_body().collect().await.map(drop)?)
}

fn request_for(query: &str) -> Result<Request<Full<Bytes>>> {
    Ok(Request::get(format!("http://localhost/{query}")).body(Full::default())?)
}
