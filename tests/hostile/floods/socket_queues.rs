//! The kernel's queues of TCP connections, read from its socket diagnostics in milliseconds. While a flood adds
//! connections on a busy machine, a read of `/proc/net/tcp`, which also lists those in `TIME_WAIT`, takes up to half a
//! minute.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, IPPROTO_TCP, SockDiagMessage};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{netlink, recv, send, socket_with};

/// Returns the number of bytes, received and not read or sent and not acknowledged, of the IPv4 connections with one of
/// these local ports. The queues take up to twice as much memory.
///
/// # Errors
/// When the kernel has no socket diagnostics.
pub(crate) fn queued_bytes(local_ports: &[u16]) -> Result<u64> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(5)))?;
    send(&socket, &dump_request(), SendFlags::empty())?;
    let mut buffer = vec![0; 64 << 10];
    let mut sum = 0;
    loop {
        let (_, size) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut messages = &buffer[..size];
        while !messages.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(messages)?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(sum),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(connection)) => {
                    let connection = connection.header;
                    if local_ports.contains(&connection.socket_id.source_port) {
                        sum += u64::from(connection.recv_queue) + u64::from(connection.send_queue);
                    }
                }
                other => bail!("unexpected answer of the socket diagnostics: {other:?}"),
            }
            // Messages are aligned to four bytes.
            let length = (message.header.length as usize).next_multiple_of(4);
            ensure!(length > 0, "an empty netlink message");
            messages = messages.get(length..).unwrap_or_default();
        }
    }
}

/// Requests all connections that can have data.
fn dump_request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = SockDiagMessage::InetRequest(InetRequest {
        family: AF_INET,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all() - StateFlags::LISTEN - StateFlags::TIME_WAIT,
        socket_id: SocketId::new_v4(),
    });
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
