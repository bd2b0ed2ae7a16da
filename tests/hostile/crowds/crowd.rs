//! The crowds: what each of their connections does, how many there are and how fast they come.

use std::future::pending;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use tests::https::Https;
use tests::webhook::review;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, split};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use tests::shipped::Shipped;

use crate::documents::long_answer;

/// A crowd: so many connections, each opened again when it was closed, so many a second at most.
pub(crate) struct Crowd {
    pub(crate) name: &'static str,
    /// The port it is on, as metrics call it.
    pub(crate) port: &'static str,
    connections: u32,
    a_second: u32,
    /// The source addresses that it has.
    addresses: u8,
    /// What its connections do, in turn.
    does: &'static [Does],
}

/// What a connection does until it is closed.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// Asks for `/healthz` each second, or says nothing.
    Probe,
    /// Asks for `/metrics` each second, or says nothing.
    Scrape,
    /// Asks for something by TLS, and stays.
    Stay(&'static str),
    /// Has a review answered, and stays.
    Review,
    /// Says nothing, not even a handshake.
    Silence,
    /// Says a byte of a head now and then.
    SlowHead,
    /// Sends a head with so many bytes in it that mean nothing, and of the body that it promises all
    /// but so many.
    Body {
        head: usize,
        promised: usize,
        kept_back: usize,
    },
    /// Shakes hands, and goes.
    Handshake,
    /// Sends one review after the other without a pause, whatever becomes of the answers.
    Flood(Asks, Reads),
    /// Sends the largest body, each byte in a TLS record of its own.
    TinyRecords,
}

/// What a connection asks for.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// A bootstrap that takes as long to read as any.
    Costly,
    /// The largest answer.
    LongAnswer,
}

/// How much of its answers a connection reads.
#[derive(Debug, Clone, Copy)]
enum Reads {
    All,
    /// A little, now and then.
    Some,
    Nothing,
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

const KIB: usize = 1 << 10;

const MIB: usize = 1 << 20;

/// The largest body, but for its last byte.
const LARGE: Does = Does::Body {
    head: 0,
    promised: 7 * MIB,
    kept_back: 1,
};

/// The largest head, and of the largest body that needs no share all but the last byte.
const FREE: Does = Does::Body {
    head: 15 * KIB,
    promised: 64 * KIB,
    kept_back: 1,
};

/// Each is what an ordinary pod, or a few of them, can do to the webhook.
pub(crate) const CROWDS: &[Crowd] = &[
    Crowd::new("600 kept on the health port", "health", 600, 4).does(2_000, &[Does::Probe]),
    Crowd::new("600 kept on the metrics port", "metrics", 600, 4).does(2_000, &[Does::Scrape]),
    Crowd::new("5,000 kept after a 404", "webhook", 5_000, 20).does(500, &[Does::Stay(GET)]),
    Crowd::new("5,000 kept after a review", "webhook", 5_000, 20).does(500, &[Does::Review]),
    Crowd::new("1,000 silent a second", "webhook", 20_000, 8).does(1_000, &[Does::Silence]),
    Crowd::new("1,000 slow heads", "webhook", 1_000, 8).does(500, &[Does::SlowHead]),
    Crowd::new("64 bodies of one byte", "webhook", 64, 4).does(
        500,
        &[Does::Body {
            head: 0,
            promised: 7 * MIB,
            kept_back: 7 * MIB - 1,
        }],
    ),
    Crowd::new("64 bodies that lack a byte", "webhook", 64, 4).does(100, &[LARGE]),
    Crowd::new("600 of all that needs no share", "webhook", 600, 8).does(500, &[FREE]),
    Crowd::new("600 of either", "webhook", 600, 7)
        .does(500, &[FREE, FREE, FREE, FREE, FREE, FREE, FREE, LARGE]),
    Crowd::new("1,000 handshakes a second", "webhook", 200, 4).does(1_000, &[Does::Handshake]),
    Crowd::new("handshakes without a pause", "webhook", 400, 4).does(100_000, &[Does::Handshake]),
    Crowd::new("40 reviews without a pause", "webhook", 40, 1)
        .does(500, &[Does::Flood(Asks::Costly, Reads::All)]),
    Crowd::new("380 reviews without a pause", "webhook", 380, 8)
        .does(500, &[Does::Flood(Asks::Costly, Reads::All)]),
    Crowd::new("380 that read no answer", "webhook", 380, 8)
        .does(500, &[Does::Flood(Asks::LongAnswer, Reads::Nothing)]),
    Crowd::new("380 that read a little", "webhook", 380, 8)
        .does(500, &[Does::Flood(Asks::LongAnswer, Reads::Some)]),
    Crowd::new("40 with records of one byte", "webhook", 40, 1).does(500, &[Does::TinyRecords]),
];

/// A crowd at work, on a thread of its own.
pub(crate) struct Running {
    over: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

/// So many turns a second, whoever takes them.
struct Pace {
    next: Mutex<Instant>,
    between: Duration,
}

/// One member's means.
#[derive(Clone)]
struct Member {
    does: Does,
    https: Https,
    from: IpAddr,
    health: SocketAddr,
    metrics: SocketAddr,
    tls: SocketAddr,
    pace: Arc<Pace>,
}

// === impl Crowd ===

impl Crowd {
    const fn new(name: &'static str, port: &'static str, connections: u32, addresses: u8) -> Self {
        Self {
            name,
            port,
            connections,
            addresses,
            a_second: 1,
            does: &[],
        }
    }

    const fn does(self, a_second: u32, does: &'static [Does]) -> Self {
        Self {
            a_second,
            does,
            ..self
        }
    }
}

// === impl Running ===

impl Running {
    /// Sends the crowd.
    pub(crate) fn start(crowd: &Crowd, webhook: &Shipped) -> Result<Self> {
        let pace = Arc::new(Pace {
            next: Mutex::new(Instant::now()),
            between: Duration::from_secs(1) / crowd.a_second,
        });
        let members: Vec<_> = (0..crowd.connections)
            .zip((1..=crowd.addresses).cycle())
            .map(|(_, address)| IpAddr::from(Ipv4Addr::new(127, 0, 7, address)))
            .zip(crowd.does.iter().cycle())
            .map(|(from, does)| Member {
                does: *does,
                https: webhook.https.clone().from_address(from),
                from,
                health: webhook.health,
                metrics: webhook.metrics,
                tls: webhook.tls,
                pace: Arc::clone(&pace),
            })
            .collect();
        let (over, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("crowd".into()).spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            for (n, member) in (0_u32..).zip(members) {
                // Dropped with the runtime.
                drop(runtime.spawn(member.act(n % 2 == 0)));
            }
            let _ = runtime.block_on(ended);
            Ok(())
        })?;
        Ok(Self { over, thread })
    }

    /// Has all go.
    pub(crate) fn end(self) {
        let _ = self.over.send(());
        let ended = self.thread.join().map_err(|_| anyhow!("a panic"));
        ended.flatten().expect("the crowd came");
    }
}

// === impl Pace ===

impl Pace {
    async fn turn(&self) {
        let turn = {
            let mut next = self.next.lock().expect("no turn panics");
            *next = (*next).max(Instant::now()) + self.between;
            *next
        };
        sleep_until(turn).await;
    }
}

// === impl Asks ===

impl Asks {
    fn request(self) -> Vec<u8> {
        let body = match self {
            Self::Costly => {
                let keys: String = (0..5_800).map(|n| format!("k{n}: 1\n")).collect();
                let args = json!(["--config-yaml", format!("admin: {{}}\n{keys}")]);
                let review = review("crowd").with("/request/object/spec/containers/0/args", args);
                review.bytes()
            }
            Self::LongAnswer => long_answer(),
        };
        [head(body.len(), "").as_bytes(), &body].concat()
    }
}

// === impl Reads ===

impl Reads {
    /// Reads until the connection is closed.
    async fn read(self, mut stream: impl AsyncRead + Unpin) -> Result<()> {
        match self {
            Self::All => stay(stream).await,
            Self::Some => {
                let mut bytes = vec![0; 16 * KIB];
                while stream.read(&mut bytes).await? > 0 {
                    sleep(Duration::from_millis(250)).await;
                }
                Ok(())
            }
            Self::Nothing => pending().await,
        }
    }
}

// === impl Member ===

impl Member {
    /// Comes again and again. Of two members the first may be the busier.
    async fn act(self, first: bool) {
        loop {
            self.pace.turn().await;
            // Cut off, it comes again.
            let _ = self.come(first).await;
        }
    }

    async fn come(&self, first: bool) -> Result<()> {
        match self.does {
            Does::Probe => ask(self.connect(self.health).await?, "/healthz", first).await,
            Does::Scrape => ask(self.connect(self.metrics).await?, "/metrics", first).await,
            Does::Silence => stay(self.connect(self.tls).await?).await,
            Does::Handshake => {
                self.https.open().await?;
                Ok(())
            }
            Does::Stay(request) => {
                let mut stream = self.https.open().await?;
                stream.write_all(request.as_bytes()).await?;
                stay(stream).await
            }
            Does::Review => {
                let mut stream = self.https.open().await?;
                let review = review("crowd").bytes();
                stream.write_all(head(review.len(), "").as_bytes()).await?;
                stream.write_all(&review).await?;
                stay(stream).await
            }
            Does::SlowHead => {
                let mut stream = self.https.open().await?;
                stream.write_all(b"POST /inject HTTP/1.1\r\nx: ").await?;
                loop {
                    sleep(Duration::from_secs(1)).await;
                    stream.write_all(&[b'x'; 100]).await?;
                }
            }
            Does::Body {
                head: padding,
                promised,
                kept_back,
            } => {
                let mut stream = self.https.open().await?;
                let head = head(promised, &"x".repeat(padding));
                stream.write_all(head.as_bytes()).await?;
                let sent = vec![b' '; promised - kept_back];
                stream.write_all(&sent).await?;
                stay(stream).await
            }
            Does::Flood(asks, reads) => {
                let request = asks.request();
                let (reader, mut writer) = split(self.https.open().await?);
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
            Does::TinyRecords => {
                let mut stream = self.https.open().await?;
                stream.write_all(head(7 * MIB, "").as_bytes()).await?;
                for _ in 0..7 * MIB / 500 {
                    for _ in 0..500 {
                        stream.get_mut().1.writer().write_all(b" ")?;
                    }
                    stream.flush().await?;
                }
                stay(stream).await
            }
        }
    }

    async fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
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
async fn ask(stream: TcpStream, path: &str, asks: bool) -> Result<()> {
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
        ended = stay(reader) => ended,
        ended = asking => ended,
    }
}

/// Reads until the connection is closed.
async fn stay(mut stream: impl AsyncRead + Unpin) -> Result<()> {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
