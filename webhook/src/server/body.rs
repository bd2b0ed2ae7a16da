//! Reads a request's body within its bounds.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::limits::Limits;

/// The memory for all bodies in flight that are larger than [`Limits::FREE_BODY`].
///
/// They take it as they grow: what a head promises costs a client nothing. So bodies that grow side by
/// side can come to wait for each other. None waits for long: the one that waits longest is given up
/// first, and its memory goes to the next.
#[derive(Debug)]
pub(super) struct BodyLimiter {
    memory: Semaphore,
    /// How many bodies wait for memory.
    waiting: AtomicUsize,
    max_size: usize,
    timeout: Duration,
    memory_wait: Duration,
}

/// A whole body, and its share of the memory until it is dropped.
#[derive(Debug)]
pub(super) struct BufferedBody<'a> {
    pub(super) bytes: Vec<u8>,
    /// Until when it may be kept, which is until when it might have come.
    pub(super) deadline: Instant,
    _permit: Option<SemaphorePermit<'a>>,
}

/// Why there is no body.
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

/// A body that is being read.
struct BodyReader<'a> {
    limiter: &'a BodyLimiter,
    body: Body,
    bytes: Vec<u8>,
    permit: Option<SemaphorePermit<'a>>,
    /// How large it becomes.
    content_length: usize,
    /// How many bytes there were when the present [`WINDOW`] began.
    window_start_len: usize,
}

/// Counts a body as waiting until it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

/// Memory is counted in these, since a semaphore counts in 32 bits.
const MEMORY_UNIT: usize = 1024;

/// What a body has to bring in each [`WINDOW`] while others wait for memory. An API server at a round
/// trip of 20 ms brings so much from its first packets on (TCP's slow start); one that is farther away
/// is given up only where memory is short, and then told to try again.
const MIN_WINDOW_BYTES: usize = 256 << 10;

/// See [`PACE`].
const RATE_WINDOW: Duration = Duration::from_millis(200);

// === impl BodyLimiter ===

impl BodyLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            memory: Semaphore::new(limits.body_memory / MEMORY_UNIT),
            waiting: AtomicUsize::new(0),
            max_size: limits.max_body_size,
            timeout: limits.body_timeout,
            memory_wait: limits.memory_wait,
        }
    }

    /// Reads a body of this length.
    ///
    /// # Errors
    /// When it is too large, does not come in time, or there is no memory for it. But for what is too
    /// slow it was read to its end then, as far as that came in time: to a client that is still sending
    /// when the connection closes the request has failed, whatever it was answered. Go's client is such
    /// a one.
    pub(super) async fn read(
        &self,
        body: Body,
        length: u64,
    ) -> Result<BufferedBody<'_>, BodyError> {
        let deadline = Instant::now() + self.timeout;
        let mut growing = BodyReader::new(self, body, length);
        let received = timeout_at(deadline, growing.read())
            .await
            .map_err(|_| BodyError::TooSlow(self.timeout))?;
        let BodyReader {
            body,
            bytes,
            permit: share,
            ..
        } = growing;
        match received {
            Ok(()) => Ok(BufferedBody {
                bytes,
                deadline,
                _permit: share,
            }),
            Err(why) => {
                drop((bytes, share));
                let _ = timeout_at(deadline, discard(body, 2 * self.max_size)).await;
                Err(why)
            }
        }
    }

    /// Waits for more memory, but not for long.
    async fn acquire_memory(&self, bytes: usize) -> Result<SemaphorePermit<'_>, BodyError> {
        let units = u32::try_from(bytes.div_ceil(MEMORY_UNIT)).map_err(|_| BodyError::Busy)?;
        if let Ok(permit) = self.memory.try_acquire_many(units) {
            return Ok(permit);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingGuard(&self.waiting);
        let permit = timeout(self.memory_wait, self.memory.acquire_many(units)).await;
        permit.ok().and_then(Result::ok).ok_or(BodyError::Busy)
    }

    fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

// === impl BodyReader ===

impl<'a> BodyReader<'a> {
    fn new(bodies: &'a BodyLimiter, body: Body, length: u64) -> Self {
        Self {
            limiter: bodies,
            body,
            bytes: Vec::new(),
            permit: None,
            content_length: usize::try_from(length).unwrap_or(usize::MAX),
            window_start_len: 0,
        }
    }

    async fn read(&mut self) -> Result<(), BodyError> {
        if self.content_length > self.limiter.max_size {
            return Err(BodyError::TooLarge(self.limiter.max_size));
        }
        // One timer for all parts. Each new one that ends first would wake the runtime.
        let mut window = pin!(sleep(RATE_WINDOW));
        loop {
            tokio::select! {
                biased;
                frame = self.body.frame() => {
                    let Some(frame) = frame else {
                        return Ok(());
                    };
                    let Ok(data) = frame.map_err(|_| BodyError::Incomplete)?.into_data() else {
                        continue;
                    };
                    self.grow(self.bytes.len() + data.len()).await?;
                    self.bytes.extend_from_slice(&data);
                }
                () = &mut window => {
                    self.end_window()?;
                    window.as_mut().reset(Instant::now() + RATE_WINDOW);
                }
            }
        }
    }

    /// Ends a window.
    ///
    /// # Errors
    /// If the body brought too little in it, and others wait for its memory.
    fn end_window(&mut self) -> Result<(), BodyError> {
        let brought = self.bytes.len() - self.window_start_len;
        if self.permit.is_some() && brought < MIN_WINDOW_BYTES && self.limiter.is_contended() {
            return Err(BodyError::Busy);
        }
        self.window_start_len = self.bytes.len();
        Ok(())
    }

    /// Makes room for so many bytes in all: at first for what is free, then for twice as much each time,
    /// and never for more than is to come.
    async fn grow(&mut self, size: usize) -> Result<(), BodyError> {
        let had = self.bytes.capacity();
        if size <= had {
            return Ok(());
        }
        let grown = size.max(2 * had).max(Limits::UNCOUNTED_BODY_SIZE);
        let grown = grown.min(self.content_length);
        if grown > Limits::UNCOUNTED_BODY_SIZE {
            // The first bytes are free only while there are no more.
            let paid = self.permit.as_ref().map_or(0, |_| had);
            let more = self.limiter.acquire_memory(grown - paid).await?;
            match &mut self.permit {
                Some(share) => share.merge(more),
                None => self.permit = Some(more),
            }
        }
        self.bytes.reserve_exact(grown - self.bytes.len());
        Ok(())
    }
}

// === impl WaitingGuard ===

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads on for so many bytes at most, and keeps none.
async fn discard(mut body: Body, at_most: usize) {
    let mut seen = 0;
    while seen <= at_most
        && let Some(Ok(frame)) = body.frame().await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;
    use tokio::time::sleep;

    use hyper::body::Frame;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(4);

    const GROWTH: Duration = Duration::from_millis(500);

    const KIB: usize = 1 << 10;

    fn body_limiter(bodies_size: usize) -> BodyLimiter {
        BodyLimiter::new(&Limits {
            body_timeout: DEADLINE,
            memory_wait: GROWTH,
            max_body_size: 1024 * KIB,
            body_memory: bodies_size,
            ..Limits::default()
        })
    }

    /// A body that comes in parts of 64 KiB, each after its pause.
    fn chunked_body(parts: &'static [u64]) -> Body {
        let parts = stream::unfold(parts, async |parts| {
            let (pause, rest) = parts.split_first()?;
            sleep(Duration::from_millis(*pause)).await;
            let part = Frame::data(Bytes::from(vec![b' '; 64 * KIB]));
            Some((Ok::<_, BodyError>(part), rest))
        });
        Body::new(StreamBody::new(Box::pin(parts)))
    }

    /// Receives such a body.
    async fn read_chunks<'a>(
        bodies: &'a BodyLimiter,
        parts: &'static [u64],
    ) -> Result<BufferedBody<'a>, BodyError> {
        let length = 64 * KIB * parts.len();
        bodies.read(chunked_body(parts), length as u64).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_needs_no_share() {
        let bodies = body_limiter(512 * KIB);
        let large = bodies
            .read(vec![b'a'; 512 * KIB].into(), 512 << 10)
            .await
            .unwrap();
        let small = read_chunks(&bodies, &[0]).await.unwrap();
        assert_eq!(
            (large.bytes.len(), small.bytes.len()),
            (512 * KIB, 64 * KIB)
        );
        let started = Instant::now();
        let refused = read_chunks(&bodies, &[0, 0]).await.unwrap_err();
        assert_eq!((refused, started.elapsed()), (BodyError::Busy, GROWTH));
        drop(large);
        assert!(read_chunks(&bodies, &[0, 0]).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_costs_others_nothing() {
        let bodies = body_limiter(256 * KIB);
        let slow = read_chunks(&bodies, &[0, 3_000]);
        let other = async {
            sleep(Duration::from_millis(10)).await;
            read_chunks(&bodies, &[0, 0, 0, 0]).await.map(|_| ())
        };
        let (slow, other) = tokio::join!(slow, other);
        other.unwrap();
        slow.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_side_by_side_do_not_wait_for_each_other() {
        let bodies = body_limiter(512 * KIB);
        let parts = &[0, 10, 10, 10, 10, 10];
        let (one, other) = tokio::join!(read_chunks(&bodies, parts), read_chunks(&bodies, parts));
        assert!(
            one.is_ok() != other.is_ok(),
            "one is given up for the other"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up_for_another() {
        let bodies = body_limiter(512 * KIB);
        // It has its memory, and is left alone while nobody wants it.
        let stalling = async {
            let stalling = read_chunks(&bodies, &[0, 0, 0, 1_000, 3_000]).await;
            (stalling.unwrap_err(), Instant::now())
        };
        let started = Instant::now();
        let other = async {
            sleep(Duration::from_millis(2_000)).await;
            read_chunks(&bodies, &[0; 8]).await.map(|_| ())
        };
        let ((stalled, at), other) = tokio::join!(stalling, other);
        assert_eq!((stalled, other), (BodyError::Busy, Ok(())));
        assert!(at - started >= Duration::from_secs(2));
    }
}
