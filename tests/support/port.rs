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

    fn claim(number: u16) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use std::{iter, thread};

    use super::*;

    #[test]
    fn port_is_unique_until_it_is_dropped() {
        let first = Port::free().unwrap();
        let second = Port::prefer(first.number()).unwrap();
        assert_ne!(first.number(), second.number());
        let number = first.number();
        drop(first);
        // A process that another test is starting has a copy of the socket until it executes its program.
        let pauses = iter::repeat_n(Duration::from_millis(1), 10_000);
        let is_free = pauses
            .inspect(|pause| thread::sleep(*pause))
            .any(|_| Port::prefer(number).is_ok_and(|port| port.number() == number));
        assert!(is_free, "{number} is not freed");
    }

    #[test]
    fn port_can_be_bound_while_programs_start() {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        Command::new("true").status().unwrap();
                    }
                });
            }
            let bind = |_| {
                let port = Port::free().unwrap();
                TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).map(drop)
            };
            let bound: io::Result<Vec<_>> = (0..500).map(bind).collect();
            done.store(true, Ordering::Relaxed);
            bound.unwrap();
        });
    }

    #[test]
    fn port_with_a_listener_is_not_claimed() {
        for address in ["0.0.0.0:0", "127.0.0.1:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let taken = listener.local_addr().unwrap().port();
            assert_ne!(Port::prefer(taken).unwrap().number(), taken, "{address}");
        }
    }
}
