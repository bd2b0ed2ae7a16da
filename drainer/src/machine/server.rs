//! A server without an admin interface: what is open, as the kernel alone knows it, stands in for a poll of Envoy. That is
//! exact for HTTP/1. A stream of HTTP/2 that is silent hides behind the bytes of others.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use strum::VariantArray;
use tokio::time::Instant;

use crate::envoy::admin_call::CallError;
use crate::envoy::counters::Counters;
use crate::envoy::snapshot::{OpenConnections, Snapshot};
use crate::http_client::HttpError::ConnectionRefused;
use crate::kernel::send_queues::SendQueues;
use crate::kernel::socket::{Socket, SocketState, TcpInfo};
use crate::kernel::{self, SocketEnds};
use crate::settings::admin_address::AdminAddress;
use crate::settings::config::Config;
use crate::settings::listener_selector::ListenerSelector;

/// A server's ports and connections, by the kernel's socket lists and destroy events.
#[derive(Default)]
pub(super) struct Server {
    /// The ports on which it has listened. Each with how long a connection is silent that rests; `None` if none rests.
    ports: BTreeMap<u16, Option<Duration>>,
    /// By [`Socket::cookie`].
    connections: BTreeMap<u64, Connection>,
    /// How many have come so far.
    arrivals: u64,
    /// Destroy events of sockets, for connections that open and close between two polls; `None` where there are none.
    ends: Option<SocketEnds>,
    send_queues: SendQueues,
}

/// A connection as it was last listed.
#[derive(Debug)]
struct Connection {
    listed_at: Instant,
    tcp: TcpInfo,
    /// What it was when it was last listed before its last bytes came; `None` if it was not.
    before: Option<TcpInfo>,
}

/// How long a connection must be silent of which it is unknown whether its last bytes were answered.
const UNKNOWN_REST: Duration = Duration::from_secs(30);

/// In place of arrivals that are unknown: more than readiness probes make.
const UNKNOWN_ARRIVALS: u64 = u32::MAX as u64;

/// The maximum delay between the last list with a socket and its destroy event.
const END_DELAY: Duration = Duration::from_secs(5);

// === impl Server ===

impl Server {
    /// Subscribes to the destroy events of sockets, for a drain: while nothing drains, they would be too many.
    pub(super) fn subscribe(&mut self) {
        self.ends = self.ends.take().or_else(|| SocketEnds::subscribe().ok());
    }

    /// Counts what is open. A poll before a drain is the baseline of its first.
    pub(super) fn poll(&mut self, config: &Config) -> Result<Snapshot, CallError> {
        let sockets = kernel::list(SocketState::VARIANTS)
            .map_err(|error| CallError::Rejected(format!("sockets are unknown: {error}")))?;
        let ended = self.ends.as_mut().and_then(SocketEnds::take);
        let open = self.count(config, &sockets, ended.as_deref(), Instant::now())?;
        Ok(Snapshot {
            open,
            ..Snapshot::default()
        })
    }

    /// Counts what is open of the `sockets` that are listed at `now`. Those that have `ended` since the last time are `None`
    /// if they are unknown, or if the kernel has dropped some.
    fn count(
        &mut self,
        config: &Config,
        sockets: &[Socket],
        ended: Option<&[Socket]>,
        now: Instant,
    ) -> Result<OpenConnections, CallError> {
        let listening = sockets.iter().filter_map(|it| served_port(it, config));
        let listening: Vec<_> = listening.collect();
        let is_listening = !listening.is_empty();
        self.ports.extend(listening);
        let mut open = OpenConnections::default();
        self.send_queues.start_list();
        for socket in sockets.iter().chain(ended.into_iter().flatten()) {
            self.add(socket, now, &mut open);
        }
        self.connections
            .retain(|_, it| now < it.listed_at + END_DELAY);
        let connections = open.by_listener.values().sum();
        open.connections = Some(connections);
        self.arrivals += ended.map_or(UNKNOWN_ARRIVALS, |_| 0);
        open.counters = Some(Counters::of_connections(self.arrivals));
        open.server.get_or_insert_default();
        if is_listening || connections > 0 {
            return Ok(open);
        }
        Err(if self.ports.is_empty() {
            CallError::NotServing
        } else {
            ConnectionRefused.into()
        })
    }

    /// Adds a socket, unless it is no connection to one of the ports.
    fn add(&mut self, it: &Socket, now: Instant, open: &mut OpenConnections) {
        let has_client = it.peer.is_some_and(|peer| peer.port() > 0);
        let port = it.local.port().filter(|_| has_client);
        let Some((port, idle_exit)) = port.and_then(|port| self.ports.get_key_value(&port)) else {
            return;
        };
        let known = self.connections.get(&it.cookie);
        self.arrivals += u64::from(known.is_none());
        let connection = Connection::new(known, it, now);
        let is_unaccepted = it.is_open() && !it.is_accepted();
        let is_unanswered = it.is_open() && connection.is_answered() == Some(false);
        let is_undelivered = self.send_queues.add(it, now) > 0;
        let is_in_flight = it.waiting() > 0 || is_unaccepted || is_unanswered || is_undelivered;
        if is_in_flight || it.is_open() {
            let rests = it.tcp.is_some() && connection.rests(*idle_exit);
            let server = open.server.get_or_insert_default();
            server.in_flight += u64::from(is_in_flight);
            server.in_use += u64::from(!is_in_flight && !rests);
            *open.by_listener.entry(port.to_string()).or_default() += 1;
        }
        self.connections.insert(it.cookie, connection);
    }
}

/// Returns the port of a socket that listens, if it is one of the server's, and how long a connection to it is silent that
/// rests.
fn served_port(socket: &Socket, config: &Config) -> Option<(u16, Option<Duration>)> {
    let AdminAddress::Tcp(at) = &socket.local else {
        return None;
    };
    let port = NonZeroU16::new(at.port())?;
    let is_served = config.serves(port, !at.ip().to_canonical().is_loopback());
    let is_never_idle = config
        .never_idle_ports
        .contains(&ListenerSelector::Port(port));
    let idle_exit = config.settings.timing.idle_exit;
    let idle_exit = idle_exit.filter(|_| !is_never_idle);
    let listens = socket.state == SocketState::Listen;
    (listens && is_served).then_some((at.port(), idle_exit))
}

// === impl Connection ===

impl Connection {
    /// A connection that is listed now; `known` is what is known of it from before.
    fn new(known: Option<&Self>, socket: &Socket, now: Instant) -> Self {
        let mut tcp = socket.tcp.unwrap_or_default();
        // A FIN counts as a byte.
        tcp.received -= u64::from(socket.state == SocketState::CloseWait).min(tcp.received);
        Self {
            listed_at: now,
            tcp,
            before: match known {
                Some(it) if it.tcp.received != tcp.received => Some(it.tcp),
                _ => known.and_then(|it| it.before),
            },
        }
    }

    /// Returns whether the last bytes that came were answered: by bytes that were sent later; or in the same jiffy, if no
    /// segment without data has acknowledged anything since before they came; else that is unknown. The kernel sends such a
    /// segment within 200 ms of a request that is not answered, but also at once of the first on a connection, and after a
    /// slow one. Over TLS 1.3, session tickets may look like an answer to the first request.
    fn is_answered(&self) -> Option<bool> {
        let tcp = &self.tcp;
        if tcp.received == 0 || tcp.data_segments == 0 {
            return Some(tcp.received == 0);
        }
        // One that repeats a segment acknowledges too.
        let acknowledgements = |it: &TcpInfo| (it.pure_acks, it.retransmits);
        let is_same = |before: &TcpInfo| acknowledgements(before) == acknowledgements(tcp);
        // The fewer milliseconds ago, the later.
        match tcp.since_sent.cmp(&tcp.since_received) {
            Less => Some(true),
            Greater => Some(false),
            Equal => self.before.as_ref().is_some_and(is_same).then_some(true),
        }
    }

    /// Returns true if it has never carried a byte, or if none has come or gone for long enough.
    fn rests(&self, idle_exit: Option<Duration>) -> bool {
        let tcp = &self.tcp;
        let unknown_rest = self.is_answered().map_or(UNKNOWN_REST, |_| Duration::ZERO);
        let silent = Duration::from_millis(tcp.since_sent.min(tcp.since_received).into());
        let is_silent = idle_exit.is_some_and(|it| silent >= it.max(unknown_rest));
        is_silent || tcp.received == 0 && tcp.data_segments == 0
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::sleep;

    use super::*;
    use crate::settings::token::Token;

    fn config(ports: &[&str]) -> Config {
        let ports = ports.iter().map(|port| port.parse().unwrap());
        let mut config = Config {
            server_ports: ports.collect(),
            ..Config::new(Token(0))
        };
        config.settings.timing.idle_exit = Some(Duration::from_secs(15));
        config
    }

    fn socket(port: u16, cookie: u64, tcp: TcpInfo) -> Socket {
        Socket {
            local: AdminAddress::Tcp(([10, 0, 0, 7], port).into()),
            peer: Some(([10, 0, 0, 8], 40_000).into()),
            inode: 1,
            cookie,
            tcp: Some(tcp),
            ..Socket::default()
        }
    }

    fn listening(ip: [u8; 4], port: u16) -> Socket {
        Socket {
            state: SocketState::Listen,
            local: AdminAddress::Tcp((ip, port).into()),
            peer: Some(([0, 0, 0, 0], 0).into()),
            receive_queue: 1,
            ..Socket::default()
        }
    }

    /// A request that was answered so many milliseconds ago.
    fn answered(since: u32) -> TcpInfo {
        TcpInfo {
            acknowledged: 100,
            received: 80,
            since_sent: since,
            since_received: since + 4,
            data_segments: 1,
            ..TcpInfo::default()
        }
    }

    /// Lists these connections, and a socket that listens on the port 80. Returns how many are open, in flight and in use.
    fn count(
        server: &mut Server,
        config: &Config,
        all: &[Socket],
        now: Instant,
    ) -> (u64, u64, u64) {
        let sockets = [&[listening([0, 0, 0, 0], 80)], all].concat();
        counts(&server.count(config, &sockets, Some(&[]), now).unwrap())
    }

    fn counts(open: &OpenConnections) -> (u64, u64, u64) {
        let server = open.server.unwrap();
        (open.connections.unwrap(), server.in_flight, server.in_use)
    }

    #[test]
    fn connection_is_in_flight_in_use_or_at_rest() {
        fn tcp(socket: &mut Socket) -> &mut TcpInfo {
            socket.tcp.as_mut().unwrap()
        }
        type Change = fn(&mut Socket);
        let (rest, in_use, in_flight, none) = ((1, 0, 0), (1, 0, 1), (1, 1, 0), (0, 0, 0));
        let table: [(Change, (u64, u64, u64)); 19] = [
            (|_| {}, rest),
            // Bytes came or went within `idle-exit`.
            (|it| it.tcp = Some(answered(14_999)), in_use),
            (|it| it.tcp = None, in_use),
            (|it| it.tcp = Some(TcpInfo::default()), rest),
            // Unanswered.
            (|it| tcp(it).since_received = 1, in_flight),
            (|it| tcp(it).data_segments = 0, in_flight),
            // It waits to be accepted, or read.
            (|it| it.inode = 0, in_flight),
            (|it| it.state = SocketState::SynReceived, in_flight),
            (|it| it.receive_queue = 1, in_flight),
            // The client has sent no more than a FIN.
            (
                |it| (it.state, it.receive_queue) = (SocketState::CloseWait, 1),
                rest,
            ),
            (
                |it| {
                    let received = 1;
                    it.state = SocketState::CloseWait;
                    it.tcp = Some(TcpInfo {
                        received,
                        ..TcpInfo::default()
                    });
                },
                rest,
            ),
            // Bytes are on their way, or only a FIN.
            (|it| it.send_queue = 2, in_flight),
            (
                |it| (it.state, it.send_queue) = (SocketState::LastAck, 2),
                in_flight,
            ),
            (
                |it| (it.state, it.send_queue) = (SocketState::LastAck, 1),
                none,
            ),
            (|it| it.state = SocketState::FinWait1, none),
            // A reset has dropped its bytes.
            (
                |it| (it.state, it.send_queue) = (SocketState::Closed, 2),
                none,
            ),
            // Another port's, and one of the pod's own calls.
            (
                |it| it.local = AdminAddress::Tcp(([10, 0, 0, 7], 81).into()),
                none,
            ),
            (
                |it| it.local = AdminAddress::Path("/socket".to_owned()),
                none,
            ),
            // A server that speaks first.
            (|it| tcp(it).received = 0, rest),
        ];
        for (change, want) in table {
            let mut it = socket(80, 1, answered(15_000));
            change(&mut it);
            let now = Instant::now();
            let count = |config: &Config| count(&mut Server::default(), config, &[it.clone()], now);
            let mut config = config(&["80"]);
            assert_eq!(count(&config), want, "{it:?}");
            config.never_idle_ports = config.server_ports.clone();
            let counted = count(&config);
            let is_unused = it.tcp.is_some_and(|tcp| tcp.data_segments == 0) && want == rest;
            let want = if want == rest && !is_unused {
                in_use
            } else {
                want
            };
            assert_eq!(counted, want, "never idle: {it:?}");
        }
    }

    /// Requests that may have been answered in the jiffy in which they came.
    #[tokio::test(start_paused = true)]
    async fn pure_acks_tell_whether_a_request_was_answered_within_a_jiffy() {
        let same_jiffy = |since| TcpInfo {
            since_received: since,
            pure_acks: 7,
            ..answered(since)
        };
        let before = |pure_acks, retransmits| TcpInfo {
            received: 40,
            pure_acks,
            retransmits,
            ..answered(20_000)
        };
        let table = [
            // (what it was before its last bytes, whether it is in use 10, 20 and 30 s after them)
            (None, [1, 1, 0]),
            (Some(before(7, 0)), [1, 0, 0]),
            (Some(before(6, 0)), [1, 1, 0]),
            (Some(before(7, 1)), [1, 1, 0]),
        ];
        for (before, want) in table {
            let (mut server, config) = (Server::default(), config(&["80"]));
            let start = Instant::now();
            if let Some(before) = before {
                count(&mut server, &config, &[socket(80, 1, before)], start);
            }
            for (second, want) in [10, 20, 30].into_iter().zip(want) {
                let at = start + Duration::from_secs(second.into());
                let it = socket(80, 1, same_jiffy(1_000 * second));
                let counted = count(&mut server, &config, &[it], at);
                assert_eq!(counted, (1, 0, want), "{before:?} at {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_acknowledges_nothing_is_not_waited_for() {
        let (mut server, config) = (Server::default(), config(&["80"]));
        let start = Instant::now();
        let mut at = |second, acknowledged| {
            let tcp = TcpInfo {
                acknowledged,
                ..answered(60_000)
            };
            let it = Socket {
                send_queue: 1000,
                ..socket(80, 1, tcp)
            };
            count(
                &mut server,
                &config,
                &[it],
                start + Duration::from_secs(second),
            )
            .1
        };
        let in_flight = [at(0, 1), at(9, 1), at(10, 2), at(19, 2), at(20, 2)];
        assert_eq!(in_flight, [1, 1, 1, 1, 0]);
    }

    #[test]
    fn all_ports_are_those_beyond_loopback_that_are_not_ignored() {
        let mut config = config(&["all"]);
        config.settings.ignore_listeners = vec!["82".parse().unwrap()];
        let ports = [80, 81, 82, 15902];
        let ips = [[0, 0, 0, 0], [127, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]];
        let listening = ips
            .into_iter()
            .zip(ports)
            .map(|(ip, port)| listening(ip, port));
        let connections = (1..)
            .zip(ports)
            .map(|(n, port)| socket(port, n, answered(0)));
        let sockets: Vec<_> = listening.chain(connections).collect();
        let open = Server::default().count(&config, &sockets, Some(&[]), Instant::now());
        assert_eq!(
            open.unwrap().by_listener,
            BTreeMap::from([("80".to_owned(), 1)])
        );
    }

    #[test]
    fn server_that_no_longer_listens_is_gone_with_its_last_connection() {
        let (mut server, config) = (Server::default(), config(&["80"]));
        let connection = [socket(80, 1, answered(0))];
        let now = Instant::now();
        let poll = |server: &mut Server, sockets: &[Socket]| {
            let counted = server.count(&config, sockets, Some(&[]), now);
            counted.map(|open| counts(&open))
        };
        assert_eq!(poll(&mut server, &connection), Err(CallError::NotServing));
        let listening = [listening([0, 0, 0, 0], 80)];
        assert_eq!(poll(&mut server, &listening), Ok((0, 0, 0)));
        assert_eq!(poll(&mut server, &connection), Ok((1, 0, 1)));
        assert_eq!(poll(&mut server, &[]), Err(ConnectionRefused.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_connection_arrives_once() {
        let (mut server, config) = (Server::default(), config(&["80"]));
        let start = Instant::now();
        let mut arrivals = |second, listed: &[u64], ended: Option<&[(u64, u16)]>| {
            let sockets = listed.iter().map(|it| socket(80, *it, answered(0)));
            let sockets: Vec<_> = sockets.chain([listening([0, 0, 0, 0], 80)]).collect();
            let end = |&(cookie, port): &(u64, u16)| Socket {
                state: SocketState::Closed,
                inode: 0,
                ..socket(port, cookie, answered(0))
            };
            let ended: Option<Vec<_>> = ended.map(|it| it.iter().map(end).collect());
            let now = start + Duration::from_secs(second);
            let open = server
                .count(&config, &sockets, ended.as_deref(), now)
                .unwrap();
            assert_eq!(open.connections, Some(listed.len() as u64));
            open.counters.map(|counters| counters.accepted)
        };
        assert_eq!(arrivals(0, &[1, 2], Some(&[])), Some(2));
        assert_eq!(arrivals(1, &[2, 3], Some(&[])), Some(3));
        // The end of one that was listed, of one that was not, and of another port's.
        assert_eq!(
            arrivals(2, &[2], Some(&[(1, 80), (4, 80), (5, 81)])),
            Some(4)
        );
        // An end that is told too late.
        assert_eq!(arrivals(8, &[2], Some(&[])), Some(4));
        assert_eq!(arrivals(9, &[2], Some(&[(3, 80)])), Some(5));
        // Unknown ends are no quiet.
        assert_eq!(arrivals(10, &[2], None), Some(5 + UNKNOWN_ARRIVALS));
    }

    #[test]
    fn requests_of_a_real_server_are_in_flight_until_they_are_answered() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut server, config) = (Server::default(), config(&[&port.to_string()]));
        server.subscribe();
        // Loopback delivers a moment later.
        let mut wait_for = |want: (u64, u64, u64), arrived: u64| {
            let mut last = None;
            for _ in 0..200 {
                let open = server.poll(&config).unwrap().open;
                // So many sockets of other tests may have ended that some ends are unknown.
                let counted = open.counters.unwrap().accepted;
                let have_arrived = counted == arrived || counted >= UNKNOWN_ARRIVALS;
                if counts(&open) == want && have_arrived {
                    return;
                }
                last = Some(open);
                sleep(Duration::from_millis(20));
            }
            panic!("{last:?}, and not {want:?}");
        };
        wait_for((0, 0, 0), 0);
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        wait_for((1, 1, 0), 1);
        let (mut accepted, _) = listener.accept().unwrap();
        wait_for((1, 0, 0), 1);
        client.write_all(b"request").unwrap();
        wait_for((1, 1, 0), 1);
        accepted.read_exact(&mut [0; 7]).unwrap();
        wait_for((1, 1, 0), 1);
        // Into another jiffy.
        sleep(Duration::from_millis(20));
        accepted.write_all(b"response").unwrap();
        wait_for((1, 0, 1), 1);
        drop((client, accepted));
        wait_for((0, 0, 0), 1);
        let short = TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop((listener.accept().unwrap(), short));
        wait_for((0, 0, 0), 2);
    }
}
