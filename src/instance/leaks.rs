//! The report of live blocks at exit, for `GENESIS_DEBUG=leaks`.
//!
//! Only host memory is read then, because the driver may be gone. Blocks that the program frees in
//! destructors that run later still count as live.

use std::io::Write;

use crate::base::{DeviceOrdinal, Error, Result};
use crate::config::Settings;
use crate::heap::Heap;
use crate::process;

/// Has live blocks reported at exit if `settings` ask for it.
pub(super) fn watch(settings: &Settings) {
    if settings.debug.leaks {
        process::at_exit(report_leaks);
    }
}

/// Fails with `InvalidArgument` if `settings` turn guard pages on or off though a device is in use.
pub(super) fn check_change(heap: &Heap, settings: &Settings) -> Result<()> {
    let is_in_use = (0..heap.device_count() as u32).any(|n| heap.is_opened(DeviceOrdinal(n)));
    if settings.debug.guard == heap.settings().debug.guard || !is_in_use {
        return Ok(());
    }
    Err(Error::invalid_argument(
        "GENESIS_DEBUG: guard can be changed only before the first allocation",
    ))
}

fn report_leaks() {
    let Ok(Some(heap)) = super::heap_if_made() else { return };
    if !heap.settings().debug.leaks {
        return;
    }
    if let Some(report) = heap.leak_report() {
        // Not through the log: its receiver may be gone as well.
        let _ = write!(std::io::stderr(), "genesis: {report}");
    }
}
