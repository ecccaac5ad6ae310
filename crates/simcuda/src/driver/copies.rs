//! Copies and fills.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

use crate::call::driver;
use crate::current;
use crate::transfers::{Direction, Rows, Work, copy, fill};

/// A copy of one line, on behalf of the driver function `name`.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_line(
    name: &'static str,
    ends: [u64; 2],
    bytes: usize,
    direction: Direction,
    stream: Option<usize>,
) -> c_int {
    let [to, from] = ends;
    driver(name, format_args!("{to:#x}, {from:#x}, {bytes}"), |simulation| {
        let context = current::driver_context()?;
        let is_peer = name.starts_with("cuMemcpyPeer");
        let stream_or_legacy = stream.unwrap_or(0);
        let work = Work { simulation, context, stream: stream_or_legacy, label: name, is_peer };
        let (to, from) = (Rows::line(to, bytes as u64), Rows::line(from, bytes as u64));
        // SAFETY: by this function's contract.
        unsafe { copy(work, to, from, direction, stream.is_none()) }
    })
}

/// A fill of one line, on behalf of the driver function `name`.
///
/// # Safety
/// As for [`fill`].
unsafe fn fill_line<const N: usize>(
    name: &'static str,
    to: u64,
    value: [u8; N],
    count: usize,
    stream: usize,
) -> c_int {
    driver(name, format_args!("{to:#x}, {count}"), |simulation| {
        let context = current::driver_context()?;
        let work = Work { simulation, context, stream, label: name, is_peer: false };
        // SAFETY: by this function's contract.
        unsafe { fill(work, Rows::line(to, count as u64 * N as u64), value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpy", [to, from], bytes, Direction::Default, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyAsync", [to, from], bytes, Direction::Default, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int {
    let ends = [to, from as u64];
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyHtoD_v2", ends, bytes, Direction::HostToDevice, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: usize,
) -> c_int {
    let ends = [to, from as u64];
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyHtoDAsync_v2", ends, bytes, Direction::HostToDevice, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int {
    let ends = [to as u64, from];
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyDtoH_v2", ends, bytes, Direction::DeviceToHost, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: usize,
) -> c_int {
    let ends = [to as u64, from];
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyDtoHAsync_v2", ends, bytes, Direction::DeviceToHost, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyDtoD_v2", [to, from], bytes, Direction::DeviceToDevice, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: usize,
) -> c_int {
    let direction = Direction::DeviceToDevice;
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyDtoDAsync_v2", [to, from], bytes, direction, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyPeer(
    to: u64,
    _to_context: usize,
    from: u64,
    _from_context: usize,
    bytes: usize,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyPeer", [to, from], bytes, Direction::DeviceToDevice, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    _to_context: usize,
    from: u64,
    _from_context: usize,
    bytes: usize,
    stream: usize,
) -> c_int {
    let direction = Direction::DeviceToDevice;
    // SAFETY: see the head of `driver`.
    unsafe { copy_line("cuMemcpyPeerAsync", [to, from], bytes, direction, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8_v2(to: u64, value: c_uchar, count: usize) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { fill_line("cuMemsetD8_v2", to, [value], count, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8Async(
    to: u64,
    value: c_uchar,
    count: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { fill_line("cuMemsetD8Async", to, [value], count, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD16_v2(to: u64, value: c_ushort, count: usize) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { fill_line("cuMemsetD16_v2", to, value.to_ne_bytes(), count, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD16Async(
    to: u64,
    value: c_ushort,
    count: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { fill_line("cuMemsetD16Async", to, value.to_ne_bytes(), count, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD32_v2(to: u64, value: c_uint, count: usize) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { fill_line("cuMemsetD32_v2", to, value.to_ne_bytes(), count, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD32Async(
    to: u64,
    value: c_uint,
    count: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { fill_line("cuMemsetD32Async", to, value.to_ne_bytes(), count, stream) }
}
