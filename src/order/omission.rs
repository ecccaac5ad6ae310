//! Steps of stream order that can be left out, to see that tests notice each:
//! `cargo test --features ablations --test order_omissions`. Without the feature nothing can be
//! left out, and the questions cost nothing.

use crate::base::left_out::LeftOut;

/// A step without which blocks are used too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// A stream that `record_stream` names is remembered.
    Record,
    /// An event is recorded on it when the block is freed.
    RecordedEvent,
    /// The block waits until that event is complete.
    PendingQuery,
    /// Where a stream can have no event, the block waits until the device is idle.
    IdleWait,
    /// A wait for the device waits.
    DeviceWait,
    /// An epoch ends before its event is recorded.
    EndOfEpoch,
    /// A fence stands for the frees up to its epoch only.
    CoveredEpoch,
    /// Without a fence another stream does not take a block.
    NoFence,
    /// A fence counts as complete once its event is.
    FenceQuery,
    /// Memory is unmapped once the epoch in which it was left is complete.
    IdleEpoch,
    /// The stream that takes memory of another waits for its fence.
    StreamWait,
    /// A stream counts as idle only if it has nothing to do.
    StreamQuery,
}

impl Step {
    /// All of them.
    #[cfg(feature = "ablations")]
    pub const ALL: [Self; 12] = [
        Self::Record,
        Self::RecordedEvent,
        Self::PendingQuery,
        Self::IdleWait,
        Self::DeviceWait,
        Self::EndOfEpoch,
        Self::CoveredEpoch,
        Self::NoFence,
        Self::FenceQuery,
        Self::IdleEpoch,
        Self::StreamWait,
        Self::StreamQuery,
    ];

    /// Returns true if the step is not taken.
    #[inline]
    pub fn is_left_out(self) -> bool {
        LEFT_OUT.is(self as u32)
    }
}

static LEFT_OUT: LeftOut = LeftOut::none();

/// From now on every heap of the process does without `step`; with `None`, all steps are taken.
#[cfg(feature = "ablations")]
pub fn leave_out(step: Option<Step>) {
    LEFT_OUT.set(step.map(|step| step as u32));
}
