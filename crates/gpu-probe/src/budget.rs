//! Limits of time: everything together ends within one limit, however slow one part is.
//!
//! A section gets min(its own limit, what is left of the whole). What it does not use is left for
//! the sections after it, but does not raise their limits.

use std::time::{Duration, Instant};

/// What is left of the time for everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    ending: Instant,
}

impl Budget {
    /// `total` from `now` on.
    pub(crate) fn new(now: Instant, total: Duration) -> Self {
        Self { ending: now + total }
    }

    /// How long each of `parts` may take from `now` on, if all take as long.
    pub(crate) fn share(&self, now: Instant, parts: usize) -> Duration {
        self.ending.saturating_duration_since(now) / u32::try_from(parts.max(1)).unwrap_or(u32::MAX)
    }

    /// How long a section with its own `limit` may take from `now` on.
    pub(crate) fn grant(&self, now: Instant, limit: Duration) -> Duration {
        self.ending.saturating_duration_since(now).min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_get_their_limit_or_what_is_left() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let limit = Duration::from_secs(60);
        let budget = Budget::new(start, Duration::from_secs(100));
        assert_eq!(budget.grant(at(0), limit), limit);
        assert_eq!(budget.grant(at(40), limit), limit);
        assert_eq!(budget.grant(at(70), limit), Duration::from_secs(30));
        assert_eq!(budget.grant(at(101), limit), Duration::ZERO);
        assert_eq!(budget.share(at(40), 3), Duration::from_secs(20));
        assert_eq!(budget.share(at(101), 0), Duration::ZERO);
    }
}
