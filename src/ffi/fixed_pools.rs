//! Fixed-size pools: blocks of one size, taken and put back in constant time.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use super::dlpack::{DlpackBuffer, Part};
use super::objects::{
    MemoryUse, Options, hand_out, object, read_sized, require_any_thread, shared, take_back,
};
use super::statistics::write_sized;
use super::{boundary, genesis_stream, pointer, stream_handle, write_required};
use crate::base::{Error, Result, Status};
use crate::instance::memory::Memory;
use crate::suballocation::{FixedPool, FixedPoolOptions, FixedPoolStatistics};

/// A fixed-size pool.
#[derive(Debug)]
pub struct FixedPoolHandle(FixedPool<Memory>);

// SAFETY: what it consists of may be sent to other threads, but for references whose count is no
// atomic. They are made and dropped where the pool is made, destroyed, or grown behind its access: by
// one thread at a time.
unsafe impl Send for FixedPoolHandle {}
// SAFETY: as for arenas.
unsafe impl Sync for FixedPoolHandle {}

/// How `genesis_fixed_pool_create` makes a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FixedPoolCreateOptions {
    /// `sizeof(genesis_fixed_pool_options)`.
    pub struct_size: usize,
    /// Which memory, and for whom.
    pub memory: MemoryUse,
    /// The size of a block, in bytes.
    pub block_bytes: usize,
    /// The alignment of each block: a power of two up to 2^30; 0 is 256 for device memory and 16 for
    /// host memory. From one block to the next is a multiple of it.
    pub alignment: usize,
    /// How many blocks are reserved at once.
    pub count: usize,
    /// How many more are reserved when none is free; 0: none, the pool is full then.
    pub growth: usize,
}

// SAFETY: numbers and a pointer, after a `usize`.
unsafe impl Options for FixedPoolCreateOptions {}

/// What a fixed-size pool has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FixedPoolStats {
    /// `sizeof(genesis_fixed_pool_stats)`, set by the caller.
    pub struct_size: usize,
    /// Blocks handed out.
    pub live_blocks: u64,
    /// The most blocks that were handed out at one time.
    pub peak_live_blocks: u64,
    /// All blocks, free or not.
    pub blocks: u64,
    /// Held from the heap, in bytes.
    pub held_bytes: u64,
    /// Requests that were refused because the pool was full.
    pub refusals: u64,
}

impl From<FixedPoolStatistics> for FixedPoolStats {
    fn from(statistics: FixedPoolStatistics) -> Self {
        Self {
            struct_size: 0,
            live_blocks: statistics.live,
            peak_live_blocks: statistics.peak_live,
            blocks: statistics.capacity,
            held_bytes: statistics.held_bytes,
            refusals: statistics.refusals,
        }
    }
}

impl Part for Arc<FixedPoolHandle> {
    fn free(&self, address: u64) -> Result<()> {
        self.0.free(address)
    }
}

/// Makes a pool with its first blocks, and writes it to `pool`.
///
/// # Safety
/// `options` is NULL, which is an error, or points to `options->struct_size` readable bytes; `pool`
/// is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_create(
    options: *const FixedPoolCreateOptions,
    pool: *mut *mut FixedPoolHandle,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let options = unsafe { read_sized(options) }?;
        let source = Arc::new(options.memory.memory()?);
        let options = FixedPoolOptions {
            threads: options.memory.threads(),
            block_bytes: options.block_bytes as u64,
            alignment_bytes: options.alignment as u64,
            count: count_of(options.count)?,
            growth: count_of(options.growth)?,
        };
        Ok(hand_out(FixedPoolHandle(FixedPool::new(source, options)?)))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(pool, create) })
}

/// Destroys `pool`, which may be NULL, and frees all its memory; queued work may still use it.
///
/// # Safety
/// `pool` is NULL or a pool that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_destroy(pool: *mut FixedPoolHandle) {
    let _ = boundary::call(|| {
        // SAFETY: the caller's contract.
        unsafe { take_back(pool) };
        Ok(())
    });
}

/// Takes a block of `pool` for use on its own stream, the one that was freed last. Contents are
/// undefined.
///
/// Returns NULL on failure (last error set): the pool is full (GENESIS_STATUS_LIMIT_REACHED), or it
/// would grow and memory is short.
///
/// # Safety
/// `pool` is NULL, which is an error, or a pool that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_allocate(pool: *mut FixedPoolHandle) -> *mut c_void {
    // SAFETY: the caller's contract.
    match unsafe { pool.as_ref() }.and_then(|pool| pool.0.take_quickly()) {
        Some(address) => pointer(address),
        // SAFETY: the caller's contract.
        None => unsafe { allocate_otherwise(pool) },
    }
}

/// `genesis_fixed_pool_allocate` of a block that is not among the first, or for any thread.
#[inline(never)]
unsafe extern "C" fn allocate_otherwise(pool: *mut FixedPoolHandle) -> *mut c_void {
    // SAFETY: the caller's contract.
    match unsafe { pool.as_ref() }.and_then(|pool| pool.0.take_behind_access()) {
        Some(address) => pointer(address),
        // SAFETY: the caller's contract.
        None => unsafe { allocate_slowly(pool) },
    }
}

/// `genesis_fixed_pool_allocate` where no block is free.
#[cold]
#[inline(never)]
unsafe extern "C" fn allocate_slowly(pool: *mut FixedPoolHandle) -> *mut c_void {
    // SAFETY: the caller's contract.
    let allocate = || unsafe { object(pool) }?.0.allocate();
    boundary::call(allocate).map_or(null_mut(), pointer)
}

/// genesis_fixed_pool_allocate for use on `stream`, which waits, on the device, for the own stream
/// if it must. When the block is freed, the own stream waits for `stream`, which must exist until
/// then. Not for host memory, which no stream orders.
///
/// # Safety
/// As for genesis_fixed_pool_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_allocate_on(
    pool: *mut FixedPoolHandle,
    stream: genesis_stream,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let allocate = || unsafe { object(pool) }?.0.allocate_on(stream_handle(stream));
    boundary::call(allocate).map_or(null_mut(), pointer)
}

/// Puts the block at `ptr` back into `pool`; NULL does nothing. Queued work of the stream that it
/// was allocated for may still use it; copies from and to host memory must have completed.
///
/// GENESIS_STATUS_DOUBLE_FREE and _FOREIGN_POINTER: `ptr` is no live block of the pool; nothing is
/// changed.
///
/// # Safety
/// As for genesis_fixed_pool_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_free(
    pool: *mut FixedPoolHandle,
    ptr: *mut c_void,
) -> Status {
    // SAFETY: the caller's contract.
    if unsafe { pool.as_ref() }.is_some_and(|pool| pool.0.put_quickly(ptr as u64)) {
        return Status::Success;
    }
    // SAFETY: the caller's contract.
    unsafe { free_otherwise(pool, ptr) }
}

/// `genesis_fixed_pool_free` of a block that is not among the first, or by any thread.
#[inline(never)]
unsafe extern "C" fn free_otherwise(pool: *mut FixedPoolHandle, ptr: *mut c_void) -> Status {
    // SAFETY: the caller's contract.
    if unsafe { pool.as_ref() }.is_some_and(|pool| pool.0.put_behind_access(ptr as u64)) {
        return Status::Success;
    }
    // SAFETY: the caller's contract.
    unsafe { free_slowly(pool, ptr) }
}

/// `genesis_fixed_pool_free` of what is no block of the own stream.
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(pool: *mut FixedPoolHandle, ptr: *mut c_void) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { object(pool) }?.0.free(ptr as u64))
}

/// Writes what `pool` has to `stats`, whose `struct_size` the caller has set. Live blocks are counted
/// for it, one by one.
///
/// # Safety
/// As for genesis_fixed_pool_allocate; `stats` is NULL, which is an error, or points to
/// `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_stats_get(
    pool: *mut FixedPoolHandle,
    stats: *mut FixedPoolStats,
) -> Status {
    // SAFETY: the caller's contract.
    let get = || unsafe { object(pool) }?.0.statistics().map(FixedPoolStats::from);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Takes a block as genesis_fixed_pool_allocate does, and writes a buffer of it to `buffer`, of which
/// DLPack tensors can be made. The last of them puts the block back, in any thread, for which the
/// pool must be made. They keep the pool.
///
/// # Safety
/// As for genesis_fixed_pool_allocate; `buffer` is NULL, which is an error, or points to a writable
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_fixed_pool_buffer_create(
    pool: *mut FixedPoolHandle,
    buffer: *mut *mut DlpackBuffer,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let pool = unsafe { shared(pool) }?;
        require_any_thread(pool.0.threads())?;
        let (address, (bytes, _)) = (pool.0.allocate()?, pool.0.block_bytes());
        Ok(DlpackBuffer::of_part(address, bytes, *pool.0.source(), Box::new(pool)))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(buffer, create) })
}

/// A number of blocks.
pub(super) fn count_of(count: usize) -> Result<u32> {
    u32::try_from(count)
        .map_err(|_| Error::invalid_argument(format!("{count} blocks are too many for a pool")))
}
