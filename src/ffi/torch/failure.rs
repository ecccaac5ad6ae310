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

use std::ffi::{CString, c_void};
use std::fmt::Write as _;
use std::ptr::null_mut;

use super::adoption;
use super::exception::{Kind, Thrower};
use crate::base::size::Bytes;
use crate::base::{Error, Shortage, Status};
use crate::callsite::Caller;
use crate::ffi::boundary;

/// Ends a request for `requested_bytes` that failed with `error`.
#[cold]
#[inline(never)]
pub(in crate::ffi) fn fail_allocation(error: Error, requested_bytes: usize) -> *mut c_void {
    if let Some(adopted) = adoption::take(requested_bytes) {
        return adopted;
    }
    end(error, |error| {
        if error.status != Status::OutOfMemory {
            return in_own_name(error);
        }
        let mut text =
            format!("CUDA out of memory. Tried to allocate {}. ", Bytes(requested_bytes as u64));
        match &error.shortage {
            Some(shortage) => describe(shortage, &mut text),
            None => drop(write!(text, "Genesis: {error}.")),
        }
        text
    })
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
    let prepared = boundary::call(move || Ok(prepare(&error, text)));
    if let Ok(Some((thrower, message))) = prepared {
        thrower.throw(&message);
    }
    null_mut()
}

/// The exception to throw, if any.
fn prepare(error: &Error, text: impl FnOnce(&Error) -> String) -> Option<(Thrower, CString)> {
    if error.status == Status::ForkedChild {
        return None;
    }
    let is_shortage = error.status == Status::OutOfMemory;
    let object = match Caller::find() {
        Caller::Torch(object) => object,
        Caller::TorchCache(object) if !is_shortage => object,
        Caller::TorchCache(_) | Caller::Other => return None,
    };
    let kind = if is_shortage { Kind::OutOfMemory } else { Kind::Error };
    let thrower = Thrower::find(&object.scope(), kind)?;
    Some((thrower, boundary::to_c_string(&text(error))))
}

/// Appends the description of a shortage, in PyTorch's words where it has them.
fn describe(shortage: &Shortage, text: &mut String) {
    // Writing to a string does not fail.
    let device = shortage.device;
    if let (Some(total), Some(free)) = (shortage.driver_total_bytes, shortage.driver_free_bytes) {
        let (total, free) = (Bytes(total), Bytes(free));
        let _ =
            write!(text, "GPU {device} has a total capacity of {total} of which {free} is free. ");
    }
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
