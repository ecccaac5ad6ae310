//! Host memory from pools: pageable, and pinned for a GPU's own copies.
//!
//! Each kind is a heap of its own over `driver::host`, with one lane: host memory has no streams.
//! A pool is made by the first request for it; pageable memory needs no device and opens none.
//!
//! **After fork** the pools of the parent may not be touched, as their locks may be held; a child
//! has pools of its own. What it inherited is its parent's still: freeing it does nothing, as the
//! child's copy goes with the child. Pinned memory needs the driver, so a child has none.
//!
//! [`POOLS`] leads to the pools of this process, and from those to its parent's. They are never
//! taken down.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use once_cell::sync::OnceCell;

use super::statistics::{Stats, write_sized};
use super::{boundary, instance, pointer};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::config::{LogLevel, Settings};
use crate::driver::host::HostMemory;
use crate::driver::{Backend, Platform};
use crate::heap::{Heap, Surroundings};
use crate::observe::Log;

/// A kind of host memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// The process's own.
    Pageable = 0,
    /// Kept in place, so that a GPU can copy from and to it by itself, and while the host goes on.
    Pinned = 1,
}

impl HostKind {
    const ALL: [Self; 2] = [Self::Pageable, Self::Pinned];

    fn of(number: c_int) -> Result<Self> {
        let kind = Self::ALL.into_iter().find(|kind| *kind as c_int == number);
        kind.ok_or_else(|| Error::invalid_argument(format!("{number} is not a genesis_host_kind")))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable host memory",
            Self::Pinned => "pinned host memory",
        }
    }

    /// What the user has set, as the settings of a heap that has this memory only.
    fn settings(self, all: &Settings) -> Settings {
        let own = Settings { log: all.log, ..Settings::default() };
        match self {
            Self::Pageable => Settings {
                pool_type: all.host_pool_type,
                pool_reserve_percent: all.host_pool_reserve_percent,
                page_size_bytes: all.host_page_size_bytes,
                round_linear_cutoff: all.host_round_linear_cutoff,
                large_alloc_round_size_bytes: all.host_large_alloc_round_size_bytes,
                ..own
            },
            Self::Pinned => Settings {
                pool_type: all.pinned_pool_type,
                pool_reserve_percent: all.pinned_pool_reserve_percent,
                page_size_bytes: all.pinned_page_size_bytes,
                round_linear_cutoff: all.pinned_round_linear_cutoff,
                large_alloc_round_size_bytes: all.pinned_large_alloc_round_size_bytes,
                ..own
            },
        }
    }
}

/// Where a host heap has all its memory: its only device, and the only stream on it.
const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
const STREAM: StreamHandle = StreamHandle::LEGACY;

/// The pools of one process.
struct Pools {
    /// By [`HostKind`].
    heaps: [OnceCell<Result<Heap>>; 2],
    /// What the user has set, read once.
    settings: OnceCell<Result<Settings>>,
    /// How many forks the process is away from the first.
    forks: u32,
    /// Those of the process that it was forked from, if it had any.
    inherited: Option<&'static Pools>,
}

static POOLS: AtomicPtr<Pools> = AtomicPtr::new(null_mut());

/// The pools of this process, if there are any; else those of the one it was forked from.
fn latest() -> Option<&'static Pools> {
    // SAFETY: null, or from `Box::leak`, and complete before it was stored.
    unsafe { POOLS.load(Acquire).as_ref() }
}

/// The pools of this process.
fn pools() -> &'static Pools {
    match latest() {
        Some(pools) if pools.forks == instance::forks() => pools,
        _ => new_pools(),
    }
}

#[cold]
fn new_pools() -> &'static Pools {
    // Before there is a lock that a fork could find held.
    instance::watch_for_fork();
    loop {
        let inherited = latest();
        let forks = instance::forks();
        if let Some(pools) = inherited
            && pools.forks == forks
        {
            return pools;
        }
        let heaps = [const { OnceCell::new() }; 2];
        // What a child has of its parent it need not ask for where a lock may be held.
        let settings = inherited.map_or_else(OnceCell::new, |pools| pools.settings.clone());
        let new = Box::into_raw(Box::new(Pools { heaps, settings, forks, inherited }));
        let old = inherited.map_or(null_mut(), |pools| std::ptr::from_ref(pools).cast_mut());
        if POOLS.compare_exchange(old, new, AcqRel, Acquire).is_err() {
            // SAFETY: another thread's pools were stored; nobody has seen these.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl Pools {
    /// The heap of `kind`, made if need be. One that cannot be made stays so.
    #[inline]
    fn heap(&'static self, kind: HostKind) -> Result<&'static Heap> {
        let heap = self.heaps[kind as usize].get();
        let heap = heap.unwrap_or_else(|| self.make_once(kind));
        heap.as_ref().map_err(Clone::clone)
    }

    /// What may have something to say happens before others wait for the heap: whoever is told
    /// may call the library.
    #[cold]
    fn make_once(&'static self, kind: HostKind) -> &'static Result<Heap> {
        let memory = match kind {
            HostKind::Pageable => Ok(HostMemory::pageable()),
            HostKind::Pinned => pinned(),
        };
        let mut is_new = false;
        let settings = self.settings.get_or_init(|| {
            is_new = true;
            instance::settings_of_process()
        });
        if let (Err(error), true) = (settings, is_new) {
            instance::log().write(LogLevel::Error, error);
        }
        self.heaps[kind as usize].get_or_init(|| {
            let settings = settings.as_ref().map_err(Clone::clone)?;
            Ok(self.make(kind, memory?, settings))
        })
    }

    /// The heap that has, or had, a block at `address`.
    fn find(&self, address: u64) -> Option<&Heap> {
        let made = self.heaps.iter().filter_map(|heap| heap.get()?.as_ref().ok());
        made.into_iter().find(|heap| heap.knows(address))
    }

    fn make(&self, kind: HostKind, memory: HostMemory, all: &Settings) -> Heap {
        let log = Arc::new(Log::new(all.log));
        if self.forks == 0 {
            // In a child the lock of the process's log may be held for ever; here it decides.
            log.set_level(LogLevel::Debug);
            let of_process = Arc::clone(instance::log());
            log.set_sink(Some(Arc::new(move |level: LogLevel, line: &str| {
                of_process.write(level, &of_kind(kind, line));
            })));
        }
        let devices = vec![Arc::new(memory) as _];
        let platform = Platform { backend: Backend::Host, devices, notice: None };
        Heap::new(platform, &kind.settings(all), Surroundings::new(log))
    }
}

/// Memory that the driver of the first device locks.
fn pinned() -> Result<HostMemory> {
    Ok(HostMemory::pinned(Arc::clone(instance::heap()?.driver(DEVICE)?)))
}

/// What a heap says, with its memory's name in the place of a device's.
fn of_kind(kind: HostKind, message: &str) -> String {
    let message = message.replacen("device=0 ", "", 1);
    let message = message.strip_prefix("device 0: ").unwrap_or(&message);
    format!("{}: {message}", kind.name())
}

/// The same for an error.
fn error_of_kind(kind: HostKind, mut error: Error) -> Error {
    error.message = of_kind(kind, &error.message).into();
    error
}

/// Allocates `size` bytes of host memory of `kind`, a `genesis_host_kind`.
///
/// Returns a pointer aligned to 512 bytes, or NULL: without noise for size 0, else with a last
/// error. Contents are undefined. Any thread. The strategy is GENESIS_HOST_POOL_TYPE's or
/// GENESIS_PINNED_POOL_TYPE's; limits, profiles and traces of devices do not count host memory.
/// Pinned memory is locked by the driver of device 0, for all devices. With GENESIS_BACKEND=sim
/// it is addresses only, as all memory of that backend is.
///
/// Pageable memory works without a device, and in a child after fork.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_malloc(size: usize, kind: c_int) -> *mut c_void {
    let allocated = boundary::call(|| {
        let kind = HostKind::of(kind)?;
        if size == 0 {
            return Ok(0);
        }
        let heap = pools().heap(kind)?;
        heap.allocate(size as u64, DEVICE, STREAM).map_err(|error| error_of_kind(kind, error))
    });
    allocated.map_or(null_mut(), pointer)
}

/// Frees the block of host memory at `ptr`, of either kind, which may be NULL. Any thread.
///
/// It is used again at once: a copy from or to it that is still queued must have completed. A
/// pointer that is not a live block's is left alone and reported as the last error.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_free(ptr: *mut c_void) {
    let _ = boundary::call(|| free(ptr as u64, |heap, address| heap.free(address)));
}

/// Frees the block of host memory at `ptr`, which may be NULL, and gives the memory that this
/// leaves wholly free back at once, as `genesis_block_release` does.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_release(ptr: *mut c_void) -> Status {
    let release = |heap: &Heap, address| heap.free_directly(address).map(drop);
    boundary::status(|| free(ptr as u64, release))
}

/// Gives the block at `address` to `free` of its heap.
fn free(address: u64, free: impl Fn(&Heap, u64) -> Result<()>) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let mut generation = latest();
    while let Some(pools) = generation {
        if let Some(heap) = pools.find(address) {
            // What was inherited is the parent's.
            return if pools.forks == instance::forks() { free(heap, address) } else { Ok(()) };
        }
        generation = pools.inherited;
    }
    let message = format!("{address:#x} is not host memory that genesis has handed out");
    let error = Error::new(Status::ForeignPointer, message);
    if instance::forks() == 0 {
        instance::log().write(LogLevel::Error, &error);
    }
    Err(error)
}

/// Whether any host memory was asked for.
pub(super) fn is_used() -> bool {
    latest().is_some()
}

/// Gives all host memory of `kind` that is cached back.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_cache_empty(kind: c_int) -> Status {
    boundary::status(|| pools().heap(HostKind::of(kind)?)?.empty_cache(DEVICE).map(drop))
}

/// Writes the statistics of the host memory of `kind` to `stats`, whose `struct_size` the caller
/// has set. Driver calls are the times that memory was asked for and given back.
///
/// # Safety
/// `stats` is NULL, which is an error, or points to `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_host_stats_get(kind: c_int, stats: *mut Stats) -> Status {
    let get = |struct_size| {
        let statistics = pools().heap(HostKind::of(kind)?)?.statistics(DEVICE)?;
        Ok(Stats::new(struct_size, &statistics))
    };
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Makes every peak of the host memory of `kind` what is there now.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_stats_reset_peak(kind: c_int) -> Status {
    boundary::status(|| pools().heap(HostKind::of(kind)?)?.reset_peaks(DEVICE))
}
