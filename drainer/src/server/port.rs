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

use super::connection_slots::{HookSlot, HookSlots};
use crate::bind::{BACKLOG, listen};
use crate::termination::TerminationSignals;

/// Connections at once. The kubelet makes one for each container. A thousand leave some of the 1024
/// files that a process may have open where nobody raised that.
const MAX_CONNECTIONS: usize = 1000;

/// The kernel keeps no more of what a connection sends than this and as much again: 2,000 connections
/// of a flood, half of them not accepted yet, are to fit the container's memory limit. A request has a
/// tenth.
const RECEIVE_BUFFER: u32 = 4096;

/// A port that is taken by another process is tried again as often.
const BIND_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How often it is logged that the port is taken.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The port: bound, or to be bound.
pub(crate) struct HookPort {
    address: SocketAddr,
    signals: watch::Sender<TerminationSignals>,
    listener: Option<HookListener>,
    retry_bind_at: Instant,
    log_at: Instant,
}

struct HookListener {
    listener: TcpListener,
    slots: HookSlots,
    /// How many connections were accepted since none was left to accept.
    consecutive_accepts: u32,
}

// === impl HookPort ===

impl HookPort {
    /// Binds `address`, or logs why not: [`Port::accept`] goes on trying.
    pub(crate) fn open(address: SocketAddr, signals: watch::Sender<TerminationSignals>) -> Self {
        let now = Instant::now();
        let mut port = Self {
            address,
            signals,
            listener: None,
            retry_bind_at: now,
            log_at: now,
        };
        port.bind();
        port
    }

    /// Waits for the next connection. Dropped half-way, it has taken none.
    ///
    /// # Errors
    /// For want of files or memory.
    pub(crate) async fn accept(&mut self) -> io::Result<(TcpStream, HookSlot)> {
        loop {
            if let Some(bound) = &mut self.listener {
                return bound.accept(&self.signals).await;
            }
            sleep_until(self.retry_bind_at).await;
            self.bind();
        }
    }

    fn bind(&mut self) {
        let now = Instant::now();
        match listen(self.address, |socket| {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)
        }) {
            Ok(listener) => {
                if self.log_at > now {
                    info!(port = self.address.port(), "Listening for Envoy's hook");
                }
                self.listener = Some(HookListener {
                    listener,
                    slots: HookSlots::new(MAX_CONNECTIONS),
                    consecutive_accepts: 0,
                });
            }
            Err(error) => {
                TerminationSignals::record_port_unavailable(&self.signals);
                if now >= self.log_at {
                    error!(
                        port = self.address.port(),
                        %error,
                        "Cannot listen for Envoy's hook: trying again until it succeeds. Does a \
                         container of this pod listen on that port?"
                    );
                    self.log_at = now + LOG_INTERVAL;
                }
                self.retry_bind_at = now + BIND_RETRY_DELAY;
            }
        }
    }
}

// === impl HookListener ===

impl HookListener {
    async fn accept(
        &mut self,
        signals: &watch::Sender<TerminationSignals>,
    ) -> io::Result<(TcpStream, HookSlot)> {
        let place = match self.slots.try_acquire() {
            Some(place) => place,
            None => {
                TerminationSignals::record_port_unavailable(signals);
                self.slots.acquire().await
            }
        };
        let accepted = poll_fn(|cx| {
            let accepted = self.listener.poll_accept(cx);
            // Else it may be pending for another reason: this task is to let others run.
            if accepted.is_pending() && coop::has_budget_remaining() {
                self.consecutive_accepts = 0;
            }
            accepted
        });
        let accepted = accepted.await;
        self.consecutive_accepts = self.consecutive_accepts.saturating_add(1);
        // Only where more have come than the kernel keeps can it have refused one.
        if accepted.is_err() || self.consecutive_accepts > BACKLOG {
            TerminationSignals::record_port_unavailable(signals);
        }
        let (stream, _) = accepted?;
        Ok((stream, self.slots.occupy(place)))
    }
}
