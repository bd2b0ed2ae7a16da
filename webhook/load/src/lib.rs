//! A load generator: clients that send requests at a constant rate and count every failure.
//!
//! Each request is sent when it is due, whatever the response to the previous one, so that a slow server does not lower
//! the rate. None is sent twice: a request without a complete response of the right status and body has failed.
//!
//! ```text
//! Load ── start ──▶ one task for each kind of clients ──▶ Tally ──▶ Report
//!                     open_loop, messages   when requests are due
//!                     pool                  which connection carries them
//!                     http1, http2, http3, tcp, websocket   how they are sent
//!                     request               what they are, and what must come back
//! ```

mod failure;
mod http1;
mod http2;
#[cfg(feature = "h3")]
mod http3;
pub mod job;
mod load;
mod messages;
mod open_loop;
mod pool;
mod report;
mod request;
mod schedule;
mod target;
mod tcp;
mod tls;
mod url;
mod websocket;

pub use failure::{Failure, FailureKind};
pub use load::{ClientKind, Clients, Load, RunningLoad};
pub use report::{FailureSample, KindReport, Report, SecondReport};
pub use request::{ExpectedResponse, RequestOptions};
pub use target::{ConnectionGuard, Endpoints, Protocol, Target};
pub use url::{HostPort, InvalidHostPort, InvalidUrl, LoadUrl};
