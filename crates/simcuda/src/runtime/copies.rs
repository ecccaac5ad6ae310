//! Copies and fills.

use std::ffi::c_int;

use crate::call::runtime;
use crate::transfers::{Direction, Rows, Work, copy, fill};
use crate::{current, kernels};

/// A copy on behalf of the runtime function `name`. Without a stream it is on the legacy one, and
/// the host waits.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_rows(
    name: &'static str,
    [to, from]: [Rows; 2],
    kind: c_int,
    stream: Option<usize>,
) -> c_int {
    let arguments = format_args!(
        "{:#x}, {:#x}, {}x{}, {kind}, {:#x}",
        to.address,
        from.address,
        to.width_bytes,
        to.count,
        stream.unwrap_or(0)
    );
    runtime(name, arguments, |simulation| {
        let context = current::runtime_context();
        let is_peer = name.starts_with("cudaMemcpyPeer");
        let stream_or_legacy = stream.unwrap_or(0);
        let work = Work { simulation, context, stream: stream_or_legacy, label: name, is_peer };
        // SAFETY: by this function's contract.
        unsafe { copy(work, to, from, Direction::new(kind)?, stream.is_none()) }
    })
}

/// A fill on behalf of the runtime function `name`.
///
/// # Safety
/// As for [`fill`].
unsafe fn fill_rows(name: &'static str, to: Rows, value: c_int, stream: usize) -> c_int {
    let (address, width_bytes, count) = (to.address, to.width_bytes, to.count);
    let arguments = format_args!("{address:#x}, {value}, {width_bytes}x{count}, {stream:#x}");
    runtime(name, arguments, |simulation| {
        let context = current::runtime_context();
        let work = Work { simulation, context, stream, label: name, is_peer: false };
        // SAFETY: by this function's contract.
        unsafe { fill(work, to, [value as u8]) }
    })
}

const fn lines(to: u64, from: u64, bytes: usize) -> [Rows; 2] {
    [Rows::line(to, bytes as u64), Rows::line(from, bytes as u64)]
}

const fn rows(address: u64, pitch: usize, width: usize, count: usize) -> Rows {
    let (pitch_bytes, width_bytes) = (pitch as u64, width as u64);
    Rows { address, pitch_bytes, width_bytes, count: count as u64 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy(to: u64, from: u64, bytes: usize, kind: c_int) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpy", lines(to, from, bytes), kind, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyAsync(
    to: u64,
    from: u64,
    bytes: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpyAsync", lines(to, from, bytes), kind, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy2D(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    let ends = [rows(to, to_pitch, width, height), rows(from, from_pitch, width, height)];
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpy2D", ends, kind, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy2DAsync(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    let ends = [rows(to, to_pitch, width, height), rows(from, from_pitch, width, height)];
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpy2DAsync", ends, kind, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyPeer(
    to: u64,
    _to_device: c_int,
    from: u64,
    _from_device: c_int,
    bytes: usize,
) -> c_int {
    let kind = Direction::DeviceToDevice as c_int;
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpyPeer", lines(to, from, bytes), kind, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: u64,
    _to_device: c_int,
    from: u64,
    _from_device: c_int,
    bytes: usize,
    stream: usize,
) -> c_int {
    let kind = Direction::DeviceToDevice as c_int;
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpyPeerAsync", lines(to, from, bytes), kind, Some(stream)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpyToSymbol(
    symbol: usize,
    from: u64,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    let mut place = 0;
    let found = runtime("cudaMemcpyToSymbol", format_args!("{symbol:#x}, {bytes}"), |simulation| {
        let context = current::runtime_context();
        let (address, size_bytes) = kernels::variable(&simulation.machine, context, symbol)?;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size_bytes);
        place = if is_inside { address + offset as u64 } else { 0 };
        if is_inside { Ok(()) } else { Err(simgpu::Code::INVALID_VALUE) }
    });
    if found != 0 {
        return found;
    }
    // SAFETY: see the head of `runtime`.
    unsafe { copy_rows("cudaMemcpyToSymbol", lines(place, from, bytes), kind, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemset(to: u64, value: c_int, bytes: usize) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { fill_rows("cudaMemset", Rows::line(to, bytes as u64), value, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemsetAsync(to: u64, value: c_int, bytes: usize, stream: usize) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { fill_rows("cudaMemsetAsync", Rows::line(to, bytes as u64), value, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemset2DAsync(
    to: u64,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { fill_rows("cudaMemset2DAsync", rows(to, pitch, width, height), value, stream) }
}
