//! How a failed request ends for its caller.
//!
//! | caller | memory is short | another failure |
//! |---|---|---|
//! | C | NULL | NULL |
//! | PyTorch, for a tensor | `torch.OutOfMemoryError` | `RuntimeError` |
//! | PyTorch's caching allocator | NULL, which it handles | `RuntimeError` |
//! | any, in a forked child | | NULL |
//!
//! The thread's last error is set in each case. PyTorch does not check the pointer for a tensor and
//! would use NULL, hence the exceptions; if they are not found, PyTorch gets NULL. In a forked
//! child the loader must not be called, and PyTorch itself refuses to use CUDA there.

use std::ffi::{CString, c_int, c_void};
use std::fmt::{self, Write as _};
use std::ptr::null_mut;

use super::adoption;
use super::exception::{Kind, Thrower};
use super::report;
use crate::base::size::Bytes;
use crate::base::{Error, Shortage, Status};
use crate::callsite::Caller;
use crate::ffi::{boundary, ordinal};
use crate::instance;

/// From here on PyTorch names no size.
const EXABYTE: u64 = 1 << 60;
/// Segments of PyTorch's allocator are multiples of this.
const SEGMENT_BYTES: u64 = 2 << 20;

/// Ends a request for `requested_bytes` that failed with `error`.
#[cold]
#[inline(never)]
pub(in crate::ffi) fn fail_allocation(
    error: Error,
    requested_bytes: usize,
    device: c_int,
) -> *mut c_void {
    if let Some(adopted) = adoption::take(requested_bytes) {
        return adopted;
    }
    let error = with_figures(error, requested_bytes, device);
    end(error, |error| {
        if !error.is_shortage() {
            return in_own_name(error);
        }
        if requested_bytes as u64 >= EXABYTE {
            return "CUDA out of memory. Tried to allocate more than 1EB memory.".to_owned();
        }
        let requested = AsPytorch(requested_bytes as u64);
        let mut text = format!("CUDA out of memory. Tried to allocate {requested}. ");
        if let Some(shortage) = &error.shortage {
            describe_device(shortage, &mut text);
        }
        match (&error.limit, &error.shortage) {
            (Some(limit), _) => {
                text += &format!("{}. A hint: {}.", limit.sentence(), limit.hint());
            }
            (None, Some(shortage)) => describe_held(shortage, &mut text),
            (None, None) => text += &format!("Genesis: {error}."),
        }
        text
    })
}

/// Gives the error for a request larger than any device the figures that other shortages have.
fn with_figures(error: Error, requested_bytes: usize, device: c_int) -> Error {
    let is_known = !error.is_shortage() || error.shortage.is_some();
    if is_known || requested_bytes as u64 >= EXABYTE {
        return error;
    }
    let figures = || instance::heap()?.too_large(ordinal(device)?, requested_bytes as u64);
    boundary::call(figures).unwrap_or(error)
}

/// A size in the words of PyTorch's own message, in which no unit is above GiB.
struct AsPytorch(u64);

impl fmt::Display for AsPytorch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (unit, name) in [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")] {
            if bytes <= 1 << 10 {
                return write!(formatter, "{bytes} bytes");
            }
            if bytes <= unit << 10 || unit == 1 << 30 {
                return write!(formatter, "{:.2} {name}", bytes as f64 / unit as f64);
            }
        }
        Ok(())
    }
}

/// Ends a call that returns a pointer and failed with `error`.
#[cold]
#[inline(never)]
pub(in crate::ffi) fn fail(error: Error) -> *mut c_void {
    end(error, in_own_name)
}

fn in_own_name(error: &Error) -> String {
    format!("Genesis: {error}")
}

/// Throws an exception with the result of `text`, or returns NULL.
fn end(error: Error, text: impl FnOnce(&Error) -> String) -> *mut c_void {
    let shortage = error.shortage;
    let prepared = boundary::call(move || Ok(prepare(&error, text)));
    if let Ok(Some((thrower, message))) = prepared {
        if let Some(shortage) = &shortage {
            let bytes = shortage.block_bytes;
            report::out_of_memory(
                shortage,
                bytes.checked_next_multiple_of(SEGMENT_BYTES).unwrap_or(bytes),
            );
        }
        thrower.throw(&message);
    }
    null_mut()
}

/// The exception to throw, if any.
fn prepare(error: &Error, text: impl FnOnce(&Error) -> String) -> Option<(Thrower, CString)> {
    if error.status == Status::ForkedChild {
        return None;
    }
    let is_shortage = error.is_shortage();
    let object = match Caller::find() {
        Caller::Torch(object) => object,
        Caller::TorchCache(object) if !is_shortage => object,
        Caller::TorchCache(_) | Caller::Other => return None,
    };
    let kind = if is_shortage { Kind::OutOfMemory } else { Kind::Error };
    let thrower = Thrower::find(&object.scope(), kind)?;
    Some((thrower, boundary::to_c_string(&text(error))))
}

/// Appends what the device has, in PyTorch's words.
fn describe_device(shortage: &Shortage, text: &mut String) {
    // Writing to a string does not fail.
    let device = shortage.device;
    if let (Some(total), Some(free)) = (shortage.driver_total_bytes, shortage.driver_free_bytes) {
        let (total, free) = (AsPytorch(total), AsPytorch(free));
        let _ =
            write!(text, "GPU {device} has a total capacity of {total} of which {free} is free. ");
    }
}

/// Appends what Genesis holds of it.
fn describe_held(shortage: &Shortage, text: &mut String) {
    let device = shortage.device;
    let limit = shortage
        .limit_bytes
        .map_or("no limit".to_owned(), |limit| format!("a limit of {}", Bytes(limit)));
    let _ = write!(
        text,
        "Genesis holds {} on GPU {device}, with {limit}: {} live (blocks: {}), {} freed but still \
         in use by other streams, {} cached, of which the largest free run is {} (fragmentation \
         index {:.3}). A hint: {}.",
        Bytes(shortage.reserved_bytes),
        Bytes(shortage.live_bytes),
        shortage.live_blocks,
        Bytes(shortage.pending_bytes),
        Bytes(shortage.cached_bytes),
        Bytes(shortage.largest_free_bytes),
        shortage.fragmentation_index,
        shortage.hint(),
    );
}
