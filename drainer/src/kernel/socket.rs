//! The sockets of this network namespace: all of TCP, and Unix sockets that have a name.

use std::net::SocketAddr;

use strum::{FromRepr, VariantArray};

use crate::settings::admin_address::AdminAddress;

/// A socket in one of the listed states. A field that the kernel does not report is 0 or `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Socket {
    pub state: SocketState,
    /// Its own address. That of an IPv4 client's connection to an IPv6 socket is an IPv4-mapped one.
    pub local: AdminAddress,
    /// The client's address; `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// 0 if no process holds it: it is not accepted yet, or closed already. Never the same for a socket that is opened later.
    pub inode: u64,
    /// Bytes that are not read, with a FIN one more; of a socket that listens, connections that are not accepted.
    pub receive_queue: u32,
    /// Bytes that the client has not acknowledged, with a FIN one more. Unused if it listens.
    pub send_queue: u32,
    /// Bytes that the client has acknowledged; `None` from `/proc/net`.
    pub acknowledged: Option<u64>,
    /// The cgroup in which it was opened, or accepted; `None` without cgroup v2 and from `/proc/net`.
    pub cgroup: Option<u64>,
}

/// The states that are listed, by their numbers. A Unix socket is in the first or listens.
/// <https://github.com/torvalds/linux/blob/master/include/net/tcp_states.h>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRepr, VariantArray)]
#[repr(u32)]
pub(crate) enum SocketState {
    #[default]
    Established = 1,
    FinWait1 = 4,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

/// In place of the inode of a UDP socket: no admin interface is there, but perhaps a listener.
pub(crate) const DATAGRAM: u64 = u64::MAX;

/// Maximum number of sockets: 8 MB.
pub(super) const MAX_SOCKETS: usize = 65_536;

// === impl Socket ===

impl Socket {
    /// Returns true if a process has accepted the connection, and has not closed it.
    pub(super) fn is_accepted(&self) -> bool {
        use SocketState::{CloseWait, Established};
        matches!(self.state, Established | CloseWait) && self.inode != 0
    }

    /// How many connections wait to be accepted, or to be read.
    pub(super) fn waiting(&self) -> u64 {
        let fin = (self.state == SocketState::CloseWait).into();
        match self.state {
            SocketState::Listen => self.receive_queue.into(),
            _ => (self.is_accepted() && self.receive_queue > fin).into(),
        }
    }

    /// Bytes of a connection that the client has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        use SocketState::{Closing, FinWait1, LastAck};
        let fin = matches!(self.state, FinWait1 | LastAck | Closing).into();
        self.send_queue.saturating_sub(fin).into()
    }
}
