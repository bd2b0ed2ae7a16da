//! A call of Envoy's admin interface: those that change Envoy, and why one is not answered.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use strum::{IntoStaticStr, VariantNames};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::http_client::HttpError::{self, ConnectionRefused, NoResponse, TooLarge};
use crate::http_client::{connect, exchange, request};
use crate::settings::admin_address::AdminAddress;
use crate::settings::duration::format;
use crate::text::printable;

use CallError::{
    Ambiguous, Forbidden, Http, NotFound, NotServing, NothingListens, Rejected, Unproved,
};

/// A call that changes Envoy, by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub(crate) enum AdminCall {
    /// Makes Envoy fail its health checks: readiness returns 503, and each response closes its
    /// connection or sends GOAWAY, whatever the drain strategy.
    #[strum(serialize = "/healthcheck/fail")]
    FailHealth,
    /// Undoes [`AdminCall::FailHealth`].
    #[strum(serialize = "/healthcheck/ok")]
    RestoreHealth,
    /// Starts the drain of listeners with `drain_type: MODIFY_ONLY` too, which ignore failed health. Nothing undoes it.
    /// Both parameters have no value, since only their presence matters. With `skip_exit` listeners still accept
    /// connections; before Envoy 1.40 it is rejected without `graceful`.
    #[strum(serialize = "/drain_listeners?graceful&skip_exit")]
    DrainListeners,
    /// The same for listeners whose direction is INBOUND alone, so that the app's own calls keep their connections.
    #[strum(serialize = "/drain_listeners?graceful&skip_exit&inboundonly")]
    DrainInboundListeners,
}

/// Why Envoy has not answered a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// There is no response.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The response is 403.
    #[error("{0}; is it in admin.allow_paths?")]
    Forbidden(String),
    /// A response that a retry does not change.
    #[error("{0}")]
    Rejected(String),
    /// No address is known, and some are to be asked again.
    #[error("no admin interface of an Envoy has answered yet")]
    Unanswered,
    /// No server listens that could be asked, so that Envoy does not run, or has no address that the drainer reaches.
    #[error("no admin interface of an Envoy was found: nothing listens")]
    NothingListens,
    /// Every address that could be asked is another server's, or has not answered at least once.
    #[error("no admin interface of an Envoy has answered yet")]
    Silent,
    /// Every address that could be asked is another server's, or has not answered three times.
    #[error("no admin interface of an Envoy was found")]
    NotFound,
    /// The pod has a server that is no Envoy, and it has never listened.
    #[error("the server listens on none of its ports")]
    NotServing,
    /// More than one Envoy has answered.
    #[error("more than one Envoy has an admin interface: {0}")]
    Ambiguous(String),
    /// An Envoy has answered that is not the pod's, or does not show that it is.
    #[error("no admin interface of the pod's Envoy was found: an Envoy answers {0}")]
    Unproved(String),
}

/// Maximum length of the text taken from an error response, in bytes.
const MAX_ERROR: usize = 200;

/// Calls `path` at `address`, and returns the body of the response. `limit` is the timeout of the whole call, including the
/// connection, and `max_body` the maximum size of the response's body, in bytes.
pub(crate) async fn call(
    address: &AdminAddress,
    method: Method,
    path: &str,
    limit: Duration,
    max_body: usize,
) -> Result<Bytes, CallError> {
    let exchange = async {
        #[cfg(test)]
        let response =
            crate::http_client::RESPONSES.try_with(|respond| respond(address, &method, path));
        #[cfg(test)]
        if let Ok(response) = response {
            return match response {
                Some(response) => response,
                None => std::future::pending().await,
            };
        }
        let request = request(method, path);
        #[cfg(test)]
        if let Ok(connected) = crate::http_client::IN_MEMORY.try_with(|connect| connect(address)) {
            let stream = connect(std::future::ready(connected)).await?;
            return exchange(stream, request, max_body).await;
        }
        let socket = match address {
            AdminAddress::Tcp(address) => {
                let stream = connect(TcpStream::connect(address)).await?;
                return exchange(stream, request, max_body).await;
            }
            AdminAddress::Path(path) => path.clone(),
            // Tokio takes a path that begins with NUL for a name in the abstract namespace.
            AdminAddress::Abstract(name) => format!("\0{name}"),
        };
        let stream = connect(UnixStream::connect(socket)).await?;
        exchange(stream, request, max_body).await
    };
    let no_response = |_| NoResponse(format!("no response within {}", format(limit)));
    let response = timeout(limit, exchange).await.map_err(no_response)??;
    let (status, body) = (response.status(), response.into_body());
    let error = || format!("{status}: {}", excerpt(&String::from_utf8_lossy(&body)));
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::FORBIDDEN => Err(Forbidden(error())),
        _ if status.is_server_error() => Err(NoResponse(error()).into()),
        _ => Err(Rejected(error())),
    }
}

/// The first line of a text that is not ours, as far as it is short and printable.
fn excerpt(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    printable(&line[..line.floor_char_boundary(MAX_ERROR)])
}

/// Tells what Envoy responded, which may be a rejection, from the lack of a response.
pub(crate) fn or_rejection<T>(
    result: Result<T, CallError>,
) -> Result<Result<T, String>, CallError> {
    match result {
        Err(error) if !error.is_rejection() => Err(error),
        other => Ok(other.map_err(|error| error.to_string())),
    }
}

// === impl CallError ===

impl CallError {
    /// A body that is not what it should be. Serde quotes a wrong value in full.
    pub(crate) fn invalid(what: &str) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Rejected(excerpt(&format!("{what}: {error}")))
    }

    /// Returns true if nothing listens where it was called, or could be.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Http(ConnectionRefused) | NothingListens)
    }

    /// Returns true if there was no usable response, which a retry may change.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Http(NoResponse(_)))
    }

    /// Returns true if Envoy has responded, and a retry does not change that.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Forbidden(_) | Rejected(_) | Http(TooLarge(_)))
    }

    /// Returns true if there is no address that could be asked, or it is closed to the drainer.
    pub(crate) fn is_absence(&self) -> bool {
        let is_closed = *self == Http(HttpError::PermissionDenied);
        let has_none = matches!(self, NothingListens | NotFound | NotServing);
        is_closed || has_none || matches!(self, Ambiguous(_) | Unproved(_))
    }
}
