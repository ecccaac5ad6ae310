//! Debugging and the process: what is live is told when the process ends.
//!
//! Nothing but host memory is looked at then: the driver may be gone. What a program frees in
//! destructors of its own that run later still is live.

use std::io::Write;

use super::{instance, process};
use crate::base::{DeviceOrdinal, Error, Result};
use crate::config::Settings;
use crate::heap::Heap;

/// Has the end of the process told what is live, if `settings` ask for that.
pub(super) fn watch(settings: &Settings) {
    if settings.debug.leaks {
        process::at_exit(report_leaks);
    }
}

/// `InvalidArgument` where `settings` change what `heap` cannot change any more: whether there are
/// guard pages, once a device is in use.
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
    let Ok(Some(heap)) = instance::heap_if_made() else { return };
    if !heap.settings().debug.leaks {
        return;
    }
    if let Some(report) = heap.leak_report() {
        // Not by the log: whoever receives that may be gone as well.
        let _ = write!(std::io::stderr(), "genesis: {report}");
    }
}
