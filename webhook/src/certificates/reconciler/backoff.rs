//! How long to wait after a tick that was not the last.

use std::time::Duration;

use rustls::crypto::ring;

/// The shortest pause.
const BASE_DELAY: Duration = Duration::from_millis(20);

/// The pause after this many restless ticks in a row: doubled each time, and between half and all of
/// that, so that replicas that met do not meet again.
pub(crate) fn backoff(failures: u32) -> Duration {
    let pause = BASE_DELAY.saturating_mul(1 << failures.min(12));
    let mut drawn = [0];
    // Without randomness there is no jitter, and no key either.
    let _ = ring::default_provider().secure_random.fill(&mut drawn);
    pause / 2 + pause * u32::from(drawn[0]) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_never_alike() {
        for (restless, most) in [(0, 20), (1, 40), (5, 640), (12, 81_920), (u32::MAX, 81_920)] {
            let most = Duration::from_millis(most);
            let pauses: Vec<_> = (0..50).map(|_| backoff(restless)).collect();
            let within = |pause: &Duration| *pause >= most / 2 && *pause < most;
            assert!(pauses.iter().all(within), "{restless}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{restless}");
        }
    }
}
