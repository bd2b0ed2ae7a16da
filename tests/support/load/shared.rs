//! Requests on connections that they share: those of HTTP/2 and HTTP/3.

use std::future::Future;
use std::sync::Arc;

use super::Slots;
use super::failure::{Failure, Unanswered};
use crate::service::Service;

/// A connection for many requests at once. A clone is the same connection.
pub(super) trait SharedConnection: Clone + Send {
    /// Opens one to an endpoint of the Service.
    fn open(service: &Service) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Sends one request and judges its answer.
    fn post(self) -> impl Future<Output = Result<(), Unanswered>> + Send;
}

/// Sends a request on the connection whose turn it is, or on a new one where the server has said
/// (GOAWAY) that it takes no more there. Requests under way stay where they are.
pub(super) async fn request<C: SharedConnection>(
    service: Arc<Service>,
    slots: Arc<Slots<C>>,
) -> Result<(), Failure> {
    let turn = slots.turn();
    let answered = match slots.share(turn) {
        Some(connection) => connection.post().await,
        None => Err(Unanswered::Unsent("no connection is kept".into())),
    };
    match answered {
        Err(Unanswered::Unsent(_)) => {
            let connection = C::open(&service).await?;
            slots.put(turn, Some(connection.clone()));
            Ok(connection.post().await?)
        }
        Err(Unanswered::Failed(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}
