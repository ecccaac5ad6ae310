//! One extent that is paused: a *record* of a lane (`super::records`).

use std::ops::Range;

use crate::base::size::SizeClass;
use crate::memory::{Extent, ExtentId};

/// Where an extent was mapped and will be again.
#[derive(Clone, Debug)]
pub(super) struct PausedExtent {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) class: SizeClass,
    /// How many paused blocks have bytes in it.
    pub(super) live_blocks: u32,
    /// The address ranges that were live when it was paused, in order.
    pub(super) live: Vec<Range<u64>>,
    /// The extent, unless it was released.
    pub(super) memory: Option<ExtentId>,
    pub(super) contents: Contents,
    /// Whether the driver may have left it mapped without access.
    pub(super) needs_access: bool,
}

/// Where the live bytes of a paused extent are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// In the extent.
    InMemory,
    /// In host memory at this address, one range after the other.
    Saved(u64),
    /// Nowhere.
    Dropped,
}

impl PausedExtent {
    pub(super) fn new(address: u64, id: ExtentId, extent: &Extent) -> Self {
        Self {
            address,
            bytes: extent.bytes,
            class: extent.class,
            live_blocks: 0,
            live: Vec::new(),
            memory: Some(id),
            contents: Contents::InMemory,
            needs_access: false,
        }
    }

    /// One past its last byte.
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// How many bytes are to be saved.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|range| range.end - range.start).sum()
    }

    pub(super) fn add_live(&mut self, block: &Range<u64>) {
        let range = block.start.max(self.address)..block.end.min(self.end());
        self.live_blocks += 1;
        match self.live.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.live.push(range),
        }
    }
}
