//! The fence behind `cudaFree`: one wait for the device for many blocks.
//!
//! CUDA's `cudaFree` waits until nothing uses the memory. Here a freed block is put aside
//! (`freed`), and is not used again before all devices that may use it have been waited for: when
//! the program itself waits for them, when many blocks or many bytes have come together, or when a
//! request would fail otherwise. So programs that free and allocate in turns wait once for hundreds
//! of blocks.
//!
//! **Several devices.** A peer may be reading a block of this device, and CUDA's `cudaFree` also
//! waits for "all GPUs which have P2P enabled with the local GPU" (NVIDIA/nccl#744, by NCCL's
//! authors). Memory of Genesis's may be within reach of every device of the process. So a block is
//! given back when each device whose primary context is in use has been waited for, by any caller
//! and in any order. A fence waits for its own device first. It waits for others only when memory
//! is short, or when what still waits for them exceeds the bounds: a program with a thread for each
//! device, whose fences serve each other, hardly ever waits for another's.
//!
//! **While any stream is captured** nothing is waited for, because the driver would end the
//! capture. `capture` has the gate through which every wait goes.

use std::ffi::c_int;
use std::thread;
use std::time::Instant;

use crate::capture::{MOST_PATIENCE, NAP};
use crate::device::Device;
use crate::driver_api::SUCCESS;
use crate::freed::{self, Need};
use crate::{capture, device, inside, report};

/// Waits for `device` by `wait`, whose answer is returned. Then gives back what was freed before
/// and no device uses any more.
pub(crate) fn around_wait(device: Option<c_int>, wait: impl FnOnce() -> c_int) -> c_int {
    let start = device.and_then(|_| begin_wait());
    let status = wait();
    if let (Some(waited), Some(start)) = (device, start) {
        device::for_each_seen(|owner| match status {
            SUCCESS => {
                let batches = owner.freed.end_wait(waited, start);
                batches.into_iter().for_each(|batch| owner.freed.give_back(owner.ordinal(), batch));
            }
            _ if owner.ordinal() == waited => owner.freed.postpone(),
            _ => {}
        });
    }
    status
}

/// Closes the batches of all devices and returns the moment after; `None` if nothing waits.
fn begin_wait() -> Option<u64> {
    let mut is_any = false;
    device::for_each_seen(|device| is_any |= device.freed.is_any());
    if !is_any {
        return None;
    }
    device::for_each_seen(|device| device.freed.close());
    let start = freed::tick();
    let active = device::active();
    device::for_each_seen(|device| device.freed.narrow(active | 1 << device.ordinal()));
    Some(start)
}

/// Waits for a device and, as far as `need` asks, for others, and gives back what was freed before.
/// Returns true if anything may have been given back. If memory is short, no request is refused for what
/// other threads are just doing: what they have taken out, Genesis has by then, and it knows of all captures.
#[cold]
pub(crate) fn retire(ordinal: c_int, need: Need) -> bool {
    let Some(device) = device::get(ordinal).filter(|device| !device.is_lost()) else {
        return false;
    };
    let has_waited = wait_for_users(device, need);
    if need == Need::Bounds {
        return has_waited;
    }
    capture::let_be_announced();
    let_others_give_back(device) || has_waited
}

/// Waits for the devices that may use what was freed of `device`, as far as `need` asks; returns false if
/// nothing was freed, or captures or the driver refused.
fn wait_for_users(device: &'static Device, need: Need) -> bool {
    if capture::is_any() || !device.freed.is_any() {
        return false;
    }
    report::fenced();
    let _inside = inside::enter();
    let ordinal = device.ordinal();
    if !wait_for(ordinal) {
        return false;
    }
    let others = device.freed.wanted(need) & !(1 << ordinal);
    (0..u64::BITS as c_int).filter(|other| others >> other & 1 != 0).all(wait_for);
    true
}

/// Waits until Genesis has what other threads have taken out; returns true if there was any. In vain after
/// [`MOST_PATIENCE`].
fn let_others_give_back(device: &Device) -> bool {
    let begin = Instant::now();
    let was_any = device.freed.is_under_way();
    while device.freed.is_under_way() && begin.elapsed() < MOST_PATIENCE {
        thread::sleep(NAP);
    }
    was_any
}

/// Waits for a device unless there are captures; returns true if the wait succeeded.
fn wait_for(ordinal: c_int) -> bool {
    let Some(_waiting) = capture::permit_wait() else { return false };
    around_wait(Some(ordinal), || device::synchronize(ordinal)) == SUCCESS
}

/// At the end of the process, when nothing is allocated any more: gives back what waits, so that
/// Genesis does not report it as live.
pub(crate) fn end() {
    device::for_each_seen(|device| {
        for batch in device.freed.take_all() {
            device.freed.give_back(device.ordinal(), batch);
        }
    });
}
