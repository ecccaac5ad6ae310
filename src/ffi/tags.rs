//! Tags name the allocations of a thread, so that they can be limited, paused and resumed.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::boundary::{self, text};
use super::callbacks::UserData;
use super::private_pools::PoolId;
use super::{ALL_DEVICES, ordinal, pointer, write_required};
use crate::base::{Backup, DeviceOrdinal, Error, Result, Status};
use crate::heap::{Keeping, ProgressCallback, TagUsage as Usage, set_progress_callback};
use crate::instance;

/// Stands for the backup that a tag was pushed with.
const AS_TAGGED: c_int = -1;

/// What a tag holds on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TagUsage {
    /// The tag.
    pub tag: *const c_char,
    /// The device.
    pub device: c_int,
    /// The most that may be live, in bytes; `SIZE_MAX` if there is no limit.
    pub limit_bytes: usize,
    /// What is live, or paused, in bytes. Each block counts with the size to which its request is
    /// rounded.
    pub live_bytes: usize,
    /// How many blocks these are.
    pub live_blocks: usize,
    /// How many requests the limit has stopped.
    pub refusals: u64,
}

/// Called for each tag; `usage` is valid until it returns. It may call any function of the library,
/// and must not throw.
#[allow(non_camel_case_types)]
pub type genesis_tag_visitor =
    Option<unsafe extern "C" fn(user_data: *mut c_void, usage: *const TagUsage)>;

/// Gives the calling thread's allocations the tag `tag` until the matching `genesis_tag_pop`. Tags
/// nest: a block is paused with the innermost, and counts against the limits of all. It keeps the
/// tags it was allocated with, whichever thread frees it. Allocations from a private pool, such as
/// those for a graph that is being captured, belong to the pool, whatever the tag; the pool may have
/// one (`genesis_private_pool_tag_set`).
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_push(tag: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| instance::heap()?.begin_tag(unsafe { text(tag, "tag")? }))
}

/// The same for allocations of which `backup`, a `genesis_backup`, says what is kept while they are
/// paused, if `genesis_tag_pause_with` does not. Under the empty tag allocations have no tag.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_push_with(tag: *const c_char, backup: c_int) -> Status {
    boundary::demanding(|| {
        // SAFETY: the caller's contract.
        instance::heap()?.begin_tag_with(unsafe { text(tag, "tag")? }, backup_of(backup)?)
    })
}

/// Ends the innermost tag of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_tag_pop() -> Status {
    boundary::status(|| instance::heap()?.end_tag())
}

/// Limits what is live under the tag `tag`, in all threads, to `bytes` on `device` (-1: on each
/// device). `SIZE_MAX` removes the limit. The tag need not have been pushed.
///
/// Each block counts with the size to which its request is rounded, for every tag under which it was
/// allocated, until it is freed. What is live stays when the limit is lowered. A request beyond a
/// limit fails with `GENESIS_STATUS_LIMIT_REACHED` and has no other effect: no cached memory is
/// released, nothing is waited for, and callbacks for a shortage are not called. Its message names
/// the tag, its limit and what it holds. PyTorch raises torch.OutOfMemoryError. Any thread, at any
/// time.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_limit_set(
    tag: *const c_char,
    device: c_int,
    bytes: usize,
) -> Status {
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let tag = unsafe { text(tag, "tag")? };
        let limit = (bytes != usize::MAX).then_some(bytes as u64);
        let device = if device == ALL_DEVICES { None } else { Some(ordinal(device)?) };
        instance::heap()?.set_tag_limit(tag, device, limit)
    })
}

/// Calls `visit` for each tag that was pushed or limited, in that order, with what it holds on
/// `device` (-1: on each device in turn).
///
/// # Safety
/// `visit` is NULL, which is an error, or good until this function returns, as is `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tags_visit(
    device: c_int,
    visit: genesis_tag_visitor,
    user_data: *mut c_void,
) -> Status {
    boundary::demanding(|| {
        let visit = visit.ok_or(Error::invalid_argument("the visitor is null"))?;
        for usage in tag_usage(device)? {
            let tag = boundary::to_c_string(&usage.name);
            let usage = TagUsage {
                tag: tag.as_ptr(),
                device: usage.device.0 as c_int,
                limit_bytes: usage.limit_bytes.map_or(usize::MAX, |bytes| bytes as usize),
                live_bytes: usage.live_bytes as usize,
                live_blocks: usage.live_blocks as usize,
                refusals: usage.refusals,
            };
            // SAFETY: the caller's function and pointer, by the contract; the text outlives the
            // call.
            unsafe { visit(user_data, &usage) };
        }
        Ok(())
    })
}

fn tag_usage(device: c_int) -> Result<Vec<Usage>> {
    let heap = instance::heap()?;
    if device != ALL_DEVICES {
        return heap.tag_usage(ordinal(device)?);
    }
    let devices = (0..heap.device_count() as u32).map(DeviceOrdinal);
    let mut all = Vec::new();
    for device in devices {
        all.extend(heap.tag_usage(device)?);
    }
    Ok(all)
}

/// Returns the physical memory of the tag `tag` to the driver, on all devices, until
/// `genesis_tag_resume`. Live blocks keep their addresses. If `keep_contents` is not 0, their
/// contents are kept in pinned host memory; otherwise the contents are undefined after resuming.
/// Until then no work may access the blocks, but they may be freed. Blocks allocated under the tag
/// meanwhile are not paused. Does nothing if the tag has no memory.
///
/// Waits for all devices. Returns `GENESIS_STATUS_NOT_SUPPORTED` under other strategies than Elastic
/// (a device without virtual memory management has nothing to pause),
/// `GENESIS_STATUS_INVALID_ARGUMENT` for a tag that was never pushed, and `GENESIS_STATUS_BUSY` while a graph is being captured, while freed blocks of the tag
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

/// `genesis_tag_pause` of the tag `tag`, or of all tags if it is empty, and of private pools with the
/// tag. `backup`, a `genesis_backup`, says what is kept; -1: what each allocation's tag was pushed
/// with. `version` is the program's number for the contents, or 0. If it is not 0, what is saved
/// stays after `genesis_tag_resume`, and the next pause with the same number copies nothing of it,
/// unless blocks of the tag have come or gone on the same stream since.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_pause_with(
    tag: *const c_char,
    backup: c_int,
    version: u64,
) -> Status {
    boundary::status(|| {
        let backup = if backup == AS_TAGGED { None } else { Some(backup_of(backup)?) };
        let keeping = Keeping { backup, version: (version != 0).then_some(version) };
        // SAFETY: the caller's contract.
        let tag = unsafe { text(tag, "tag")? };
        instance::heap()?.pause_tags((!tag.is_empty()).then_some(tag), keeping)
    })
}

/// Called while a pause or resume copies contents, of which `done_bytes` of `total_bytes` are where
/// they are to be. It may call any function of the library, but a pause or resume returns
/// `GENESIS_STATUS_BUSY`; it must not throw.
#[allow(non_camel_case_types)]
pub type genesis_progress_callback =
    Option<unsafe extern "C" fn(user_data: *mut c_void, done_bytes: usize, total_bytes: usize)>;

/// Has `callback` called during each pause and resume that the calling thread makes and that copies
/// contents: with 0 bytes, after each piece of at most 256 MiB, and with all bytes. It takes the
/// place of the thread's callback before; NULL: none.
///
/// # Safety
/// `callback` and `user_data` stay valid until the thread sets another callback or ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_progress_callback_set(
    callback: genesis_progress_callback,
    user_data: *mut c_void,
) -> Status {
    let user_data = UserData(user_data);
    boundary::status(|| {
        set_progress_callback(callback.map(|callback| -> ProgressCallback {
            Arc::new(move |done_bytes, total_bytes| {
                // SAFETY: the caller keeps both valid, by the contract of this function.
                unsafe { callback(user_data.get(), done_bytes as usize, total_bytes as usize) }
            })
        }));
        Ok(())
    })
}

/// `genesis_tag_resume` of all tags, all of them or none.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_tags_resume() -> Status {
    boundary::status(|| instance::heap()?.resume_tags(None))
}

/// Writes to `host_ptr` where in host memory the `bytes` from `ptr` on are kept, of one block that is
/// paused or, if what was saved stayed, has been resumed. NULL: nowhere. Valid until the block is
/// freed, or its tag paused or resumed.
///
/// # Safety
/// `host_ptr` is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_tag_backup_get(
    ptr: *const c_void,
    bytes: usize,
    host_ptr: *mut *mut c_void,
) -> Status {
    let get = || {
        let kept = instance::heap()?.backup_of(ptr as u64, bytes as u64)?;
        Ok(kept.map_or(std::ptr::null_mut(), pointer))
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(host_ptr, get) })
}

/// Has the memory of a private pool of `device` paused and resumed with the tag `tag`, until the
/// pool's last use ends; the empty tag: with none. `backup` is a `genesis_backup`. If a graph was
/// captured from the pool, its free memory is kept, too, because the graph writes there. Memory of
/// the pool that comes from functions of the caller's is never paused.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not held.
///
/// # Safety
/// `tag` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_tag_set(
    device: c_int,
    pool: PoolId,
    tag: *const c_char,
    backup: c_int,
) -> Status {
    boundary::demanding(|| {
        let (device, backup) = (ordinal(device)?, backup_of(backup)?);
        // SAFETY: the caller's contract.
        let tag = unsafe { text(tag, "tag")? };
        instance::heap()?.set_pool_tag(device, pool.into(), tag, backup)
    })
}

/// The kind of backup of this number.
pub(super) fn backup_of(number: c_int) -> Result<Backup> {
    let found = usize::try_from(number).ok().and_then(|number| Backup::ALL.get(number));
    found.copied().ok_or_else(|| Error::invalid_argument(format!("{number} is no genesis_backup")))
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
