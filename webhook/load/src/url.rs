//! The URL of a load's requests, and the host and port of its connections.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};

/// An absolute URL with the scheme `http` or `https`, such as `http://edge.shop/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LoadUrl(Uri);

/// Why a text is no [`LoadUrl`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no URL such as http://edge.shop/ or https://edge.shop:8443/path")]
pub struct InvalidUrl(String);

/// A host's name or IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port, of TCP and of UDP.
    pub port: u16,
}

/// Why a text is no [`HostPort`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host and port such as edge:80 or [::1]:8080")]
pub struct InvalidHostPort(String);

// === impl LoadUrl ===

impl LoadUrl {
    /// The host's name or IP address, without brackets.
    pub fn host(&self) -> &str {
        let host = self.0.host().unwrap_or_default();
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The host and the port, which is 80 or 443 if the URL has none.
    pub fn host_port(&self) -> HostPort {
        let default = if self.is_tls() { 443 } else { 80 };
        HostPort {
            host: self.host().to_owned(),
            port: self.0.port_u16().unwrap_or(default),
        }
    }

    /// Whether the scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// The path with the query.
    pub fn path(&self) -> &str {
        self.0.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    /// The same URL with another path, which begins with `/`.
    ///
    /// # Errors
    /// If the path is invalid.
    pub fn with_path(&self, path: &str) -> Result<Self, InvalidUrl> {
        let invalid = || InvalidUrl(path.to_owned());
        let mut parts = self.0.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(|_| invalid())?);
        if !path.starts_with('/') {
            return Err(invalid());
        }
        Ok(Self(Uri::from_parts(parts).map_err(|_| invalid())?))
    }

    /// The value of the header `Host`.
    pub(crate) fn authority(&self) -> &str {
        self.0.authority().map_or("", |it| it.as_str())
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }
}

impl FromStr for LoadUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let invalid = || InvalidUrl(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().ok_or_else(invalid)?;
        let has_user = authority.as_str().contains('@');
        // `Uri` ignores a port that it cannot parse.
        let port = authority.as_str().strip_prefix(authority.host());
        let port = port.and_then(|rest| rest.strip_prefix(':'));
        let has_port = port.is_none_or(|port| port.parse().is_ok_and(|port: u16| port > 0));
        if !is_http || has_user || !has_port || authority.host().is_empty() {
            return Err(invalid());
        }
        Ok(Self(uri))
    }
}

impl TryFrom<String> for LoadUrl {
    type Error = InvalidUrl;

    fn try_from(text: String) -> Result<Self, InvalidUrl> {
        text.parse()
    }
}

impl From<LoadUrl> for String {
    fn from(url: LoadUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for LoadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl HostPort ===

impl FromStr for HostPort {
    type Err = InvalidHostPort;

    fn from_str(text: &str) -> Result<Self, InvalidHostPort> {
        let parse = || {
            let (host, port) = text.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = port.parse().ok().filter(|port| *port > 0)?;
            (!host.is_empty()).then(|| Self {
                host: host.to_owned(),
                port,
            })
        };
        parse().ok_or_else(|| InvalidHostPort(text.to_owned()))
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_those_of_the_url_or_of_its_scheme() {
        for (url, want, is_tls) in [
            ("http://edge", "edge:80", false),
            ("https://edge.shop/a?b=c", "edge.shop:443", true),
            ("http://10.0.0.1:8080/", "10.0.0.1:8080", false),
            ("http://[::1]:1/", "[::1]:1", false),
        ] {
            let url: LoadUrl = url.parse().unwrap();
            assert_eq!(url.host_port().to_string(), want, "{url}");
            assert_eq!(url.is_tls(), is_tls, "{url}");
        }
    }

    #[test]
    fn other_texts_are_no_urls() {
        for text in [
            "",
            "edge",
            "/path",
            "edge:80",
            "ftp://edge/",
            "http://edge:99999/",
            "http://edge:0/",
            "http://edge:/",
            "http://",
            "http://a@b/",
        ] {
            let error = text.parse::<LoadUrl>().unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("`{text}` ")),
                "{error}"
            );
        }
    }

    #[test]
    fn path_is_replaced_and_the_rest_kept() {
        let url: LoadUrl = "https://edge:8443/a?b=c".parse().unwrap();
        let other = url.with_path("/slow?ms=2000").unwrap();
        assert_eq!(other.to_string(), "https://edge:8443/slow?ms=2000");
        assert_eq!(url.path(), "/a?b=c");
        for path in ["slow", "", "/a b"] {
            assert!(url.with_path(path).is_err(), "`{path}`");
        }
    }
}
