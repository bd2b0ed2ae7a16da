//! Sockets in the files in `/proc/net`: those of Unix, and TCP's where there is no netlink.
//! <https://www.kernel.org/doc/html/latest/networking/proc_net_tcp.html>
//! <https://man7.org/linux/man-pages/man5/proc_pid_net.5.html>

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

use super::socket::{DATAGRAM, MAX_SOCKETS, Socket, SocketState};
use crate::settings::admin_address::AdminAddress;
use crate::text::printable;

/// Reads the file of a protocol over IPv4, and that over IPv6, which a kernel without IPv6 does not have.
pub(super) fn read_both(path: &str, parse: fn(&str) -> Option<Socket>) -> io::Result<Vec<Socket>> {
    let mut all = read(path, parse)?;
    match read(&format!("{path}6"), parse) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        v6 => all.extend(v6?),
    }
    Ok(all)
}

/// Reads a file that has a socket in each line.
pub(super) fn read(path: &str, parse: fn(&str) -> Option<Socket>) -> io::Result<Vec<Socket>> {
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    let sockets = lines.map(|line| Ok(parse(&String::from_utf8_lossy(&line?))));
    let sockets = sockets.filter_map(Result::transpose);
    sockets.take(MAX_SOCKETS + 1).collect()
}

/// Parses a line of `tcp` or `tcp6`; `None` in a state that is not listed, and for the heading.
pub(super) fn parse_tcp(line: &str) -> Option<Socket> {
    let columns: Vec<_> = line.split_ascii_whitespace().collect();
    let (send_queue, receive_queue) = columns.get(4)?.split_once(':')?;
    Some(Socket {
        state: SocketState::from_repr(number(columns[3])?)?,
        local: AdminAddress::Tcp(address(columns[1])?),
        peer: Some(address(columns[2])?),
        receive_queue: number(receive_queue)?,
        send_queue: number(send_queue)?,
        inode: columns.get(9)?.parse().ok()?,
        cookie: columns[9].parse().ok()?,
        ..Socket::default()
    })
}

/// Parses a line of `udp` or `udp6`; `None` for a socket with a peer, and for the heading.
pub(super) fn parse_udp(line: &str) -> Option<Socket> {
    // Without a peer, it is in the state of a TCP socket that has ended.
    let mut socket = parse_tcp(line).filter(|it| it.state == SocketState::Closed)?;
    socket.inode = DATAGRAM;
    Some(socket)
}

/// Parses a line of `unix`; `None` unless that socket has a name, and listens or is accepted. Any process may have chosen the
/// name: only one that is safe to print is listed.
pub(super) fn parse_unix(line: &str) -> Option<Socket> {
    const SO_ACCEPTCON: &str = "00010000";
    let columns: Vec<_> = line.split_ascii_whitespace().collect();
    let name = columns.get(7).filter(|name| printable(name) == ***name)?;
    Some(Socket {
        state: match columns[3] {
            SO_ACCEPTCON => SocketState::Listen,
            // A client's connection that no process has accepted does not count as connected here.
            _ => (columns[5] == "03").then_some(SocketState::Established)?,
        },
        local: format!("unix:{name}").parse().ok()?,
        inode: columns[6].parse().ok()?,
        ..Socket::default()
    })
}

/// Parses an address, whose IP address is words of four bytes in the order of the machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |n: usize| Some(number(ip.get(8 * n..8 * n + 8)?)?.to_ne_bytes());
    let words = (0..ip.len() / 8).map(word).collect::<Option<Vec<_>>>()?;
    let ip = match words[..] {
        [v4] => IpAddr::from(v4),
        _ => IpAddr::from(*words.as_flattened().first_chunk::<16>()?),
    };
    Some(SocketAddr::new(ip, number(port)?.try_into().ok()?))
}

fn number(hexadecimal: &str) -> Option<u32> {
    u32::from_str_radix(hexadecimal, 16).ok()
}
