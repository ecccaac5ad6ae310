//! Blocks that several processes use.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | exporting, importing, closing |
//! | `handle` | what names a block in another process |
//! | `service` | the exporting side: which process has what |
//! | `imports` | the importing side: what is mapped here |
//! | `wire` | their messages |
//!
//! ```text
//!   exporter                                   importer
//!   export: the block is held for the handle ── handle ──▶
//!                  ◀── the handle's hold becomes mine ──── import
//!                  ─── segment or descriptors ──────────▶  mapped
//!                  ◀── released ────────────────────────── close: waits, unmaps
//! ```
//!
//! A hold belongs to a handle until one process imports or discards it, and then to that process,
//! until it closes the block or ends: then its connection ends, and with it all that it holds. So
//! a process that dies loses nothing of another's. Only a handle that nobody ever receives holds its
//! block until the exporter ends.
//!
//! The exporter has one thread that waits for connections, from the first export on, and one for
//! each process that imports. What they free is freed as by any other thread.

mod handle;
mod imports;
mod service;
mod wire;

pub(crate) use handle::BlockHandle;

use crate::base::{DeviceOrdinal, Error, Result};

/// Makes a handle for the live block that starts at `address`, which stays live until the handle
/// was imported and closed, or discarded.
pub(crate) fn export(address: u64) -> Result<BlockHandle> {
    if imports::is_imported(address) {
        let message = format!(
            "{address:#x} is a block of another process, which alone can share it with others"
        );
        return Err(Error::invalid_argument(message));
    }
    service::export(address)
}

/// Maps the block that `handle` names for `device` (`None`: the exporter's ordinal), and returns its
/// address. A block that is mapped already, or is this process's own, is only held once more.
pub(crate) fn import(bytes: &[u8], device: Option<DeviceOrdinal>) -> Result<(u64, BlockHandle)> {
    let handle = BlockHandle::decode(bytes)?;
    if service::is_own(&handle) {
        let address = service::claim(&handle)?.address;
        imports::add_own(address, handle.share);
        return Ok((address, handle));
    }
    imports::import(&handle, device).map(|address| (address, handle))
}

/// Ends one use of a block that [`import`] returned; after the last one it is unmapped, once all
/// work of the device is complete.
pub(crate) fn close(address: u64) -> Result<()> {
    match imports::take_own(address) {
        Some(share) => service::release(share),
        None => imports::close(address),
    }
}

/// Ends the hold of a handle that nobody will import.
pub(crate) fn discard(bytes: &[u8]) -> Result<()> {
    let handle = BlockHandle::decode(bytes)?;
    if service::is_own(&handle) { service::discard(&handle) } else { imports::discard(&handle) }
}
