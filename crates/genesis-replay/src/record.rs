//! What a trace consists of, whichever form its file has.

use crate::error::{Error, Result};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was asked for: `id` is new, `size` may be 0.
    Allocate,
    /// The block `id` was freed.
    Free,
    /// The block `id` was used on `stream`.
    RecordStream,
    /// Cached memory was given back to the device.
    EmptyCache,
    /// Iteration number `id` of the program ended.
    IterationEnd,
    /// An operation newer than this reader.
    Unknown(u8),
}

impl Action {
    /// The action that a file writes as `number`; `None` for 0, which is never assigned.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Allocate),
            2 => Some(Self::Free),
            3 => Some(Self::RecordStream),
            4 => Some(Self::EmptyCache),
            5 => Some(Self::IterationEnd),
            other => Some(Self::Unknown(other)),
        }
    }

    /// The number that a file has for it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Allocate => 1,
            Self::Free => 2,
            Self::RecordStream => 3,
            Self::EmptyCache => 4,
            Self::IterationEnd => 5,
            Self::Unknown(number) => number,
        }
    }
}

/// One record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub action: Action,
    /// The device, counted from 0.
    pub device: u8,
    /// The stream: 0 is the program's main stream, others are numbered as they appear.
    pub stream: u16,
    /// Which block, or which iteration.
    pub id: u32,
    /// The bytes requested; 0 if the action has no size.
    pub requested_bytes: u64,
}

/// What can be read of a trace that may be damaged, for instance by a crash while it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The records before the damage, or all.
    pub records: Vec<Record>,
    /// The damage, with its place in the file.
    pub damage: Option<Error>,
}

impl Recovered {
    /// The records, or what is wrong.
    pub(crate) fn whole(self) -> Result<Vec<Record>> {
        match self.damage {
            None => Ok(self.records),
            Some(damage) => Err(damage),
        }
    }
}
