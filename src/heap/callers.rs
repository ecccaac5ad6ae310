//! Which threads call a lane.
//!
//! Streams that one thread drives come to the same order in each cycle of a program. Streams that no
//! thread has in common come to none: how their work overlaps differs each time.
//!
//! Only requests that missed are noted, so hits cost nothing. Threads are told apart by their
//! numbers modulo 64. So of many threads some count as one; then lanes count as related that are not.

use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::base::thread;

/// The threads whose requests have missed in a lane.
#[derive(Debug, Default)]
pub(super) struct Callers(AtomicU64);

impl Callers {
    /// Notes the calling thread.
    pub(super) fn note(&self) {
        self.add(thread::number());
    }

    fn add(&self, thread: u64) {
        let bit = 1 << (thread % 64);
        if self.0.load(Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Relaxed);
        }
    }

    /// The lane has another owner.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// Returns true unless it is known that no thread has called both lanes.
    pub(super) fn may_share_with(&self, other: &Self) -> bool {
        let [own, other] = [self, other].map(|callers| callers.0.load(Relaxed));
        own == 0 || other == 0 || own & other != 0
    }
}

#[cfg(test)]
mod tests {
    use super::Callers;

    #[test]
    fn lanes_without_a_common_thread_are_told_apart() {
        let [main, helper, third] = [(); 3].map(|()| Callers::default());
        main.add(1);
        assert!(main.may_share_with(&helper), "nobody has called it yet");
        helper.add(2);
        third.add(65);
        assert!(!main.may_share_with(&helper) && !helper.may_share_with(&third));
        assert!(main.may_share_with(&third), "numbers that are equal modulo 64");
        // The main thread calls the helper's stream, too.
        helper.add(1);
        assert!(main.may_share_with(&helper));
        helper.forget();
        helper.add(2);
        assert!(!main.may_share_with(&helper));
    }
}
