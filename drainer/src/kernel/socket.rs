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
    /// What the kernel counts of it; `None` from `/proc/net`, and before the handshake has ended.
    pub tcp: Option<TcpInfo>,
    /// Never the same for two sockets, whatever their states; from `/proc/net`, the inode.
    pub cookie: u64,
    /// The cgroup in which it was opened, or accepted; `None` without cgroup v2 and from `/proc/net`.
    pub cgroup: Option<u64>,
}

/// What the kernel counts of a TCP connection, `tcp_info`.
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/tcp.h>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Bytes that the client has acknowledged.
    pub acknowledged: u64,
    /// Bytes that have come.
    pub received: u64,
    /// Milliseconds since bytes were last sent, and since some last came. The kernel counts in jiffies of 1 to 10 ms.
    pub since_sent: u32,
    pub since_received: u32,
    /// Segments with data that were sent, and those without, which only acknowledge what has come.
    pub data_segments: u32,
    pub pure_acks: u32,
    pub retransmits: u32,
}

/// The states that are listed, by their numbers. A Unix socket is in the first or listens.
/// <https://github.com/torvalds/linux/blob/master/include/net/tcp_states.h>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRepr, VariantArray)]
#[repr(u32)]
pub(crate) enum SocketState {
    #[default]
    Established = 1,
    SynReceived = 3,
    FinWait1 = 4,
    /// Of a socket that has ended.
    Closed = 7,
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
    /// Returns true if the client may send on the connection.
    pub(crate) fn is_open(&self) -> bool {
        use SocketState::{CloseWait, Established, SynReceived};
        matches!(self.state, Established | CloseWait | SynReceived)
    }

    /// Returns true if a process has accepted the connection, and has not closed it.
    pub(crate) fn is_accepted(&self) -> bool {
        use SocketState::{CloseWait, Established};
        matches!(self.state, Established | CloseWait) && self.inode != 0
    }

    /// How many connections wait to be accepted, or to be read.
    pub(crate) fn waiting(&self) -> u64 {
        let fin = (self.state == SocketState::CloseWait).into();
        match self.state {
            SocketState::Listen => self.receive_queue.into(),
            _ => (self.is_accepted() && self.receive_queue > fin).into(),
        }
    }

    /// Bytes of a connection that the client has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        use SocketState::{Closed, Closing, FinWait1, LastAck};
        let fin = matches!(self.state, FinWait1 | LastAck | Closing).into();
        let is_ended = self.state == Closed;
        if is_ended {
            0
        } else {
            self.send_queue.saturating_sub(fin).into()
        }
    }
}
