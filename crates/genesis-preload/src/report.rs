//! The process's slot of the report, if one is wanted, and counting into it.
//!
//! A call that CUDA makes of itself is not the program's, and not counted.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use preload_report::{Library, PATH_VARIABLE, Slot};

use crate::environment::variable;
use crate::inside;
use crate::symbols::SYMBOLS;

static SLOT: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// Returns true if a report is wanted.
pub(crate) fn is_wanted() -> bool {
    variable(PATH_VARIABLE).is_some()
}

/// Takes a slot in the report, if one is wanted. A parent's slot stays the parent's.
pub(crate) fn claim_slot(library: Library) {
    let Some(path) = variable(PATH_VARIABLE) else { return };
    if path.is_empty() || path == c"off" {
        return;
    }
    let slot = Slot::claim(path).map_or(ptr::null_mut(), |slot| Box::into_raw(Box::new(slot)));
    SLOT.store(slot, Release);
    note_library(library, None);
}

#[inline]
fn slot() -> Option<&'static Slot> {
    // SAFETY: null, or a box that was leaked.
    unsafe { SLOT.load(Acquire).as_ref() }
}

/// What has become of `libgenesis.so`.
pub(crate) fn note_library(library: Library, error: Option<&CStr>) {
    if let Some(slot) = slot() {
        slot.set_library(library, error);
    }
}

/// The slot and the counter of a call of row `row`; `None` if it is not counted.
#[inline]
fn counted(row: usize) -> Option<(&'static Slot, usize)> {
    let slot = slot().filter(|_| !inside::is_inside())?;
    Some((slot, SYMBOLS[row].counter?))
}

/// A call of row `row` was served, or only watched.
#[inline]
pub(crate) fn served(row: usize) {
    if let Some((slot, counter)) = counted(row) {
        slot.see_cuda();
        slot.count(counter);
    }
}

/// A call of row `row` goes to CUDA.
#[inline]
pub(crate) fn passed(row: usize) {
    if let Some((slot, counter)) = counted(row) {
        slot.see_cuda();
        slot.count_passed(counter);
    }
}

/// A call of row `row` ends with an error of this library's own.
#[inline]
pub(crate) fn refused(row: usize) {
    if let Some((slot, counter)) = counted(row) {
        slot.count_refused(counter);
    }
}

/// A block went to the program.
#[inline]
pub(crate) fn handed_out(requested_bytes: usize) {
    if let Some(slot) = slot() {
        slot.hand_out(requested_bytes as u64);
    }
}

/// The program gave a block back.
#[inline]
pub(crate) fn taken_back(requested_bytes: usize) {
    if let Some(slot) = slot() {
        slot.take_back(requested_bytes as u64);
    }
}

/// A device was waited for, so that freed blocks can be given back.
pub(crate) fn fenced() {
    if let Some(slot) = slot() {
        slot.count_fence();
    }
}

/// The program asked for a function of CUDA.
pub(crate) fn saw_cuda() {
    if let Some(slot) = slot() {
        slot.see_cuda();
    }
}
