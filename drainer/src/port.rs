//! The port for Envoy's hook, which anything in the cluster can connect to. It takes every connection
//! there is, so that a flood keeps no hook out, and notes when it may have failed one all the same.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::coop;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use crate::bind::{BACKLOG, listen};
use crate::ending::Came;
use crate::places::{Place, Places};

/// Connections at once. The kubelet makes one for each container. A thousand leave some of the 1024
/// files that a process may have open where nobody raised that.
const MAX_CONNECTIONS: usize = 1000;

/// The kernel keeps no more of what a connection sends than this and as much again: 2,000 connections
/// of a flood, half of them not accepted yet, are to fit the container's memory limit. A request has a
/// tenth.
const RECEIVE_BUFFER: u32 = 4096;

/// A port that is taken by another process is tried again as often.
const BIND_PAUSE: Duration = Duration::from_secs(1);

/// How often it is logged that the port is taken.
const REMINDER: Duration = Duration::from_secs(60);

/// The port: bound, or to be bound.
pub(crate) struct Port {
    address: SocketAddr,
    came: watch::Sender<Came>,
    bound: Option<Bound>,
    bind_at: Instant,
    complain_at: Instant,
}

struct Bound {
    listener: TcpListener,
    places: Places,
    /// How many connections were accepted since none was left to accept.
    in_a_row: u32,
}

// === impl Port ===

impl Port {
    /// Binds `address`, or logs why not: [`Port::accept`] goes on trying.
    pub(crate) fn open(address: SocketAddr, came: watch::Sender<Came>) -> Self {
        let now = Instant::now();
        let mut port = Self {
            address,
            came,
            bound: None,
            bind_at: now,
            complain_at: now,
        };
        port.bind();
        port
    }

    /// Waits for the next connection. Dropped half-way, it has taken none.
    ///
    /// # Errors
    /// For want of files or memory.
    pub(crate) async fn accept(&mut self) -> io::Result<(TcpStream, Place)> {
        loop {
            if let Some(bound) = &mut self.bound {
                return bound.accept(&self.came).await;
            }
            sleep_until(self.bind_at).await;
            self.bind();
        }
    }

    fn bind(&mut self) {
        let now = Instant::now();
        match listen(self.address, |socket| {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)
        }) {
            Ok(listener) => {
                if self.complain_at > now {
                    info!(port = self.address.port(), "Listening for Envoy's hook");
                }
                self.bound = Some(Bound {
                    listener,
                    places: Places::new(MAX_CONNECTIONS),
                    in_a_row: 0,
                });
            }
            Err(error) => {
                Came::note_port_unavailable(&self.came);
                if now >= self.complain_at {
                    error!(
                        port = self.address.port(),
                        %error,
                        "Cannot listen for Envoy's hook: trying again until it succeeds. Does a \
                         container of this pod listen on that port?"
                    );
                    self.complain_at = now + REMINDER;
                }
                self.bind_at = now + BIND_PAUSE;
            }
        }
    }
}

// === impl Bound ===

impl Bound {
    async fn accept(&mut self, came: &watch::Sender<Came>) -> io::Result<(TcpStream, Place)> {
        let place = match self.places.try_free() {
            Some(place) => place,
            None => {
                Came::note_port_unavailable(came);
                self.places.free().await
            }
        };
        let accepted = poll_fn(|cx| {
            let accepted = self.listener.poll_accept(cx);
            // Else it may be pending for another reason: this task is to let others run.
            if accepted.is_pending() && coop::has_budget_remaining() {
                self.in_a_row = 0;
            }
            accepted
        });
        let accepted = accepted.await;
        self.in_a_row = self.in_a_row.saturating_add(1);
        // Only where more have come than the kernel keeps can it have refused one.
        if accepted.is_err() || self.in_a_row > BACKLOG {
            Came::note_port_unavailable(came);
        }
        let (stream, _) = accepted?;
        Ok((stream, self.places.take(place)))
    }
}
