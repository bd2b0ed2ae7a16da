//! The search for the admin interface of the pod's Envoy: which addresses are asked, and which of the Envoys that answer
//! is taken.
//!
//! Envoy's configuration may be in a file, in an image, or come from an agent, so that its manifest does not show the
//! address. But the drainer shares the pod's network namespace, whose sockets the kernel lists, and only an Envoy's admin
//! interface answers `GET /server_info` as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::admin_call::CallError;
use super::admin_probe;
use super::listen_sockets::Sockets;
use crate::settings::admin_address::AdminAddress;

/// Searches for the admin interface, and remembers what has answered.
#[derive(Debug)]
pub(crate) struct AdminSearch {
    /// Addresses at which the pod's manifest places it, the most certain first.
    hints: Vec<AdminAddress>,
    /// The drainer's own port.
    own_port: NonZeroU16,
    /// What has answered at an address, as long as the same socket listens there.
    answers: BTreeMap<AdminAddress, Answer>,
}

/// Which Envoy at no hint is taken, while another address may still answer as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None, since it may not be the pod's only one.
    #[default]
    Certain,
    /// The one that has answered, since a drain has begun.
    Any,
}

/// A socket that is, or may be, that of an admin interface.
#[derive(Debug, Clone)]
pub(crate) struct AdminCandidate {
    /// Where to call it.
    pub(crate) address: AdminAddress,
    /// The manifest places it there.
    pub(crate) is_hint: bool,
    /// The address on which it listens, which may be a wildcard.
    bound: AdminAddress,
    /// Its inode, or [`UNKNOWN`].
    inode: u64,
}

/// What the server at an address has answered.
#[derive(Debug)]
struct Answer {
    /// The inode of the socket there.
    inode: u64,
    /// `Ok` for an Envoy.
    result: Result<(), CallError>,
    /// How many times in a row it was asked for that, and when last.
    tries: usize,
    at: Instant,
}

/// How long after no response an address is asked again. An Envoy that starts accepts connections before it answers.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// How many addresses are asked in one search.
const MAX_ASKED: usize = 64;

/// How many of several Envoys are named.
const MAX_NAMED: usize = 4;

/// The abstract sockets of Envoy's hot restart, and those of drainers.
const NOT_ADMIN: [&str; 2] = ["envoy_domain_socket", "envoy-drainer"];

// === impl AdminSearch ===

impl AdminSearch {
    pub(crate) fn new(hints: Vec<AdminAddress>, own_port: NonZeroU16) -> Self {
        Self {
            hints,
            own_port,
            answers: BTreeMap::new(),
        }
    }

    /// Asks hints, and if none answers as an Envoy, the other `sockets`. No address is asked again that has answered
    /// otherwise, as long as the same socket listens there. Without `sockets` only hints are asked, each time.
    ///
    /// A listener of an Envoy is not its admin interface, to which it may route. An Envoy at no hint is taken when no other
    /// address may still answer as one; before that, `choice` decides.
    pub(crate) async fn run(
        &mut self,
        sockets: Option<&Sockets>,
        choice: Choice,
    ) -> Result<AdminCandidate, CallError> {
        let candidates = self.candidates(sockets);
        let addresses: BTreeSet<_> = candidates.iter().map(|it| &it.address).collect();
        self.answers
            .retain(|address, _| addresses.contains(address));
        let (mut envoys, mut listeners, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let (mut forbidding, mut asked, mut answering) = (Vec::new(), 0, BTreeSet::new());
        for candidate in candidates {
            if answering.contains(&candidate.bound) || candidate.is_among(&listeners) {
                continue;
            }
            let answer = self.ask(&candidate, &mut asked).await;
            let result = answer.map(|it| &it.result);
            if result.is_some_and(|it| it.as_ref().is_err_and(CallError::is_refusal)) {
                continue;
            }
            answering.insert(candidate.bound.clone());
            match result {
                Some(Ok(())) => {
                    let known = admin_probe::listeners(&candidate.address).await;
                    listeners.extend(known.ok_or(CallError::Unanswered)?);
                    if candidate.is_hint && !candidate.is_among(&listeners) {
                        return Ok(candidate);
                    }
                    envoys.push(candidate);
                }
                Some(Err(CallError::Forbidden(_))) if candidate.is_hint => {
                    forbidding.push(candidate)
                }
                _ if answer.is_none_or(Answer::may_change) => waiting.push(candidate),
                _ => {}
            }
        }
        envoys.retain(|it| !it.is_among(&listeners));
        waiting.retain(|it| !it.is_among(&listeners));
        if envoys.len() > 1 {
            let addresses = envoys.iter().map(|it| it.address.to_string());
            let mut named: Vec<_> = addresses.take(MAX_NAMED).collect();
            let more = envoys.len() - named.len();
            named.extend((more > 0).then(|| format!("{more} more")));
            return Err(CallError::Ambiguous(named.join(", ")));
        }
        match envoys.into_iter().chain(forbidding).next() {
            Some(found) if waiting.is_empty() || choice == Choice::Any => Ok(found),
            None if answering.is_empty() => Err(CallError::NothingListens),
            None if waiting.is_empty() => Err(CallError::NotFound),
            None if waiting
                .iter()
                .all(|it| self.answers.contains_key(&it.address)) =>
            {
                Err(CallError::Silent)
            }
            _ => Err(CallError::Unanswered),
        }
    }

    /// Asks an address unless its answer is known, or enough were asked. Returns what is known then.
    async fn ask(&mut self, candidate: &AdminCandidate, asked: &mut usize) -> Option<&Answer> {
        let known = self.answers.get(&candidate.address);
        let known = known.filter(|it| it.is_of(candidate.inode));
        let tries = match known {
            None => 0,
            Some(known) if known.is_due(candidate.is_hint) => known.tries,
            Some(_) => return self.answers.get(&candidate.address),
        };
        if *asked >= MAX_ASKED {
            return None;
        }
        *asked += 1;
        let result = admin_probe::ask(&candidate.address).await;
        debug!(address = %candidate.address, ?result, "Asked for an admin interface");
        let answer = Answer {
            inode: candidate.inode,
            result,
            tries: tries + 1,
            at: Instant::now(),
        };
        self.answers.insert(candidate.address.clone(), answer);
        self.answers.get(&candidate.address)
    }

    /// The sockets that may be an admin interface's: those of hints, loopback addresses, on which most are, then the
    /// others. One on `[::]` is there twice, since it may be IPv6's alone, which refuses IPv4, or be in a pod without `::1`.
    fn candidates(&self, sockets: Option<&Sockets>) -> Vec<AdminCandidate> {
        let mut unlisted = self.hints.clone();
        unlisted.retain(|it| sockets.is_none() || matches!(it, AdminAddress::Path(_)));
        // By where they are called: of several sockets, the kernel takes the one with that address.
        let unlisted = unlisted.iter().map(|it| (it.clone(), (it, &UNKNOWN)));
        let mut all: BTreeMap<_, _> = unlisted.collect();
        for socket in sockets.into_iter().flatten() {
            match socket.0 {
                AdminAddress::Tcp(at) if at.ip().is_unspecified() => {
                    let v4 = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, at.port()).into());
                    all.entry(v4).or_insert(socket);
                    all.entry(socket.0.reachable()).or_insert(socket);
                }
                address => _ = all.insert(address.clone(), socket),
            }
        }
        let rank = |bound: &AdminAddress| match bound {
            AdminAddress::Tcp(address) if address.port() == self.own_port.get() => None,
            AdminAddress::Abstract(name) if NOT_ADMIN.iter().any(|it| name.starts_with(it)) => None,
            AdminAddress::Tcp(address) if address.ip().is_loopback() => Some(0),
            AdminAddress::Abstract(_) | AdminAddress::Path(_) => Some(1),
            AdminAddress::Tcp(address) if address.ip().is_unspecified() => Some(2),
            AdminAddress::Tcp(_) => Some(3),
        };
        let ranked = all.iter().filter_map(|(address, socket)| {
            let (bound, inode) = *socket;
            let hint = self.hints.iter().position(|it| all.get(it) == Some(socket));
            let candidate = AdminCandidate {
                address: address.clone(),
                is_hint: hint.is_some(),
                bound: bound.clone(),
                inode: *inode,
            };
            Some(((hint.is_none(), hint, rank(bound)?, address), candidate))
        });
        ranked.collect::<BTreeMap<_, _>>().into_values().collect()
    }
}

/// The inode of a socket that is not among those of the network namespace.
const UNKNOWN: u64 = 0;

// === impl AdminCandidate ===

impl AdminCandidate {
    /// Returns true if it is a listener. An unknown one may have the wildcard of its address.
    fn is_among(&self, listeners: &[AdminAddress]) -> bool {
        let mut all = listeners.iter();
        all.any(|it| *it == self.bound || self.inode == UNKNOWN && it.reachable() == self.bound)
    }
}

// === impl Answer ===

impl Answer {
    /// Returns true if it is the answer of the socket with this inode. At an unknown one another socket may listen the next
    /// time, so that only the lack of an answer is known of it.
    fn is_of(&self, inode: u64) -> bool {
        self.inode == inode && (inode != UNKNOWN || self.is_missing())
    }

    /// Returns true if there was no response in time, or a broken one, as that of an Envoy at its limit of connections.
    fn is_missing(&self) -> bool {
        self.result.as_ref().is_err_and(CallError::is_silence)
    }

    /// Returns true if the address is to be asked again, now or later.
    fn may_change(&self) -> bool {
        self.is_missing() && self.tries <= RETRY_AFTER.len()
    }

    /// Returns true if the address is to be asked again now. That of a hint always is, some time.
    fn is_due(&self, is_hint: bool) -> bool {
        let pause = RETRY_AFTER.get(self.tries - 1);
        self.is_missing() && pause.map_or(is_hint, |pause| self.at.elapsed() >= *pause)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::net::{IpAddr, SocketAddr};
    use std::sync::{Arc, Mutex};

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::advance;

    use super::*;
    use crate::http_client::IN_MEMORY;

    /// How a server answers.
    #[derive(Clone, Copy, PartialEq)]
    enum Server {
        Envoy,
        /// As [`Server::Envoy`], and refuses IPv4.
        Ipv6Envoy,
        Forbidding,
        Other,
        /// In no time, or in a broken way.
        Silent,
    }

    /// The response of an Envoy to `/server_info`.
    const ENVOY: &str = "HTTP/1.1 200 OK\r\n\r\n\
        {\"version\": \"a/1.40.0/b\", \"command_line_options\": {\"drain_time\": \"600s\"}}";

    /// A network namespace: addresses at which servers listen, and what is asked of them.
    #[derive(Default, Clone)]
    struct Namespace {
        servers: Vec<(AdminAddress, Server)>,
        /// The listeners of each Envoy.
        listeners: Vec<AdminAddress>,
        /// `lo` has no `::1`.
        has_no_ipv6: bool,
        /// Envoys do not respond any more.
        is_hung: bool,
        choice: Choice,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Namespace {
        fn new(servers: &[(&str, Server)]) -> Self {
            let address = |text: &str| match text.parse::<SocketAddr>() {
                Ok(address) => AdminAddress::Tcp(address),
                Err(_) => text.parse().unwrap(),
            };
            let servers = servers
                .iter()
                .map(|(text, server)| (address(text), *server));
            Self {
                servers: servers.collect(),
                ..Self::default()
            }
        }

        fn sockets(&self) -> Sockets {
            let addresses = self.servers.iter().map(|(address, _)| address.clone());
            addresses.zip(1..).collect()
        }

        async fn search(&mut self, search: &mut AdminSearch) -> String {
            let sockets = self.sockets();
            self.search_in(search, Some(&sockets)).await
        }

        async fn search_in(
            &mut self,
            search: &mut AdminSearch,
            sockets: Option<&Sockets>,
        ) -> String {
            let namespace = self.clone();
            let connect = Box::new(move |address: &_| namespace.connect(address));
            let found = IN_MEMORY.scope(connect, search.run(sockets, self.choice));
            match found.await {
                Ok(found) if found.is_hint => format!("{}, a hint", found.address),
                Ok(found) => found.address.to_string(),
                Err(absence) => format!("{absence:?}"),
            }
        }

        fn asked(&mut self) -> String {
            std::mem::take(&mut *self.asked.lock().unwrap()).join(" ")
        }

        /// Connects to the server that the kernel would take for an address.
        fn connect(&self, address: &AdminAddress) -> io::Result<DuplexStream> {
            let (asked, name) = (self.asked.clone(), address.to_string());
            if self.has_no_ipv6 && matches!(address, AdminAddress::Tcp(at) if at.is_ipv6()) {
                asked.lock().unwrap().push(name);
                return Err(ErrorKind::AddrNotAvailable.into());
            }
            let mut bound = vec![address.clone()];
            if let AdminAddress::Tcp(at) = address {
                let any = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
                let any = any.into_iter().filter(|ip| ip.is_ipv6() || at.is_ipv4());
                bound.extend(any.map(|ip| AdminAddress::Tcp((ip, at.port()).into())));
            }
            let refuses_ipv4 = matches!(address, AdminAddress::Tcp(at) if at.is_ipv4());
            let is_called = |(at, server): &&(AdminAddress, Server)| {
                bound.contains(at) && !(refuses_ipv4 && *server == Server::Ipv6Envoy)
            };
            let mut servers: Vec<_> = self.servers.iter().filter(is_called).collect();
            servers.sort_by_key(|(at, _)| bound.iter().position(|it| it == at));
            let Some((_, server)) = servers.first() else {
                asked.lock().unwrap().push(name);
                return Err(ErrorKind::ConnectionRefused.into());
            };
            let (server, listeners) = (*server, self.listeners_response());
            let (client, mut stream) = duplex(1 << 16);
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                let is_search = request[..length].starts_with(b"GET /server_info ");
                if is_search {
                    asked.lock().unwrap().push(name);
                }
                let response = match server {
                    Server::Envoy | Server::Ipv6Envoy if is_search => ENVOY.to_owned(),
                    Server::Envoy | Server::Ipv6Envoy => listeners,
                    Server::Forbidding => "HTTP/1.1 403 Forbidden\r\n\r\n".to_owned(),
                    Server::Other => "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
                    Server::Silent => String::new(),
                };
                stream.write_all(response.as_bytes()).await.unwrap();
            });
            Ok(client)
        }

        /// The response to `/listeners`; none if Envoys are hung.
        fn listeners_response(&self) -> String {
            let status = |address: &AdminAddress| match address {
                AdminAddress::Tcp(at) => json!({"local_address": {"socket_address":
                    {"address": at.ip().to_string(), "port_value": at.port()}}}),
                other => panic!("{other} is no listener of these tests"),
            };
            let all: Vec<_> = self.listeners.iter().map(status).collect();
            let body = json!({ "listener_statuses": all });
            let response = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
            Some(response).filter(|_| !self.is_hung).unwrap_or_default()
        }
    }

    fn search(hints: &str) -> AdminSearch {
        AdminSearch::new(
            crate::settings::value::parse_list(hints).unwrap(),
            crate::DEFAULT_PORT,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn hints_come_first_and_then_loopback_before_wildcard() {
        use Server::{Envoy, Forbidding, Ipv6Envoy, Other};
        let hint = "127.0.0.1:9901";
        for (servers, found, asked) in [
            (
                &[(hint, Envoy), ("127.0.0.1:19000", Envoy)][..],
                "127.0.0.1:9901, a hint",
                "127.0.0.1:9901",
            ),
            (
                &[("0.0.0.0:9901", Envoy)],
                "127.0.0.1:9901, a hint",
                "127.0.0.1:9901",
            ),
            (
                &[("[::]:9901", Envoy)],
                "127.0.0.1:9901, a hint",
                "127.0.0.1:9901",
            ),
            (
                &[("[::]:9901", Ipv6Envoy), ("127.0.0.1:19000", Envoy)],
                "[::1]:9901, a hint",
                "127.0.0.1:9901 [::1]:9901",
            ),
            (
                &[("[::]:80", Other), ("[::]:81", Ipv6Envoy)],
                "[::1]:81",
                "127.0.0.1:80 127.0.0.1:81 [::1]:81",
            ),
            // Each has its own socket at the port.
            (
                &[("0.0.0.0:81", Other), ("[::]:81", Ipv6Envoy)],
                "[::1]:81",
                "127.0.0.1:81 [::1]:81",
            ),
            // `admin.allow_paths` without `/server_info`.
            (
                &[(hint, Forbidding)],
                "127.0.0.1:9901, a hint",
                "127.0.0.1:9901",
            ),
            (&[("127.0.0.1:80", Forbidding)], "NotFound", "127.0.0.1:80"),
            (
                &[(hint, Forbidding), ("127.0.0.1:19000", Envoy)],
                "127.0.0.1:19000",
                "127.0.0.1:9901 127.0.0.1:19000",
            ),
            // Nothing listens at the hint, so it is not called.
            (&[("[::1]:9901", Envoy)], "[::1]:9901", "[::1]:9901"),
            (
                &[
                    (hint, Other),
                    ("10.0.0.7:15000", Other),
                    ("0.0.0.0:8080", Other),
                    ("unix:@admin", Other),
                    ("[::]:8001", Envoy),
                ],
                "127.0.0.1:8001",
                "127.0.0.1:9901 unix:@admin 127.0.0.1:8001 127.0.0.1:8080 10.0.0.7:15000",
            ),
            // The drainer's own port and socket, and that of Envoy's hot restart.
            (
                &[
                    ("[::]:15902", Envoy),
                    ("unix:@envoy-drainer:15902", Envoy),
                    ("unix:@envoy_domain_socket_parent_0", Envoy),
                ],
                "NothingListens",
                "",
            ),
            (&[], "NothingListens", ""),
        ] {
            let mut namespace = Namespace::new(servers);
            assert_eq!(namespace.search(&mut search(hint)).await, found);
            assert_eq!(namespace.asked(), asked);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_servers_are_asked_once_and_silent_ones_three_times() {
        let hint = "127.0.0.1:9901";
        let mut namespace = Namespace::new(&[
            ("127.0.0.1:80", Server::Other),
            ("127.0.0.1:81", Server::Silent),
        ]);
        let mut search = search(hint);
        let mut results = Vec::new();
        for _ in 0..60 {
            results.push(namespace.search(&mut search).await);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(
            namespace.asked(),
            "127.0.0.1:80 127.0.0.1:81 127.0.0.1:81 127.0.0.1:81"
        );
        assert_eq!(results[11], "Silent");
        assert_eq!(results[12..], ["NotFound"; 48]);
        // Another server listens there.
        namespace
            .servers
            .insert(0, ("127.0.0.1:79".parse().unwrap(), Server::Other));
        namespace.servers[1].1 = Server::Envoy;
        namespace.servers.pop();
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:80");
        // The manifest says that it is Envoy's admin interface.
        let mut namespace = Namespace::new(&[(hint, Server::Silent)]);
        for _ in 0..30 {
            namespace.search(&mut search).await;
            advance(Duration::from_secs(1)).await;
        }
        namespace.servers[0].1 = Server::Envoy;
        assert_eq!(
            namespace.search(&mut search).await,
            "127.0.0.1:9901, a hint"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn node_is_not_searched() {
        let mut namespace = Namespace::new(&[
            ("127.0.0.1:2379", Server::Envoy),
            ("127.0.0.1:9901", Server::Other),
        ]);
        let mut search = search("127.0.0.1:9901,unix:/run/admin.sock");
        assert_eq!(namespace.search_in(&mut search, None).await, "NotFound");
        assert_eq!(namespace.asked(), "127.0.0.1:9901 unix:/run/admin.sock");
        // A time-out is no answer any more once there is another.
        namespace.servers[1].1 = Server::Silent;
        assert_eq!(namespace.search_in(&mut search, None).await, "Silent");
        let stopped = namespace.servers.pop();
        advance(Duration::from_secs(2)).await;
        assert_eq!(
            namespace.search_in(&mut search, None).await,
            "NothingListens"
        );
        namespace.servers.extend(stopped);
        for _ in 0..2 {
            assert_eq!(namespace.search_in(&mut search, None).await, "Silent");
            advance(Duration::from_secs(10)).await;
        }
        namespace.listeners = vec!["0.0.0.0:9901".parse().unwrap()];
        namespace.servers[1].1 = Server::Envoy;
        assert_eq!(namespace.search_in(&mut search, None).await, "NotFound");
        namespace.listeners.clear();
        assert_eq!(
            namespace.search_in(&mut search, None).await,
            "127.0.0.1:9901, a hint"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_envoy_is_taken_by_guess() {
        let admins = [
            ("127.0.0.1:15000", Server::Envoy),
            ("0.0.0.0:10000", Server::Envoy),
        ];
        let mut namespace = Namespace::new(&admins);
        let mut search = search("127.0.0.1:9901");
        let ambiguous = "Ambiguous(\"127.0.0.1:15000, 127.0.0.1:10000\")";
        assert_eq!(namespace.search(&mut search).await, ambiguous);
        assert_eq!(namespace.search(&mut search).await, ambiguous);
        assert_eq!(namespace.asked(), "127.0.0.1:15000 127.0.0.1:10000");
        let many = (1..=6).map(|port| (format!("127.0.0.1:{port}"), Server::Envoy));
        let many: Vec<_> = many.collect();
        let many: Vec<_> = many.iter().map(|(at, server)| (&**at, *server)).collect();
        assert_eq!(
            Namespace::new(&many).search(&mut search).await,
            "Ambiguous(\"127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3, 127.0.0.1:4, 2 more\")"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_of_envoy_are_not_its_admin_interface() {
        let hint = "127.0.0.1:9901";
        let listener = |text: &str| AdminAddress::Tcp(text.parse().unwrap());
        for (servers, found) in [
            (&[("127.0.0.1:15000", Server::Envoy)][..], "127.0.0.1:15000"),
            (&[("unix:@admin", Server::Envoy)], "unix:@admin"),
            (&[], "NotFound"),
        ] {
            for place in ["0.0.0.0:9901", "0.0.0.0:10000", "10.0.0.7:10000"] {
                let mut namespace = Namespace::new(servers);
                let place = listener(place);
                namespace.servers.push((place.clone(), Server::Envoy));
                namespace.listeners = vec![listener("0.0.0.0:80"), place];
                assert_eq!(namespace.search(&mut search(hint)).await, found);
            }
        }
        // A hung Envoy does not make two of one.
        let mut namespace = Namespace::new(&[("127.0.0.1:15000", Server::Envoy)]);
        let place = listener("0.0.0.0:10000");
        namespace.servers.push((place.clone(), Server::Envoy));
        namespace.listeners = vec![place];
        let mut search = search(hint);
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:15000");
        namespace.is_hung = true;
        assert_eq!(namespace.search(&mut search).await, "Unanswered");
        // Another address of the port is none of its listeners.
        let mut namespace = Namespace::new(&[("127.0.0.1:15000", Server::Envoy)]);
        namespace.listeners = vec![listener("10.0.0.7:15000")];
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:15000");
    }

    #[tokio::test(start_paused = true)]
    async fn envoy_is_taken_when_no_other_may_answer() {
        let servers = [
            ("127.0.0.1:15000", Server::Envoy),
            ("127.0.0.1:15001", Server::Silent),
        ];
        let mut namespace = Namespace::new(&servers);
        let mut all = search("127.0.0.1:9901");
        assert_eq!(namespace.search(&mut all).await, "Unanswered");
        namespace.choice = Choice::Any;
        assert_eq!(namespace.search(&mut all).await, "127.0.0.1:15000");
        namespace.choice = Choice::Certain;
        // Its own listeners, which have no backend yet, are not waited for.
        namespace.listeners = vec!["127.0.0.1:15001".parse().unwrap()];
        assert_eq!(namespace.search(&mut all).await, "127.0.0.1:15000");
        namespace.listeners.clear();
        for pause in [2, 10] {
            assert_eq!(namespace.search(&mut all).await, "Unanswered");
            advance(Duration::from_secs(pause)).await;
        }
        assert_eq!(namespace.search(&mut all).await, "127.0.0.1:15000");
        // A hint is certain.
        let mut certain = search("127.0.0.1:15000");
        assert_eq!(
            Namespace::new(&servers).search(&mut certain).await,
            "127.0.0.1:15000, a hint"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn ipv4_reaches_an_admin_interface_where_lo_has_no_ipv6() {
        for hint in ["", "[::1]:19000"] {
            let mut namespace = Namespace::new(&[("[::]:19000", Server::Envoy)]);
            namespace.has_no_ipv6 = true;
            let found = namespace.search(&mut search(hint)).await;
            assert!(found.starts_with("127.0.0.1:19000"), "{found}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn search_asks_a_limited_number_of_servers() {
        let many: Vec<_> = (1..=100)
            .map(|port| (format!("127.0.0.1:{port}"), Server::Other))
            .collect();
        let mut many: Vec<_> = many
            .iter()
            .map(|(address, server)| (&**address, *server))
            .collect();
        many[99].1 = Server::Envoy;
        let mut namespace = Namespace::new(&many);
        let mut search = search("");
        assert_eq!(namespace.search(&mut search).await, "Unanswered");
        assert_eq!(namespace.asked.lock().unwrap().len(), MAX_ASKED);
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:100");
    }
}
