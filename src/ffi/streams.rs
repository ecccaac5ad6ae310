//! What a program says of its streams: their end, and captures.

use std::ffi::c_int;

use super::{ALL_DEVICES, boundary, genesis_stream, ordinal, stream_handle};
use crate::base::{DeviceOrdinal, Result, Status};
use crate::heap::Heap;
use crate::instance;

/// Says that `stream` is about to be destroyed: whatever stream has this handle afterwards is
/// another one. Call it before cudaStreamDestroy, with no other call on the stream in between.
///
/// Needed only where streams are known by their handles: with GENESIS_STREAM_IDS=off, and on
/// drivers before CUDA 12.0, which have no numbers for streams. Useful everywhere: what is free in
/// the order of the stream can then be had by others behind its last event. Any thread; linear in
/// the number of streams in use.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_stream_forget(stream: genesis_stream) -> Status {
    boundary::status(|| instance::heap()?.forget_stream(stream_handle(stream)))
}

/// Says that a stream of `device` (-1: of each device) is about to be captured: until the matching
/// genesis_capture_end nothing there is waited for or given back to the driver, which would spoil
/// the capture. Calls nest. A capture within a private pool that was begun needs no word.
///
/// May wait for up to 100 ms, for a wait of another thread that is under way.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_capture_begin(device: c_int) -> Status {
    boundary::status(|| for_each_device(device, Heap::begin_capture))
}

/// Says that the capture on `device` (-1: on each device) that genesis_capture_begin told of has
/// ended, however it did. `GENESIS_STATUS_INVALID_ARGUMENT` if none was told of.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_capture_end(device: c_int) -> Status {
    boundary::status(|| for_each_device(device, Heap::end_capture))
}

/// Does `act` for one device or, unlike `super::for_devices`, for all, used or not.
fn for_each_device(device: c_int, act: fn(&Heap, DeviceOrdinal) -> Result<()>) -> Result<()> {
    let heap = instance::heap()?;
    match device {
        ALL_DEVICES => {
            (0..heap.device_count() as u32).try_for_each(|index| act(heap, DeviceOrdinal(index)))
        }
        device => act(heap, ordinal(device)?),
    }
}
