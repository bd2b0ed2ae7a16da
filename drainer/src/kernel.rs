//! What the kernel knows of the sockets of this network namespace, without any right: by netlink, or else by the files in
//! `/proc/net`.

mod netlink;
mod proc_net;
pub(crate) mod send_queues;
pub(crate) mod socket;
pub(crate) mod witness;

use std::collections::BTreeMap;
use std::io;

pub(crate) use self::netlink::SocketEnds;
use self::socket::{MAX_SOCKETS, Socket, SocketState};
use crate::settings::admin_address::AdminAddress;

/// The addresses on which sockets listen, each with an inode.
pub(crate) type Sockets = BTreeMap<AdminAddress, u64>;

/// Maximum number of addresses: an Envoy with thousands of listeners.
const MAX_ADDRESSES: usize = 4_096;

/// Lists the sockets in these states. One that changes meanwhile may be missing, or listed as it was.
///
/// # Errors
/// If the kernel tells them neither by netlink nor in `/proc/net`, or if there are too many.
pub(crate) fn list(states: &[SocketState]) -> io::Result<Vec<Socket>> {
    #[cfg(test)]
    if crate::http_client::is_in_memory() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The kernel walks the hash of all sockets of the node for the files, which takes some milliseconds.
    let by_files = |_| proc_net::read_both("/proc/net/tcp", proc_net::parse_tcp);
    let mut all = netlink::list(states).or_else(by_files)?;
    all.extend(proc_net::read("/proc/net/unix", proc_net::parse_unix)?);
    all.retain(|socket| states.contains(&socket.state));
    if all.len() > MAX_SOCKETS {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    Ok(all)
}

/// Lists the addresses on which TCP sockets and abstract Unix sockets listen, each with an inode, which is never the same
/// for a socket that another process opens later. Of several sockets at an address, one for each worker of an Envoy, it is
/// the first. UDP sockets without a peer are listed too.
///
/// # Errors
/// As [`list`].
pub(crate) fn listening() -> io::Result<Sockets> {
    let mut all = Sockets::new();
    let mut sockets = list(&[SocketState::Listen])?;
    sockets.extend(proc_net::read_both("/proc/net/udp", proc_net::parse_udp)?);
    for socket in sockets {
        let fits = all.len() < MAX_ADDRESSES || all.contains_key(&socket.local);
        if fits && !matches!(socket.local, AdminAddress::Path(_)) {
            let first = all.entry(socket.local).or_insert(socket.inode);
            *first = (*first).min(socket.inode);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::mem::replace;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{self, UnixListener};

    use strum::VariantArray;

    use super::socket::DATAGRAM;
    use super::*;

    #[test]
    fn tcp_and_printable_abstract_sockets_listen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let name = |end: &str| format!("listed-{}{end}", address.port());
        let _unix = ["", "\u{202e}\u{1b}[2J"].map(|end| {
            let address = net::SocketAddr::from_abstract_name(name(end)).unwrap();
            UnixListener::bind_addr(&address).unwrap()
        });
        let dir = tempfile::tempdir().unwrap();
        let _path = UnixListener::bind(dir.path().join("socket")).unwrap();
        let all = listening().unwrap();
        assert!(all[&AdminAddress::Tcp(address)] > 0);
        assert!(all[&AdminAddress::Abstract(name(""))] > 0);
        let listed = all.into_keys().map(|it| it.to_string());
        let dir = dir.path().to_str().unwrap();
        let listed = listed.filter(|it| it.contains(&name("")) || it.contains(dir));
        assert_eq!(listed.count(), 1);
    }

    #[test]
    fn udp_sockets_without_a_peer_are_listed_as_no_place_to_call() {
        let [bound, connected, both] = ["127.0.0.1:0"; 3].map(|it| UdpSocket::bind(it).unwrap());
        connected.connect(bound.local_addr().unwrap()).unwrap();
        let _both = TcpListener::bind(both.local_addr().unwrap()).unwrap();
        let all = listening().unwrap();
        let inode = |socket: &UdpSocket| {
            let address = AdminAddress::Tcp(socket.local_addr().unwrap());
            all.get(&address).copied()
        };
        assert_eq!((inode(&bound), inode(&connected)), (Some(DATAGRAM), None));
        assert!(inode(&both).is_some_and(|it| it != DATAGRAM));
    }

    #[test]
    fn files_list_the_same_as_netlink() {
        let listeners = ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"];
        let listeners = listeners.map(|ip| TcpListener::bind(ip).unwrap());
        let addresses = listeners.each_ref().map(|it| it.local_addr().unwrap());
        // A client of a wildcard address connects to the loopback address.
        let _clients = addresses.map(|address| TcpStream::connect(address).unwrap());
        let of_these = |sockets: Vec<Socket>| {
            let ports = addresses.map(|address| address.port());
            let sockets = sockets.into_iter().filter_map(|socket| match socket.local {
                AdminAddress::Tcp(local) if ports.contains(&local.port()) => {
                    Some(((local, socket.peer), socket))
                }
                _ => None,
            });
            sockets.collect::<BTreeMap<_, _>>()
        };
        let mut by_netlink = of_these(netlink::list(SocketState::VARIANTS).unwrap());
        assert_eq!(by_netlink.len(), 8, "four that listen, four that wait");
        for socket in by_netlink.values_mut() {
            assert!(socket.tcp.take().is_some(), "{socket:?}");
            let cookie = replace(&mut socket.cookie, socket.inode);
            assert!(cookie > 0, "{socket:?}");
            socket.cgroup = None;
            if socket.state == SocketState::Listen {
                // This is its limit, which the files do not have.
                socket.send_queue = 0;
            }
        }
        let by_files = proc_net::read_both("/proc/net/tcp", proc_net::parse_tcp);
        assert_eq!(by_netlink, of_these(by_files.unwrap()));
        let listening = netlink::list(&[SocketState::Listen]).unwrap();
        assert_eq!(of_these(listening).len(), 4);
    }
}
