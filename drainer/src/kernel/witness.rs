//! The kernel as the second witness of a drain: whether its sockets agree with Envoy's statistics that nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use tokio::time::Instant;

use super::send_queues::SendQueues;
use super::socket::{Socket, SocketState};
use crate::settings::admin_address::AdminAddress;
use crate::text::printable;

/// The addresses on which Envoy's TCP and Unix listeners are bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListenAddresses {
    /// Those of the counted listeners.
    pub counted: BTreeSet<AdminAddress>,
    /// Those of all listeners, if one hands its connections over to another: then only the sums can be compared.
    pub all: Option<BTreeSet<AdminAddress>>,
    /// All connections of the counted listeners are at the counted addresses.
    pub are_complete: bool,
}

/// What the kernel has told before.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    send_queues: SendQueues,
}

/// What the kernel tells of the counted listeners' connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    /// How many Envoy has accepted and not closed; `None` if not all are known.
    pub connections: Option<u64>,
    /// What Envoy's statistics do not show.
    pub disagreement: Option<Disagreement>,
    /// Counted addresses at which no socket of Envoy listens.
    pub unseen: Vec<String>,
}

/// What the kernel knows of a drain, and Envoy's statistics do not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disagreement {
    /// Open connections that Envoy does not count.
    pub connections: u64,
    /// Connections that are not accepted, or have bytes that Envoy has not read.
    pub unaccepted: u64,
    /// Bytes on their way to clients that still read.
    pub undelivered_bytes: u64,
}

/// The only witness of what is left, where Envoy and the kernel cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SoleWitness {
    /// The kernel lists no sockets, or none of Envoy's listeners, or is ignored.
    Envoy,
    /// Envoy's statistics of listeners are hidden, or a hot restart's old process has connections.
    Kernel,
}

// === impl Witness ===

impl Witness {
    /// Compares the `sockets` at these addresses with the number of connections by `envoy`. Sockets in another cgroup than
    /// that of the `admin` interface are another container's. As many as `allowed` may wait, or have undelivered bytes.
    pub(crate) fn compare(
        &mut self,
        sockets: &[Socket],
        addresses: &ListenAddresses,
        admin: Option<&AdminAddress>,
        envoy: u64,
        allowed: u64,
    ) -> Observation {
        let listening = sockets.iter().filter(|it| it.state == SocketState::Listen);
        let listening: BTreeMap<_, _> = listening.map(|it| (&it.local, it)).collect();
        // The one that accepts connections to an address has the most specific address.
        let owner = |at: &AdminAddress| {
            let wildcard = at.on(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
            listening.get(at).or(listening.get(&wildcard)).copied()
        };
        let cgroup_at = |address| owner(address)?.cgroup;
        let cgroups: Vec<_> = addresses.counted.iter().filter_map(cgroup_at).collect();
        let frequency = |cgroup: &&u64| cgroups.iter().filter(|it| it == cgroup).count();
        let most_frequent = cgroups.iter().max_by_key(frequency).copied();
        // The kernel tells none of a Unix socket.
        let cgroup = admin.and_then(cgroup_at).or(most_frequent);
        let is_envoys = |it: &&Socket| it.cgroup.is_none() || it.cgroup == cgroup;

        let now = Instant::now();
        let compared = addresses.all.as_ref().unwrap_or(&addresses.counted);
        let (mut accepted, mut unaccepted, mut undelivered, mut undelivered_bytes) = (0, 0, 0, 0);
        self.send_queues.start_list();
        for socket in sockets {
            let Some(listener) = owner(&socket.local).filter(is_envoys) else {
                continue;
            };
            accepted += u64::from(socket.is_accepted() && compared.contains(&listener.local));
            if !addresses.counted.contains(&listener.local) {
                continue;
            }
            unaccepted += socket.waiting();
            let bytes = self.send_queues.add(socket, now);
            undelivered += u64::from(bytes > 0);
            undelivered_bytes += bytes;
        }
        let above = |number, value| if number > allowed { value } else { 0 };
        let disagreement = Disagreement {
            connections: accepted.saturating_sub(envoy),
            unaccepted: above(unaccepted, unaccepted),
            undelivered_bytes: above(undelivered, undelivered_bytes),
        };
        let is_unseen = |at: &&AdminAddress| !listening.get(at).is_some_and(is_envoys);
        let unseen = addresses.counted.iter().filter(is_unseen);
        let unseen: Vec<_> = unseen.map(|it| printable(&it.to_string())).collect();
        Observation {
            connections: (addresses.are_complete && unseen.is_empty()).then_some(accepted),
            disagreement: (disagreement != Disagreement::default()).then_some(disagreement),
            unseen,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread::sleep;

    use strum::VariantArray;

    use super::*;
    use crate::kernel::list;
    use crate::kernel::send_queues::STALLED_AFTER;
    use std::time::Duration;

    fn at(addresses: impl IntoIterator<Item = AdminAddress>) -> ListenAddresses {
        ListenAddresses {
            counted: addresses.into_iter().collect(),
            all: None,
            are_complete: true,
        }
    }

    /// Compares this namespace's sockets at an address with an Envoy that counts no connection.
    fn compare(witness: &mut Witness, address: AdminAddress) -> Observation {
        let sockets = list(SocketState::VARIANTS).unwrap();
        witness.compare(&sockets, &at([address]), None, 0, 0)
    }

    fn observe(witness: &mut Witness, listener: &TcpListener) -> Observation {
        compare(witness, AdminAddress::Tcp(listener.local_addr().unwrap()))
    }

    fn disagreement(connections: u64, unaccepted: u64) -> Option<Disagreement> {
        let disagreement = Disagreement {
            connections,
            unaccepted,
            undelivered_bytes: 0,
        };
        (connections + unaccepted > 0).then_some(disagreement)
    }

    /// Observes until the kernel shows what is expected, since loopback delivers a moment later.
    fn wait_for(witness: &mut Witness, listener: &TcpListener, connections: u64, unaccepted: u64) {
        let want = disagreement(connections, unaccepted);
        for _ in 0..100 {
            if observe(witness, listener).disagreement == want {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        assert_eq!(observe(witness, listener).disagreement, want);
    }

    #[test]
    fn connections_are_counted_from_the_accept_queue_to_their_end() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let witness = &mut Witness::default();
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let is_v6 = address.starts_with("[::1]");
            let ip = if is_v6 { "::1" } else { "127.0.0.1" };
            assert_eq!(observe(witness, &listener).connections, Some(0));
            let mut client = TcpStream::connect((ip, port)).unwrap();
            wait_for(witness, &listener, 0, 1);
            let (mut server, _) = listener.accept().unwrap();
            wait_for(witness, &listener, 1, 0);
            assert_eq!(observe(witness, &listener).connections, Some(1));
            client.write_all(b"request").unwrap();
            wait_for(witness, &listener, 1, 1);
            let mut request = [0; 7];
            server.read_exact(&mut request).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            wait_for(witness, &listener, 1, 0);
            drop(server);
            wait_for(witness, &listener, 0, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_undelivered_until_their_client_has_stalled() {
        let witness = &mut Witness::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(n) = server.write(&[0; 1 << 16]) {
            written += n;
        }
        // Closed by Envoy, it is an orphan with bytes that the kernel still sends.
        drop(server);
        let mut undelivered = || {
            let disagreement = observe(witness, &listener).disagreement.unwrap_or_default();
            assert_eq!((disagreement.connections, disagreement.unaccepted), (0, 0));
            disagreement.undelivered_bytes
        };
        let bytes = undelivered();
        assert!(bytes > 0 && bytes < written as u64, "{bytes}");
        tokio::time::advance(STALLED_AFTER / 2).await;
        assert!(undelivered() > 0);
        client.read_exact(&mut vec![0; written / 2]).unwrap();
        tokio::time::advance(STALLED_AFTER / 2).await;
        assert!(undelivered() > 0);
        // The kernel may still send what the client has made room for.
        for _ in 0..100 {
            tokio::time::advance(STALLED_AFTER).await;
            if undelivered() == 0 {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("a client that reads nothing still counts");
    }

    #[test]
    fn connections_belong_to_the_most_specific_listener() {
        let wildcard = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = wildcard.local_addr().unwrap().port();
        let Ok(specific) = TcpListener::bind(("127.0.0.2", port)) else {
            return;
        };
        let _client = TcpStream::connect(("127.0.0.2", port)).unwrap();
        let _server = specific.accept().unwrap();
        let witness = &mut Witness::default();
        assert_eq!(observe(witness, &wildcard).connections, Some(0));
        assert_eq!(observe(witness, &specific).connections, Some(1));
    }

    #[test]
    fn connections_of_unix_listeners_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let _clients = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        let _servers = [(); 2].map(|()| listener.accept().unwrap());
        let observed = compare(
            &mut Witness::default(),
            AdminAddress::Path(path.display().to_string()),
        );
        assert_eq!(observed.connections, Some(2), "{observed:?}");
    }

    #[test]
    fn address_without_a_socket_is_unseen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = AdminAddress::Tcp(listener.local_addr().unwrap());
        drop(listener);
        let observed = compare(&mut Witness::default(), address.clone());
        assert_eq!(observed.unseen, [address.to_string()]);
        assert_eq!((observed.connections, observed.disagreement), (None, None));
    }

    fn port(port: u16) -> AdminAddress {
        AdminAddress::Tcp(([0, 0, 0, 0], port).into())
    }

    /// At each of these ports of these cgroups one connection waits, and two are accepted.
    fn sockets(cgroups: &[(u16, Option<u64>)]) -> Vec<Socket> {
        let of_port = |&(at, cgroup): &(u16, Option<u64>)| {
            let connection = Socket {
                local: AdminAddress::Tcp(([10, 0, 0, 7], at).into()),
                inode: 1,
                cgroup,
                ..Socket::default()
            };
            let listening = Socket {
                state: SocketState::Listen,
                local: port(at),
                receive_queue: 1,
                send_queue: 4096,
                ..connection.clone()
            };
            [connection.clone(), listening, connection]
        };
        cgroups.iter().flat_map(of_port).collect()
    }

    #[test]
    fn sockets_of_another_container_are_unseen() {
        let all = [(9901, 1), (80, 1), (81, 2), (82, 2)].map(|(at, cgroup)| (at, Some(cgroup)));
        let observe = |all: &[_], ports: &[u16], admin| {
            let addresses = at(ports.iter().copied().map(port));
            let observed =
                Witness::default().compare(&sockets(all), &addresses, Some(&admin), 0, 0);
            let disagreement = observed.disagreement.unwrap();
            let numbers = (disagreement.connections, disagreement.unaccepted);
            (numbers, observed.unseen)
        };
        let admin = AdminAddress::Tcp(([127, 0, 0, 1], 9901).into());
        let (numbers, unseen) = observe(&all, &[80, 81], admin);
        assert_eq!((numbers, &unseen[..]), ((2, 1), &["0.0.0.0:81".into()][..]));
        let admin = AdminAddress::Abstract("admin".into());
        let (numbers, unseen) = observe(&all, &[80, 81, 82], admin);
        assert_eq!((numbers, &unseen[..]), ((4, 2), &["0.0.0.0:80".into()][..]));
        // Those without one are Envoy's.
        let some = [(80, None), (81, Some(2)), (9901, Some(2))];
        let (numbers, unseen) = observe(&some, &[80, 81], port(9901));
        assert_eq!((numbers, unseen.len()), ((4, 2), 0));
    }

    #[test]
    fn number_is_compared_at_all_addresses_where_connections_are_handed_over() {
        let sockets = sockets(&[(80, None), (81, None)]);
        let mut addresses = at([port(80)]);
        let compare = |addresses: &_, envoy, allowed| {
            let observed = Witness::default().compare(&sockets, addresses, None, envoy, allowed);
            (observed.connections, observed.disagreement)
        };
        assert_eq!(compare(&addresses, 1, 0), (Some(2), disagreement(1, 1)));
        assert_eq!(compare(&addresses, 2, 0), (Some(2), disagreement(0, 1)));
        assert_eq!(compare(&addresses, 2, 1), (Some(2), None));
        addresses.all = Some([80, 81].map(port).into());
        addresses.are_complete = false;
        assert_eq!(compare(&addresses, 3, 0), (None, disagreement(1, 1)));
    }
}
