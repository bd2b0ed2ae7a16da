//! TCP sockets, and their ends, by NETLINK_SOCK_DIAG.
//! <https://man7.org/linux/man-pages/man7/sock_diag.7.html>

use std::io::{self, Read, Write};
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use netlink_packet_core::{NetlinkBuffer, NlasIterator, Parseable};
use netlink_packet_sock_diag::inet::InetResponseHeader;
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::{INET_DIAG_INFO, SOCK_DIAG_BY_FAMILY};
use rustix::io::Errno;
use rustix::net::{bind, netlink::SocketAddrNetlink};
use socket2::{Domain, Protocol, Type};

use super::socket::{MAX_SOCKETS, Socket, SocketState, TcpInfo};
use crate::settings::admin_address::AdminAddress;

/// For one part of the kernel's answer, which it makes while it is read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Size of the read buffer in bytes: the largest part of an answer.
const READ_BUFFER: usize = 32 << 10;

const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;

/// Length of a request's head, `nlmsghdr`, and of all of it, with `inet_diag_req_v2`.
const HEAD: usize = 16;
const REQUEST: usize = HEAD + 56;

/// Length of a socket without its attributes, `inet_diag_msg`.
const SOCKET: usize = 72;

/// SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY, as bits.
const DESTROY_GROUPS: u32 = 1 << 0 | 1 << 2;

/// The attribute with the socket's cgroup, which the kernel adds unasked.
const INET_DIAG_CGROUP_ID: u16 = 21;

/// Lists the TCP sockets in these states.
pub(super) fn list(states: &[SocketState]) -> io::Result<Vec<Socket>> {
    let mut netlink = open()?;
    netlink.set_read_timeout(Some(READ_TIMEOUT))?;
    let (mut buffer, mut sockets) = (vec![0; READ_BUFFER], Vec::new());
    for family in [AF_INET, AF_INET6] {
        netlink.write_all(&request(family, states))?;
        let mut is_last = false;
        while !is_last {
            let received = netlink.read(&mut buffer)?;
            let read = read_messages(&buffer[..received], &mut sockets);
            is_last = read.ok_or(io::ErrorKind::InvalidData)?;
        }
    }
    Ok(sockets)
}

fn open() -> io::Result<socket2::Socket> {
    let protocol = Some(Protocol::from(NETLINK_SOCK_DIAG));
    socket2::Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, protocol)
}

/// A subscription to the kernel's destroy events of TCP sockets.
#[derive(Debug)]
pub(crate) struct SocketEnds(socket2::Socket);

// === impl SocketEnds ===

impl SocketEnds {
    /// Those from now on.
    pub(crate) fn subscribe() -> io::Result<Self> {
        let netlink = open()?;
        netlink.set_nonblocking(true)?;
        bind(&netlink, &SocketAddrNetlink::new(0, DESTROY_GROUPS))?;
        Ok(Self(netlink))
    }

    /// Takes those since the last call; `None` if the kernel has dropped some, which its buffer did not hold.
    pub(crate) fn take(&mut self) -> Option<Vec<Socket>> {
        let (mut buffer, mut ended) = (vec![0; READ_BUFFER], Vec::new());
        let mut is_complete = true;
        loop {
            match self.0.read(&mut buffer) {
                Ok(received) => match read_messages(&buffer[..received], &mut ended) {
                    Some(false) => {}
                    _ => return None,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return is_complete.then_some(ended);
                }
                // What the buffer holds is still to be read: it is older than what was dropped.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {
                    is_complete = false;
                }
                Err(_) => return None,
            }
        }
    }
}

/// Asks for all TCP sockets of a family in these states, with their `tcp_info`.
fn request(family: u8, states: &[SocketState]) -> [u8; REQUEST] {
    let states = states.iter().fold(0, |bits, it| bits | 1 << *it as u32);
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request[HEAD..HEAD + 3].copy_from_slice(&[family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1)]);
    request[HEAD + 4..HEAD + 8].copy_from_slice(&u32::to_ne_bytes(states));
    request
}

/// Adds the sockets of one part of an answer. Returns true if no other is to be read; `None` if it is an error, or invalid.
fn read_messages(mut part: &[u8], sockets: &mut Vec<Socket>) -> Option<bool> {
    while !part.is_empty() {
        let message = NetlinkBuffer::new_checked(part).ok()?;
        match message.message_type() {
            NLMSG_DONE => return Some(true),
            NLMSG_ERROR => return None,
            _ => sockets.push(read_socket(message.payload())?),
        }
        // Messages are aligned to four bytes.
        let next = (message.length() as usize).next_multiple_of(4);
        part = part.get(next..).unwrap_or_default();
    }
    Some(sockets.len() > MAX_SOCKETS)
}

/// Reads an `inet_diag_msg` and its attributes.
fn read_socket(message: &[u8]) -> Option<Socket> {
    let header = InetResponseHeader::parse(message).ok()?;
    let ends = header.socket_id;
    Some(Socket {
        state: SocketState::from_repr(header.state.into())?,
        local: AdminAddress::Tcp((ends.source_address, ends.source_port).into()),
        peer: Some((ends.destination_address, ends.destination_port).into()),
        receive_queue: header.recv_queue,
        send_queue: header.send_queue,
        inode: header.inode.into(),
        tcp: attribute(message, INET_DIAG_INFO, read_tcp_info),
        cookie: u64::from_ne_bytes(ends.cookie),
        cgroup: attribute(message, INET_DIAG_CGROUP_ID, |id| u64_at(id, 0)),
    })
}

/// Reads the members of `tcp_info` at their places.
fn read_tcp_info(info: &[u8]) -> Option<TcpInfo> {
    let data_segments = u32_at(info, 156)?;
    Some(TcpInfo {
        acknowledged: u64_at(info, 120)?,
        received: u64_at(info, 128)?,
        since_sent: u32_at(info, 44)?,
        since_received: u32_at(info, 52)?,
        data_segments,
        pure_acks: u32_at(info, 136)?.wrapping_sub(data_segments),
        retransmits: u32_at(info, 100)?,
    })
}

/// Reads an attribute of an `inet_diag_msg`; `None` if it has no such attribute.
fn attribute<T>(message: &[u8], kind: u16, read: fn(&[u8]) -> Option<T>) -> Option<T> {
    let mut attributes = NlasIterator::new(message.get(SOCKET..)?).filter_map(Result::ok);
    read(attributes.find(|it| it.kind() == kind)?.value())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_answers_of_the_kernel_are_errors() {
        let message = |length: u32, kind: u16, total: usize| {
            let mut bytes = vec![0; total];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            // An established connection.
            if let Some(start) = bytes.get_mut(HEAD..HEAD + 2) {
                start.copy_from_slice(&[AF_INET, 1]);
            }
            read_messages(&bytes, &mut Vec::new())
        };
        assert_eq!(message(88, 20, 88), Some(false));
        assert_eq!(message(16, 3, 16), Some(true));
        assert_eq!(message(20, 2, 20), None);
        for (length, total) in [(0, 88), (87, 88), (89, 88), (u32::MAX, 88), (88, 15)] {
            assert_eq!(message(length, 20, total), None, "{length} of {total}");
        }
        // An attribute of less than its own length is none.
        assert_eq!(message(92, 20, 92), Some(false));
    }
}
