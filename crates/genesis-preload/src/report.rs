//! Counting into the process's slot of the report, where somebody wants one.
//!
//! A call that CUDA makes of itself is not the program's, and not counted.

use preload_report::Slot;

use crate::inside;
use crate::process::slot;
use crate::table::ROWS;

/// Where a call of row `row` is counted, if it is.
#[inline]
fn counted(row: usize) -> Option<(&'static Slot, usize)> {
    let slot = slot().filter(|_| !inside::is_inside())?;
    Some((slot, ROWS[row].counter?))
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

/// A device was waited for, for freed blocks' sake.
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
