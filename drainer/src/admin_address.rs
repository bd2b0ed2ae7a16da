//! Where Envoy's admin interface is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The address of an admin interface, as Envoy's `admin.address` can hold it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AdminAddress {
    /// `127.0.0.1:9901`, `[::1]:9901`. A parsed one is loopback: the pod's own.
    Tcp(SocketAddr),
    /// `unix:/path/to.sock`, an absolute path.
    Path(PathBuf),
    /// `unix:@name`, a socket in Linux's abstract namespace, which a pod's containers share.
    Abstract(String),
}

/// Why a text is not an admin address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// It is none of the forms.
    #[error(
        "invalid admin address `{0}`: write it like 127.0.0.1:9901, [::1]:9901, unix:/path or \
         unix:@name"
    )]
    Malformed(String),
    /// It may be another host's.
    #[error(
        "invalid admin address `{0}`: it is not a loopback address, and the drainer calls its own \
         pod's Envoy only; write it like 127.0.0.1:9901 or [::1]:9901"
    )]
    NotLoopback(String),
}

// === impl AdminAddress ===

impl FromStr for AdminAddress {
    type Err = InvalidAddress;

    /// Reads an address. A wildcard (`0.0.0.0`, `[::]`), where an admin listens on all addresses,
    /// becomes the loopback address through which it is reached. Any other address that is not loopback
    /// is refused: nobody is to send the drainer's calls to another host.
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress::Malformed(text.to_owned());
        match text.strip_prefix("unix:") {
            // A path that climbs may leave the volume that it seems to be in.
            Some(path) if path.split('/').any(|part| part == "..") => Err(invalid()),
            Some(path) if path.starts_with('/') && path.len() > 1 => Ok(Self::Path(path.into())),
            Some(path) => match path.strip_prefix('@') {
                Some(name) if !name.is_empty() => Ok(Self::Abstract(name.to_owned())),
                _ => Err(invalid()),
            },
            None => {
                let mut address: SocketAddr = text.parse().map_err(|_| invalid())?;
                if address.port() == 0 {
                    return Err(invalid());
                }
                if address.ip().is_unspecified() {
                    address.set_ip(match address.ip() {
                        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                    });
                }
                if !address.ip().to_canonical().is_loopback() {
                    return Err(InvalidAddress::NotLoopback(text.to_owned()));
                }
                Ok(Self::Tcp(address))
            }
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Path(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_shown_as_it_was_written() {
        for text in [
            "127.0.0.1:9901",
            "[::1]:9901",
            "127.1.2.3:1",
            "[::ffff:127.0.0.1]:9901",
            "unix:/a/b.sock",
            "unix:@x",
        ] {
            let address: AdminAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_wildcard_is_reached_through_loopback() {
        for (text, reached) in [
            ("0.0.0.0:9901", "127.0.0.1:9901"),
            ("[::]:9901", "[::1]:9901"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), reached);
        }
    }

    #[test]
    fn names_and_halves_are_refused() {
        for text in [
            "",
            "localhost:9901",
            "127.0.0.1",
            ":9901",
            "127.0.0.1:0",
            "127.0.0.1:70000",
            "::1:9901",
            "unix:",
            "unix:@",
            "unix:/",
            "unix:a",
            "unix:/a/../b",
            "http://127.0.0.1:9901",
        ] {
            assert_eq!(
                text.parse::<AdminAddress>(),
                Err(InvalidAddress::Malformed(text.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        for text in [
            "169.254.169.254:80",
            "10.0.0.7:9901",
            "[fe80::1]:9901",
            "[::ffff:10.0.0.7]:9901",
            "255.255.255.255:1",
        ] {
            let refused = text.parse::<AdminAddress>().unwrap_err();
            assert_eq!(refused, InvalidAddress::NotLoopback(text.into()));
        }
    }
}
