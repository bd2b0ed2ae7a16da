//! The search for the admin interface of the pod's Envoy: which addresses are asked, and which of the Envoys that answer is
//! taken.
//!
//! Envoy's configuration may be in a file, in an image, or come from an agent, so that its manifest does not show the address.
//! But the drainer shares the pod's network namespace, whose sockets the kernel lists, and only an Envoy's admin interface
//! answers `GET /server_info` as it does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use tokio::time::Instant;

use crate::admin_address::AdminAddress;
use crate::listen_sockets::Sockets;

/// Searches for the admin interface, and remembers what has answered.
#[derive(Debug)]
pub(crate) struct AdminSearch {
    /// Addresses at which the pod's manifest places it, the most certain first.
    hints: Vec<AdminAddress>,
    /// The drainer's own port.
    own_port: NonZeroU16,
    /// What each socket has answered, while it listens.
    answers: BTreeMap<ListenSocket, Answer>,
}

/// The address at which a socket listens, which may be a wildcard, and its inode.
type ListenSocket = (AdminAddress, u64);

/// An admin interface that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundAdmin {
    pub(crate) address: AdminAddress,
    /// The manifest places it there.
    pub(crate) is_hint: bool,
}

/// Why no admin interface is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminAbsence {
    /// Some address is to be asked again.
    #[error("no admin interface of an Envoy has answered yet")]
    Unanswered,
    /// Every address that could be asked is another server's, or has not answered three times.
    #[error("no admin interface of an Envoy was found")]
    NotFound,
    /// More than one Envoy has answered.
    #[error("more than one Envoy has an admin interface: {0}")]
    Ambiguous(String),
}

/// The answer to `GET /server_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// That of an Envoy.
    Envoy,
    /// Forbidden, perhaps by `admin.allow_paths` of an Envoy. Counts where the manifest places the admin interface.
    Forbidden,
    /// No connection, or the answer of another server.
    Other,
    /// None in time.
    Timeout {
        /// How many times in a row.
        tries: usize,
        /// The last time.
        at: Instant,
    },
}

/// Calls that the search makes.
pub(crate) trait AdminProbe {
    /// Sends `GET /server_info`, with a timeout.
    async fn ask(&mut self, address: &AdminAddress) -> Answer;

    /// The addresses of the listeners of the Envoy whose admin interface is at an address; none if they are unknown.
    async fn listeners(&mut self, address: &AdminAddress) -> Vec<SocketAddr>;
}

/// How long after a time-out an address is asked again. An Envoy that starts accepts connections before it answers.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// How many addresses are asked in one search.
const MAX_ASKED: usize = 64;

/// The abstract sockets of Envoy's hot restart, and those of drainers.
const OTHER_SOCKETS: [&str; 2] = ["envoy_domain_socket", "envoy-drainer"];

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
    pub(crate) async fn run(
        &mut self,
        sockets: Option<&Sockets>,
        probe: &mut impl AdminProbe,
    ) -> Result<FoundAdmin, AdminAbsence> {
        let is_open = |(address, inode): &ListenSocket| {
            *inode == UNKNOWN || sockets.is_some_and(|all| all.get(address) == Some(inode))
        };
        self.answers.retain(|socket, _| is_open(socket));
        let found = |address, is_hint| FoundAdmin { address, is_hint };
        let mut asked = 0;
        for hint in self.hints.clone() {
            let Some(socket) = socket_of(&hint, sockets) else {
                continue;
            };
            let answer = self.ask(&hint, socket, true, &mut asked, probe).await;
            if matches!(answer, Some(Answer::Envoy | Answer::Forbidden)) {
                return Ok(found(hint, true));
            }
        }
        let mut envoys = Vec::new();
        for (bound, inode) in sockets.map_or_else(Vec::new, |sockets| self.in_order(sockets)) {
            let (address, socket) = (bound.reachable(), (bound.clone(), inode));
            let answer = self.ask(&address, socket, false, &mut asked, probe).await;
            if answer == Some(Answer::Envoy) {
                envoys.push((address, bound));
            }
        }
        if envoys.len() > 1 {
            remove_listeners(&mut envoys, probe).await;
        }
        let is_asked_again = |answer: &Answer| match answer {
            Answer::Timeout { tries, .. } => *tries <= RETRY_AFTER.len(),
            _ => false,
        };
        match &envoys[..] {
            [(address, _)] => Ok(found(address.clone(), false)),
            [] if asked >= MAX_ASKED || self.answers.values().any(is_asked_again) => {
                Err(AdminAbsence::Unanswered)
            }
            [] => Err(AdminAbsence::NotFound),
            several => {
                let addresses = several.iter().map(|(address, _)| address.to_string());
                let addresses: Vec<_> = addresses.collect();
                Err(AdminAbsence::Ambiguous(addresses.join(", ")))
            }
        }
    }

    /// Asks an address unless its answer is known, or enough were asked. Returns what is known then.
    async fn ask(
        &mut self,
        address: &AdminAddress,
        socket: ListenSocket,
        is_hint: bool,
        asked: &mut usize,
        probe: &mut impl AdminProbe,
    ) -> Option<Answer> {
        let known = self.answers.get(&socket).copied();
        let tries = match known {
            None => 0,
            Some(Answer::Timeout { tries, at }) => match RETRY_AFTER.get(tries - 1) {
                Some(pause) if at.elapsed() >= *pause => tries,
                None if is_hint => tries,
                _ => return known,
            },
            _ => return known,
        };
        if *asked >= MAX_ASKED {
            return None;
        }
        *asked += 1;
        let mut answer = probe.ask(address).await;
        if let Answer::Timeout { tries: now, .. } = &mut answer {
            *now += tries;
        }
        // Of an unknown socket, another one may listen there the next time.
        if socket.1 != UNKNOWN || matches!(answer, Answer::Timeout { .. }) {
            self.answers.insert(socket, answer);
        }
        Some(answer)
    }

    /// The sockets that may be an admin interface's: loopback addresses, on which most are, then the others.
    fn in_order(&self, sockets: &Sockets) -> Vec<ListenSocket> {
        let is_other = |name: &str| OTHER_SOCKETS.iter().any(|other| name.starts_with(other));
        let rank = |address: &AdminAddress| match address {
            AdminAddress::Tcp(address) if address.port() == self.own_port.get() => None,
            AdminAddress::Tcp(address) if address.ip().is_loopback() => Some(0),
            AdminAddress::Abstract(name) => (!is_other(name)).then_some(1),
            AdminAddress::Tcp(address) if address.ip().is_unspecified() => Some(2),
            AdminAddress::Tcp(_) => Some(3),
            AdminAddress::Path(_) => None,
        };
        let all = sockets.iter().filter(|(it, _)| rank(it).is_some());
        let mut all: Vec<_> = all.map(|(it, inode)| (it.clone(), *inode)).collect();
        all.sort_by_key(|(address, _)| rank(address));
        all
    }
}

/// The inode of a socket that is not among those of the network namespace.
const UNKNOWN: u64 = 0;

/// The socket that listens at the address of a hint; `None` if none does.
fn socket_of(hint: &AdminAddress, sockets: Option<&Sockets>) -> Option<ListenSocket> {
    let Some(sockets) = sockets.filter(|_| !matches!(hint, AdminAddress::Path(_))) else {
        return Some((hint.clone(), UNKNOWN));
    };
    let mut candidates = vec![hint.clone()];
    if let AdminAddress::Tcp(address) = hint {
        let v4 = address.is_ipv4().then_some(Ipv4Addr::UNSPECIFIED.into());
        let any = v4.into_iter().chain([IpAddr::from(Ipv6Addr::UNSPECIFIED)]);
        candidates.extend(any.map(|ip| AdminAddress::Tcp((ip, address.port()).into())));
    }
    candidates.into_iter().find_map(|bound| {
        let inode = *sockets.get(&bound)?;
        Some((bound, inode))
    })
}

/// Removes the listeners of Envoys: one that routes `/` to the admin interface answers as that does.
async fn remove_listeners(
    envoys: &mut Vec<(AdminAddress, AdminAddress)>,
    probe: &mut impl AdminProbe,
) {
    let mut listeners = Vec::new();
    for (address, _) in envoys.iter() {
        let addresses = probe.listeners(address).await.into_iter();
        listeners.extend(addresses.map(AdminAddress::Tcp));
    }
    envoys.retain(|(_, bound)| !listeners.contains(bound));
}

// === impl AdminAbsence ===

impl AdminAbsence {
    /// Returns true if no address is left to ask.
    pub(crate) fn is_final(&self) -> bool {
        *self != Self::Unanswered
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// How a server answers.
    #[derive(Clone, Copy)]
    enum Server {
        Envoy,
        Forbidding,
        Other,
        Silent,
    }

    /// A network namespace: addresses at which servers listen, and what is asked of them.
    #[derive(Default)]
    struct Namespace {
        servers: Vec<(AdminAddress, Server)>,
        /// The listeners of each Envoy.
        listeners: Vec<SocketAddr>,
        asked: Vec<String>,
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
            match search.run(sockets, self).await {
                Ok(found) if found.is_hint => format!("{}, a hint", found.address),
                Ok(found) => found.address.to_string(),
                Err(absence) => format!("{absence:?}"),
            }
        }

        fn asked(&mut self) -> String {
            std::mem::take(&mut self.asked).join(" ")
        }
    }

    impl AdminProbe for Namespace {
        async fn ask(&mut self, address: &AdminAddress) -> Answer {
            self.asked.push(address.to_string());
            let mut servers = self.servers.iter();
            let is_dual_stack = |bound: &AdminAddress| {
                matches!((bound, address), (AdminAddress::Tcp(bound), AdminAddress::Tcp(address))
                    if bound.ip() == Ipv6Addr::UNSPECIFIED && bound.port() == address.port())
            };
            match servers.find(|(bound, _)| bound.reachable() == *address || is_dual_stack(bound)) {
                Some((_, Server::Envoy)) => Answer::Envoy,
                Some((_, Server::Forbidding)) => Answer::Forbidden,
                Some((_, Server::Silent)) => Answer::Timeout {
                    tries: 1,
                    at: Instant::now(),
                },
                Some((_, Server::Other)) | None => Answer::Other,
            }
        }

        async fn listeners(&mut self, _: &AdminAddress) -> Vec<SocketAddr> {
            self.listeners.clone()
        }
    }

    fn search(hints: &str) -> AdminSearch {
        AdminSearch::new(
            crate::value::parse_list(hints).unwrap(),
            crate::DEFAULT_PORT,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn hints_come_first_and_then_loopback_before_wildcard() {
        use Server::{Envoy, Forbidding, Other};
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
            // `admin.allow_paths` without `/server_info`.
            (
                &[(hint, Forbidding)],
                "127.0.0.1:9901, a hint",
                "127.0.0.1:9901",
            ),
            (&[("127.0.0.1:80", Forbidding)], "NotFound", "127.0.0.1:80"),
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
                "[::1]:8001",
                "127.0.0.1:9901 unix:@admin 127.0.0.1:8080 [::1]:8001 10.0.0.7:15000",
            ),
            // The drainer's own port and socket, and that of Envoy's hot restart.
            (
                &[
                    ("[::]:15902", Envoy),
                    ("unix:@envoy-drainer:15902", Envoy),
                    ("unix:@envoy_domain_socket_parent_0", Envoy),
                ],
                "NotFound",
                "",
            ),
            (&[], "NotFound", ""),
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
        assert_eq!(results[11], "Unanswered");
        assert_eq!(results[12..], ["NotFound"; 48]);
        // Another server listens there.
        namespace
            .servers
            .insert(0, ("127.0.0.1:79".parse().unwrap(), Server::Other));
        namespace.servers[1].1 = Server::Envoy;
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
        namespace.servers[1].1 = Server::Envoy;
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
        // A listener that routes to the admin interface.
        namespace.listeners = vec!["0.0.0.0:10000".parse().unwrap()];
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:15000");
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
        assert_eq!(namespace.asked.len(), MAX_ASKED);
        assert_eq!(namespace.search(&mut search).await, "127.0.0.1:100");
    }
}
