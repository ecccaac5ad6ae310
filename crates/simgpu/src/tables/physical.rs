//! Physical memory: the devices that have it, and the pieces that handles and allocations hold.
//!
//! A piece of memory is alive while its handle is held or a mapping shows it. Plain allocations
//! are born with their handle released and one mapping. Small ones share pages of one granule.
//!
//! Invariant, per device: `used_bytes` = Σ bytes of its living memory that has an extent and is this
//! process's own + Σ bytes of its pages with small allocations and of the managed pages there, and was ≤ `available_bytes` when
//! it last grew.

use std::collections::BTreeMap;

use crate::code::{Code, Result};
use crate::config::DeviceConfig;
use crate::ranges::Ranges;
use crate::store::{Cell, Extent, Piece};
use crate::usage::Usage;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) config: DeviceConfig,
    /// What may be in use, ≤ capacity.
    pub(crate) available_bytes: u64,
    pub(crate) used_bytes: u64,
    /// The most that was in use after the peak was last reset.
    pub(crate) peak_used_bytes: u64,
    pub(crate) small: SmallPages,
    pub(crate) usage: Usage,
}

/// The pages of a device's small allocations.
#[derive(Debug)]
pub(crate) struct SmallPages {
    pub(crate) page_bytes: u64,
    pub(crate) free: Ranges,
    pub(crate) pages: BTreeMap<u64, Extent>,
    /// The one page kept although it is empty.
    pub(crate) spare: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) device: u32,
    /// The context of a plain allocation; handles belong to their device alone.
    pub(crate) context: Option<u32>,
    /// What it counts for, in bytes.
    pub(crate) bytes: u64,
    /// Its place in the store; small allocations share their page's.
    pub(crate) extent: Option<Extent>,
    /// How many mappings show it.
    pub(crate) mappings: u32,
    /// True if its handle was released, or it never had one.
    pub(crate) released: bool,
    /// How it is counted with other machines; `None`: with all that only this machine can hold.
    pub(crate) piece: Option<Piece>,
    /// What other processes have to do with it, and who counts it.
    pub(crate) sharing: Sharing,
}

/// What other processes have to do with a piece of memory.
#[derive(Debug, Default)]
pub(crate) enum Sharing {
    /// Nothing: an allocation, or a handle that cannot be exported.
    #[default]
    None,
    /// Nothing ever, and its pages are counted where they are (`managed`).
    Managed,
    /// A handle made to be exported as a file descriptor.
    Exportable,
    /// An allocation of which a handle for other processes was made, with its note.
    Noted(Cell),
    /// It is another process's, and nothing of `used_bytes`. An allocation has that process's note.
    Imported {
        _note: Option<Cell>,
        /// How often it was opened, less how often it was closed.
        opened: u32,
    },
}

impl Device {
    pub(crate) fn new(config: &DeviceConfig) -> Self {
        Self {
            config: config.clone(),
            available_bytes: config.capacity_bytes,
            used_bytes: 0,
            peak_used_bytes: 0,
            small: SmallPages::new(config.granularity_bytes),
            usage: Usage::default(),
        }
    }

    /// Counts `bytes` as used. Fails if fewer are available.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.available_bytes.saturating_sub(self.used_bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.used_bytes += bytes;
        self.peak_used_bytes = self.peak_used_bytes.max(self.used_bytes);
        Ok(())
    }

    /// Undoes [`Self::take`].
    pub(crate) fn give(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }
}

impl SmallPages {
    fn new(page_bytes: u64) -> Self {
        let free = Ranges::with_seams(page_bytes);
        Self { page_bytes, free, pages: BTreeMap::new(), spare: None }
    }

    /// The bytes of the pages that hold at least one allocation.
    pub(crate) fn used_bytes(&self) -> u64 {
        let used = self.pages.len() - usize::from(self.spare.is_some());
        used as u64 * self.page_bytes
    }
}

impl Memory {
    /// What it counts for on its device, in bytes.
    pub(crate) fn counted_bytes(&self) -> u64 {
        match self.sharing {
            Sharing::Imported { .. } | Sharing::Managed => 0,
            _ if self.extent.is_some() => self.bytes,
            _ => 0,
        }
    }

    /// True if neither a handle nor a mapping holds it.
    pub(crate) fn is_dead(&self) -> bool {
        self.released && self.mappings == 0
    }
}
