//! Reads a request's body within limits of size, time and memory.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::server::limits::Limits;

/// Limits the memory of all bodies in flight that are larger than [`Limits::UNCOUNTED_BODY_SIZE`].
///
/// Memory is taken as a body grows, not by its Content-Length, which costs a client nothing. So bodies that grow
/// at the same time may wait for each other, but not for long: the one that waits longest is rejected first, and
/// its memory goes to the next.
#[derive(Debug)]
pub(super) struct BodyLimiter {
    memory: Semaphore,
    /// Each body that waits for memory holds a clone, so that the count of these tells whether any does.
    waiting: Arc<()>,
    limits: Limits,
}

/// A body, as far as it has been read. It holds its memory until it is dropped.
#[derive(Debug)]
pub(super) struct BufferedBody<'a> {
    pub(super) bytes: Vec<u8>,
    /// When [`Limits::body_timeout`] ends, which includes the wait for the scheduler.
    pub(super) deadline: Instant,
    /// The memory of all bytes, once they are more than [`Limits::UNCOUNTED_BODY_SIZE`].
    permit: Option<SemaphorePermit<'a>>,
}

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the request body did not arrive within {0:?}")]
    TooSlow(Duration),
    #[error("the server is busy, try again")]
    Busy,
    #[error("the request body ended early")]
    Incomplete,
}

/// Unit of the semaphore's permits in bytes, since it counts in 32 bits.
const MEMORY_UNIT: usize = 1024;

/// Bytes that a body must receive in each [`RATE_WINDOW`] while others wait for memory. An API server at a round
/// trip of 20 ms sends that much from its first packets on (TCP slow start). A slower one is rejected only while
/// memory is short, with a response that makes it retry.
const MIN_WINDOW_BYTES: usize = 256 << 10;

/// See [`MIN_WINDOW_BYTES`].
const RATE_WINDOW: Duration = Duration::from_millis(200);

// === impl BodyLimiter ===

impl BodyLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            memory: Semaphore::new(limits.body_memory / MEMORY_UNIT),
            waiting: Arc::default(),
            limits: limits.clone(),
        }
    }

    /// Reads a body of `length` bytes.
    ///
    /// # Errors
    /// If it is too large, does not arrive in time, or there is no memory for it. Unless it is too slow, the rest
    /// was then discarded, as far as it arrived in time: Go's client, among others, takes a request for failed if
    /// the connection closes while it is still sending, whatever the response.
    pub(super) async fn read(
        &self,
        mut body: Body,
        length: u64,
    ) -> Result<BufferedBody<'_>, BodyError> {
        let deadline = Instant::now() + self.limits.body_timeout;
        let result = timeout_at(deadline, self.receive(&mut body, length, deadline))
            .await
            .map_err(|_| BodyError::TooSlow(self.limits.body_timeout))?;
        if result.is_err() {
            let _ = timeout_at(deadline, discard(body, 2 * self.limits.max_body_size)).await;
        }
        result
    }

    /// Receives a body with the Content-Length `length`.
    ///
    /// # Errors
    /// If it is too large or incomplete, or too little arrives in a [`RATE_WINDOW`] while others wait for memory.
    async fn receive(
        &self,
        body: &mut Body,
        length: u64,
        deadline: Instant,
    ) -> Result<BufferedBody<'_>, BodyError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.limits.max_body_size {
            return Err(BodyError::TooLarge(self.limits.max_body_size));
        }
        let mut buffer = BufferedBody {
            bytes: Vec::new(),
            deadline,
            permit: None,
        };
        // One timer for all frames: a new timer that ends before all others would wake the runtime.
        let mut window = pin!(sleep(RATE_WINDOW));
        let mut window_start_len = 0;
        loop {
            tokio::select! {
                biased;
                frame = body.frame() => {
                    let Some(frame) = frame else {
                        return Ok(buffer);
                    };
                    let Ok(data) = frame.map_err(|_| BodyError::Incomplete)?.into_data() else {
                        continue;
                    };
                    self.grow(&mut buffer, data.len(), length).await?;
                    buffer.bytes.extend_from_slice(&data);
                }
                () = &mut window => {
                    let received = buffer.bytes.len() - window_start_len;
                    let is_slow = buffer.permit.is_some() && received < MIN_WINDOW_BYTES;
                    if is_slow && self.is_contended() {
                        return Err(BodyError::Busy);
                    }
                    window_start_len = buffer.bytes.len();
                    window.as_mut().reset(Instant::now() + RATE_WINDOW);
                }
            }
        }
    }

    /// Makes room for `more` bytes: first the uncounted size, then twice the size each time, and never beyond `length`.
    async fn grow<'a>(
        &'a self,
        buffer: &mut BufferedBody<'a>,
        more: usize,
        length: usize,
    ) -> Result<(), BodyError> {
        let (size, had) = (buffer.bytes.len() + more, buffer.bytes.capacity());
        if size <= had {
            return Ok(());
        }
        let grown = size.max(2 * had).max(Limits::UNCOUNTED_BODY_SIZE);
        let grown = grown.min(length);
        if grown > Limits::UNCOUNTED_BODY_SIZE {
            // The first bytes are uncounted only until the body grows beyond them.
            let counted = buffer.permit.as_ref().map_or(0, |_| had);
            let memory = self.acquire_memory(grown - counted).await?;
            match &mut buffer.permit {
                Some(permit) => permit.merge(memory),
                None => buffer.permit = Some(memory),
            }
        }
        buffer.bytes.reserve_exact(grown - buffer.bytes.len());
        Ok(())
    }

    /// Takes memory, waiting up to [`Limits::memory_wait`].
    async fn acquire_memory(&self, bytes: usize) -> Result<SemaphorePermit<'_>, BodyError> {
        let units = u32::try_from(bytes.div_ceil(MEMORY_UNIT)).map_err(|_| BodyError::Busy)?;
        if let Ok(permit) = self.memory.try_acquire_many(units) {
            return Ok(permit);
        }
        let _waiting = Arc::clone(&self.waiting);
        let permit = timeout(self.limits.memory_wait, self.memory.acquire_many(units)).await;
        permit.ok().and_then(Result::ok).ok_or(BodyError::Busy)
    }

    /// Returns true if a body waits for memory.
    fn is_contended(&self) -> bool {
        Arc::strong_count(&self.waiting) > 1
    }
}

/// Reads up to `max` more bytes, and a frame, and drops them.
async fn discard(mut body: Body, max: usize) {
    let mut discarded = 0;
    while discarded <= max
        && let Some(Ok(frame)) = body.frame().await
    {
        discarded += frame.data_ref().map_or(0, Bytes::len);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;
    use tokio::time::sleep;

    use hyper::body::Frame;

    use super::*;

    const BODY_TIMEOUT: Duration = Duration::from_secs(4);

    const MEMORY_WAIT: Duration = Duration::from_millis(500);

    const KIB: usize = 1 << 10;

    fn body_limiter(body_memory: usize) -> BodyLimiter {
        BodyLimiter::new(&Limits {
            body_timeout: BODY_TIMEOUT,
            memory_wait: MEMORY_WAIT,
            max_body_size: 1024 * KIB,
            body_memory,
            ..Limits::default()
        })
    }

    /// A body in frames of 64 KiB, each after a pause in milliseconds.
    fn chunked_body(pauses: &'static [u64]) -> Body {
        let frames = stream::unfold(pauses, async |pauses| {
            let (pause, rest) = pauses.split_first()?;
            sleep(Duration::from_millis(*pause)).await;
            let frame = Frame::data(Bytes::from(vec![b' '; 64 * KIB]));
            Some((Ok::<_, BodyError>(frame), rest))
        });
        Body::new(StreamBody::new(Box::pin(frames)))
    }

    /// Reads such a body.
    async fn read_chunks<'a>(
        limiter: &'a BodyLimiter,
        pauses: &'static [u64],
    ) -> Result<BufferedBody<'a>, BodyError> {
        let length = 64 * KIB * pauses.len();
        limiter.read(chunked_body(pauses), length as u64).await
    }

    #[tokio::test(start_paused = true)]
    async fn small_body_needs_no_memory_permit() {
        let limiter = body_limiter(512 * KIB);
        let large = limiter
            .read(vec![b'a'; 512 * KIB].into(), 512 << 10)
            .await
            .unwrap();
        let small = read_chunks(&limiter, &[0]).await.unwrap();
        assert_eq!(
            (large.bytes.len(), small.bytes.len()),
            (512 * KIB, 64 * KIB)
        );
        let started = Instant::now();
        let error = read_chunks(&limiter, &[0, 0]).await.unwrap_err();
        assert_eq!((error, started.elapsed()), (BodyError::Busy, MEMORY_WAIT));
        drop(large);
        assert!(read_chunks(&limiter, &[0, 0]).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn content_length_alone_takes_no_memory() {
        let limiter = body_limiter(256 * KIB);
        let slow = read_chunks(&limiter, &[0, 3_000]);
        let other = async {
            sleep(Duration::from_millis(10)).await;
            read_chunks(&limiter, &[0, 0, 0, 0]).await.map(|_| ())
        };
        let (slow, other) = tokio::join!(slow, other);
        other.unwrap();
        slow.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn growing_bodies_do_not_deadlock() {
        let limiter = body_limiter(512 * KIB);
        let pauses = &[0, 10, 10, 10, 10, 10];
        let (one, other) =
            tokio::join!(read_chunks(&limiter, pauses), read_chunks(&limiter, pauses));
        assert!(
            one.is_ok() != other.is_ok(),
            "one is rejected for the other"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_body_is_rejected_for_another() {
        let limiter = body_limiter(512 * KIB);
        // It holds its memory, and is not rejected until another needs it.
        let stalling = async {
            let stalling = read_chunks(&limiter, &[0, 0, 0, 1_000, 3_000]).await;
            (stalling.unwrap_err(), Instant::now())
        };
        let started = Instant::now();
        let other = async {
            sleep(Duration::from_millis(2_000)).await;
            read_chunks(&limiter, &[0; 8]).await.map(|_| ())
        };
        let ((stalled, at), other) = tokio::join!(stalling, other);
        assert_eq!((stalled, other), (BodyError::Busy, Ok(())));
        assert!(at - started >= Duration::from_secs(2));
    }
}
