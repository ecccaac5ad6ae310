//! The heaps of host memory: pageable, and pinned for a GPU's own copies.
//!
//! Each kind has a heap of its own over `driver::host`, with one lane: host memory is used in the
//! order of the host ([`StreamKey::HOST`]). A heap is made by the first request for it; pageable
//! memory needs no device and opens none. Pinned memory is locked by the first device that the process
//! uses already, so that no context is made for it, and lies near that one.
//!
//! **Streams** use pinned memory by copies that the host does not wait for. A stream that is recorded
//! for a block keeps it pending when it is freed, as in device memory. A copy from or to pageable
//! memory is done with it when the call returns, so nothing is recorded there.
//!
//! **After fork** a child must not use the heaps of its parent, because their locks may be held; it
//! makes heaps of its own. Blocks that it inherited belong to the parent: freeing them does
//! nothing, and the child's copy ends with the child. Pinned memory needs the driver, so a child
//! has none.
//!
//! [`HEAPS`] points to the heaps of this process, and those point to the parent's. They are never
//! destroyed.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use once_cell::sync::OnceCell;

use super::{log, settings_of_process};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle, host_memory};
use crate::config::{DebugModes, HostKind, LogLevel, Settings};
use crate::driver::host::{Gate, HostMemory};
use crate::driver::{self, Backend, Platform};
use crate::heap::{Heap, Stream, StreamKey, Surroundings};
use crate::observe::Log;
use crate::process::fork;

/// The only device of a host heap, and the order in which its memory is used.
pub(crate) const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
const ORDER: Stream = Stream { handle: StreamHandle::LEGACY, key: StreamKey::HOST };

/// The host heaps of one process.
struct Heaps {
    /// By [`HostKind`].
    heaps: [OnceCell<Result<Heap>>; 2],
    /// What the heap of pinned memory consists of, once that is made.
    pinned: OnceCell<Arc<HostMemory>>,
    /// The user's settings, read once.
    settings: OnceCell<Result<Settings>>,
    /// The number of forks between the first process and this one.
    forks: u32,
    /// Those of the process that it was forked from, if any.
    inherited: Option<&'static Heaps>,
}

static HEAPS: AtomicPtr<Heaps> = AtomicPtr::new(null_mut());

/// The heaps of this process if it has any, else those of the one it was forked from.
fn latest() -> Option<&'static Heaps> {
    // SAFETY: null, or from `Box::leak`, and complete before it was stored.
    unsafe { HEAPS.load(Acquire).as_ref() }
}

/// The heaps of this process.
fn heaps() -> &'static Heaps {
    match latest() {
        Some(heaps) if heaps.forks == fork::count() => heaps,
        _ => new_heaps(),
    }
}

#[cold]
fn new_heaps() -> &'static Heaps {
    // Before there is a lock that could be held during a fork.
    fork::watch();
    loop {
        let inherited = latest();
        let forks = fork::count();
        if let Some(heaps) = inherited
            && heaps.forks == forks
        {
            return heaps;
        }
        let heaps = [const { OnceCell::new() }; 2];
        // A child copies its parent's settings: reading them again could wait for a held lock.
        let settings = inherited.map_or_else(OnceCell::new, |heaps| heaps.settings.clone());
        let pinned = OnceCell::new();
        let new = Box::into_raw(Box::new(Heaps { heaps, pinned, settings, forks, inherited }));
        let old = inherited.map_or(null_mut(), |heaps| std::ptr::from_ref(heaps).cast_mut());
        if HEAPS.compare_exchange(old, new, AcqRel, Acquire).is_err() {
            // SAFETY: another thread's heaps were stored, and no other thread has seen these.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl Heaps {
    /// The heap of `kind`, made if necessary. If it cannot be made, the error stays.
    #[inline]
    fn heap(&'static self, kind: HostKind) -> Result<&'static Heap> {
        let heap = match self.heaps[kind as usize].get() {
            Some(heap) => heap,
            None => self.make_once(kind)?,
        };
        heap.as_ref().map_err(Clone::clone)
    }

    /// Messages are written before other threads can wait for the heap, because their receiver may
    /// call the library.
    #[cold]
    fn make_once(&'static self, kind: HostKind) -> Result<&'static Result<Heap>> {
        host_memory::require()?;
        let memory = match kind {
            HostKind::Pageable => Ok(Arc::new(HostMemory::pageable())),
            HostKind::Pinned => pinned(),
        };
        let mut is_new = false;
        let settings = self.settings.get_or_init(|| {
            is_new = true;
            settings_of_process()
        });
        if let (Err(error), true) = (settings, is_new) {
            log().write(LogLevel::Error, error);
        }
        Ok(self.heaps[kind as usize].get_or_init(|| {
            let settings = settings.as_ref().map_err(Clone::clone)?;
            let memory = memory?;
            if kind == HostKind::Pinned {
                let _ = self.pinned.set(Arc::clone(&memory));
            }
            Ok(self.make(kind, memory, settings))
        }))
    }

    /// The heap that has, or had, a block at `address`.
    fn find(&self, address: u64) -> Option<&Heap> {
        let made = self.heaps.iter().filter_map(|heap| heap.get()?.as_ref().ok());
        made.into_iter().find(|heap| heap.knows(address))
    }

    fn make(&self, kind: HostKind, memory: Arc<HostMemory>, all: &Settings) -> Heap {
        let own_log = Arc::new(Log::new(all.log));
        if self.forks == 0 {
            // The process's log decides what is written. Not in a child: there its lock may be
            // held for ever.
            own_log.set_level(LogLevel::Debug);
            let of_process = Arc::clone(log());
            own_log.set_sink(Some(Arc::new(move |level: LogLevel, line: &str| {
                of_process.write(level, &of_kind(kind, line));
            })));
        }
        let devices = vec![memory as _];
        let platform = Platform { backend: Backend::Host, devices, notice: None };
        Heap::new(platform, &settings_of(kind, all), Surroundings::new(own_log))
    }
}

/// The settings of a heap that has memory of `kind` only.
fn settings_of(kind: HostKind, all: &Settings) -> Settings {
    let strategy = match kind {
        HostKind::Pageable => all.host,
        HostKind::Pinned => all.pinned,
    };
    // Guard pages are for devices, and leaks are reported of those only.
    let debug = DebugModes { guard: false, leaks: false, ..all.debug };
    Settings { strategy, log: all.log, debug, stream_ids: all.stream_ids, ..Settings::default() }
}

/// The captures of the process's devices.
#[derive(Debug)]
struct OfProcess;

impl Gate for OfProcess {
    fn pass(
        &self,
        device: DeviceOrdinal,
        wait: &mut dyn FnMut() -> driver::Result<()>,
    ) -> driver::Result<()> {
        match super::heap() {
            Ok(heap) => heap.wait_outside_captures(device, wait),
            // There is one, or no driver would lock memory.
            Err(_) => wait(),
        }
    }
}

/// Memory that is locked by the driver of the first device in use, or of the first if none is.
fn pinned() -> Result<Arc<HostMemory>> {
    let heap = super::heap()?;
    let mut devices = (0..heap.device_count() as u32).map(DeviceOrdinal);
    let is_in_use = |&device: &DeviceOrdinal| {
        heap.driver(device).is_ok_and(|driver| driver.is_in_use() == Ok(true))
    };
    let driver = heap.driver(devices.find(is_in_use).unwrap_or(DEVICE))?;
    Ok(Arc::new(HostMemory::pinned(Arc::clone(driver), Arc::new(OfProcess))))
}

/// A heap's message, with the name of its memory in place of a device's.
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

/// The heap of `kind` in this process, made if necessary.
#[inline]
pub(crate) fn heap(kind: HostKind) -> Result<&'static Heap> {
    heaps().heap(kind)
}

/// The host's own memory is short: see [`Heap::heed_host_memory`].
pub(super) fn heed_host_memory() {
    let heaps = latest().into_iter().flat_map(|heaps| &heaps.heaps);
    for heap in heaps.filter_map(|heap| heap.get()?.as_ref().ok()) {
        heap.heed_host_memory();
    }
}

/// Allocates `bytes` of `kind`.
#[inline]
pub(crate) fn allocate(bytes: u64, kind: HostKind) -> Result<u64> {
    let allocated = heap(kind)?.allocate_on(bytes, DEVICE, ORDER);
    allocated.map_err(|error| error_of_kind(kind, error))
}

/// Takes `bytes` of `kind` beforehand, all of them or none.
pub(crate) fn preallocate(bytes: u64, kind: HostKind) -> Result<()> {
    let made = heap(kind)?.preallocate_on(DEVICE, ORDER, bytes);
    made.map_err(|error| error_of_kind(kind, error))
}

/// Records that work on `stream` uses the block at `address`: once freed, the block is not reused
/// before that work is complete.
pub(crate) fn record_stream(address: u64, stream: StreamHandle) -> Result<()> {
    of_block(
        address,
        |heap, address| {
            if is_pinned(address) { heap.record_stream(address, stream) } else { Ok(()) }
        },
    )
}

/// [`record_stream`] for the pinned block that the byte at `address` is in, and a caller whose streams
/// last as long as the process.
pub(crate) fn record_stream_within(address: u64, stream: StreamHandle) -> Result<()> {
    let heap = heap(HostKind::Pinned)?;
    let block = heap.block_containing(address)?.address;
    if stream.is_default() {
        return heap.record_stream(block, stream);
    }
    heap.record_lasting_stream(block, stream)
}

/// Returns all cached memory of `kind` to the system, if there is any.
pub(crate) fn empty_cache_if_made(kind: HostKind) -> Result<()> {
    let heaps = latest().filter(|heaps| heaps.forks == fork::count());
    match heaps.and_then(|heaps| heaps.heaps[kind as usize].get()) {
        Some(Ok(heap)) => heap.empty_cache(DEVICE).map(drop),
        _ => Ok(()),
    }
}

/// Returns true if the byte at `address` is of pinned memory that this process's heap holds.
pub(crate) fn is_pinned(address: u64) -> bool {
    let heaps = latest().filter(|heaps| heaps.forks == fork::count());
    let memory = heaps.and_then(|heaps| heaps.pinned.get());
    memory.is_some_and(|memory| memory.holds(address))
}

/// Calls `act`, such as a free, with the heap of the block at `address`.
pub(crate) fn of_block(address: u64, act: impl Fn(&Heap, u64) -> Result<()>) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let mut generation = latest();
    while let Some(heaps) = generation {
        if let Some(heap) = heaps.find(address) {
            // An inherited block is the parent's.
            return if heaps.forks == fork::count() { act(heap, address) } else { Ok(()) };
        }
        generation = heaps.inherited;
    }
    let message = format!("{address:#x} is not host memory that genesis has handed out");
    let error = Error::new(Status::ForeignPointer, message);
    if fork::count() == 0 {
        let _early = fork::early_call();
        log().write(LogLevel::Error, &error);
    }
    Err(error)
}

/// Returns true if any host memory was requested.
pub(super) fn is_used() -> bool {
    latest().is_some()
}
