//! Ends of streams, and captures.

use std::ffi::c_int;

use super::{ALL_DEVICES, boundary, genesis_stream, ordinal, stream_handle};
use crate::base::{DeviceOrdinal, Result, Status};
use crate::heap::Heap;
use crate::instance;

/// Tells the library that `stream` is about to be destroyed; a later stream with this handle is
/// another one. Call it before cudaStreamDestroy, with no other call on the stream in between.
///
/// It is needed only if streams are identified by their handles: with GENESIS_STREAM_IDS=off, and
/// on drivers before CUDA 12.0, which have no numbers for streams. It is useful everywhere, because
/// other streams can then use the stream's free memory after its last event. Any thread. Linear in
/// the number of streams in use.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_stream_forget(stream: genesis_stream) -> Status {
    boundary::status(|| instance::heap()?.forget_stream(stream_handle(stream)))
}

/// Tells the library that a stream of `device` (-1: of each device) is about to be captured. Until
/// the matching genesis_capture_end the library does not wait for the device and returns no memory
/// to the driver, which would break the capture. Calls nest. A capture within a private pool that
/// was begun needs no call.
///
/// Called by the thread that captures. Its own requests are refused if memory is short; those of other
/// threads wait for the end of the capture then, for at most a second; and for the next one, if that has
/// begun by then.
///
/// Waits at most 100 ms for another thread that is waiting for the device.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_capture_begin(device: c_int) -> Status {
    boundary::status(|| for_each_device(device, Heap::begin_capture))
}

/// Tells the library that the capture on `device` (-1: on each device) announced by
/// genesis_capture_begin, in the same thread if possible, has ended or failed. Returns
/// `GENESIS_STATUS_INVALID_ARGUMENT` if none was announced.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_capture_end(device: c_int) -> Status {
    boundary::status(|| for_each_device(device, Heap::end_capture))
}

/// Calls `act` for one device, or for all; unlike `super::for_devices` also for unused ones.
fn for_each_device(device: c_int, act: fn(&Heap, DeviceOrdinal) -> Result<()>) -> Result<()> {
    let heap = instance::heap()?;
    match device {
        ALL_DEVICES => {
            (0..heap.device_count() as u32).try_for_each(|index| act(heap, DeviceOrdinal(index)))
        }
        device => act(heap, ordinal(device)?),
    }
}
