//! One extent that is paused: a *record* of a lane (`super::records`).

use std::ops::Range;
use std::sync::Arc;

use super::pools::Mark;
use super::saved_bytes::Saved;
use crate::base::size::SizeClass;
use crate::memory::{Communication, Extent, ExtentId};

/// Where an extent was mapped and will be again.
#[derive(Clone, Debug)]
pub(super) struct PausedExtent {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) class: SizeClass,
    /// How it was made, if others reach it by its address.
    pub(super) communication: Option<Arc<Communication>>,
    /// Whose memory it is.
    pub(super) mark: Mark,
    /// Whether free memory in it counts as live, because a graph may write there.
    pub(super) is_fixed: bool,
    /// The lane's tick when it was paused.
    pub(super) tick: u32,
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
#[derive(Clone, Debug)]
pub(super) enum Contents {
    /// In the extent.
    InMemory,
    /// Kept, one range after the other.
    Saved(Saved),
    /// Nowhere.
    Dropped,
}

/// What was saved of an extent that has its memory again.
#[derive(Debug)]
pub(super) struct KeptCopy {
    /// The address ranges, in order.
    pub(super) live: Vec<Range<u64>>,
    /// The lane's tick when they were saved.
    pub(super) tick: u32,
    pub(super) saved: Saved,
}

impl Contents {
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self, Self::InMemory)
    }

    /// What was saved, if anything.
    pub(super) fn saved(&self) -> Option<&Saved> {
        match self {
            Self::Saved(saved) => Some(saved),
            Self::InMemory | Self::Dropped => None,
        }
    }
}

impl PausedExtent {
    /// The record of an extent of a lane at tick `tick`.
    pub(super) fn new((address, id): (u64, ExtentId), extent: &Extent, mark: Mark) -> Self {
        Self {
            address,
            bytes: extent.bytes,
            class: extent.class,
            communication: extent.communication.clone(),
            mark,
            is_fixed: false,
            tick: 0,
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
        bytes_of(&self.live)
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

/// How far into the bytes of `ranges`, one after the other, the one at `address` is.
pub(super) fn offset_of(ranges: &[Range<u64>], address: u64) -> Option<u64> {
    let index = ranges.iter().position(|range| range.contains(&address))?;
    Some(bytes_of(&ranges[..index]) + address - ranges[index].start)
}

fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
