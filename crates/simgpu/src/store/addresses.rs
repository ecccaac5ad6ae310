//! The store without bytes: numbers that look like addresses.
//!
//! Device addresses lie in [2^40, 2^47 − 2^40), below the end of a 47-bit user address space, as
//! real ones do. Pinned host memory is real where the machine wants it so; otherwise its numbers
//! lie below the device addresses, so the two are never confused. No device address is mapped:
//! dereferencing one faults.

use super::real;
use crate::code::{Code, Result};
use crate::ranges::Ranges;

/// Where device addresses start, in bytes.
const DEVICE_BASE: u64 = 1 << 40;
/// All device address space there can be, in bytes.
const DEVICE_SPACE_BYTES: u64 = (1 << 47) - (1 << 41);
/// Pinned host memory: [2^39, 2^40).
const HOST_BASE: u64 = 1 << 39;
const HOST_SPACE_BYTES: u64 = 1 << 39;
const HOST_PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct AddressStore {
    space_bytes: u64,
    /// Numbers for host memory; `None` where host memory is real.
    host: Option<Ranges>,
}

impl AddressStore {
    pub(crate) fn new(space_bytes: Option<u64>, host_bytes: bool) -> Result<Self> {
        let space_bytes = space_bytes.unwrap_or(DEVICE_SPACE_BYTES);
        if space_bytes > DEVICE_SPACE_BYTES {
            return Err(Code::INVALID_VALUE);
        }
        let numbers = || {
            let mut host = Ranges::default();
            host.give(HOST_BASE, HOST_SPACE_BYTES);
            host
        };
        Ok(Self { space_bytes, host: (!host_bytes).then(numbers) })
    }

    pub(crate) fn space(&self) -> (u64, u64) {
        (DEVICE_BASE, self.space_bytes)
    }

    pub(crate) fn host_allocate(&mut self, bytes: u64) -> Option<u64> {
        match &mut self.host {
            Some(host) => host.take(rounded(bytes)?, HOST_PAGE_BYTES),
            None => real::host_allocate(bytes),
        }
    }

    pub(crate) fn host_free(&mut self, address: u64, bytes: u64) {
        match (&mut self.host, rounded(bytes)) {
            (Some(host), Some(bytes)) => {
                host.give(address, bytes);
            }
            (Some(_), None) => {}
            (None, _) => real::host_free(address, bytes),
        }
    }
}

fn rounded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(HOST_PAGE_BYTES)
}
