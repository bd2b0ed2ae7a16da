//! The attacks: how many connections each one opens, at what rate, and what each connection does.

use std::future::pending;
use std::io::Write as _;
use std::iter::repeat_n;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use tests::https::HttpsClient;
use tests::table::rows;
use tests::webhook::review;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use tests::webhook_process::WebhookProcess;

use super::cluster::{drainer_api_request, token};
use crate::documents::largest_response_review;

/// An attack: a number of connections, each opened again after it was closed, at a limited rate.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The port that is attacked, by its name in metrics.
    pub(crate) port: &'static str,
    connections: u32,
    /// Maximum number of new connections per second.
    rate: u32,
    /// Number of source addresses, which connections use in turn.
    pub(crate) source_addresses: u16,
    /// The behaviours of the connections, assigned in turn.
    behaviours: Vec<ConnectionBehaviour>,
}

/// The behaviour of a connection until it is closed.
#[derive(Debug, Clone, Copy)]
enum ConnectionBehaviour {
    /// Requests `/healthz` every second, or sends nothing.
    Probe,
    /// Requests `/metrics` every second, or sends nothing.
    Scrape,
    /// Sends this request over TLS and keeps the connection open.
    RequestThenIdle(&'static str),
    /// Sends a review and keeps the connection open.
    ReviewThenIdle,
    /// Sends nothing, not even a TLS handshake.
    NoBytes,
    /// Sends request headers slowly: 100 bytes every second.
    SlowHead,
    /// Sends headers with padding of `head` bytes, and a body of `content_length` bytes that lacks the
    /// last `missing`.
    IncompleteBody {
        head: usize,
        content_length: usize,
        missing: usize,
    },
    /// Completes the TLS handshake and disconnects.
    HandshakeOnly,
    /// Sends reviews continuously, without waiting for responses.
    Flood(FloodRequest, ReadRate),
    /// Sends a body of the maximum size, each byte in a TLS record of its own.
    TinyRecords,
    /// Asks for a replacement and reports a drain in turn, with these tokens.
    Drainer(AttackToken),
}

/// The token of a request to the drainer API.
#[derive(Debug, Clone, Copy)]
enum AttackToken {
    /// Another one in each request, which looks like a pod's and is not valid.
    Forged,
    /// That of a pod, another one for each connection.
    Valid,
}

/// The review that a flood repeats.
#[derive(Debug, Clone, Copy)]
enum FloodRequest {
    /// An ordinary review.
    Ordinary,
    /// The review that takes the longest of those whose body does not count against the body memory limit: a text in
    /// place of a list, whose error message repeats it.
    Dearest,
    /// A review with the largest response.
    LargestResponse,
}

/// How fast a connection reads its responses.
#[derive(Debug, Clone, Copy)]
enum ReadRate {
    Full,
    /// 16 KiB every 250 ms.
    Slow,
    Zero,
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

const KIB: usize = 1 << 10;

const MIB: usize = 1 << 20;

/// A body of the maximum size that lacks its last byte.
const LARGEST_BODY: ConnectionBehaviour = ConnectionBehaviour::IncompleteBody {
    head: 0,
    content_length: 7 * MIB,
    missing: 1,
};

/// Headers of nearly the maximum size, and the largest body that does not count against the body memory limit,
/// without its last byte.
const UNMETERED_BODY: ConnectionBehaviour = ConnectionBehaviour::IncompleteBody {
    head: 15 * KIB,
    content_length: 64 * KIB,
    missing: 1,
};

/// All attacks: name, port, connections, source addresses, new connections per second, and behaviour. One or a few
/// ordinary pods can carry out each of them.
const ATTACKS: &str = "
    600 open on the health port           | health      |   600 |   4 |   2000 | probe
    600 open on the metrics port          | metrics     |   600 |   4 |   2000 | scrape
    5,000 idle after a 404                | webhook     |  5000 |  20 |    500 | 404, then idle
    5,000 idle after a review             | webhook     |  5000 |  20 |    500 | review, then idle
    1,000 silent per second               | webhook     | 20000 |   8 |   1000 | no bytes
    1,000 with slow headers               | webhook     |  1000 |   8 |    500 | slow head
    64 bodies with one byte sent          | webhook     |    64 |   4 |    500 | first byte of a body
    64 bodies that lack one byte          | webhook     |    64 |   4 |    100 | largest body
    600 with large headers, small bodies  | webhook     |   600 |   8 |    500 | unmetered body
    600 with small and large bodies       | webhook     |   600 |   7 |    500 | seven unmetered bodies to one largest
    1,000 handshakes per second           | webhook     |   200 |   4 |   1000 | handshake
    continuous handshakes                 | webhook     |   400 |   4 | 100000 | handshake
    40 with continuous reviews            | webhook     |    40 |   1 |    500 | dearest reviews
    380 with continuous reviews           | webhook     |   380 |   8 |    500 | dearest reviews
    380 addresses with continuous reviews | webhook     |   380 | 380 |    500 | dearest reviews
    600 pipelining, 4 addresses           | webhook     |   600 |   4 |   2000 | pipeline
    600 pipelining, 8 addresses           | webhook     |   600 |   8 |   2000 | pipeline
    600 pipelining, 100 addresses         | webhook     |   600 | 100 |   2000 | pipeline
    600 pipelining, 350 addresses         | webhook     |   600 | 350 |   2000 | pipeline
    380 that read no response             | webhook     |   380 |   8 |    500 | unread responses
    380 that read responses slowly        | webhook     |   380 |   8 |    500 | slowly read responses
    40 with one-byte TLS records          | webhook     |    40 |   1 |    500 | tiny records
    1,000 silent per second, drainer API  | drainer-api | 20000 |   8 |   1000 | no bytes
    continuous handshakes, drainer API    | drainer-api |   400 |   4 | 100000 | handshake
    120 with forged tokens                | drainer-api |   120 |  40 |    500 | forged tokens
    120 pods of the largest namespaces    | drainer-api |   120 |  40 |    500 | valid tokens
";

/// Returns all attacks.
pub(crate) fn attacks() -> impl Iterator<Item = Attack> {
    let number = |column: &str| column.parse().expect("the column has numbers");
    rows(ATTACKS).map(
        move |[name, port, connections, addresses, rate, behaviour]| Attack {
            name,
            port,
            connections: number(connections),
            rate: number(rate),
            source_addresses: addresses.parse().expect("the column has numbers"),
            behaviours: behaviours(behaviour),
        },
    )
}

/// Returns the behaviours of a row of [`ATTACKS`].
fn behaviours(name: &str) -> Vec<ConnectionBehaviour> {
    use ConnectionBehaviour as Behaviour;
    let only_byte = Behaviour::IncompleteBody {
        head: 0,
        content_length: 7 * MIB,
        missing: 7 * MIB - 1,
    };
    vec![match name {
        "probe" => Behaviour::Probe,
        "scrape" => Behaviour::Scrape,
        "404, then idle" => Behaviour::RequestThenIdle(GET),
        "review, then idle" => Behaviour::ReviewThenIdle,
        "no bytes" => Behaviour::NoBytes,
        "slow head" => Behaviour::SlowHead,
        "first byte of a body" => only_byte,
        "largest body" => LARGEST_BODY,
        "unmetered body" => UNMETERED_BODY,
        "seven unmetered bodies to one largest" => {
            return [&[UNMETERED_BODY; 7][..], &[LARGEST_BODY]].concat();
        }
        "handshake" => Behaviour::HandshakeOnly,
        "dearest reviews" => Behaviour::Flood(FloodRequest::Dearest, ReadRate::Full),
        // Ordinary reviews, one behind the other.
        "pipeline" => Behaviour::Flood(FloodRequest::Ordinary, ReadRate::Full),
        "unread responses" => Behaviour::Flood(FloodRequest::LargestResponse, ReadRate::Zero),
        "slowly read responses" => Behaviour::Flood(FloodRequest::LargestResponse, ReadRate::Slow),
        "tiny records" => Behaviour::TinyRecords,
        "forged tokens" => Behaviour::Drainer(AttackToken::Forged),
        "valid tokens" => Behaviour::Drainer(AttackToken::Valid),
        other => panic!("unknown behaviour: {other}"),
    }]
}

/// A running attack, on a thread of its own.
pub(crate) struct RunningAttack {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

/// Limits the rate of new connections of all clients together.
struct ConnectRate {
    next: Mutex<Instant>,
    interval: Duration,
}

/// One client of an attack, with one connection at a time.
#[derive(Clone)]
struct AttackClient {
    number: u32,
    behaviour: ConnectionBehaviour,
    https: HttpsClient,
    source: IpAddr,
    health: SocketAddr,
    metrics: SocketAddr,
    tls: SocketAddr,
    connect_rate: Arc<ConnectRate>,
    /// Counts the forged tokens of all clients.
    forged_tokens: Arc<AtomicU32>,
}

// === impl RunningAttack ===

impl RunningAttack {
    /// Starts an attack.
    pub(crate) fn start(attack: &Attack, webhook: &WebhookProcess) -> Result<Self> {
        let connect_rate = Arc::new(ConnectRate {
            next: Mutex::new(Instant::now()),
            interval: Duration::from_secs(1) / attack.rate,
        });
        let forged_tokens = Arc::default();
        let (https, tls) = match attack.port {
            "drainer-api" => (&webhook.drainer_api_https, webhook.drainer_api),
            _ => (&webhook.https, webhook.tls),
        };
        let clients: Vec<_> = (0..attack.connections)
            .zip((1..=attack.source_addresses).cycle())
            .map(|(number, address)| {
                let [high, low] = address.to_be_bytes();
                (number, IpAddr::from(Ipv4Addr::new(127, 7, high, low)))
            })
            .zip(attack.behaviours.iter().cycle())
            .map(|((number, source), behaviour)| AttackClient {
                number,
                behaviour: *behaviour,
                https: https.clone().with_source(source),
                source,
                health: webhook.health,
                metrics: webhook.metrics,
                tls,
                connect_rate: Arc::clone(&connect_rate),
                forged_tokens: Arc::clone(&forged_tokens),
            })
            .collect();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("attack".into())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                for client in clients {
                    let sends = client.number % 2 == 0;
                    // The task ends when the runtime is dropped.
                    drop(runtime.spawn(client.run(sends)));
                }
                let _ = runtime.block_on(stopped);
                Ok(())
            })?;
        Ok(Self { stop, thread })
    }

    /// Closes all connections.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        let result = self.thread.join();
        let result = result.map_err(|_| anyhow!("the thread panicked"));
        result.flatten().expect("the attack did not fail");
    }
}

// === impl ConnectRate ===

impl ConnectRate {
    async fn wait(&self) {
        let connect_at = {
            let mut next = self.next.lock().expect("no holder of the lock panics");
            *next = (*next).max(Instant::now()) + self.interval;
            *next
        };
        sleep_until(connect_at).await;
    }
}

// === impl FloodRequest ===

impl FloodRequest {
    fn request(self) -> Vec<u8> {
        let body = match self {
            Self::Ordinary => review("attack").bytes(),
            Self::Dearest => {
                let text = json!("\u{7f}".repeat(60 * KIB));
                let review =
                    review("attack").with("/request/object/metadata/ownerReferences", text);
                review.bytes()
            }
            Self::LargestResponse => largest_response_review(),
        };
        [head(body.len(), "").as_bytes(), &body].concat()
    }
}

// === impl ReadRate ===

impl ReadRate {
    /// Reads until the connection is closed.
    async fn read(self, mut stream: impl AsyncRead + Unpin) -> Result<()> {
        match self {
            Self::Full => read_until_closed(stream).await,
            Self::Slow => {
                let mut bytes = vec![0; 16 * KIB];
                while stream.read(&mut bytes).await? > 0 {
                    sleep(Duration::from_millis(250)).await;
                }
                Ok(())
            }
            Self::Zero => pending().await,
        }
    }
}

// === impl AttackClient ===

impl AttackClient {
    /// Connects again after each disconnect. Clients with `sends` poll the plain ports; the others stay silent there.
    async fn run(self, sends: bool) {
        loop {
            self.connect_rate.wait().await;
            // An error means that the webhook closed the connection.
            let _ = self.run_once(sends).await;
        }
    }

    async fn run_once(&self, sends: bool) -> Result<()> {
        match self.behaviour {
            ConnectionBehaviour::Probe => {
                poll_path(self.connect(self.health).await?, "/healthz", sends).await
            }
            ConnectionBehaviour::Scrape => {
                poll_path(self.connect(self.metrics).await?, "/metrics", sends).await
            }
            ConnectionBehaviour::NoBytes => read_until_closed(self.connect(self.tls).await?).await,
            ConnectionBehaviour::HandshakeOnly => {
                self.https.connect_tls().await?;
                Ok(())
            }
            ConnectionBehaviour::RequestThenIdle(request) => {
                self.send_then_idle(request.as_bytes()).await
            }
            ConnectionBehaviour::ReviewThenIdle => {
                self.send_then_idle(&FloodRequest::Ordinary.request()).await
            }
            ConnectionBehaviour::SlowHead => {
                let mut stream = self.https.connect_tls().await?;
                stream.write_all(b"POST /inject HTTP/1.1\r\nx: ").await?;
                loop {
                    sleep(Duration::from_secs(1)).await;
                    stream.write_all(&[b'x'; 100]).await?;
                }
            }
            ConnectionBehaviour::IncompleteBody {
                head: padding,
                content_length,
                missing,
            } => {
                let mut request = head(content_length, &"x".repeat(padding));
                request.extend(repeat_n(' ', content_length - missing));
                self.send_then_idle(request.as_bytes()).await
            }
            ConnectionBehaviour::Flood(flood_request, read_rate) => {
                let request = flood_request.request();
                let (reader, mut writer) = split(self.https.connect_tls().await?);
                let writing = async {
                    loop {
                        writer.write_all(&request).await?;
                    }
                };
                tokio::select! {
                    result = read_rate.read(reader) => result,
                    result = writing => result,
                }
            }
            ConnectionBehaviour::TinyRecords => {
                let mut stream = self.https.connect_tls().await?;
                stream.write_all(head(7 * MIB, "").as_bytes()).await?;
                for _ in 0..7 * MIB / 500 {
                    for _ in 0..500 {
                        stream.get_mut().1.writer().write_all(b" ")?;
                    }
                    stream.flush().await?;
                }
                read_until_closed(stream).await
            }
            ConnectionBehaviour::Drainer(attack_token) => {
                let mut connection = self.https.connect().await?;
                loop {
                    let token = match attack_token {
                        AttackToken::Forged => {
                            let n = self.forged_tokens.fetch_add(1, Ordering::Relaxed);
                            token(n, "forged")
                        }
                        AttackToken::Valid => token(self.number, "valid"),
                    };
                    for path in ["/replacement", "/report"] {
                        connection.send(drainer_api_request(path, &token)).await?;
                    }
                }
            }
        }
    }

    async fn send_then_idle(&self, bytes: &[u8]) -> Result<()> {
        let mut stream = self.https.connect_tls().await?;
        stream.write_all(bytes).await?;
        read_until_closed(stream).await
    }

    async fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.source, 0).into())?;
        Ok(socket.connect(to).await?)
    }
}

/// Returns the request line and the headers.
fn head(length: usize, padding: &str) -> String {
    format!(
        "POST /inject HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nx: {padding}\r\n\r\n"
    )
}

/// Requests a path every second, or never, until the connection is closed.
async fn poll_path(stream: TcpStream, path: &str, sends: bool) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let sending = async {
        if !sends {
            return pending().await;
        }
        loop {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
            writer.write_all(request.as_bytes()).await?;
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        result = read_until_closed(reader) => result,
        result = sending => result,
    }
}

/// Reads until the connection is closed.
async fn read_until_closed(mut stream: impl AsyncRead + Unpin) -> Result<()> {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
