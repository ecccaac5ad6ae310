//! What a request that failed looks like to its caller.
//!
//! A C caller gets NULL and the thread's last error. PyTorch does not look at what it got for a
//! tensor, and would use NULL; it gets an exception instead: `torch.OutOfMemoryError` where
//! memory was short, `RuntimeError` where anything else is wrong, of whatever kind of caller.
//! Its caching allocator gets NULL for a shortage, which it knows to deal with. So does
//! everybody where PyTorch's exceptions are not found. A forked child gets NULL too: the loader
//! may not be asked there, and PyTorch itself refuses to use CUDA in one.

use std::ffi::{CString, c_void};
use std::fmt::Write as _;
use std::ptr::null_mut;

use super::exception::{Kind, Thrower};
use crate::base::size::Bytes;
use crate::base::{Error, Shortage, Status};
use crate::callsite::Caller;
use crate::ffi::boundary;

/// Ends a request for `requested_bytes` that failed with `error`.
#[cold]
#[inline(never)]
pub(in crate::ffi) fn fail_allocation(error: Error, requested_bytes: usize) -> *mut c_void {
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

/// Ends a call that answers with a pointer and failed with `error`.
#[cold]
#[inline(never)]
pub(in crate::ffi) fn fail(error: Error) -> *mut c_void {
    end(error, in_own_name)
}

fn in_own_name(error: &Error) -> String {
    format!("Genesis: {error}")
}

/// Throws, with what `text` makes of the error, or gives NULL.
fn end(error: Error, text: impl FnOnce(&Error) -> String) -> *mut c_void {
    let prepared = boundary::call(move || Ok(prepare(&error, text)));
    if let Ok(Some((thrower, message))) = prepared {
        thrower.throw(&message);
    }
    null_mut()
}

/// What to throw, if anything.
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

/// Says what PyTorch says of a shortage, in its words where there are such, for people.
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
