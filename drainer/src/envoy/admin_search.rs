//! The search for the admin interface of the pod's Envoy: which sockets are asked, and which of the Envoys that answer is
//! taken.
//!
//! Envoy's configuration may be in a file, in an image, or come from an agent, so that its manifest does not show the
//! address. But the drainer shares the pod's network namespace, whose sockets the kernel lists, and only an Envoy's admin
//! interface answers `GET /server_info` as it does.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::debug;

use super::admin_call::CallError;
use super::admin_probe::{self, Answer, EnvoyAnswer};
use crate::kernel::Sockets;
use crate::kernel::socket::DATAGRAM;
use crate::settings::admin_address::{AdminAddress, EnvoyFlags};
use crate::settings::config::Config;

/// Searches for the admin interface, and remembers what has answered.
#[derive(Debug)]
pub(crate) struct AdminSearch {
    /// Addresses at which the pod's manifest places it, the most certain first.
    pub(super) hints: Vec<AdminAddress>,
    /// On a node's network, the flags of the pod's Envoy: no other Envoy is taken, and only hints are asked.
    node_flags: Option<EnvoyFlags>,
    /// The drainer's own port.
    own_port: NonZeroU16,
    candidates: BTreeMap<Place, AdminCandidate>,
}

/// The place of a socket in the search: that of its hint, or else [`NO_HINT`]; whether it is on another address than
/// loopback, on which most admin interfaces are; its own address; and its inode, or [`UNKNOWN`].
type Place = (usize, bool, AdminAddress, u64);

/// A socket that may be that of the admin interface, and what has answered there.
#[derive(Debug)]
struct AdminCandidate {
    is_hint: bool,
    /// Where to call it: at the next if one refuses.
    addresses: Vec<AdminAddress>,
    /// [`CallError::Unanswered`] if it was not asked.
    answer: Answer,
    /// How many times in a row it was asked for that, and when last.
    tries: usize,
    asked_at: Instant,
}

const NO_HINT: usize = usize::MAX;

/// The inode of a socket that is not among those of the network namespace.
const UNKNOWN: u64 = 0;

/// How long after so many tries in a row a socket is asked again, in seconds. An Envoy that starts accepts connections before
/// it answers.
const PAUSES: [u64; 3] = [0, 2, 10];

/// How many sockets are asked at the same time.
const MAX_ASKED: usize = 64;

/// How many of several Envoys are named.
const MAX_NAMED: usize = 4;

/// The abstract sockets of Envoy's hot restart, and those of drainers.
const NOT_ADMIN: [&str; 2] = ["envoy_domain_socket", "envoy-drainer"];

// === impl AdminSearch ===

impl AdminSearch {
    /// A search that has asked nothing; `None` if the address is annotated. Where the flags of Envoy are known, that is only
    /// a hint: on a node's network, another pod's Envoy may have the address.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let annotated = &config.admin_address;
        let is_final = annotated.is_some() && config.envoy_flags.is_empty();
        let hints = annotated.iter().chain(&config.admin_hints);
        (!is_final).then(|| Self {
            hints: hints.cloned().collect(),
            node_flags: (config.host_network || config.manager.is_some())
                .then(|| config.envoy_flags.clone()),
            own_port: config.settings.port,
            candidates: BTreeMap::new(),
        })
    }

    /// Asks hints, and if none is the admin interface of the pod's Envoy, the other `sockets`; all of these at the same time,
    /// so that no silent server delays the others. Without `sockets`, and on a node's network, only hints are asked.
    pub(crate) async fn run(&mut self, sockets: Option<&Sockets>) -> Answer {
        self.update(sockets);
        let flags = self.node_flags.as_ref();
        for is_hint in [true, false] {
            let due = self.candidates.values_mut();
            let due = due.filter(|it| it.is_hint == is_hint && it.is_due());
            join_all(due.take(MAX_ASKED).map(|it| it.ask(sockets, flags))).await;
            if self.choose().is_ok_and(|it| it.is_hint) {
                break;
            }
        }
        self.choose()
    }

    /// Decides by the answers so far: the first Envoy that a hint names is taken, or else the only one.
    pub(crate) fn choose(&self) -> Answer {
        use CallError::{Ambiguous, NotFound, NothingListens, Silent, Unanswered, Unproved};
        let all = self.candidates.values();
        let answers = all.clone().map(|it| &it.answer);
        let envoys = answers.clone().flatten();
        let listeners = envoys.clone().flat_map(|it| it.listeners.iter().flatten());
        let is_listener = |it: &EnvoyAnswer| listeners.clone().any(|at| at.covers(&it.address));
        let mut envoys: Vec<_> = envoys.filter(|it| !is_listener(it)).collect();
        // Of the same Envoy, an answer that shows its place comes first. With another between them, there are several anyway.
        envoys.sort_by_key(|it| it.admin.is_none() && !it.is_hint);
        envoys.dedup_by(|other, envoy| other.is_same(envoy));
        let mut errors = answers.filter_map(|it| it.as_ref().err());
        let unproved = errors.find(|it| matches!(it, Unproved(_)));
        match &envoys[..] {
            [envoy, others @ ..] if others.is_empty() || envoy.is_hint => Ok((*envoy).clone()),
            [_, ..] => {
                let addresses = envoys.iter().map(|it| it.address.to_string());
                let mut named: Vec<_> = addresses.take(MAX_NAMED).collect();
                let more = envoys.len() - named.len();
                named.extend((more > 0).then(|| format!("{more} more")));
                Err(Ambiguous(named.join(", ")))
            }
            _ if all.clone().all(|it| it.fails(CallError::is_refusal)) => Err(NothingListens),
            _ if all.clone().any(|it| it.fails(|error| *error == Unanswered)) => Err(Unanswered),
            _ if all.clone().any(AdminCandidate::may_answer) => Err(Silent),
            [] => Err(unproved.cloned().unwrap_or(NotFound)),
        }
    }

    /// Adds the sockets that are new, and forgets those that are gone: others listen at their addresses now.
    fn update(&mut self, sockets: Option<&Sockets>) {
        let mut known = std::mem::take(&mut self.candidates);
        let mut all = sockets.cloned().unwrap_or_default();
        let is_unlisted = |it: &&_| sockets.is_none() || matches!(it, AdminAddress::Path(_));
        let unlisted = self.hints.iter().filter(is_unlisted);
        all.extend(unlisted.map(|it| (it.clone(), UNKNOWN)));
        for (bound, inode) in &all {
            let addresses = addresses(bound, &all);
            let hint = self.hints.iter().position(|it| addresses.contains(it));
            let may_be_admin = match bound {
                // The node's network has other pods' Envoys.
                _ if hint.is_none() && self.node_flags.is_some() || *inode == DATAGRAM => false,
                AdminAddress::Tcp(at) => at.port() != self.own_port.get(),
                AdminAddress::Abstract(name) => !NOT_ADMIN.iter().any(|it| name.starts_with(it)),
                AdminAddress::Path(_) => true,
            };
            if may_be_admin {
                let is_loopback = matches!(bound, AdminAddress::Tcp(at) if at.ip().is_loopback());
                let place = (hint.unwrap_or(NO_HINT), !is_loopback, bound.clone(), *inode);
                let known = known.remove(&place);
                // Another socket may be at an unknown one by now, so that only the lack of an answer is known of it.
                let known = known.filter(|it| *inode != UNKNOWN || it.fails(CallError::is_silence));
                let candidate = known.unwrap_or_else(|| AdminCandidate {
                    is_hint: hint.is_some(),
                    addresses,
                    answer: Err(CallError::Unanswered),
                    tries: 0,
                    asked_at: Instant::now(),
                });
                self.candidates.insert(place, candidate);
            }
        }
    }
}

/// Where to call a socket. One on `[::]` may be IPv6's alone, which refuses IPv4, or be in a pod without `::1`. At an address
/// that another socket has, the kernel takes that one.
fn addresses(bound: &AdminAddress, all: &Sockets) -> Vec<AdminAddress> {
    let AdminAddress::Tcp(at) = bound else {
        return vec![bound.clone()];
    };
    let is_taken = |it: &AdminAddress| all.get(it).is_some_and(|inode| *inode != DATAGRAM);
    let is_free = |it: &AdminAddress| it == bound || !is_taken(it);
    let v4 = |ip: Ipv4Addr| AdminAddress::Tcp((ip, at.port()).into());
    let has_v4 = at.ip().is_unspecified() && is_free(&v4(Ipv4Addr::UNSPECIFIED));
    let v4 = has_v4.then(|| v4(Ipv4Addr::LOCALHOST));
    let both = v4.into_iter().chain([bound.reachable()]);
    both.filter(is_free).collect()
}

// === impl AdminCandidate ===

impl AdminCandidate {
    /// Asks at one address after the other, until one does not refuse, and notes the answer: it is not lost if the search is
    /// cancelled before its end.
    async fn ask(&mut self, sockets: Option<&Sockets>, flags: Option<&EnvoyFlags>) {
        let mut answer = Err(CallError::NothingListens);
        for address in &self.addresses {
            answer = admin_probe::ask(address, self.is_hint).await;
            if !answer.as_ref().is_err_and(CallError::is_refusal) {
                break;
            }
        }
        let answer = answer.and_then(|it| it.verify(sockets, flags));
        debug!(addresses = ?self.addresses, error = ?answer.as_ref().err(), "Asked for an admin interface");
        let is_silence = answer.as_ref().is_err_and(CallError::is_silence);
        self.tries = if is_silence { self.tries + 1 } else { 1 };
        (self.answer, self.asked_at) = (answer, Instant::now());
    }

    /// Returns true if the answer is such an error.
    fn fails(&self, is_such: impl FnOnce(&CallError) -> bool) -> bool {
        self.answer.as_ref().is_err_and(is_such)
    }

    /// Returns true if there was no response in time, or a broken one, as that of an Envoy at its limit of connections, but
    /// may be one later.
    fn may_answer(&self) -> bool {
        self.fails(CallError::is_silence) && self.tries < PAUSES.len()
    }

    /// Returns true if the socket is to be asked now. That of a hint always is, some time, and that of an Envoy, whose
    /// listeners may come.
    fn is_due(&self) -> bool {
        let pause = PAUSES.get(self.tries).map(|it| Duration::from_secs(*it));
        let is_over = pause.map_or(self.is_hint, |pause| self.asked_at.elapsed() >= pause);
        use CallError::{Unanswered, Unproved};
        let may_change = |it: &CallError| it.is_silence() || matches!(it, Unanswered | Unproved(_));
        is_over && self.fails(may_change)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::net::{IpAddr, SocketAddr};
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
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
        /// `admin.allow_paths` has no path that is asked.
        ForbiddingEnvoy,
        /// It passes requests on to the Envoy with the admin interface there.
        Proxy(&'static str),
        /// The same, and that is in another pod.
        Foreign(&'static str),
        /// As [`Server::Proxy`], but its own address replaces that of the admin interface in `/config_dump`.
        Impostor(&'static str),
        /// As [`Server::Proxy`], but it forbids `/config_dump`.
        ForbiddingProxy(&'static str),
        /// An Envoy whose listeners are not there yet.
        Starting,
        Forbidding,
        Other,
        /// In no time, or in a broken way.
        Silent,
        /// It keeps the connection open.
        Hung,
    }

    /// A listener of each Envoy in the pod. It is not asked, since it has the drainer's port.
    const HERE: &str = "10.0.0.7:15902";

    /// A network namespace: addresses at which servers listen, and what is asked of them.
    #[derive(Default, Clone)]
    struct Namespace {
        servers: Vec<(AdminAddress, Server)>,
        /// More listeners of each Envoy.
        listeners: Vec<AdminAddress>,
        /// `lo` has no `::1`.
        has_no_ipv6: bool,
        /// Envoys do not respond any more.
        is_hung: bool,
        asked: Arc<Mutex<Vec<String>>>,
    }

    fn address(text: &str) -> AdminAddress {
        match text.parse::<SocketAddr>() {
            Ok(address) => AdminAddress::Tcp(address),
            Err(_) => text.parse().unwrap(),
        }
    }

    /// An address in Envoy's JSON.
    fn json_of(address: &AdminAddress) -> Value {
        match address {
            AdminAddress::Tcp(at) => {
                json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}})
            }
            other => json!({"pipe": {"path": other.to_string().trim_start_matches("unix:")}}),
        }
    }

    impl Namespace {
        fn new(servers: &[(&str, Server)]) -> Self {
            let servers = servers.iter();
            Self {
                servers: servers.map(|(at, server)| (address(at), *server)).collect(),
                ..Self::default()
            }
        }

        fn sockets(&self) -> Sockets {
            let addresses = self.servers.iter().map(|(address, _)| address.clone());
            addresses.chain([address(HERE)]).zip(1..).collect()
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
            match IN_MEMORY.scope(connect, search.run(sockets)).await {
                Ok(found) if found.is_hint => format!("{}, a hint", found.address),
                Ok(found) => found.address.to_string(),
                Err(absence) => format!("{absence:?}"),
            }
        }

        /// The addresses that were asked, in the order of their text.
        fn asked(&mut self) -> String {
            let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
            asked.sort();
            asked.join(" ")
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
            let Some((at, server)) = servers.first().copied().cloned() else {
                asked.lock().unwrap().push(name);
                return Err(ErrorKind::ConnectionRefused.into());
            };
            let namespace = self.clone();
            let (client, mut stream) = duplex(1 << 16);
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap();
                if path == "/server_info" {
                    asked.lock().unwrap().push(name);
                }
                if server == Server::Hung {
                    std::future::pending::<()>().await;
                }
                let response = namespace.response(&at, server, path);
                stream.write_all(response.as_bytes()).await.unwrap();
            });
            Ok(client)
        }

        fn response(&self, at: &AdminAddress, server: Server, path: &str) -> String {
            let admin = match server {
                Server::Impostor(to) if path != "/config_dump?mask=bootstrap.admin" => address(to),
                Server::Proxy(to) | Server::ForbiddingProxy(to) | Server::Foreign(to) => {
                    address(to)
                }
                _ => at.clone(),
            };
            let is_here = !matches!(server, Server::Foreign(_) | Server::Starting);
            let listeners = self.listeners.iter().cloned();
            let listeners = listeners.chain([address(if is_here { HERE } else { "10.0.0.8:80" })]);
            let statuses = listeners.map(|it| json!({"local_address": json_of(&it)}));
            let body = match (server, path) {
                (Server::Silent, _) => return String::new(),
                (_, "/listeners?format=json") if self.is_hung => return String::new(),
                (Server::Other, _) => return "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
                (Server::Forbidding, _)
                | (Server::ForbiddingProxy(_), "/config_dump?mask=bootstrap.admin") => {
                    return "HTTP/1.1 403 Forbidden\r\n\r\n".to_owned();
                }
                (Server::ForbiddingEnvoy, _) => {
                    return format!(
                        "HTTP/1.1 403 Forbidden\r\n\r\nrequest to path {path} not allowed"
                    );
                }
                (_, "/server_info") => json!({
                    "version": format!("a/1.40.0/{admin}"),
                    "uptime_current_epoch": "60s",
                    "command_line_options": {"config_path": "/envoy.yaml", "base_id": admin.to_string()},
                }),
                (_, "/listeners?format=json") => {
                    json!({"listener_statuses": statuses.collect::<Vec<_>>()})
                }
                _ => json!({"configs": [{"bootstrap": {"admin": {"address": json_of(&admin)}}}]}),
            };
            format!("HTTP/1.1 200 OK\r\n\r\n{body:#}")
        }
    }

    fn search(hints: &str) -> AdminSearch {
        let config = Config {
            admin_hints: crate::settings::value::parse_list(hints).unwrap(),
            ..Config::new(crate::Token(0))
        };
        AdminSearch::new(&config).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn hints_come_first_and_then_all_others() {
        use Server::{Envoy, Forbidding, ForbiddingEnvoy, Ipv6Envoy, Other};
        let hint = "127.0.0.1:9901";
        let is_taken = "127.0.0.1:9901, a hint";
        for (servers, found, asked) in [
            (
                &[(hint, Envoy), ("127.0.0.1:19000", Envoy)][..],
                is_taken,
                hint,
            ),
            (&[("0.0.0.0:9901", Envoy)], is_taken, hint),
            (&[("[::]:9901", Envoy)], is_taken, hint),
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
                &[(hint, ForbiddingEnvoy), ("127.0.0.1:19000", Envoy)],
                is_taken,
                hint,
            ),
            (&[(hint, Forbidding)], "NotFound", hint),
            (
                &[(hint, Forbidding), ("127.0.0.1:19000", Envoy)],
                "127.0.0.1:19000",
                "127.0.0.1:19000 127.0.0.1:9901",
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
                "10.0.0.7:15000 127.0.0.1:8001 127.0.0.1:8080 127.0.0.1:9901 unix:@admin",
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
        search.node_flags = Some(EnvoyFlags::new());
        assert_eq!(namespace.search(&mut search).await, "NotFound");
        assert_eq!(namespace.asked(), "127.0.0.1:9901 unix:/run/admin.sock");
        // Nor without a list of sockets. A time-out is no answer any more once there is another.
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
        namespace.listeners = vec![address("0.0.0.0:9901")];
        namespace.servers[1].1 = Server::Envoy;
        let listener = r#"Unproved("at 127.0.0.1:9901, it has a listener")"#;
        assert_eq!(namespace.search_in(&mut search, None).await, listener);
        namespace.listeners.clear();
        assert_eq!(
            namespace.search_in(&mut search, None).await,
            "127.0.0.1:9901, a hint"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn envoy_of_another_pod_of_the_node_is_not_taken() {
        let hint = "127.0.0.1:9901";
        let another = r#"Unproved("at 127.0.0.1:9901, its command line is not the pod's")"#;
        let own = ("config_path", "/envoy.yaml");
        for (server, flags, found) in [
            (Server::Envoy, &[own][..], "127.0.0.1:9901, a hint"),
            (Server::Envoy, &[own, ("service_node", "other")], another),
            (Server::ForbiddingEnvoy, &[], another),
        ] {
            let flags = flags
                .iter()
                .map(|(name, value)| (name.to_string(), (*value).into()));
            let mut search = search(hint);
            search.node_flags = Some(flags.collect());
            let mut namespace = Namespace::new(&[(hint, server)]);
            assert_eq!(namespace.search(&mut search).await, found);
        }
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
        assert_eq!(namespace.asked(), "127.0.0.1:10000 127.0.0.1:15000");
        let many = (1..=6).map(|port| (format!("127.0.0.1:{port}"), Server::Envoy));
        let many: Vec<_> = many.collect();
        let many: Vec<_> = many.iter().map(|(at, server)| (&**at, *server)).collect();
        assert_eq!(
            Namespace::new(&many).search(&mut search).await,
            "Ambiguous(\"127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3, 127.0.0.1:4, 2 more\")"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn envoy_is_taken_where_it_shows_that_it_is_the_pods() {
        use Server::{Envoy, ForbiddingEnvoy, ForbiddingProxy, Foreign, Impostor, Proxy, Starting};
        const ADMIN: &str = "127.0.0.1:15000";
        const HINT: &str = "127.0.0.1:9901";
        const VOLUME: &str = "unix:/run/admin.sock";
        let unproved = |at, why| format!("Unproved(\"at {at}, {why}\")");
        let not_here = "none of its listeners is in this pod";
        for (servers, found) in [
            // A reverse proxy to the admin interface.
            (
                &[(ADMIN, Envoy), ("0.0.0.0:8080", Proxy(ADMIN))][..],
                ADMIN.to_owned(),
            ),
            (&[(ADMIN, Envoy), (HINT, Proxy(ADMIN))], ADMIN.to_owned()),
            (
                &[
                    ("unix:@admin", Envoy),
                    ("127.0.0.1:80", Proxy("unix:@admin")),
                ],
                "unix:@admin".to_owned(),
            ),
            // Two to one on a socket that cannot be reached.
            (
                &[
                    ("127.0.0.1:80", Proxy(VOLUME)),
                    ("127.0.0.1:81", Proxy(VOLUME)),
                ],
                "127.0.0.1:80".to_owned(),
            ),
            // Two that show different places contradict each other; one that shows none does not.
            (
                &[("127.0.0.1:80", Impostor(ADMIN)), (ADMIN, Envoy)],
                format!("Ambiguous(\"127.0.0.1:80, {ADMIN}\")"),
            ),
            (
                &[("127.0.0.1:80", ForbiddingProxy(ADMIN)), (ADMIN, Envoy)],
                ADMIN.to_owned(),
            ),
            // A listener that routes to the admin interface of another pod's Envoy.
            (
                &[("127.0.0.1:80", Foreign(HINT))],
                unproved("127.0.0.1:80", not_here),
            ),
            (&[(HINT, Foreign(HINT))], unproved(HINT, not_here)),
            (
                &[(HINT, ForbiddingEnvoy), ("127.0.0.1:80", Foreign(HINT))],
                format!("{HINT}, a hint"),
            ),
            (
                &[(ADMIN, ForbiddingEnvoy), ("127.0.0.1:80", Foreign(HINT))],
                unproved("127.0.0.1:80", not_here),
            ),
            (
                &[(ADMIN, ForbiddingEnvoy)],
                unproved(ADMIN, "it forbids /listeners"),
            ),
            (
                &[("127.0.0.1:80", Proxy("127.0.0.1:81"))],
                unproved("127.0.0.1:80", "its admin interface is elsewhere"),
            ),
            (&[(HINT, Starting)], unproved(HINT, not_here)),
        ] {
            let mut namespace = Namespace::new(servers);
            assert_eq!(namespace.search(&mut search(HINT)).await, found);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_of_envoy_are_not_its_admin_interface() {
        let hint = "127.0.0.1:9901";
        for (servers, found) in [
            (&[("127.0.0.1:15000", Server::Envoy)][..], "127.0.0.1:15000"),
            (&[("unix:@admin", Server::Envoy)], "unix:@admin"),
            (&[], "Unproved"),
        ] {
            for place in ["0.0.0.0:9901", "0.0.0.0:10000", "10.0.0.7:10000"] {
                let mut namespace = Namespace::new(servers);
                namespace.servers.push((address(place), Server::Envoy));
                namespace.listeners = vec![address("0.0.0.0:80"), address(place)];
                let taken = namespace.search(&mut search(hint)).await;
                assert!(taken.starts_with(found), "{taken}");
            }
        }
        // A hung Envoy does not make two of one.
        let mut namespace = Namespace::new(&[("127.0.0.1:15000", Server::Envoy)]);
        let place = address("0.0.0.0:10000");
        namespace.servers.push((place.clone(), Server::Envoy));
        namespace.listeners = vec![place];
        let mut known = search(hint);
        assert_eq!(namespace.search(&mut known).await, "127.0.0.1:15000");
        namespace.is_hung = true;
        assert_eq!(namespace.search(&mut known).await, "127.0.0.1:15000");
        assert_eq!(namespace.search(&mut search(hint)).await, "Silent");
        // Another address of the port is none of its listeners.
        let mut namespace = Namespace::new(&[("127.0.0.1:15000", Server::Envoy)]);
        namespace.listeners = vec![address("10.0.0.7:15000")];
        let found = namespace.search(&mut search(hint)).await;
        assert_eq!(found, "127.0.0.1:15000");
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_that_come_later_show_the_pods_envoy() {
        let mut namespace = Namespace::new(&[("127.0.0.1:15000", Server::Starting)]);
        let mut search = search("");
        for _ in 0..60 {
            let found = namespace.search(&mut search).await;
            assert!(found.starts_with("Unproved"), "{found}");
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(namespace.asked.lock().unwrap().len(), 30);
        namespace.servers[0].1 = Server::Envoy;
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:15000");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_servers_do_not_delay_an_envoy() {
        let silent: Vec<_> = (1..=40).map(|port| format!("127.0.0.1:{port}")).collect();
        let silent = silent.iter().map(|address| (&**address, Server::Hung));
        let servers: Vec<_> = silent.chain([("127.0.0.1:15000", Server::Envoy)]).collect();
        let mut namespace = Namespace::new(&servers);
        let mut search = search("");
        // The answer is known although the search is cancelled.
        let limit = Duration::from_millis(1);
        let cancelled = tokio::time::timeout(limit, namespace.search(&mut search)).await;
        assert!(cancelled.is_err());
        let known = search.choose().unwrap();
        assert_eq!(known.address, address("127.0.0.1:15000"));
        let started_at = Instant::now();
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:15000");
        assert_eq!(started_at.elapsed().as_millis(), 500);
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
