//! Which cached memory to release (`super::release`).

use super::pools::PoolNumber;

/// Which cached memory to release. Never memory of a private pool that is held, except by name, and
/// none at all while a stream may be captured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    /// All of it.
    All,
    /// What was needed least for its price first (`super::release`), until at least this many bytes are released.
    LeastNeeded {
        /// How many bytes.
        bytes: u64,
    },
    /// The same, but only what is known to be idle: nothing is waited for.
    Idle {
        /// How many bytes.
        bytes: u64,
    },
    /// Memory unused for at least one of these ages; if neither is set, memory unused since the
    /// previous collection.
    Unused {
        /// In allocations on the same stream.
        allocations: Option<u64>,
        /// In seconds.
        seconds: Option<f64>,
    },
    /// Memory of private pools that are no longer held.
    Orphaned,
    /// Memory of one private pool, which is held.
    OfPool(PoolNumber),
    /// Memory with bytes between two addresses.
    Within {
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
}

impl Choice {
    /// Returns true if `released_bytes` are enough.
    pub(super) fn is_met(self, released_bytes: u64) -> bool {
        matches!(self, Self::LeastNeeded { bytes } | Self::Idle { bytes } if bytes <= released_bytes)
    }

    /// Returns true if work that may still use the memory may be waited for.
    pub(super) fn may_wait(self) -> bool {
        !matches!(self, Self::Idle { .. })
    }

    /// What is left to release after `released_bytes`.
    pub(super) fn less(self, released_bytes: u64) -> Self {
        match self {
            Self::LeastNeeded { bytes } => {
                Self::LeastNeeded { bytes: bytes.saturating_sub(released_bytes) }
            }
            Self::Idle { bytes } => Self::Idle { bytes: bytes.saturating_sub(released_bytes) },
            choice => choice,
        }
    }
}
