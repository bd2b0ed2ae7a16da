//! A call that several requests share: it goes on if they are all given up, and its result is kept for a while.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::JoinError;
use tokio::time::Instant;

/// The result of a call, or why there is none.
pub(super) type CallResult<T> = Result<T, Arc<str>>;

/// A call that runs or has ended. Clones share it.
#[derive(Clone)]
pub(super) struct SharedCall<T: Clone>(Shared<BoxFuture<'static, EndedCall<T>>>);

/// A call that has ended.
#[derive(Clone)]
struct EndedCall<T> {
    result: CallResult<T>,
    /// Until when the result is kept.
    until: Instant,
}

// === impl SharedCall ===

impl<T: Clone + Send + Sync + 'static> SharedCall<T> {
    /// Starts a call in a task, which returns the result and how long that is kept. A panic is an error, which is not
    /// kept.
    pub(super) fn start(
        call: impl Future<Output = (CallResult<T>, Duration)> + Send + 'static,
    ) -> Self {
        let ended = tokio::spawn(call).map(|ended| {
            let panicked = |error: JoinError| (Err(error.to_string().into()), Duration::ZERO);
            let (result, lifetime) = ended.unwrap_or_else(panicked);
            let until = Instant::now() + lifetime;
            EndedCall { result, until }
        });
        let call = ended.boxed().shared();
        // So that it is seen to end although no request waits for it.
        tokio::spawn(call.clone());
        Self(call)
    }

    /// The result of a call that has ended; `None` while it runs.
    pub(super) fn ended(&self) -> Option<&CallResult<T>> {
        self.0.peek().map(|ended| &ended.result)
    }

    /// Returns true if the call runs, or its result is kept.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.0.peek().is_none_or(|ended| now < ended.until)
    }

    /// Waits for the result.
    pub(super) async fn result(self) -> CallResult<T> {
        self.0.await.result
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn call_without_requests_ends_and_is_kept_for_its_lifetime() {
        let call = async {
            sleep(SECOND).await;
            (Ok(7), 2 * SECOND)
        };
        let start = Instant::now();
        let call = SharedCall::start(call);
        assert_eq!((call.ended(), call.is_current(start)), (None, true));
        sleep(10 * SECOND).await;
        assert_eq!(call.ended(), Some(&Ok(7)));
        assert!(call.is_current(start + 2 * SECOND) && !call.is_current(start + 3 * SECOND));
        assert_eq!(call.result().await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn panic_is_an_error() {
        let call = SharedCall::<u8>::start(async { panic!("a fault") });
        assert!(call.clone().result().await.is_err());
        assert!(!call.is_current(Instant::now()));
    }
}
