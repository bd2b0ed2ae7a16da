//! A port for a program that must be told which one to bind.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Below the range from which Linux takes the ports of outgoing connections (32768 by default): a
/// port of that range may be gone again before the program binds it.
const RANGE: RangeInclusive<u16> = 20_000..=32_000;

/// A port that no other holder of a `Port` on this machine gets while this one lives, in whatever
/// process it is.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A name that one process at a time can hold, and that the kernel frees with the process.
    _claim: UnixListener,
}

// === impl Port ===

impl Port {
    /// Takes a free port.
    ///
    /// # Errors
    /// When all are taken.
    pub fn free() -> io::Result<Self> {
        // Somewhere else for each caller, so that parallel tests rarely try the same ones.
        let start = usize::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or(0);
        let count = RANGE.len();
        RANGE
            .cycle()
            .skip(start % count)
            .take(count)
            .find_map(Self::claim)
            .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free port"))
    }

    /// Takes this port, or another free one when it is in use.
    ///
    /// # Errors
    /// When all are taken.
    pub fn prefer(number: u16) -> io::Result<Self> {
        Self::claim(number).map_or_else(Self::free, Ok)
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("envoy-drainer/port/{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        is_free(number).then_some(Self {
            number,
            _claim: claim,
        })
    }
}

/// Whether a server can bind the port on all addresses.
fn is_free(number: u16) -> bool {
    let ipv6 = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, number)) {
        // Any other error is that there is no IPv6 here.
        Err(error) => error.kind() != io::ErrorKind::AddrInUse,
        Ok(_) => true,
    };
    ipv6 && TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_until_it_is_dropped() {
        let first = Port::free().unwrap();
        let second = Port::prefer(first.number()).unwrap();
        assert_ne!(first.number(), second.number());
        let number = first.number();
        drop(first);
        assert_eq!(Port::prefer(number).unwrap().number(), number);
    }

    #[test]
    fn a_port_that_a_stranger_listens_on_is_not_given() {
        for address in ["0.0.0.0:0", "127.0.0.1:0"] {
            let stranger = TcpListener::bind(address).unwrap();
            let taken = stranger.local_addr().unwrap().port();
            assert_ne!(Port::prefer(taken).unwrap().number(), taken, "{address}");
        }
    }
}
