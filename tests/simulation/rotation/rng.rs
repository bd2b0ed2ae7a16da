//! A seeded random number generator.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The generator of one simulation; clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct Rng(Rc<Cell<u64>>);

// === impl Rng ===

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed)))
    }

    /// The next number of SplitMix64. <https://prng.di.unimi.it/splitmix64.c>
    fn next_u64(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// True with a probability of one in `times`.
    pub(crate) fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A duration less than `max`, uniformly distributed.
    pub(crate) fn duration_up_to(&self, max: Duration) -> Duration {
        let nanoseconds = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(nanoseconds))
    }

    /// An offset from `-max` to `max`, in seconds.
    pub(crate) fn offset_within(&self, max: Duration) -> i64 {
        let max = i64::try_from(max.as_secs()).unwrap();
        let drawn = i64::try_from(self.below(max.unsigned_abs() * 2 + 1)).unwrap();
        drawn - max
    }
}
