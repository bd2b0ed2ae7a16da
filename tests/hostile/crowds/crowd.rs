//! The crowds: what each of their connections does, how many there are and how fast they come.

use std::future::pending;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use tests::https::HttpsClient;
use tests::webhook::review;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use tests::shipped::WebhookProcess;

use crate::documents::largest_response_review;

/// A crowd: so many connections, each opened again when it was closed, so many a second at most.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The port it is on, as metrics call it.
    pub(crate) port: &'static str,
    connections: u32,
    rate: u32,
    /// The source addresses that it has.
    source_addresses: u8,
    /// What its connections do, in turn.
    behaviours: &'static [ConnectionBehaviour],
}

/// What a connection does until it is closed.
#[derive(Debug, Clone, Copy)]
enum ConnectionBehaviour {
    /// Asks for `/healthz` each second, or says nothing.
    Probe,
    /// Asks for `/metrics` each second, or says nothing.
    Scrape,
    /// Asks for something by TLS, and stays.
    RequestThenIdle(&'static str),
    /// Has a review answered, and stays.
    ReviewThenIdle,
    /// Says nothing, not even a handshake.
    NoBytes,
    /// Says a byte of a head now and then.
    SlowHead,
    /// Sends a head with so many bytes in it that mean nothing, and of the body that it promises all
    /// but so many.
    IncompleteBody {
        head: usize,
        content_length: usize,
        missing: usize,
    },
    /// Shakes hands, and goes.
    HandshakeOnly,
    /// Sends one review after the other without a pause, whatever becomes of the answers.
    Flood(FloodRequest, ReadRate),
    /// Sends the largest body, each byte in a TLS record of its own.
    TinyRecords,
}

/// What a connection asks for.
#[derive(Debug, Clone, Copy)]
enum FloodRequest {
    /// A bootstrap that takes as long to read as any.
    CostlyBootstrap,
    /// The largest answer.
    LargestResponse,
}

/// How much of its answers a connection reads.
#[derive(Debug, Clone, Copy)]
enum ReadRate {
    Full,
    /// A little, now and then.
    Slow,
    Zero,
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

const KIB: usize = 1 << 10;

const MIB: usize = 1 << 20;

/// The largest body, but for its last byte.
const LARGEST_BODY: ConnectionBehaviour = ConnectionBehaviour::IncompleteBody {
    head: 0,
    content_length: 7 * MIB,
    missing: 1,
};

/// The largest head, and of the largest body that needs no share all but the last byte.
const UNMETERED_BODY: ConnectionBehaviour = ConnectionBehaviour::IncompleteBody {
    head: 15 * KIB,
    content_length: 64 * KIB,
    missing: 1,
};

/// Each is what an ordinary pod, or a few of them, can do to the webhook.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("600 kept on the health port", "health", 600, 4)
        .with_behaviours(2_000, &[ConnectionBehaviour::Probe]),
    Attack::new("600 kept on the metrics port", "metrics", 600, 4)
        .with_behaviours(2_000, &[ConnectionBehaviour::Scrape]),
    Attack::new("5,000 kept after a 404", "webhook", 5_000, 20)
        .with_behaviours(500, &[ConnectionBehaviour::RequestThenIdle(GET)]),
    Attack::new("5,000 kept after a review", "webhook", 5_000, 20)
        .with_behaviours(500, &[ConnectionBehaviour::ReviewThenIdle]),
    Attack::new("1,000 silent a second", "webhook", 20_000, 8)
        .with_behaviours(1_000, &[ConnectionBehaviour::NoBytes]),
    Attack::new("1,000 slow heads", "webhook", 1_000, 8)
        .with_behaviours(500, &[ConnectionBehaviour::SlowHead]),
    Attack::new("64 bodies of one byte", "webhook", 64, 4).with_behaviours(
        500,
        &[ConnectionBehaviour::IncompleteBody {
            head: 0,
            content_length: 7 * MIB,
            missing: 7 * MIB - 1,
        }],
    ),
    Attack::new("64 bodies that lack a byte", "webhook", 64, 4)
        .with_behaviours(100, &[LARGEST_BODY]),
    Attack::new("600 of all that needs no share", "webhook", 600, 8)
        .with_behaviours(500, &[UNMETERED_BODY]),
    Attack::new("600 of either", "webhook", 600, 7).with_behaviours(
        500,
        &[
            UNMETERED_BODY,
            UNMETERED_BODY,
            UNMETERED_BODY,
            UNMETERED_BODY,
            UNMETERED_BODY,
            UNMETERED_BODY,
            UNMETERED_BODY,
            LARGEST_BODY,
        ],
    ),
    Attack::new("1,000 handshakes a second", "webhook", 200, 4)
        .with_behaviours(1_000, &[ConnectionBehaviour::HandshakeOnly]),
    Attack::new("handshakes without a pause", "webhook", 400, 4)
        .with_behaviours(100_000, &[ConnectionBehaviour::HandshakeOnly]),
    Attack::new("40 reviews without a pause", "webhook", 40, 1).with_behaviours(
        500,
        &[ConnectionBehaviour::Flood(
            FloodRequest::CostlyBootstrap,
            ReadRate::Full,
        )],
    ),
    Attack::new("380 reviews without a pause", "webhook", 380, 8).with_behaviours(
        500,
        &[ConnectionBehaviour::Flood(
            FloodRequest::CostlyBootstrap,
            ReadRate::Full,
        )],
    ),
    Attack::new("380 that read no answer", "webhook", 380, 8).with_behaviours(
        500,
        &[ConnectionBehaviour::Flood(
            FloodRequest::LargestResponse,
            ReadRate::Zero,
        )],
    ),
    Attack::new("380 that read a little", "webhook", 380, 8).with_behaviours(
        500,
        &[ConnectionBehaviour::Flood(
            FloodRequest::LargestResponse,
            ReadRate::Slow,
        )],
    ),
    Attack::new("40 with records of one byte", "webhook", 40, 1)
        .with_behaviours(500, &[ConnectionBehaviour::TinyRecords]),
];

/// A crowd at work, on a thread of its own.
pub(crate) struct RunningAttack {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

/// So many turns a second, whoever takes them.
struct ConnectRate {
    next: Mutex<Instant>,
    interval: Duration,
}

/// One member's means.
#[derive(Clone)]
struct AttackClient {
    behaviour: ConnectionBehaviour,
    https: HttpsClient,
    source: IpAddr,
    health: SocketAddr,
    metrics: SocketAddr,
    tls: SocketAddr,
    connect_rate: Arc<ConnectRate>,
}

// === impl Crowd ===

impl Attack {
    const fn new(name: &'static str, port: &'static str, connections: u32, addresses: u8) -> Self {
        Self {
            name,
            port,
            connections,
            source_addresses: addresses,
            rate: 1,
            behaviours: &[],
        }
    }

    const fn with_behaviours(self, a_second: u32, does: &'static [ConnectionBehaviour]) -> Self {
        Self {
            rate: a_second,
            behaviours: does,
            ..self
        }
    }
}

// === impl Running ===

impl RunningAttack {
    /// Sends the crowd.
    pub(crate) fn start(crowd: &Attack, webhook: &WebhookProcess) -> Result<Self> {
        let pace = Arc::new(ConnectRate {
            next: Mutex::new(Instant::now()),
            interval: Duration::from_secs(1) / crowd.rate,
        });
        let members: Vec<_> = (0..crowd.connections)
            .zip((1..=crowd.source_addresses).cycle())
            .map(|(_, address)| IpAddr::from(Ipv4Addr::new(127, 0, 7, address)))
            .zip(crowd.behaviours.iter().cycle())
            .map(|(from, does)| AttackClient {
                behaviour: *does,
                https: webhook.https.clone().with_source(from),
                source: from,
                health: webhook.health,
                metrics: webhook.metrics,
                tls: webhook.tls,
                connect_rate: Arc::clone(&pace),
            })
            .collect();
        let (over, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("crowd".into()).spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            for (n, member) in (0_u32..).zip(members) {
                // Dropped with the runtime.
                drop(runtime.spawn(member.run(n % 2 == 0)));
            }
            let _ = runtime.block_on(ended);
            Ok(())
        })?;
        Ok(Self { stop: over, thread })
    }

    /// Has all go.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        let ended = self.thread.join().map_err(|_| anyhow!("a panic"));
        ended.flatten().expect("the crowd came");
    }
}

// === impl Pace ===

impl ConnectRate {
    async fn wait(&self) {
        let turn = {
            let mut next = self.next.lock().expect("no turn panics");
            *next = (*next).max(Instant::now()) + self.interval;
            *next
        };
        sleep_until(turn).await;
    }
}

// === impl Asks ===

impl FloodRequest {
    fn request(self) -> Vec<u8> {
        let body = match self {
            Self::CostlyBootstrap => {
                let keys: String = (0..5_800).map(|n| format!("k{n}: 1\n")).collect();
                let args = json!(["--config-yaml", format!("admin: {{}}\n{keys}")]);
                let review = review("crowd").with("/request/object/spec/containers/0/args", args);
                review.bytes()
            }
            Self::LargestResponse => largest_response_review(),
        };
        [head(body.len(), "").as_bytes(), &body].concat()
    }
}

// === impl Reads ===

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

// === impl Member ===

impl AttackClient {
    /// Comes again and again. Of two members the first may be the busier.
    async fn run(self, first: bool) {
        loop {
            self.connect_rate.wait().await;
            // Cut off, it comes again.
            let _ = self.run_once(first).await;
        }
    }

    async fn run_once(&self, first: bool) -> Result<()> {
        match self.behaviour {
            ConnectionBehaviour::Probe => {
                poll_path(self.connect(self.health).await?, "/healthz", first).await
            }
            ConnectionBehaviour::Scrape => {
                poll_path(self.connect(self.metrics).await?, "/metrics", first).await
            }
            ConnectionBehaviour::NoBytes => read_until_closed(self.connect(self.tls).await?).await,
            ConnectionBehaviour::HandshakeOnly => {
                self.https.connect_tls().await?;
                Ok(())
            }
            ConnectionBehaviour::RequestThenIdle(request) => {
                let mut stream = self.https.connect_tls().await?;
                stream.write_all(request.as_bytes()).await?;
                read_until_closed(stream).await
            }
            ConnectionBehaviour::ReviewThenIdle => {
                let mut stream = self.https.connect_tls().await?;
                let review = review("crowd").bytes();
                stream.write_all(head(review.len(), "").as_bytes()).await?;
                stream.write_all(&review).await?;
                read_until_closed(stream).await
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
                content_length: promised,
                missing: kept_back,
            } => {
                let mut stream = self.https.connect_tls().await?;
                let head = head(promised, &"x".repeat(padding));
                stream.write_all(head.as_bytes()).await?;
                let sent = vec![b' '; promised - kept_back];
                stream.write_all(&sent).await?;
                read_until_closed(stream).await
            }
            ConnectionBehaviour::Flood(asks, reads) => {
                let request = asks.request();
                let (reader, mut writer) = split(self.https.connect_tls().await?);
                let writing = async {
                    loop {
                        writer.write_all(&request).await?;
                    }
                };
                tokio::select! {
                    ended = reads.read(reader) => ended,
                    ended = writing => ended,
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
        }
    }

    async fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.source, 0).into())?;
        Ok(socket.connect(to).await?)
    }
}

fn head(length: usize, padding: &str) -> String {
    format!(
        "POST /inject HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nx: {padding}\r\n\r\n"
    )
}

/// Asks each second, or not at all, until the connection is closed.
async fn poll_path(stream: TcpStream, path: &str, asks: bool) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let asking = async {
        if !asks {
            return pending().await;
        }
        loop {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
            writer.write_all(request.as_bytes()).await?;
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        ended = read_until_closed(reader) => ended,
        ended = asking => ended,
    }
}

/// Reads until the connection is closed.
async fn read_until_closed(mut stream: impl AsyncRead + Unpin) -> Result<()> {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
