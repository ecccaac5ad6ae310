//! Managed memory (`GENESIS_MANAGED`): advice and prefetches for parts of blocks.

use std::ffi::{c_int, c_void};

use super::{boundary, genesis_stream, ordinal, stream_handle};
use crate::base::{Error, Result, Status};
use crate::driver::{Advice, Location};
use crate::instance;

/// The device that stands for the host.
const HOST: c_int = -1;

/// What a program tells of managed memory, with the numbers of `CUmem_advise`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedAdvice {
    /// It is mostly read: each device that reads it may have a copy.
    ReadMostly = 1,
    /// No longer.
    NotReadMostly = 2,
    /// `device` is where it should be. Blocks begin with this advice, for their own device.
    PreferredLocation = 3,
    /// No place is.
    NoPreferredLocation = 4,
    /// `device` uses it, and is to reach it wherever it is, without moving it.
    AccessedBy = 5,
    /// No longer.
    NotAccessedBy = 6,
}

/// Tells the driver what the program does with `bytes` from `ptr` on, a part of one live block in
/// managed memory: `advice` is a `genesis_managed_advice`. `device` -1 is the host. Not in the order
/// of any stream. Takes some microseconds. Any thread.
///
/// GENESIS_NOT_SUPPORTED if the block's memory is not managed (GENESIS_MANAGED);
/// GENESIS_INVALID_ARGUMENT if the bytes are not within one live block.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_managed_advise(
    ptr: *const c_void,
    bytes: usize,
    advice: c_int,
    device: c_int,
) -> Status {
    boundary::status(|| {
        let location = location(device)?;
        instance::heap()?.advise(ptr as u64, bytes as u64, advice_of(advice)?, location)
    })
}

/// Brings `bytes` from `ptr` on, a part of one live block in managed memory, to `device`, or to the
/// host if it is -1: work on `stream`, which is not waited for. So the next kernel on `stream` does
/// not fault page by page; and memory that is not needed soon makes room before it is evicted.
/// Any thread. Errors are as for `genesis_managed_advise`; while `stream` is captured,
/// GENESIS_DRIVER_FAILED, and the capture is not disturbed.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_managed_prefetch(
    ptr: *const c_void,
    bytes: usize,
    device: c_int,
    stream: genesis_stream,
) -> Status {
    boundary::status(|| {
        let (location, stream) = (location(device)?, stream_handle(stream));
        instance::heap()?.prefetch(ptr as u64, bytes as u64, location, stream)
    })
}

fn location(device: c_int) -> Result<Location> {
    if device == HOST { Ok(Location::Host) } else { ordinal(device).map(Location::Device) }
}

fn advice_of(number: c_int) -> Result<Advice> {
    Ok(match number {
        1 => Advice::ReadMostly(true),
        2 => Advice::ReadMostly(false),
        3 => Advice::PreferredLocation(true),
        4 => Advice::PreferredLocation(false),
        5 => Advice::AccessedBy(true),
        6 => Advice::AccessedBy(false),
        _ => {
            let message = format!("{number} is not a genesis_managed_advice");
            return Err(Error::invalid_argument(message));
        }
    })
}
