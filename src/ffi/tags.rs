//! Tags: allocations named by the thread that makes them, paused and resumed by name.

use std::ffi::{c_char, c_int};

use super::boundary::{self, text};
use super::write_required;
use crate::base::Status;
use crate::instance;

/// From now on the calling thread's allocations are of the tag `tag`, until the matching
/// `genesis_tag_pop`; tags nest, and the innermost counts. A block keeps the tag it was allocated
/// with. Allocations for a graph that is being captured are the graph's, whatever the tag.
///
/// `GENESIS_STATUS_NOT_SUPPORTED` under other strategies than Elastic. On a device without
/// virtual memory management a tag does nothing.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_push(tag: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| instance::heap()?.begin_tag(unsafe { text(tag, "tag")? }))
}

/// Ends the innermost tag of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_tag_pop() -> Status {
    boundary::status(|| instance::heap()?.end_tag())
}

/// Gives the physical memory of the tag `tag` back to the driver, on all devices. Live blocks
/// keep their addresses, and with `keep_contents` (not 0) their contents, in pinned host memory,
/// for `genesis_tag_resume`; without, the contents are undefined then. Until then no work may
/// touch them. Freeing them is fine, and what is allocated under the tag meanwhile is not paused.
/// Where nothing of the tag has memory, it does nothing.
///
/// Waits for all devices. `GENESIS_STATUS_INVALID_ARGUMENT` for a tag that was never pushed.
/// `GENESIS_STATUS_BUSY` while a graph is being captured, while freed blocks of the tag still
/// wait for a stream, and while another thread pauses or resumes. After any failure everything
/// is as it was; should the driver refuse that, too, `genesis_tag_resume` makes it whole.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_pause(tag: *const c_char, keep_contents: c_int) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| instance::heap()?.pause(unsafe { text(tag, "tag")? }, keep_contents != 0))
}

/// Makes the memory of the tag `tag` what it was before `genesis_tag_pause`: at the same
/// addresses, with the contents that were kept. Where nothing is paused, it does nothing.
///
/// `GENESIS_STATUS_OUT_OF_MEMORY` if as much cannot be had within the limits, after what is cached
/// has gone back; else as `genesis_tag_pause`. After a failure the tag is still paused, with
/// what was kept.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_resume(tag: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| instance::heap()?.resume(unsafe { text(tag, "tag")? }))
}

/// Writes to `generation` how often memory of the tag `tag` has come back. Whoever has registered
/// that memory, with NCCL or for RDMA, registers it again when this has changed.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string; `generation` is NULL, which is
/// an error, or points to a writable `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_generation_get(
    tag: *const c_char,
    generation: *mut u64,
) -> Status {
    // SAFETY: the caller's contract.
    let get = || instance::heap()?.generation(unsafe { text(tag, "tag")? });
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(generation, get) })
}
