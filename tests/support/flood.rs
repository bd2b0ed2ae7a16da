//! A connection flood, as by an attacker that never waits for a response.

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
use tokio::time::Instant;

use crate::process::raise_open_file_limit;

const THREADS: u32 = 2;

/// How long connections are kept open, as far as the file limit of this process allows: longer than
/// the drainer's server keeps a silent connection while it has free slots.
const HOLD_TIME: Duration = Duration::from_millis(2500);

/// The file descriptors that are left for the rest of the process.
const RESERVED_FILES: u64 = 1000;

/// The interval between two bursts of a thread.
const BURST_INTERVAL: Duration = Duration::from_millis(2);

/// The payloads of consecutive connections: mostly nothing, or half a request, or more bytes than a request may have.
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

/// A flood that lasts until it is dropped.
#[derive(Debug)]
pub struct Flood {
    started_at: Instant,
    started: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

// === impl Flood ===

impl Flood {
    /// Starts to open `per_second` connections per second to `address`, as far as the machine can.
    ///
    /// # Errors
    /// When a thread cannot be started, or the first connection fails.
    pub fn start(address: SocketAddr, per_second: u32) -> Result<Self> {
        let max_files = raise_open_file_limit()?.unwrap_or(u64::MAX);
        drop(open_connection(address, 0).context("the first connection of a flood")?);
        let mut flood = Self {
            started_at: Instant::now(),
            started: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let files = max_files.saturating_sub(RESERVED_FILES);
        let max_open = (HOLD_TIME * per_second).as_secs().min(files) / u64::from(THREADS);
        for _ in 0..THREADS {
            let (started, stop) = (flood.started.clone(), flood.stop.clone());
            let run =
                move || open_connections(address, per_second / THREADS, max_open, &started, &stop);
            let thread = thread::Builder::new().name("flood".into()).spawn(run)?;
            flood.threads.push(thread);
        }
        Ok(flood)
    }

    /// The average number of connections started per second so far, whether or not they were accepted.
    pub fn per_second(&self) -> u64 {
        let milliseconds = self.started_at.elapsed().as_millis().max(1);
        let started = u128::from(self.started.load(Ordering::Relaxed));
        u64::try_from(started * 1000 / milliseconds).unwrap_or(u64::MAX)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // After a panic the rate is lower, which `per_second` shows.
            let _ = thread.join();
        }
    }
}

/// Opens `per_second` connections per second until `stop`, and keeps the last `max_open` of them open.
fn open_connections(
    address: SocketAddr,
    per_second: u32,
    max_open: u64,
    started: &AtomicU64,
    stop: &AtomicBool,
) {
    let start = Instant::now();
    let mut open = VecDeque::new();
    let mut attempts = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed() * per_second).as_secs();
        while attempts < due && !stop.load(Ordering::Relaxed) {
            // Fails without free ports or files, which lowers the rate.
            if let Ok(connection) = open_connection(address, attempts) {
                started.fetch_add(1, Ordering::Relaxed);
                open.push_back(connection);
            }
            attempts += 1;
            if open.len() as u64 > max_open {
                open.pop_front();
            }
        }
        thread::sleep(BURST_INTERVAL);
    }
}

/// Opens a connection and sends a payload, both without waiting.
fn open_connection(address: SocketAddr, number: u64) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // Closed by a reset, so that its port is free at once.
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let payload = PAYLOADS[usize::try_from(number).unwrap_or(0) % PAYLOADS.len()];
    if !payload.is_empty() {
        // Sends as much as is possible without waiting.
        let _ = send(&socket, payload, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    Ok(socket)
}
