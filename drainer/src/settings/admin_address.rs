//! The address of Envoy's admin interface, and the flags of the Envoy that has it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde_json::{Map, Value};
use strum::Display;

use super::value::InvalidValue;

/// An address that Envoy's `admin.address` can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
pub enum AdminAddress {
    /// `127.0.0.1:9901`, `[::1]:9901`. A parsed address is a loopback address.
    #[strum(to_string = "{0}")]
    Tcp(SocketAddr),
    /// `unix:/path/to.sock`, an absolute path.
    #[strum(to_string = "unix:{0}")]
    Path(String),
    /// `unix:@name`, a socket in Linux's abstract namespace, which a pod's containers share.
    #[strum(to_string = "unix:@{0}")]
    Abstract(String),
}

/// Flags of an Envoy as they are written, by their names in the `command_line_options` of its `/server_info`: `config_path`.
pub(crate) type EnvoyFlags = Map<String, Value>;

const FORMS: &str =
    "expected an address such as 127.0.0.1:9901, [::1]:9901, unix:/path or unix:@name";

const NOT_LOOPBACK: &str = "it is not a loopback address, and the drainer calls its own pod's Envoy only; \
                            write it like 127.0.0.1:9901 or [::1]:9901";

// === impl AdminAddress ===

impl AdminAddress {
    /// Its port; `None` for a Unix socket.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(at) => Some(at.port()),
            Self::Path(_) | Self::Abstract(_) => None,
        }
    }

    /// The same port on one of these IP addresses, the one of the same version; a Unix socket as it is.
    pub(crate) fn on(&self, v4: Ipv4Addr, v6: Ipv6Addr) -> Self {
        match self {
            Self::Tcp(SocketAddr::V4(at)) => Self::Tcp((v4, at.port()).into()),
            Self::Tcp(SocketAddr::V6(at)) => Self::Tcp((v6, at.port()).into()),
            Self::Path(_) | Self::Abstract(_) => self.clone(),
        }
    }

    /// The address at which to call a socket that listens on this one, which may be a wildcard.
    pub(crate) fn reachable(&self) -> Self {
        let is_wildcard = matches!(self, Self::Tcp(at) if at.ip().is_unspecified());
        let loopback = || self.on(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        is_wildcard.then(loopback).unwrap_or_else(|| self.clone())
    }

    /// Returns true if a socket that listens on this address, which may be a wildcard, may be called at the `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(a), Self::Tcp(b)) if a.ip().is_unspecified() => a.port() == b.port(),
            _ => self == other,
        }
    }
}

impl FromStr for AdminAddress {
    type Err = InvalidValue;

    /// Parses an address. A wildcard (`0.0.0.0`, `[::]`), on which Envoy listens on all addresses, becomes the
    /// loopback address. Any other address that is not a loopback address is rejected, so that the drainer's
    /// calls cannot be directed to another host.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid = || InvalidValue::new("admin address", text, FORMS);
        if let Some(path) = text.strip_prefix("unix:") {
            // A path with `..` may lead out of the volume that it seems to be in.
            let is_path =
                path.starts_with('/') && path.len() > 1 && !path.split('/').any(|it| it == "..");
            return match path.strip_prefix('@') {
                Some(name) if !name.is_empty() => Ok(Self::Abstract(name.to_owned())),
                None if is_path => Ok(Self::Path(path.to_owned())),
                _ => Err(invalid()),
            };
        }
        let bound: SocketAddr = text.parse().map_err(|_| invalid())?;
        let is_local = bound.ip().is_unspecified() || bound.ip().to_canonical().is_loopback();
        match bound.port() {
            0 => Err(invalid()),
            _ if is_local => Ok(Self::Tcp(bound).reachable()),
            _ => Err(InvalidValue::new("admin address", text, NOT_LOOPBACK)),
        }
    }
}

impl Default for AdminAddress {
    /// The address in Envoy's documentation, which most bootstraps have.
    fn default() -> Self {
        Self::Tcp(([127, 0, 0, 1], 9901).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_kept_but_for_wildcards() {
        for (text, want) in [
            ("127.0.0.1:9901", "127.0.0.1:9901"),
            ("127.1.2.3:1", "127.1.2.3:1"),
            ("[::1]:9901", "[::1]:9901"),
            ("[::ffff:127.0.0.1]:9901", "[::ffff:127.0.0.1]:9901"),
            ("unix:/a/b.sock", "unix:/a/b.sock"),
            ("unix:@x", "unix:@x"),
            ("0.0.0.0:9901", "127.0.0.1:9901"),
            ("[::]:9901", "[::1]:9901"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), want);
        }
    }

    #[test]
    fn names_incomplete_addresses_and_other_hosts_are_rejected() {
        let incomplete = "localhost:9901 127.0.0.1 :9901 127.0.0.1:0 127.0.0.1:70000 ::1:9901 unix: unix:@ unix:/ \
            unix:a unix:/a/../b http://127.0.0.1:9901";
        let elsewhere = "169.254.169.254:80 10.0.0.7:9901 [fe80::1]:9901 [::ffff:10.0.0.7]:9901 255.255.255.255:1";
        let incomplete = incomplete.split(' ').chain([""]).map(|text| (text, FORMS));
        let elsewhere = elsewhere.split(' ').map(|text| (text, NOT_LOOPBACK));
        for (text, why) in incomplete.chain(elsewhere) {
            let want = InvalidValue::new("admin address", text, why);
            assert_eq!(text.parse::<AdminAddress>(), Err(want));
        }
    }
}
