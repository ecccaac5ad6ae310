//! What stands behind an address: real bytes, or nothing.
//!
//! The tables decide what is legal; a store only carries it out. Each store owns one contiguous
//! span of addresses. The machine hands out every reservation and every allocation from it, so
//! addresses are unique over all devices.

mod addresses;
mod common;
mod real;
mod shared;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::code::{Code, Result};
use crate::config::{Config, StoreKind};
use addresses::AddressStore;
pub(crate) use common::Common;
use real::RealStore;
pub(crate) use real::{Extent, FILE_BYTES};
pub(crate) use shared::{Cell, Label, Notes, Piece, Table, open_of_process};

#[derive(Debug)]
pub(crate) enum Store {
    Real(RealStore),
    Addresses(AddressStore),
}

impl Store {
    /// The store that `config` asks for. Where `config` does not name the number of addresses,
    /// there are at least `least_space_bytes`.
    pub(crate) fn new(config: &Config, least_space_bytes: u64) -> Result<Self> {
        let space_bytes = config.address_space_bytes;
        Ok(match config.store {
            StoreKind::RealBytes => {
                Self::Real(RealStore::new(config.devices.len(), space_bytes, least_space_bytes)?)
            }
            StoreKind::AddressesOnly => {
                Self::Addresses(AddressStore::new(space_bytes, config.host_bytes)?)
            }
        })
    }

    /// The span of device addresses, as start and bytes.
    pub(crate) fn space(&self) -> (u64, u64) {
        match self {
            Self::Real(real) => real.space(),
            Self::Addresses(addresses) => addresses.space(),
        }
    }

    /// The smallest granularity the store can serve, in bytes.
    pub(crate) fn page_bytes(&self) -> u64 {
        match self {
            Self::Real(real) => real.page_bytes(),
            Self::Addresses(_) => 512,
        }
    }

    /// `bytes` of fresh memory of `device`, mapped nowhere.
    pub(crate) fn create(&mut self, device: u32, bytes: u64) -> Result<Extent> {
        match self {
            Self::Real(real) => real.create(device, bytes),
            Self::Addresses(_) => Ok(Extent { device, file: device, offset_bytes: 0, bytes }),
        }
    }

    /// [`Self::create`] for memory that other processes can be given.
    pub(crate) fn create_shareable(
        &mut self,
        device: u32,
        bytes: u64,
        piece: Option<Piece>,
    ) -> Result<Extent> {
        match self {
            Self::Real(real) => {
                let file = Label { device, bytes, has_bytes: true, piece }.make_file()?;
                Ok(real.adopt(device, bytes, file))
            }
            Self::Addresses(_) => self.create(device, bytes),
        }
    }

    /// A file by which another process can have memory of [`Self::create_shareable`].
    pub(crate) fn export(&self, extent: Extent, piece: Option<Piece>) -> Result<OwnedFd> {
        match self {
            Self::Real(real) => match real.file_of(extent) {
                Some((file, true)) => file.try_clone().map_err(|_| Code::OUT_OF_MEMORY),
                _ => Err(Code::INVALID_VALUE),
            },
            Self::Addresses(_) => {
                let Extent { device, bytes, .. } = extent;
                Label { device, bytes, has_bytes: false, piece }.make_file()
            }
        }
    }

    /// Memory behind a file of [`Self::export`] of `bytes`; its store is of the same kind.
    pub(crate) fn import(&mut self, device: u32, bytes: u64, file: OwnedFd) -> Result<Extent> {
        match self {
            Self::Real(real) => Ok(real.adopt(device, bytes, file)),
            Self::Addresses(_) => self.create(device, bytes),
        }
    }

    /// A part of the file of another process's device, as `extent` describes it but for the file.
    pub(crate) fn import_part(&mut self, extent: Extent, file: Option<OwnedFd>) -> Result<Extent> {
        match (self, file) {
            (Self::Real(real), Some(file)) => Ok(real.adopt_part(extent, file)),
            (Self::Addresses(_), None) => Ok(extent),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    /// The descriptor of the file in which `extent` lies, if the store has bytes.
    pub(crate) fn descriptor_of(&self, extent: Extent) -> Option<RawFd> {
        match self {
            Self::Real(real) => real.file_of(extent).map(|(file, _)| file.as_raw_fd()),
            Self::Addresses(_) => None,
        }
    }

    /// Returns true if addresses have bytes behind them.
    pub(crate) fn has_bytes(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// Returns the memory of an extent to the host.
    pub(crate) fn destroy(&mut self, extent: Extent) {
        match self {
            Self::Real(real) => real.destroy(extent),
            Self::Addresses(_) => {}
        }
    }

    /// Shows `extent` at `address`, with or without access.
    pub(crate) fn map(&mut self, address: u64, extent: Extent, accessible: bool) -> Result<()> {
        match self {
            Self::Real(real) => real.map(address, extent, accessible),
            Self::Addresses(_) => Ok(()),
        }
    }

    /// Grants or withdraws access to a mapped range.
    pub(crate) fn protect(&mut self, address: u64, bytes: u64, accessible: bool) -> Result<()> {
        match self {
            Self::Real(real) => real.protect(address, bytes, accessible),
            Self::Addresses(_) => Ok(()),
        }
    }

    /// Makes a range address space without memory again.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<()> {
        match self {
            Self::Real(real) => real.unmap(address, bytes),
            Self::Addresses(_) => Ok(()),
        }
    }

    /// Copies bytes between an accessible device range and a pinned host range, which do not
    /// overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64) {
        match self {
            Self::Real(real) => real.copy(to, from, bytes),
            Self::Addresses(_) => {}
        }
    }

    /// Sets an accessible device range to `value`.
    pub(crate) fn fill(&self, address: u64, bytes: u64, value: u8) {
        match self {
            Self::Real(real) => real.fill(address, bytes, value),
            Self::Addresses(_) => {}
        }
    }

    /// The offset of the first byte that is not `value` in an accessible device range. A store
    /// without bytes finds none.
    pub(crate) fn find_other(&self, address: u64, bytes: u64, value: u8) -> Option<u64> {
        match self {
            Self::Real(real) => real.find_other(address, bytes, value),
            Self::Addresses(_) => None,
        }
    }

    /// `bytes` of host memory, as an address outside the span of device addresses.
    pub(crate) fn host_allocate(&mut self, bytes: u64) -> Result<u64> {
        match self {
            Self::Real(_) => real::host_allocate(bytes),
            Self::Addresses(addresses) => addresses.host_allocate(bytes),
        }
        .ok_or(Code::OUT_OF_MEMORY)
    }

    /// Frees memory from [`Self::host_allocate`], with the same size.
    pub(crate) fn host_free(&mut self, address: u64, bytes: u64) {
        match self {
            Self::Real(_) => real::host_free(address, bytes),
            Self::Addresses(addresses) => addresses.host_free(address, bytes),
        }
    }
}
