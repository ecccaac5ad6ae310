//! Which one of several steps is left out, to measure what it is worth or to see a test object. Only
//! a build with the feature `ablations` can leave one out.

#[cfg(feature = "ablations")]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// No step's number.
#[cfg(feature = "ablations")]
const NONE: u32 = u32::MAX;

/// The number of the step that every heap of the process does without.
#[derive(Debug)]
pub(crate) struct LeftOut {
    #[cfg(feature = "ablations")]
    number: AtomicU32,
}

impl LeftOut {
    /// All steps are taken.
    pub(crate) const fn none() -> Self {
        Self {
            #[cfg(feature = "ablations")]
            number: AtomicU32::new(NONE),
        }
    }

    /// Returns true if it is the step `number`.
    #[cfg(feature = "ablations")]
    pub(crate) fn is(&self, number: u32) -> bool {
        self.number.load(Relaxed) == number
    }

    /// Returns false: all steps are taken.
    #[cfg(not(feature = "ablations"))]
    #[inline]
    pub(crate) const fn is(&self, _number: u32) -> bool {
        false
    }

    /// From now on it is the step `number`, or none.
    #[cfg(feature = "ablations")]
    pub(crate) fn set(&self, number: Option<u32>) {
        self.number.store(number.unwrap_or(NONE), Relaxed);
    }
}
