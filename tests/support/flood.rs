//! A flood of connections, as an attacker makes them who never waits for an answer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;

const THREADS: u32 = 2;

/// How long connections are held open, in which the files of this process allow it: longer than a
/// silent one may take a place of a server that has room.
const HOLD_TIME: Duration = Duration::from_millis(2500);

/// Files of this process that are left for others.
const RESERVED_FILES: u64 = 1000;

/// Between two bursts of a thread.
const BURST_INTERVAL: Duration = Duration::from_millis(2);

/// What connections send, in turn: mostly nothing, else half a request, or more than any has.
const PAYLOADS: [&[u8]; 8] = [
    b"",
    b"",
    PARTIAL_REQUEST,
    b"",
    b"",
    PARTIAL_REQUEST,
    b"",
    &[b'x'; 16 << 10],
];

const PARTIAL_REQUEST: &[u8] = b"GET /drained/0000000000000000 HTTP/1.1\r\n";

/// A flood that goes on until it is dropped.
#[derive(Debug)]
pub struct Flood {
    started_at: Instant,
    opened: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

// === impl Flood ===

impl Flood {
    /// Starts to connect to `address` so often in a second, as far as the machine can.
    ///
    /// # Errors
    /// When there is no thread, or the first connection cannot be made.
    pub fn start(address: SocketAddr, per_second: u32) -> Result<Self> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )?;
        drop(open_connection(address, 0).context("the first connection of a flood")?);
        let mut flood = Self {
            started_at: Instant::now(),
            opened: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let files = maximum.unwrap_or(u64::MAX).saturating_sub(RESERVED_FILES);
        let held = (HOLD_TIME * per_second).as_secs().min(files) / u64::from(THREADS);
        for _ in 0..THREADS {
            let (made, stop) = (flood.opened.clone(), flood.stop.clone());
            let pour = move || open_connections(address, per_second / THREADS, held, &made, &stop);
            let thread = thread::Builder::new().name("flood".into()).spawn(pour)?;
            flood.threads.push(thread);
        }
        Ok(flood)
    }

    /// How many connections it has begun in a second so far, on average.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        let milliseconds = self.started_at.elapsed().as_millis().max(1);
        let made = u128::from(self.opened.load(Ordering::Relaxed));
        u64::try_from(made * 1000 / milliseconds).unwrap_or(u64::MAX)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has made fewer, which is measured.
            let _ = thread.join();
        }
    }
}

/// Begins `per_second` connections a second, until `stop`, and holds the last `most` of them.
fn open_connections(
    address: SocketAddr,
    per_second: u32,
    most: u64,
    made: &AtomicU64,
    stop: &AtomicBool,
) {
    let began = Instant::now();
    let mut held = VecDeque::new();
    let mut begun = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed() * per_second).as_secs();
        while begun < due && !stop.load(Ordering::Relaxed) {
            // For want of ports or files, perhaps: the rate shows it.
            if let Ok(connection) = open_connection(address, begun) {
                made.fetch_add(1, Ordering::Relaxed);
                held.push_back(connection);
            }
            begun += 1;
            if held.len() as u64 > most {
                held.pop_front();
            }
        }
        thread::sleep(BURST_INTERVAL);
    }
}

/// Begins a connection, and sends what it can without waiting.
fn open_connection(address: SocketAddr, number: u64) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // Closed with a reset, it leaves its port to the next one.
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let sent = PAYLOADS[usize::try_from(number).unwrap_or(0) % PAYLOADS.len()];
    if !sent.is_empty() {
        // What cannot be sent at once is not: it is no more than a nuisance.
        let _ = send(&socket, sent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    Ok(socket)
}
