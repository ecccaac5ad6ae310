//! Tags name the allocations of a thread, so that they can be paused and resumed.

use std::ffi::{c_char, c_int};

use super::boundary::{self, text};
use super::write_required;
use crate::base::Status;
use crate::instance;

/// Gives the calling thread's allocations the tag `tag` until the matching `genesis_tag_pop`. Tags
/// nest, and the innermost counts. A block keeps the tag it was allocated with. Allocations for a
/// graph that is being captured belong to the graph, whatever the tag.
///
/// Returns `GENESIS_STATUS_NOT_SUPPORTED` under other strategies than Elastic. On a device without
/// virtual memory management a tag has no effect.
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

/// Returns the physical memory of the tag `tag` to the driver, on all devices, until
/// `genesis_tag_resume`. Live blocks keep their addresses. If `keep_contents` is not 0, their
/// contents are kept in pinned host memory; otherwise the contents are undefined after resuming.
/// Until then no work may access the blocks, but they may be freed. Blocks allocated under the tag
/// meanwhile are not paused. Does nothing if the tag has no memory.
///
/// Waits for all devices. Returns `GENESIS_STATUS_INVALID_ARGUMENT` for a tag that was never
/// pushed, and `GENESIS_STATUS_BUSY` while a graph is being captured, while freed blocks of the tag
/// wait for a stream, and while another thread pauses or resumes. After a failure everything is as
/// before; if the driver refuses to restore it, `genesis_tag_resume` does.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_pause(tag: *const c_char, keep_contents: c_int) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| instance::heap()?.pause(unsafe { text(tag, "tag")? }, keep_contents != 0))
}

/// Restores the memory of the tag `tag` after `genesis_tag_pause`: at the same addresses, with the
/// contents that were kept. Does nothing if the tag is not paused.
///
/// Returns `GENESIS_STATUS_OUT_OF_MEMORY` if there is not enough memory within the limits even
/// after cached memory was released; otherwise fails as `genesis_tag_pause` does. After a failure
/// the tag is still paused, with the contents kept.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_resume(tag: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| instance::heap()?.resume(unsafe { text(tag, "tag")? }))
}

/// Writes to `generation` how often memory of the tag `tag` was restored. When it changes, memory
/// registered with NCCL or for RDMA must be registered again.
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
