//! Arenas: memory that is handed out by adding to a position, and freed all at once.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use super::dlpack::{DlpackBuffer, Part};
use super::objects::{
    MemoryUse, Options, hand_out, object, read_sized, require_any_thread, shared, take_back,
};
use super::statistics::write_sized;
use super::{boundary, genesis_stream, pointer, stream_handle, write_required};
use crate::base::{Result, Status};
use crate::instance::memory::Memory;
use crate::suballocation::{Arena, ArenaOptions, ArenaStatistics, Lease, Mark};

/// An arena.
#[derive(Debug)]
pub struct ArenaHandle(Arena<Memory>);

// SAFETY: one that is for one thread at a time is called so, by the contract of its options; what it
// consists of may be sent to other threads.
unsafe impl Sync for ArenaHandle {}

/// How `genesis_arena_create` makes an arena. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArenaCreateOptions {
    /// `sizeof(genesis_arena_options)`.
    pub struct_size: usize,
    /// Which memory, and for whom.
    pub memory: MemoryUse,
    /// The least that is taken from the heap at a time, in bytes; 0: 1 MiB.
    pub chunk_bytes: usize,
    /// The most that it holds, in bytes; 0: no limit.
    pub limit_bytes: usize,
}

// SAFETY: numbers and a pointer, after a `usize`.
unsafe impl Options for ArenaCreateOptions {}

/// A position of an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaMark {
    /// What only the library reads.
    pub number: u64,
}

/// What an arena has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArenaStats {
    /// `sizeof(genesis_arena_stats)`, set by the caller.
    pub struct_size: usize,
    /// Handed out since the last reset, with what alignment took, in bytes.
    pub used_bytes: u64,
    /// Held from the heap, in bytes.
    pub held_bytes: u64,
    /// The most that was used between two resets, in bytes.
    pub high_water_bytes: u64,
    /// The blocks of the heap that it holds.
    pub chunks: u64,
    /// How often it was reset.
    pub resets: u64,
}

impl From<ArenaStatistics> for ArenaStats {
    fn from(statistics: ArenaStatistics) -> Self {
        let ArenaStatistics { used_bytes, held_bytes, high_water_bytes, chunks, resets } =
            statistics;
        Self { struct_size: 0, used_bytes, held_bytes, high_water_bytes, chunks, resets }
    }
}

/// Memory of an arena that a buffer keeps beyond a reset.
#[derive(Debug)]
struct Leased(#[expect(dead_code, reason = "held until the buffer ends")] Arc<Lease<Memory>>);

impl Part for Leased {
    fn free(&self, _address: u64) -> Result<()> {
        Ok(())
    }
}

/// Makes an arena, which holds nothing yet, and writes it to `arena`.
///
/// # Safety
/// `options` is NULL, which is an error, or points to `options->struct_size` readable bytes;
/// `arena` is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_create(
    options: *const ArenaCreateOptions,
    arena: *mut *mut ArenaHandle,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let options = unsafe { read_sized(options) }?;
        let source = Arc::new(options.memory.memory()?);
        let options = ArenaOptions {
            threads: options.memory.threads(),
            chunk_bytes: options.chunk_bytes as u64,
            limit_bytes: options.limit_bytes as u64,
        };
        Ok(hand_out(ArenaHandle(Arena::new(source, options))))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(arena, create) })
}

/// Destroys `arena`, which may be NULL, and frees all its memory as genesis_arena_reset does.
/// Buffers made of it keep theirs.
///
/// # Safety
/// `arena` is NULL or an arena that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_destroy(arena: *mut ArenaHandle) {
    let _ = boundary::call(|| {
        // SAFETY: the caller's contract.
        unsafe { take_back(arena) };
        Ok(())
    });
}

/// Allocates `size` bytes for use on the arena's own stream, aligned to `alignment`: a power of two
/// up to 2^30; 0 is 256 for device memory and 16 for host memory. Contents are undefined.
///
/// Returns NULL for size 0 (no error), and on failure (last error set): the arena is at its limit
/// (GENESIS_STATUS_LIMIT_REACHED) or memory is short. The memory belongs to the arena: it is neither
/// freed alone nor passed to genesis_free.
///
/// # Safety
/// `arena` is NULL, which is an error, or an arena that was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_allocate(
    arena: *mut ArenaHandle,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let bump =
        unsafe { arena.as_ref() }.and_then(|arena| arena.0.bump(size as u64, alignment as u64));
    match bump {
        Some(address) => pointer(address),
        // SAFETY: the caller's contract.
        None => unsafe { allocate_slowly(arena, size, alignment) },
    }
}

/// `genesis_arena_allocate` of what the current chunk has no room for.
#[cold]
#[inline(never)]
unsafe extern "C" fn allocate_slowly(
    arena: *mut ArenaHandle,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    let allocate = || unsafe { object(arena) }?.0.allocate(size as u64, alignment as u64);
    boundary::call(allocate).map_or(null_mut(), pointer)
}

/// genesis_arena_allocate for use on `stream`, which waits, on the device, for the own stream if it
/// must. The stream must exist until the memory is free: until a reset, or until the arena is
/// destroyed. Not for host memory, which no stream orders.
///
/// # Safety
/// As for genesis_arena_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_allocate_on(
    arena: *mut ArenaHandle,
    size: usize,
    alignment: usize,
    stream: genesis_stream,
) -> *mut c_void {
    let allocate = || {
        // SAFETY: the caller's contract.
        let arena = unsafe { object(arena) }?;
        arena.0.allocate_on(size as u64, alignment as u64, stream_handle(stream))
    };
    boundary::call(allocate).map_or(null_mut(), pointer)
}

/// Frees all memory of `arena` at once, in constant time. Queued work may still use it: the host
/// does not wait, and neither does the own stream, unless other streams used the memory. The arena
/// keeps one block with room for the most that was ever used between two resets.
///
/// Host memory is reused at once, so copies from and to it must have completed. On failure nothing
/// is freed.
///
/// # Safety
/// As for genesis_arena_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_reset(arena: *mut ArenaHandle) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { object(arena) }?.0.reset())
}

/// Writes the present position of `arena` to `mark`.
///
/// # Safety
/// As for genesis_arena_allocate; `mark` is NULL, which is an error, or points to a writable mark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_mark(
    arena: *mut ArenaHandle,
    mark: *mut ArenaMark,
) -> Status {
    // SAFETY: the caller's contract.
    let get = || Ok(ArenaMark { number: unsafe { object(arena) }?.0.mark()?.0 });
    // SAFETY: as above.
    boundary::status(|| unsafe { write_required(mark, get) })
}

/// Frees what was allocated from `arena` after `mark`, as genesis_arena_reset does. The mark can be
/// used again; those made after it end. GENESIS_STATUS_INVALID_ARGUMENT: the mark has ended, by a
/// reset or by a rewind to an earlier one; nothing is changed.
///
/// # Safety
/// As for genesis_arena_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_rewind(arena: *mut ArenaHandle, mark: ArenaMark) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { object(arena) }?.0.rewind(Mark(mark.number)))
}

/// Gives blocks that are not in use back to the heap: after a reset, all.
///
/// # Safety
/// As for genesis_arena_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_trim(arena: *mut ArenaHandle) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { object(arena) }?.0.trim())
}

/// Writes what `arena` has to `stats`, whose `struct_size` the caller has set.
///
/// # Safety
/// As for genesis_arena_allocate; `stats` is NULL, which is an error, or points to
/// `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_stats_get(
    arena: *mut ArenaHandle,
    stats: *mut ArenaStats,
) -> Status {
    // SAFETY: the caller's contract.
    let get = || unsafe { object(arena) }?.0.statistics().map(ArenaStats::from);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Allocates as genesis_arena_allocate does, and writes a buffer of the memory to `buffer`, of which
/// DLPack tensors can be made. A reset, a rewind and the arena's end leave the buffer its memory: it
/// is reused once the buffer and its tensors have ended. The arena must be for any thread.
///
/// # Safety
/// As for genesis_arena_allocate; `buffer` is NULL, which is an error, or points to a writable
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_arena_buffer_create(
    arena: *mut ArenaHandle,
    size: usize,
    alignment: usize,
    buffer: *mut *mut DlpackBuffer,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let arena = unsafe { shared(arena) }?;
        require_any_thread(arena.0.threads())?;
        let (address, lease) = arena.0.allocate_leased(size as u64, alignment as u64)?;
        let memory = *arena.0.source();
        Ok(DlpackBuffer::of_part(address, size as u64, memory, Box::new(Leased(lease))))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(buffer, create) })
}
