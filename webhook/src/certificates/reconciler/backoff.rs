//! The delay before the next reconcile after a failure or a write.

use std::time::Duration;

use rustls::crypto::ring;

/// The delay after the first failure.
const BASE_DELAY: Duration = Duration::from_millis(20);

/// The delay after this many failures in a row: doubled each time, with a jitter between half and all of that, so that
/// replicas whose writes conflicted do not conflict again.
pub(super) fn backoff(failures: u32) -> Duration {
    let delay = BASE_DELAY.saturating_mul(1 << failures.min(12));
    let mut random = [0];
    // Without randomness there is no jitter, but then no key can be created either.
    let _ = ring::default_provider().secure_random.fill(&mut random);
    delay / 2 + delay * u32::from(random[0]) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_with_jitter() {
        for (failures, max) in [(0, 20), (1, 40), (5, 640), (12, 81_920), (u32::MAX, 81_920)] {
            let max = Duration::from_millis(max);
            let delays: Vec<_> = (0..50).map(|_| backoff(failures)).collect();
            let is_within = |delay: &Duration| *delay >= max / 2 && *delay < max;
            assert!(delays.iter().all(is_within), "{failures}: {delays:?}");
            assert!(delays.iter().any(|delay| *delay != delays[0]), "{failures}");
        }
    }
}
