//! Which cached memory to release (`super::release`).

/// Which cached memory to release. None of a private pool that is held, and none at all while a
/// stream may be captured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    /// All of them.
    All,
    /// The ones unused for longest, until at least so many bytes have gone back.
    Oldest {
        /// How many bytes.
        bytes: u64,
    },
    /// Those unused for at least so long; with neither age set, those not used since the
    /// previous collection.
    Unused {
        /// In allocations on the same stream.
        allocations: Option<u64>,
        /// In seconds.
        seconds: Option<f64>,
    },
    /// Those of private pools that are not held any more.
    Orphaned,
    /// Those with bytes between two addresses.
    Within {
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
}

impl Choice {
    /// Whether `released_bytes` are enough.
    pub(super) fn is_met(self, released_bytes: u64) -> bool {
        matches!(self, Self::Oldest { bytes } if bytes <= released_bytes)
    }

    /// The same after `released_bytes` have gone back.
    pub(super) fn less(self, released_bytes: u64) -> Self {
        match self {
            Self::Oldest { bytes } => Self::Oldest { bytes: bytes.saturating_sub(released_bytes) },
            choice => choice,
        }
    }
}
