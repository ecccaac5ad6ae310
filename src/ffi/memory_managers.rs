//! Memory managers: pools of a few sizes, and an arena behind them.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use super::dlpack::{DlpackBuffer, Part};
use super::fixed_pools::count_of;
use super::objects::{
    MemoryUse, Options, hand_out, object, read_sized, require_any_thread, shared, take_back,
};
use super::statistics::write_sized;
use super::{boundary, genesis_stream, pointer, stream_handle, write_required};
use crate::base::{Error, Result, Status};
use crate::instance::memory::Memory;
use crate::suballocation::{Tier, Tiers, TiersStatistics};

/// A memory manager.
#[derive(Debug)]
pub struct MemoryManagerHandle(Tiers<Memory>);

// SAFETY: as for fixed-size pools.
unsafe impl Send for MemoryManagerHandle {}
// SAFETY: as for arenas.
unsafe impl Sync for MemoryManagerHandle {}

/// A pool of a memory manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryTier {
    /// The size of its blocks, in bytes. They are aligned to the largest power of two that divides
    /// it, but to no more than 512.
    pub block_bytes: usize,
    /// How many there are.
    pub count: usize,
}

/// How `genesis_memory_manager_create` makes a manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryManagerCreateOptions {
    /// `sizeof(genesis_memory_manager_options)`.
    pub struct_size: usize,
    /// Which memory, and for whom.
    pub memory: MemoryUse,
    /// The pools, in any order; each size once. Read by genesis_memory_manager_create only.
    pub tiers: *const MemoryTier,
    /// How many there are.
    pub tier_count: usize,
    /// The size of the arena, in bytes; 0: none.
    pub arena_bytes: usize,
}

// SAFETY: numbers and pointers, after a `usize`.
unsafe impl Options for MemoryManagerCreateOptions {}

/// What a memory manager has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryManagerStats {
    /// `sizeof(genesis_memory_manager_stats)`, set by the caller.
    pub struct_size: usize,
    /// Live blocks of the pools.
    pub pool_blocks: u64,
    /// Live blocks of the arena.
    pub arena_blocks: u64,
    /// Used of the arena, in bytes.
    pub arena_used_bytes: u64,
    /// Held from the heap, in bytes.
    pub held_bytes: u64,
    /// Requests that a full pool left to the arena, or to nobody.
    pub overflows: u64,
}

impl From<TiersStatistics> for MemoryManagerStats {
    fn from(statistics: TiersStatistics) -> Self {
        let TiersStatistics { pool_blocks, arena_blocks, arena_used_bytes, held_bytes, overflows } =
            statistics;
        let struct_size = 0;
        Self { struct_size, pool_blocks, arena_blocks, arena_used_bytes, held_bytes, overflows }
    }
}

impl Part for Arc<MemoryManagerHandle> {
    fn free(&self, address: u64) -> Result<()> {
        self.0.free(address)
    }
}

/// Makes a manager with all its memory, and writes it to `manager`.
///
/// # Safety
/// `options` is NULL, which is an error, or points to `options->struct_size` readable bytes, and
/// its `tiers` to `tier_count` tiers; `manager` is NULL, which is an error, or points to a writable
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_create(
    options: *const MemoryManagerCreateOptions,
    manager: *mut *mut MemoryManagerHandle,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let options = unsafe { read_sized(options) }?;
        let tiers = match options.tier_count {
            0 => &[],
            _ if options.tiers.is_null() => {
                return Err(Error::invalid_argument("tiers is null though tier_count is not 0"));
            }
            // SAFETY: not null, and as many by the caller's contract.
            count => unsafe { std::slice::from_raw_parts(options.tiers, count) },
        };
        let tier = |tier: &MemoryTier| {
            let (block_bytes, count) = (tier.block_bytes as u64, count_of(tier.count)?);
            Ok(Tier { block_bytes, count })
        };
        let tiers = tiers.iter().map(tier).collect::<Result<Vec<_>>>()?;
        let source = Arc::new(options.memory.memory()?);
        let (arena_bytes, threads) = (options.arena_bytes as u64, options.memory.threads());
        Ok(hand_out(MemoryManagerHandle(Tiers::new(source, &tiers, arena_bytes, threads)?)))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(manager, create) })
}

/// Destroys `manager`, which may be NULL, and frees all its memory; queued work may still use it.
///
/// # Safety
/// `manager` is NULL or a manager that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_destroy(manager: *mut MemoryManagerHandle) {
    let _ = boundary::call(|| {
        // SAFETY: the caller's contract.
        unsafe { take_back(manager) };
        Ok(())
    });
}

/// Allocates `size` bytes for use on the manager's own stream: a block of the pool with the smallest
/// blocks that are large enough, aligned to `alignment` or as the pool's blocks are for 0. If there
/// is no such pool or it is full, memory of the arena. Contents are undefined.
///
/// Returns NULL for size 0 (no error), and on failure (last error set): there is no room
/// (GENESIS_STATUS_LIMIT_REACHED).
///
/// # Safety
/// `manager` is NULL, which is an error, or a manager that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_allocate(
    manager: *mut MemoryManagerHandle,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let take = unsafe { manager.as_ref() }
        .and_then(|manager| manager.0.take_quickly(size as u64, alignment as u64));
    match take {
        Some(address) => pointer(address),
        // SAFETY: the caller's contract.
        None => unsafe { allocate_otherwise(manager, size, alignment) },
    }
}

/// `genesis_memory_manager_allocate` of what the tables do not find.
#[inline(never)]
unsafe extern "C" fn allocate_otherwise(
    manager: *mut MemoryManagerHandle,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let take = unsafe { manager.as_ref() }
        .and_then(|manager| manager.0.take(size as u64, alignment as u64));
    match take {
        Some(address) => pointer(address),
        // SAFETY: the caller's contract.
        None => unsafe { allocate_slowly(manager, size, alignment) },
    }
}

/// `genesis_memory_manager_allocate` of what no pool has.
#[cold]
#[inline(never)]
unsafe extern "C" fn allocate_slowly(
    manager: *mut MemoryManagerHandle,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    let (size, alignment) = (size as u64, alignment as u64);
    // SAFETY: the caller's contract.
    let allocate = || unsafe { object(manager) }?.0.allocate(size, alignment, None);
    boundary::call(allocate).map_or(null_mut(), pointer)
}

/// genesis_memory_manager_allocate for use on `stream`, which waits, on the device, for the own
/// stream if it must. Before the memory is reused, the own stream waits for `stream`, which must
/// exist until then: for a block of the arena, until nothing of the arena is live. Not for host
/// memory, which no stream orders.
///
/// # Safety
/// As for genesis_memory_manager_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_allocate_on(
    manager: *mut MemoryManagerHandle,
    size: usize,
    alignment: usize,
    stream: genesis_stream,
) -> *mut c_void {
    let allocate = || {
        // SAFETY: the caller's contract.
        let manager = unsafe { object(manager) }?;
        manager.0.allocate(size as u64, alignment as u64, Some(stream_handle(stream)))
    };
    boundary::call(allocate).map_or(null_mut(), pointer)
}

/// Frees the memory at `ptr`, of a pool or of the arena, which is used again from its start when
/// nothing of it is live; NULL does nothing. Queued work of the stream that it was allocated for may
/// still use it; copies from and to host memory must have completed.
///
/// GENESIS_STATUS_DOUBLE_FREE and _FOREIGN_POINTER: `ptr` is not live memory of the manager; nothing
/// is changed.
///
/// # Safety
/// As for genesis_memory_manager_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_free(
    manager: *mut MemoryManagerHandle,
    ptr: *mut c_void,
) -> Status {
    // SAFETY: the caller's contract.
    if unsafe { manager.as_ref() }.is_some_and(|manager| manager.0.put_quickly(ptr as u64)) {
        return Status::Success;
    }
    // SAFETY: the caller's contract.
    unsafe { free_otherwise(manager, ptr) }
}

/// `genesis_memory_manager_free` of what the tables do not find.
#[inline(never)]
unsafe extern "C" fn free_otherwise(manager: *mut MemoryManagerHandle, ptr: *mut c_void) -> Status {
    // SAFETY: the caller's contract.
    if unsafe { manager.as_ref() }.is_some_and(|manager| manager.0.put(ptr as u64)) {
        return Status::Success;
    }
    // SAFETY: the caller's contract.
    unsafe { free_slowly(manager, ptr) }
}

/// `genesis_memory_manager_free` of what is no block of a pool on the own stream.
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(manager: *mut MemoryManagerHandle, ptr: *mut c_void) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { object(manager) }?.0.free(ptr as u64))
}

/// Writes what `manager` has to `stats`, whose `struct_size` the caller has set. Live blocks of the
/// pools are counted for it, one by one.
///
/// # Safety
/// As for genesis_memory_manager_allocate; `stats` is NULL, which is an error, or points to
/// `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_stats_get(
    manager: *mut MemoryManagerHandle,
    stats: *mut MemoryManagerStats,
) -> Status {
    // SAFETY: the caller's contract.
    let get = || unsafe { object(manager) }?.0.statistics().map(MemoryManagerStats::from);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Allocates as genesis_memory_manager_allocate does, and writes a buffer of the memory to `buffer`,
/// of which DLPack tensors can be made. The last of them frees it, in any thread, for which the
/// manager must be made. They keep the manager.
///
/// # Safety
/// As for genesis_memory_manager_allocate; `buffer` is NULL, which is an error, or points to a
/// writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_manager_buffer_create(
    manager: *mut MemoryManagerHandle,
    size: usize,
    alignment: usize,
    buffer: *mut *mut DlpackBuffer,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let manager = unsafe { shared(manager) }?;
        require_any_thread(manager.0.threads())?;
        let bytes = size as u64;
        let address = manager.0.allocate(bytes, alignment as u64, None)?;
        Ok(DlpackBuffer::of_part(address, bytes, *manager.0.source(), Box::new(manager)))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(buffer, create) })
}
