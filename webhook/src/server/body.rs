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
pub(super) struct Bodies {
    memory: Semaphore,
    /// How many bodies wait for memory.
    waiting: AtomicUsize,
    limit: usize,
    deadline: Duration,
    growth: Duration,
}

/// A whole body, and its share of the memory until it is dropped.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) bytes: Vec<u8>,
    /// Until when it may be kept, which is until when it might have come.
    pub(super) deadline: Instant,
    _share: Option<SemaphorePermit<'a>>,
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

/// A body that is being read.
struct Growing<'a> {
    bodies: &'a Bodies,
    body: Body,
    bytes: Vec<u8>,
    share: Option<SemaphorePermit<'a>>,
    /// How large it becomes.
    length: usize,
    /// How many bytes there were when the present [`WINDOW`] began.
    had: usize,
}

/// Counts a body as waiting until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

/// Memory is counted in these, since a semaphore counts in 32 bits.
const UNIT: usize = 1024;

/// What a body has to bring in each [`WINDOW`] while others wait for memory. An API server at a round
/// trip of 20 ms brings so much from its first packets on (TCP's slow start); one that is farther away
/// is given up only where memory is short, and then told to try again.
const PACE: usize = 256 << 10;

/// See [`PACE`].
const WINDOW: Duration = Duration::from_millis(200);

// === impl Bodies ===

impl Bodies {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            memory: Semaphore::new(limits.bodies_size / UNIT),
            waiting: AtomicUsize::new(0),
            limit: limits.body_size,
            deadline: limits.body,
            growth: limits.body_growth,
        }
    }

    /// Reads a body of this length.
    ///
    /// # Errors
    /// When it is too large, does not come in time, or there is no memory for it. But for what is too
    /// slow it was read to its end then, as far as that came in time: to a client that is still sending
    /// when the connection closes the request has failed, whatever it was answered. Go's client is such
    /// a one.
    pub(super) async fn receive(&self, body: Body, length: u64) -> Result<Received<'_>, NoBody> {
        let deadline = Instant::now() + self.deadline;
        let mut growing = Growing::new(self, body, length);
        let received = timeout_at(deadline, growing.read())
            .await
            .map_err(|_| NoBody::TooSlow(self.deadline))?;
        let Growing {
            body, bytes, share, ..
        } = growing;
        match received {
            Ok(()) => Ok(Received {
                bytes,
                deadline,
                _share: share,
            }),
            Err(why) => {
                drop((bytes, share));
                let _ = timeout_at(deadline, discard(body, 2 * self.limit)).await;
                Err(why)
            }
        }
    }

    /// Waits for more memory, but not for long.
    async fn more(&self, bytes: usize) -> Result<SemaphorePermit<'_>, NoBody> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).map_err(|_| NoBody::Busy)?;
        if let Ok(permit) = self.memory.try_acquire_many(units) {
            return Ok(permit);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let permit = timeout(self.growth, self.memory.acquire_many(units)).await;
        permit.ok().and_then(Result::ok).ok_or(NoBody::Busy)
    }

    fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

// === impl Growing ===

impl<'a> Growing<'a> {
    fn new(bodies: &'a Bodies, body: Body, length: u64) -> Self {
        Self {
            bodies,
            body,
            bytes: Vec::new(),
            share: None,
            length: usize::try_from(length).unwrap_or(usize::MAX),
            had: 0,
        }
    }

    async fn read(&mut self) -> Result<(), NoBody> {
        if self.length > self.bodies.limit {
            return Err(NoBody::TooLarge(self.bodies.limit));
        }
        // One timer for all parts. Each new one that ends first would wake the runtime.
        let mut window = pin!(sleep(WINDOW));
        loop {
            tokio::select! {
                biased;
                frame = self.body.frame() => {
                    let Some(frame) = frame else {
                        return Ok(());
                    };
                    let Ok(data) = frame.map_err(|_| NoBody::Broken)?.into_data() else {
                        continue;
                    };
                    self.grow(self.bytes.len() + data.len()).await?;
                    self.bytes.extend_from_slice(&data);
                }
                () = &mut window => {
                    self.end_window()?;
                    window.as_mut().reset(Instant::now() + WINDOW);
                }
            }
        }
    }

    /// Ends a window.
    ///
    /// # Errors
    /// If the body brought too little in it, and others wait for its memory.
    fn end_window(&mut self) -> Result<(), NoBody> {
        let brought = self.bytes.len() - self.had;
        if self.share.is_some() && brought < PACE && self.bodies.is_short() {
            return Err(NoBody::Busy);
        }
        self.had = self.bytes.len();
        Ok(())
    }

    /// Makes room for so many bytes in all: at first for what is free, then for twice as much each time,
    /// and never for more than is to come.
    async fn grow(&mut self, size: usize) -> Result<(), NoBody> {
        let had = self.bytes.capacity();
        if size <= had {
            return Ok(());
        }
        let grown = size.max(2 * had).max(Limits::FREE_BODY);
        let grown = grown.min(self.length);
        if grown > Limits::FREE_BODY {
            // The first bytes are free only while there are no more.
            let paid = self.share.as_ref().map_or(0, |_| had);
            let more = self.bodies.more(grown - paid).await?;
            match &mut self.share {
                Some(share) => share.merge(more),
                None => self.share = Some(more),
            }
        }
        self.bytes.reserve_exact(grown - self.bytes.len());
        Ok(())
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
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

    fn bodies(bodies_size: usize) -> Bodies {
        Bodies::new(&Limits {
            body: DEADLINE,
            body_growth: GROWTH,
            body_size: 1024 * KIB,
            bodies_size,
            ..Limits::default()
        })
    }

    /// A body that comes in parts of 64 KiB, each after its pause.
    fn coming(parts: &'static [u64]) -> Body {
        let parts = stream::unfold(parts, async |parts| {
            let (pause, rest) = parts.split_first()?;
            sleep(Duration::from_millis(*pause)).await;
            let part = Frame::data(Bytes::from(vec![b' '; 64 * KIB]));
            Some((Ok::<_, NoBody>(part), rest))
        });
        Body::new(StreamBody::new(Box::pin(parts)))
    }

    /// Receives such a body.
    async fn receive<'a>(
        bodies: &'a Bodies,
        parts: &'static [u64],
    ) -> Result<Received<'a>, NoBody> {
        let length = 64 * KIB * parts.len();
        bodies.receive(coming(parts), length as u64).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_needs_no_share() {
        let bodies = bodies(512 * KIB);
        let large = bodies
            .receive(vec![b'a'; 512 * KIB].into(), 512 << 10)
            .await
            .unwrap();
        let small = receive(&bodies, &[0]).await.unwrap();
        assert_eq!(
            (large.bytes.len(), small.bytes.len()),
            (512 * KIB, 64 * KIB)
        );
        let started = Instant::now();
        let refused = receive(&bodies, &[0, 0]).await.unwrap_err();
        assert_eq!((refused, started.elapsed()), (NoBody::Busy, GROWTH));
        drop(large);
        assert!(receive(&bodies, &[0, 0]).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_costs_others_nothing() {
        let bodies = bodies(256 * KIB);
        let slow = receive(&bodies, &[0, 3_000]);
        let other = async {
            sleep(Duration::from_millis(10)).await;
            receive(&bodies, &[0, 0, 0, 0]).await.map(|_| ())
        };
        let (slow, other) = tokio::join!(slow, other);
        other.unwrap();
        slow.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_side_by_side_do_not_wait_for_each_other() {
        let bodies = bodies(512 * KIB);
        let parts = &[0, 10, 10, 10, 10, 10];
        let (one, other) = tokio::join!(receive(&bodies, parts), receive(&bodies, parts));
        assert!(
            one.is_ok() != other.is_ok(),
            "one is given up for the other"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up_for_another() {
        let bodies = bodies(512 * KIB);
        // It has its memory, and is left alone while nobody wants it.
        let stalling = async {
            let stalling = receive(&bodies, &[0, 0, 0, 1_000, 3_000]).await;
            (stalling.unwrap_err(), Instant::now())
        };
        let started = Instant::now();
        let other = async {
            sleep(Duration::from_millis(2_000)).await;
            receive(&bodies, &[0; 8]).await.map(|_| ())
        };
        let ((stalled, at), other) = tokio::join!(stalling, other);
        assert_eq!((stalled, other), (NoBody::Busy, Ok(())));
        assert!(at - started >= Duration::from_secs(2));
    }
}
