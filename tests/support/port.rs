//! Free ports for programs that cannot choose one themselves.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::timing::SECOND;

/// Below the range of ephemeral ports (from 32768 by default on Linux): one of those may be in use again before the
/// program binds it.
const RANGE: RangeInclusive<u16> = 20_000..=32_000;

/// A port that no other `Port` on this machine has, in any process, until this one is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A socket in the abstract namespace, whose name the kernel frees when the process exits.
    _claim: UnixListener,
}

// === impl Port ===

impl Port {
    /// Claims a free port.
    ///
    /// # Errors
    /// When all are in use.
    pub fn free() -> io::Result<Self> {
        // A random start, so that parallel tests rarely try the same ports.
        let start = usize::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or(0);
        let count = RANGE.len();
        RANGE
            .cycle()
            .skip(start % count)
            .take(count)
            .find_map(Self::claim)
            .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free port"))
    }

    /// Claims this port, or another free one if it is in use.
    ///
    /// # Errors
    /// When all are in use.
    pub fn prefer(number: u16) -> io::Result<Self> {
        Self::claim(number).map_or_else(Self::free, Ok)
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Claims this port, if it is free.
    pub fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("envoy-drainer/port/{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        is_free(number).then_some(Self {
            number,
            _claim: claim,
        })
    }
}

/// Returns true if nothing listens on the port at a loopback address.
///
/// To bind it would be no check: a process that another test is starting has a copy of the socket until it executes its
/// program, and the port stays in use.
fn is_free(number: u16) -> bool {
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    loopback.into_iter().all(|ip| {
        let connected = TcpStream::connect_timeout(&(ip, number).into(), SECOND);
        // Any other error than a timeout means that there is no listener, or no IPv6.
        connected.is_err_and(|error| error.kind() != io::ErrorKind::TimedOut)
    })
}
