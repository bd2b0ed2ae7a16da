//! Requests on connections that they share: those of HTTP/2 and HTTP/3.

use std::future::Future;
use std::sync::Arc;

use super::ConnectionPool;
use super::failure::{Failure, SendError};
use crate::service::Service;

/// A connection for many requests at once. A clone is the same connection.
pub(super) trait MultiplexedConnection: Clone + Send {
    /// Opens one to an endpoint of the Service.
    fn open(service: &Service) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Sends one request and judges its answer.
    fn post(self) -> impl Future<Output = Result<(), SendError>> + Send;
}

/// Sends a request on the connection whose turn it is, or on a new one where the server has said
/// (GOAWAY) that it takes no more there. Requests under way stay where they are.
pub(super) async fn request<C: MultiplexedConnection>(
    service: Arc<Service>,
    slots: Arc<ConnectionPool<C>>,
) -> Result<(), Failure> {
    let turn = slots.next_slot();
    let answered = match slots.get(turn) {
        Some(connection) => connection.post().await,
        None => Err(SendError::NotSent("no connection is kept".into())),
    };
    match answered {
        Err(SendError::NotSent(_)) => {
            let connection = C::open(&service).await?;
            slots.put(turn, Some(connection.clone()));
            Ok(connection.post().await?)
        }
        Err(SendError::Failed(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}
