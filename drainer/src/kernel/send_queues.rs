//! Bytes on their way to clients that still read.

use std::collections::BTreeMap;
use std::mem::take;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::socket::{Socket, SocketState};
use crate::settings::admin_address::AdminAddress;

/// The send queues of connections, as they were listed last, and as they are now.
#[derive(Debug, Default)]
pub(crate) struct SendQueues {
    last: BTreeMap<SendQueue, Instant>,
    now: BTreeMap<SendQueue, Instant>,
}

/// A connection's addresses, and a number that changes with each acknowledgement.
type SendQueue = (AdminAddress, Option<SocketAddr>, u64);

/// A client that has acknowledged nothing for so long reads no more.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(10);

// === impl SendQueues ===

impl SendQueues {
    /// Starts another list of all sockets.
    pub(crate) fn start_list(&mut self) {
        self.last = take(&mut self.now);
    }

    /// Adds a socket that is listed at `now`. Returns how many bytes are on their way to its client, if that still reads.
    pub(crate) fn add(&mut self, socket: &Socket, now: Instant) -> u64 {
        let bytes = socket.unacknowledged();
        if bytes == 0 || socket.state == SocketState::Listen {
            return 0;
        }
        // Without a count, the length of the queue tells.
        let progress = socket.tcp.map_or(bytes, |tcp| tcp.acknowledged);
        let queue = (socket.local.clone(), socket.peer, progress);
        let since = *self.last.get(&queue).unwrap_or(&now);
        self.now.insert(queue, since);
        if now < since + STALLED_AFTER {
            bytes
        } else {
            0
        }
    }
}
