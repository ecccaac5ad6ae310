//! The driver stand-in under a replay: CUDA's library names, and a process's environment.
//!
//! Genesis loads it as the driver, by the name `libcuda.so.1`. Preloaded, its symbols replace those
//! of CUDA's runtime, which PyTorch and RMM call.

use std::path::Path;
use std::process::Command;

use crate::results::failed;
use steps::Outcome;

const BUILT_NAME: &str = "libsimcuda.so";
const DRIVER_NAME: &str = "libcuda.so.1";

/// Puts the stand-in built in `release` into `folder` under the driver's name.
pub(crate) fn install(release: &Path, folder: &Path) -> Outcome {
    let link = folder.join(DRIVER_NAME);
    if link.is_symlink() {
        std::fs::remove_file(&link).map_err(|error| failed(&link, &error))?;
    }
    std::os::unix::fs::symlink(release.join(BUILT_NAME), &link)
        .map_err(|error| failed(&link, &error))
}

/// Makes `command` run on the stand-in in `folder`, with one device of `device_bytes` and driver time
/// by the list `prices`.
pub(crate) fn put_beneath(command: &mut Command, folder: &Path, device_bytes: u64, prices: &str) {
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_PRELOAD", folder.join(DRIVER_NAME))
        .env("SIMCUDA_MEMORY", device_bytes.to_string())
        .env("SIMCUDA_PRICES", prices)
        // PyTorch prefers low addresses, and its published figures were recorded in this order.
        .env("SIMCUDA_ADDRESSES", "descending")
        // The race detector's time is no part of an allocator's.
        .env("SIMCUDA_RACES", "off");
}
