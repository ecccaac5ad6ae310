//! Parts of the policy that can be left out, to measure what each is worth:
//! `cargo bench --features ablations --bench ablations`. Without the feature nothing can be left
//! out, and the questions cost nothing.

use crate::base::left_out::LeftOut;
#[cfg(feature = "ablations")]
use crate::strategy;

/// A part of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// The wilderness is taken last (`strategy::wilderness`).
    #[cfg(feature = "ablations")]
    Wilderness,
    /// The return to origins at troughs.
    ReturnHome,
    /// Views that blocks have left come back to them.
    Recall,
    /// Of windows without bare parts the first.
    OldestFirst,
    /// Free extents of other places are taken before more is made.
    Gather,
    /// Those of streams that have nothing to do without an event.
    IdleStreams,
    /// In a lane's first cycle less memory is moved.
    FirstCycle,
    /// Restless programs get more memory and a new layout.
    Restless,
    /// Restless programs without cycles are packed.
    Packing,
    /// Views whose extents are in use are passed over where memory would exceed the limit.
    PassOver,
    /// Small blocks take the highest free extents.
    HighestForSmall,
    /// Extents are larger while a program loads what it keeps.
    CoarseLoading,
    /// A young program grows by exactly what is missing.
    Exact,
    /// Extents become finer once memory is scarce.
    Scarcity,
    /// Requests that nothing else serves get a place over edges.
    Edges,
    /// Extents follow what the driver charges.
    KnownPrices,
    /// Lanes that no thread has in common lend each other nothing.
    Apart,
}

impl Part {
    /// All of them.
    #[cfg(feature = "ablations")]
    pub const ALL: [Self; 17] = [
        Self::Wilderness,
        Self::ReturnHome,
        Self::Recall,
        Self::OldestFirst,
        Self::Gather,
        Self::IdleStreams,
        Self::FirstCycle,
        Self::Restless,
        Self::Packing,
        Self::PassOver,
        Self::HighestForSmall,
        Self::CoarseLoading,
        Self::Exact,
        Self::Scarcity,
        Self::Edges,
        Self::KnownPrices,
        Self::Apart,
    ];

    /// Returns true if the part is in force.
    #[inline]
    pub(super) fn is_in(self) -> bool {
        !LEFT_OUT.is(self as u32)
    }
}

static LEFT_OUT: LeftOut = LeftOut::none();

/// From now on every heap of the process does without `part`; with `None`, all parts are in force.
#[cfg(feature = "ablations")]
pub fn leave_out(part: Option<Part>) {
    LEFT_OUT.set(part.map(|part| part as u32));
    strategy::forget_wilderness(part == Some(Part::Wilderness));
}
