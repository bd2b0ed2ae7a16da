//! Reads a request's body within its bounds.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::limits::Limits;

/// The memory for all bodies in flight.
#[derive(Debug)]
pub(super) struct Bodies {
    free: Semaphore,
    limit: usize,
    deadline: Duration,
}

/// A whole body, and its share of the memory until it is dropped.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) bytes: Vec<u8>,
    _share: SemaphorePermit<'a>,
}

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoBody {
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the request body did not arrive within {0:?}")]
    TooSlow(Duration),
    #[error("the server is busy, try again")]
    Busy,
    #[error("the request body ended early")]
    Broken,
}

/// Memory is counted in these, since a semaphore counts in 32 bits.
const UNIT: usize = 1024;

// === impl Bodies ===

impl Bodies {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            free: Semaphore::new(limits.bodies_size / UNIT),
            limit: limits.body_size,
            deadline: limits.body,
        }
    }

    /// Waits for the memory that the body says it needs, and reads it.
    ///
    /// The share is taken whole before the first byte: bodies that grew side by side could each
    /// wait for what the others hold.
    pub(super) async fn receive(&self, body: Body) -> Result<Received<'_>, NoBody> {
        let deadline = Instant::now() + self.deadline;
        // Without a Content-Length it may become as large as any.
        let size = body.size_hint().exact().map_or(self.limit, |size| {
            usize::try_from(size).unwrap_or(usize::MAX)
        });
        if size > self.limit {
            let _ = timeout_at(deadline, discard(body, self.limit)).await;
            return Err(NoBody::TooLarge(self.limit));
        }
        let units = u32::try_from(size.div_ceil(UNIT)).map_err(|_| NoBody::TooLarge(self.limit))?;
        let share = timeout_at(deadline, self.free.acquire_many(units))
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or(NoBody::Busy)?;
        let bytes = timeout_at(deadline, self.collect(body))
            .await
            .map_err(|_| NoBody::TooSlow(self.deadline))??;
        Ok(Received {
            bytes,
            _share: share,
        })
    }

    async fn collect(&self, mut body: Body) -> Result<Vec<u8>, NoBody> {
        let declared = body.size_hint().exact().unwrap_or_default();
        let mut bytes = Vec::with_capacity(usize::try_from(declared).unwrap_or_default());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| NoBody::Broken)?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > self.limit {
                discard(body, self.limit).await;
                return Err(NoBody::TooLarge(self.limit));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// Reads on for at most twice `limit` and keeps nothing: to a client that is still sending when the
/// connection closes the request has failed, whatever it was answered. Go's client is such a one.
async fn discard(mut body: Body, limit: usize) {
    let mut seen = 0;
    while seen <= 2 * limit
        && let Some(Ok(frame)) = body.frame().await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(4);

    fn bodies(body_size: usize, bodies_size: usize) -> Bodies {
        Bodies::new(&Limits {
            body: DEADLINE,
            body_size,
            bodies_size,
            ..Limits::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_its_share_and_is_told_when_it_gets_none() {
        let bodies = bodies(4 * UNIT, 6 * UNIT);
        let first = bodies.receive(vec![b'a'; 4 * UNIT].into()).await.unwrap();
        assert_eq!(first.bytes.len(), 4 * UNIT);
        let small = bodies.receive(vec![b'b'; 2 * UNIT].into()).await.unwrap();
        let started = Instant::now();
        let refused = bodies.receive(vec![b'c'; UNIT].into()).await.unwrap_err();
        assert_eq!((refused, started.elapsed()), (NoBody::Busy, DEADLINE));
        let mut waiting = pin!(bodies.receive(vec![b'd'; UNIT].into()));
        assert!(timeout(DEADLINE / 2, &mut waiting).await.is_err());
        drop(small);
        assert_eq!(waiting.await.unwrap().bytes, vec![b'd'; UNIT]);
    }
}
