//! The requests of a load, and the responses that they must get.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, Uri};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureKind, error_chain};
use crate::url::LoadUrl;

/// What all requests of a load have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestOptions {
    /// Headers, beside the one with the host.
    #[serde(with = "headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body: with one, requests are POSTs, and otherwise GETs.
    pub body: Option<String>,
    /// The responses that are not failures.
    pub expected: ExpectedResponse,
}

/// The responses that are not failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExpectedResponse {
    /// With a status from 200 to 399.
    #[default]
    Success,
    /// With this status.
    Status(u16),
    /// With the status 200 and the body of the request.
    Echo,
    /// With the status 200, and the trailer (or header) `grpc-status: 0`.
    GrpcOk,
}

/// A request that is sent again and again.
#[derive(Debug, Clone)]
pub(crate) struct RequestTemplate {
    method: Method,
    /// The target in HTTP/2 and HTTP/3: the URL.
    url: Uri,
    /// The target in HTTP/1.1: the path.
    path: Uri,
    host: HeaderValue,
    headers: HeaderMap,
    body: Bytes,
    expected: ExpectedResponse,
}

// === impl RequestTemplate ===

impl RequestTemplate {
    pub(crate) fn new(url: &LoadUrl, options: &RequestOptions) -> Self {
        let body = options.body.clone();
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        let host = HeaderValue::from_str(url.authority());
        Self {
            method,
            url: url.uri().clone(),
            path: url.path().parse().expect("it is the path of a URL"),
            host: host.expect("no character of an authority is invalid in a header"),
            headers: options.headers.iter().cloned().collect(),
            body: body.unwrap_or_default().into(),
            expected: options.expected,
        }
    }

    /// A unary call of gRPC with an empty message.
    /// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
    pub(crate) fn grpc(url: &LoadUrl, options: &RequestOptions) -> Self {
        let mut template = Self {
            method: Method::POST,
            // Not compressed, and of no bytes.
            body: Bytes::from_static(&[0; 5]),
            expected: ExpectedResponse::GrpcOk,
            ..Self::new(url, options)
        };
        for (name, value) in [(CONTENT_TYPE, "application/grpc"), (TE, "trailers")] {
            let value = HeaderValue::from_static(value);
            template.headers.insert(name, value);
        }
        template
    }

    pub(crate) fn body(&self) -> Bytes {
        self.body.clone()
    }

    /// The request in HTTP/1.1.
    pub(crate) fn http1(&self) -> Request<Full<Bytes>> {
        let mut request = self.request(&self.path, Full::new(self.body()));
        let host = request.headers_mut().entry(HOST);
        host.or_insert_with(|| self.host.clone());
        request
    }

    /// The request in HTTP/2 and HTTP/3.
    pub(crate) fn http2<B>(&self, body: B) -> Request<B> {
        self.request(&self.url, body)
    }

    fn request<B>(&self, target: &Uri, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = target.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Reads a response to its end, and fails unless it is as expected.
    pub(crate) async fn verify_response(
        &self,
        response: Response<Incoming>,
    ) -> Result<(), Failure> {
        let (head, body) = response.into_parts();
        let lost = |error| Failure::new(FailureKind::CutInFlight, error_chain(&error));
        let body = body.collect().await.map_err(lost)?;
        let trailers = body.trailers().cloned();
        self.verify(&head, &body.to_bytes(), trailers.as_ref())
    }

    /// Fails unless the response is as expected.
    pub(crate) fn verify(
        &self,
        head: &Parts,
        body: &[u8],
        trailers: Option<&HeaderMap>,
    ) -> Result<(), Failure> {
        let status = head.status;
        let grpc_status = || {
            let trailer = trailers.and_then(|trailers| trailers.get("grpc-status"));
            trailer.or_else(|| head.headers.get("grpc-status"))
        };
        let is_expected = match self.expected {
            ExpectedResponse::Success => status.is_success() || status.is_redirection(),
            ExpectedResponse::Status(expected) => status == expected,
            ExpectedResponse::Echo => status == 200 && *body == *self.body,
            ExpectedResponse::GrpcOk => status == 200 && grpc_status().is_some_and(|it| it == "0"),
        };
        if is_expected {
            return Ok(());
        }
        let text = if self.expected == ExpectedResponse::GrpcOk {
            let grpc_status = grpc_status().map(|it| String::from_utf8_lossy(it.as_bytes()));
            match grpc_status {
                Some(grpc_status) => format!("{status}, grpc-status {grpc_status}"),
                None => format!("{status}, no grpc-status"),
            }
        } else {
            let body = String::from_utf8_lossy(&body[..body.len().min(80)]);
            format!("{status}, `{body}`")
        };
        Err(Failure::new(FailureKind::BadResponse, text))
    }
}

mod headers {
    use hyper::header::{HeaderName, HeaderValue};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    type Headers = Vec<(HeaderName, HeaderValue)>;

    pub(super) fn serialize<S: Serializer>(headers: &Headers, to: S) -> Result<S::Ok, S::Error> {
        let pairs = headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str(), value)
        });
        to.collect_seq(pairs)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Headers, D::Error> {
        let pairs = Vec::<(String, String)>::deserialize(from)?.into_iter();
        let parsed = pairs.map(|(name, value)| Ok((name.parse()?, value.parse()?)));
        let headers: Result<_, hyper::http::Error> = parsed.collect();
        headers.map_err(D::Error::custom)
    }
}
