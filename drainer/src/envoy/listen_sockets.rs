//! The sockets on which processes of this network namespace listen, as the kernel lists them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::settings::admin_address::AdminAddress;
use crate::text::printable;

/// The addresses on which sockets listen, each with an inode.
pub(crate) type Sockets = BTreeMap<AdminAddress, u64>;

/// Maximum number of addresses of TCP, and of abstract Unix sockets: an Envoy with thousands of listeners.
const MAX_SOCKETS: usize = 4_096;

/// Maximum size of what is read of a file, in bytes: 10,000 sockets. Those that listen come first.
const MAX_FILE: u64 = 2 << 20;

/// For one part of the kernel's answer, which it makes while it is read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Size of the read buffer in bytes: the largest part of an answer.
const READ_BUFFER: usize = 32 << 10;

/// Lists the addresses on which TCP sockets and abstract Unix sockets listen, each with an inode, which is never the same
/// for a socket that another process opens later. Of several sockets at an address, one for each worker of an Envoy, it is
/// the first.
///
/// # Errors
/// If the kernel tells neither by netlink nor in `/proc/net`.
pub(crate) fn list() -> io::Result<Sockets> {
    let mut all = Sockets::new();
    let mut add = |address: SocketAddr, inode: u64| {
        let address = AdminAddress::Tcp(address);
        if all.len() < MAX_SOCKETS || all.contains_key(&address) {
            let first = all.entry(address).or_insert(inode);
            *first = (*first).min(inode);
        }
    };
    // The kernel walks the hash of all sockets of the node for the files, which takes some milliseconds.
    if read_netlink(&mut add).is_err() {
        let files = read_files(["/proc/net/tcp", "/proc/net/tcp6"])?;
        for (address, inode) in files.lines().filter_map(parse_tcp) {
            add(address, inode);
        }
    }
    let unix = read_file("/proc/net/unix")?;
    all.extend(unix.lines().filter_map(parse_unix).take(MAX_SOCKETS));
    Ok(all)
}

fn read_file(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads two files, of which one may be missing: a kernel without IPv6 has no `tcp6`.
fn read_files(paths: [&str; 2]) -> io::Result<String> {
    match paths.map(read_file) {
        [Ok(one), Ok(other)] => Ok(one + &other),
        [one, other] => one.or(other),
    }
}

/// The state of a socket that listens.
/// <https://github.com/torvalds/linux/blob/master/include/net/tcp_states.h>
const TCP_LISTEN: u8 = 10;

const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Length of a message's head, `nlmsghdr`.
const HEAD: usize = 16;

/// Length of a request, with `inet_diag_req_v2`.
const REQUEST: usize = HEAD + 56;

/// Length of a socket, with `inet_diag_msg`.
const MESSAGE: usize = HEAD + 72;

/// Adds the TCP sockets that listen.
/// <https://man7.org/linux/man-pages/man7/sock_diag.7.html>
fn read_netlink(add: &mut impl FnMut(SocketAddr, u64)) -> io::Result<()> {
    let protocol = Protocol::from(NETLINK_SOCK_DIAG);
    let mut socket = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, Some(protocol))?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut buffer = vec![0; READ_BUFFER];
    for family in [AF_INET, AF_INET6] {
        socket.write_all(&netlink_request(family))?;
        loop {
            let received = socket.read(&mut buffer)?;
            if read_messages(&buffer[..received], add)? {
                break;
            }
        }
    }
    Ok(())
}

/// Asks for all TCP sockets of a family that listen.
fn netlink_request(family: u8) -> [u8; REQUEST] {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST_DUMP: u16 = 0x301;
    const IPPROTO_TCP: u8 = 6;
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    (request[HEAD], request[HEAD + 1]) = (family, IPPROTO_TCP);
    request[HEAD + 4..HEAD + 8].copy_from_slice(&(1_u32 << TCP_LISTEN).to_ne_bytes());
    request
}

/// Adds the sockets of one part of an answer. Returns true if it is the last part.
fn read_messages(mut part: &[u8], add: &mut impl FnMut(SocketAddr, u64)) -> io::Result<bool> {
    const NLMSG_ERROR: u16 = 2;
    const NLMSG_DONE: u16 = 3;
    let u32_at = |bytes: &[u8], at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
    while part.len() >= HEAD {
        let kind = u16::from_ne_bytes([part[4], part[5]]);
        let length = u32_at(part, 0) as usize;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(io::ErrorKind::Unsupported.into()),
            _ if length < MESSAGE || length > part.len() => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            _ => {}
        }
        let body = &part[HEAD..];
        let port = u16::from_be_bytes([body[4], body[5]]);
        let length_of_ip = if body[0] == AF_INET { 4 } else { 16 };
        if let Some(ip) = ip_of(&body[8..8 + length_of_ip]) {
            add((ip, port).into(), u32_at(body, 68).into());
        }
        // Messages are aligned to four bytes.
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Parses a line of `/proc/net/tcp` or `tcp6`, if that socket listens. An address is words of four bytes in the order of
/// the machine.
/// <https://www.kernel.org/doc/html/latest/networking/proc_net_tcp.html>
fn parse_tcp(line: &str) -> Option<(SocketAddr, u64)> {
    let columns: Vec<_> = line.split_ascii_whitespace().collect();
    let (ip, port) = columns.get(1)?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    if number(columns.get(3)?) != Some(TCP_LISTEN.into()) {
        return None;
    }
    let words = (0..ip.len() / 8).map(|n| number(ip.get(8 * n..8 * n + 8)?));
    let words = words.map(|word| Some(word?.to_ne_bytes()));
    let words: Vec<_> = words.collect::<Option<_>>()?;
    let port = u16::try_from(number(port)?).ok()?;
    let inode = columns.get(9)?.parse().ok()?;
    Some(((ip_of(words.as_flattened())?, port).into(), inode))
}

/// The IP address of 4 or 16 bytes.
fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = |_| <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(v6).ok()
}

/// Parses a line of `/proc/net/unix`, if that socket is abstract and listens. Any process may have chosen the name: only
/// one that is safe to print is an address.
/// <https://man7.org/linux/man-pages/man5/proc_pid_net.5.html>
fn parse_unix(line: &str) -> Option<(AdminAddress, u64)> {
    const SO_ACCEPTCON: &str = "00010000";
    let mut columns = line.split_ascii_whitespace();
    let flags = columns.nth(3)?;
    let inode = columns.nth(2)?.parse().ok()?;
    let name = columns.next()?.strip_prefix('@');
    let name = name.filter(|name| printable(name) == **name)?;
    (flags == SO_ACCEPTCON).then(|| (AdminAddress::Abstract(name.to_owned()), inode))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{self, UnixListener};

    use super::*;

    #[test]
    fn sockets_that_listen_are_listed_by_netlink_and_in_files() {
        let listeners = ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"]
            .map(|ip| TcpListener::bind(ip).unwrap());
        let addresses = listeners
            .each_ref()
            .map(|listener| listener.local_addr().unwrap());
        let connected = std::net::TcpStream::connect(addresses[0]).unwrap();
        let mut by_netlink = BTreeMap::new();
        read_netlink(&mut |address, inode| {
            by_netlink.insert(address, inode);
        })
        .unwrap();
        let files = ["tcp", "tcp6"].map(|name| read_file(&format!("/proc/net/{name}")).unwrap());
        let in_files: BTreeMap<_, _> = files
            .iter()
            .flat_map(|file| file.lines().filter_map(parse_tcp))
            .collect();
        for address in addresses {
            assert!(by_netlink[&address] > 0);
            assert_eq!(in_files[&address], by_netlink[&address], "{address}");
        }
        assert!(!by_netlink.contains_key(&connected.local_addr().unwrap()));
        let name = format!("listed-{}", addresses[0].port());
        let abstract_address = net::SocketAddr::from_abstract_name(&name).unwrap();
        let _unix = UnixListener::bind_addr(&abstract_address).unwrap();
        let all = list().unwrap();
        assert!(all.contains_key(&AdminAddress::Abstract(name)));
        assert_eq!(
            all[&AdminAddress::Tcp(addresses[3])],
            by_netlink[&addresses[3]]
        );
    }

    #[test]
    fn one_of_two_files_may_be_missing() {
        let (file, missing) = ("/proc/net/tcp", "/proc/net/missing");
        for paths in [[file, missing], [missing, file]] {
            assert!(read_files(paths).unwrap().contains("local_address"));
        }
        assert!(read_files([missing; 2]).is_err());
    }

    #[test]
    fn abstract_sockets_with_printable_names_are_listed() {
        let line =
            |flags: &str, name: &str| format!("0: 00000002 00000000 {flags} 0001 01 7 {name}");
        for (flags, name, want) in [
            ("00010000", "@admin", Some("unix:@admin")),
            ("00000000", "@admin", None),
            ("00010000", "/run/admin.sock", None),
            ("00010000", "@admin\u{202e}\u{1b}[2J", None),
        ] {
            let listed = parse_unix(&line(flags, name)).map(|(address, _)| address.to_string());
            assert_eq!(listed.as_deref(), want);
        }
    }

    #[test]
    fn invalid_answers_of_the_kernel_are_errors() {
        let message = |length: u32, kind: u16, total: usize| {
            let mut bytes = vec![0; total];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            read_messages(&bytes, &mut |_, _| {}).map_err(|error| error.kind())
        };
        assert_eq!(message(88, 20, 88), Ok(false));
        assert_eq!(message(16, 3, 16), Ok(true));
        assert_eq!(message(20, 2, 20), Err(io::ErrorKind::Unsupported));
        for (length, total) in [(0, 88), (87, 88), (89, 88), (u32::MAX, 88)] {
            assert_eq!(message(length, 20, total), Err(io::ErrorKind::InvalidData));
        }
        assert_eq!(message(88, 20, 15), Ok(false));
    }
}
