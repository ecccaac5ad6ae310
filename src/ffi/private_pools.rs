//! Private pools: making them, counting their uses, and their blocks one by one.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{boundary, genesis_stream, ordinal, pointer, stream_handle, write_required};
use crate::base::size::SizeClass;
use crate::base::{Error, Result, Status, StreamHandle};
use crate::heap::{self, PartState, Place, PoolOptions, SegmentSource, StreamName};
use crate::instance;

/// Names a private pool of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId {
    /// The first of PyTorch's two numbers for it, or any other.
    pub first: u64,
    /// The second.
    pub second: u64,
}

impl From<PoolId> for heap::PoolId {
    fn from(PoolId { first, second }: PoolId) -> Self {
        Self(first, second)
    }
}

/// Returns `bytes` new bytes of memory of `device`, aligned to 512, for use on `stream`; NULL if
/// there are none. It must neither throw nor allocate from the pool.
#[allow(non_camel_case_types)]
pub type genesis_pool_allocate = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        bytes: usize,
        device: c_int,
        stream: genesis_stream,
    ) -> *mut c_void,
>;

/// Takes back memory that `genesis_pool_allocate` returned; no work that uses it is under way. It
/// must not throw.
#[allow(non_camel_case_types)]
pub type genesis_pool_free =
    Option<unsafe extern "C" fn(user_data: *mut c_void, ptr: *mut c_void, bytes: usize)>;

/// Where the memory of a private pool comes from. Any thread may call the functions, several at
/// once, and as long as the process lives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolSource {
    /// Passed to both functions.
    pub user_data: *mut c_void,
    /// Gets memory.
    pub allocate: genesis_pool_allocate,
    /// Takes it back.
    pub free: genesis_pool_free,
}

/// A source whose functions are there.
#[derive(Debug)]
struct Functions {
    device: c_int,
    user_data: *mut c_void,
    allocate: unsafe extern "C" fn(*mut c_void, usize, c_int, genesis_stream) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

// SAFETY: the pointer is only passed on, to functions that any thread may call with it.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

impl SegmentSource for Functions {
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Option<u64> {
        let stream = stream.0 as genesis_stream;
        // SAFETY: the contract of `genesis_private_pool_create`.
        let ptr = unsafe { (self.allocate)(self.user_data, bytes as usize, self.device, stream) };
        (!ptr.is_null()).then_some(ptr as u64)
    }

    fn free(&self, address: u64, bytes: u64) {
        // SAFETY: as above; the memory is the source's.
        unsafe { (self.free)(self.user_data, pointer(address), bytes as usize) }
    }
}

/// What a block of a private pool is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Handed out.
    Live = 0,
    /// Freed, but other streams may still use it.
    Pending = 1,
    /// Cached.
    Free = 2,
}

/// What a private pool holds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolUsage {
    /// The most that may be reserved, in bytes; `SIZE_MAX` if there is no limit.
    pub limit_bytes: usize,
    /// What is reserved for it, in bytes.
    pub reserved_bytes: usize,
    /// What is live in it, in bytes of blocks.
    pub live_bytes: usize,
    /// How many requests the limit has stopped.
    pub refusals: u64,
}

impl From<heap::PoolUsage> for PoolUsage {
    fn from(usage: heap::PoolUsage) -> Self {
        Self {
            limit_bytes: usage.limit_bytes.map_or(usize::MAX, |bytes| bytes as usize),
            reserved_bytes: usage.reserved_bytes as usize,
            live_bytes: usage.live_bytes as usize,
            refusals: usage.refusals,
        }
    }
}

/// A block of a private pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolBlock {
    /// The first byte.
    pub address: *mut c_void,
    /// The size requested, in bytes; 0 unless it is live.
    pub requested_bytes: usize,
    /// The size of the block, in bytes.
    pub allocated_bytes: usize,
    /// The stream it was allocated on.
    pub stream: genesis_stream,
    /// What it is, a `genesis_block_state`.
    pub state: c_int,
    /// 1 if its memory is for blocks of at most 1 MiB, otherwise 0.
    pub is_small: c_int,
    /// The first byte of the contiguous memory around it.
    pub segment_address: *mut c_void,
    /// The size of that memory, in bytes.
    pub segment_bytes: usize,
}

impl From<heap::PoolBlock> for PoolBlock {
    fn from(block: heap::PoolBlock) -> Self {
        let state = match block.state {
            PartState::Live | PartState::Paused => BlockState::Live,
            PartState::Pending => BlockState::Pending,
            PartState::Free | PartState::Unmapped => BlockState::Free,
        };
        Self {
            address: pointer(block.address),
            requested_bytes: block.requested_bytes as usize,
            allocated_bytes: block.bytes as usize,
            stream: block.stream.handle().0 as genesis_stream,
            state: state as c_int,
            is_small: (block.class == SizeClass::Small).into(),
            segment_address: pointer(block.segment.start),
            segment_bytes: (block.segment.end - block.segment.start) as usize,
        }
    }
}

impl From<&PoolBlock> for Place {
    fn from(block: &PoolBlock) -> Self {
        Self {
            address: block.address as u64,
            bytes: block.allocated_bytes as u64,
            requested_bytes: block.requested_bytes as u64,
            stream: StreamName::of(stream_handle(block.stream)),
        }
    }
}

/// Makes a private pool of `device` and counts a use of it, like `genesis_private_pool_hold`. If
/// `keeps_whole` is not 0, each of its blocks is a whole allocation of the driver, neither cut nor
/// joined. If `source` is not NULL, its memory comes from there.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is held, or if a function of the source is
/// NULL; `GENESIS_STATUS_NOT_SUPPORTED` for a source while `GENESIS_DEBUG` has guard pages.
///
/// # Safety
/// `source` is NULL or points to a source, whose functions and user data stay valid as long as the
/// process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_create(
    device: c_int,
    pool: PoolId,
    keeps_whole: c_int,
    source: *const PoolSource,
) -> Status {
    boundary::demanding(|| {
        // SAFETY: null, or a source, by the caller's contract.
        let source = match unsafe { source.as_ref() } {
            Some(source) => Some(functions(device, source)?),
            None => None,
        };
        let options =
            PoolOptions { keeps_whole: keeps_whole != 0, source, ..PoolOptions::default() };
        instance::heap()?.create_pool(ordinal(device)?, pool.into(), options)
    })
}

/// Makes a private pool of `device` for what lives briefly and dies together, and counts a use of it:
/// its blocks are kept as under GENESIS_POOL_TYPE=Arena, in memory of its own. Under a strategy that
/// neither cuts nor joins blocks it is like any pool.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is held.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_arena_create(device: c_int, pool: PoolId) -> Status {
    let options = PoolOptions { has_arenas: true, ..PoolOptions::default() };
    boundary::demanding(|| instance::heap()?.create_pool(ordinal(device)?, pool.into(), options))
}

fn functions(device: c_int, source: &PoolSource) -> Result<Arc<dyn SegmentSource>> {
    let (Some(allocate), Some(free)) = (source.allocate, source.free) else {
        return Err(Error::invalid_argument("a function of the pool's source is null"));
    };
    Ok(Arc::new(Functions { device, user_data: source.user_data, allocate, free }))
}

/// Counts a use of a private pool of `device`, and makes the pool if it is not held. Its memory
/// stays at its addresses until `genesis_private_pool_release` has been called for each use.
///
/// If `lends` is not 0, from now on a request on `device` that belongs to no pool takes free memory
/// of this one, on the same stream, rather than fail.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_hold(device: c_int, pool: PoolId, lends: c_int) -> Status {
    boundary::demanding(|| instance::heap()?.hold_pool(ordinal(device)?, pool.into(), lends != 0))
}

/// Ends one use of a private pool. The last returns the pool's free memory to the driver, which may
/// wait for the device; what is live returns later, once it is freed.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not held.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_release(device: c_int, pool: PoolId) -> Status {
    boundary::status(|| instance::heap()?.release_pool(ordinal(device)?, pool.into()))
}

/// Writes to `uses` how often a private pool was held or begun and not released; 0 if it is not
/// held.
///
/// # Safety
/// `uses` is NULL, which is an error, or points to a writable `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_uses_get(
    device: c_int,
    pool: PoolId,
    uses: *mut u64,
) -> Status {
    let get = || instance::heap()?.pool_uses(ordinal(device)?, pool.into());
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(uses, get) })
}

/// From now on the calling thread's requests on `device` are served from a private pool, until
/// `genesis_private_pool_end`. Makes the pool if it is not held, and counts a use of it, which
/// `genesis_private_pool_release` ends. If several pools are begun, the last one serves.
///
/// No graph may be captured from the pool meanwhile: for a capture, PyTorch's hooks begin a pool.
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is begun already, by any thread.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_begin(device: c_int, pool: PoolId) -> Status {
    boundary::demanding(|| instance::heap()?.begin_pool_of_thread(ordinal(device)?, pool.into()))
}

/// Ends `genesis_private_pool_begin`, in any thread. The pool keeps its memory until its last use
/// ends. Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not begun.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_end(device: c_int, pool: PoolId) -> Status {
    boundary::status(|| instance::heap()?.end_pool(ordinal(device)?, pool.into()))
}

/// Limits what is reserved for a private pool of `device` to `bytes`, until its last use ends.
/// `SIZE_MAX` removes the limit. What is reserved stays when the limit is lowered.
///
/// The limit counts the memory that the driver, or the pool's source, has given to the pool, live
/// and free. A request is served from the pool's free memory first. If it needs more than the limit
/// allows, free memory of the pool that is in too small pieces goes back to the driver, which may
/// wait for the device; not if the pool was ever begun for a capture, because a graph may write
/// there. Then the request fails with `GENESIS_STATUS_LIMIT_REACHED`. Memory outside of the pool is
/// left alone, and callbacks for a shortage are not called. Any thread, at any time.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not held.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_limit_set(
    device: c_int,
    pool: PoolId,
    bytes: usize,
) -> Status {
    let limit = (bytes != usize::MAX).then_some(bytes as u64);
    boundary::status(|| instance::heap()?.set_pool_limit(ordinal(device)?, pool.into(), limit))
}

/// Writes what a private pool holds to `usage`. Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the
/// pool is not held.
///
/// # Safety
/// `usage` is NULL, which is an error, or points to a writable `genesis_pool_usage`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_usage_get(
    device: c_int,
    pool: PoolId,
    usage: *mut PoolUsage,
) -> Status {
    let get = || Ok(instance::heap()?.pool_usage(ordinal(device)?, pool.into())?.into());
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(usage, get) })
}

/// Writes the blocks of a private pool, by address, to `blocks`, which has room for `capacity`; and
/// to `count` how many there are, which may be more. A copy of those that are live, kept, is a
/// state of the pool for `genesis_private_pool_blocks_place`.
///
/// Linear in the number of blocks. Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not
/// held.
///
/// # Safety
/// `blocks` has room for `capacity` blocks, or that is 0; `count` is NULL, which is an error, or
/// points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_blocks_get(
    device: c_int,
    pool: PoolId,
    blocks: *mut PoolBlock,
    capacity: usize,
    count: *mut usize,
) -> Status {
    let get = || {
        check_array(blocks, capacity)?;
        let found = instance::heap()?.pool_blocks(ordinal(device)?, pool.into())?;
        let total = found.len();
        for (index, block) in found.into_iter().take(capacity).enumerate() {
            // SAFETY: within the array, by the caller's contract.
            unsafe { blocks.add(index).write(block.into()) };
        }
        Ok(total)
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(count, get) })
}

/// Makes free memory of a private pool live at the addresses of `blocks`, with their sizes and for
/// their streams, which must exist: all of them, or none. Each is freed by `genesis_free`. The
/// other fields are not read.
///
/// A captured graph writes to the same addresses each time it runs. To use its results after a
/// replay, free what became live in the pool since the capture, and place what was live after it.
/// Waits for the device if other streams still use blocks of the pool.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not held, if blocks overlap, or if one
/// is not wholly free.
///
/// # Safety
/// `blocks` points to `count` blocks, or that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_blocks_place(
    device: c_int,
    pool: PoolId,
    blocks: *const PoolBlock,
    count: usize,
) -> Status {
    boundary::demanding(|| {
        check_array(blocks, count)?;
        let blocks = match count {
            0 => &[],
            // SAFETY: not null, and as long by the caller's contract.
            _ => unsafe { std::slice::from_raw_parts(blocks, count) },
        };
        let places: Vec<Place> = blocks.iter().map(Place::from).collect();
        instance::heap()?.place_in_pool(ordinal(device)?, pool.into(), &places)
    })
}

fn check_array(blocks: *const PoolBlock, count: usize) -> Result<()> {
    if blocks.is_null() && count > 0 {
        return Err(Error::invalid_argument("the array of blocks is null"));
    }
    Ok(())
}
