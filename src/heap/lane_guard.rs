//! A lane's lock, as the operations of the hot path hold it: when it is released, a watermark that
//! was crossed meanwhile has the device's peaks updated.
//!
//! ```text
//! drop:  take the mark out of the state → release the lock → settle the device
//! ```
//!
//! The fields are dropped in their order, which releases the lock before the device is settled.

use std::ops::{Deref, DerefMut};

use super::lane::{Lane, LaneKey, LaneState};
use super::state::Heap;
use crate::base::lock::{Guard, rank};

/// Access to the state of a lane.
pub(super) struct LaneGuard<'a> {
    state: Guard<'a, LaneState, { rank::LANE }>,
    settling: Settling<'a>,
}

/// What is to be done once the lock is released.
struct Settling<'a> {
    heap: &'a Heap,
    lane: &'a Lane,
    is_due: bool,
}

impl<'a> LaneGuard<'a> {
    /// Locks `lane`.
    #[inline]
    pub(super) fn lock(heap: &'a Heap, lane: &'a Lane) -> Self {
        Self { state: lane.lock(), settling: Settling { heap, lane, is_due: false } }
    }

    /// Locks `lane` if it is still that of `key`.
    #[inline]
    pub(super) fn lock_for(heap: &'a Heap, lane: &'a Lane, key: LaneKey) -> Option<Self> {
        let guard = Self::lock(heap, lane);
        (lane.key() == key).then_some(guard)
    }
}

impl Deref for LaneGuard<'_> {
    type Target = LaneState;

    #[inline]
    fn deref(&self) -> &LaneState {
        &self.state
    }
}

impl DerefMut for LaneGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LaneState {
        &mut self.state
    }
}

impl Drop for LaneGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.settling.is_due = self.state.has_crossed;
    }
}

impl Drop for Settling<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_due {
            self.settle();
        }
    }
}

impl Settling<'_> {
    #[cold]
    fn settle(&self) {
        self.lane.lock().has_crossed = false;
        if let Some(device) = self.heap.opened(self.lane.device) {
            device.settle();
        }
    }
}
