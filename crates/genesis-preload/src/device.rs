//! Devices: which one a call is for, and the stream that stands for `cudaMalloc`.
//!
//! The driver is asked for the current context at every call, because contexts change in ways that
//! no hook sees. Only primary contexts are served, because Genesis's memory lies there; they are
//! known by their handles. If a call names a created stream, the stream's own context counts and
//! not the current one. A device whose context the program resets is no longer served: its memory
//! is gone, and CUDA may use its addresses again, so what Genesis still knows there means nothing.
//!
//! **cudaMalloc's stream.** What Genesis hands out for a stream may still be used by work queued on
//! that stream, but memory of `cudaMalloc` may be used on any stream at once. So each device has a
//! stream of our own, on which nothing ever runs, and `cudaMalloc` allocates for that one. Memory
//! becomes free there in one of these ways:
//!
//! - after a fence (`fence`): nothing uses it any more;
//! - from another stream, behind an event for which Genesis makes our stream wait.
//!
//! That call is counted, and so is one that fills new memory there, which Genesis does for
//! `GENESIS_DEBUG=poison`: it gets its `cuStreamWaitEvent` and `cuMemsetD8Async` from us. While more of
//! them are queued than the host has seen end, a block is handed out only after our stream was waited
//! for.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};

use crate::driver_api::{Driver, PER_THREAD, SUCCESS, UNKNOWN, driver};
use crate::freed::Freed;
use crate::symbols::FOR_GENESIS;

/// The most devices that are served.
const MOST_DEVICES: usize = 64;

/// A device.
pub(crate) struct Device {
    /// Its primary context; 0: not known yet.
    context: AtomicUsize,
    /// The stream for `cudaMalloc`; 0: not made yet.
    stream: AtomicUsize,
    /// How many waits and fills were queued on that stream.
    queued: AtomicUsize,
    /// How many of them have ended.
    ended: AtomicUsize,
    /// True once its memory is gone with its context.
    is_lost: AtomicBool,
    /// True while the program has replaced the default memory pool by one of its own.
    has_other_pool: AtomicBool,
    /// Blocks that wait for a fence.
    pub(crate) freed: Freed,
}

static DEVICES: [Device; MOST_DEVICES] = [const {
    Device {
        context: AtomicUsize::new(0),
        stream: AtomicUsize::new(0),
        queued: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
        has_other_pool: AtomicBool::new(false),
        freed: Freed::new(),
    }
}; MOST_DEVICES];

/// How many devices, from the first, have been seen.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// True once any device's memory is gone with its context.
static IS_ANY_LOST: AtomicBool = AtomicBool::new(false);

/// Which of the functions that Genesis alone gets ([`FOR_GENESIS`]) it has got, as a bit set.
static HAS_GOT: AtomicUsize = AtomicUsize::new(0);

/// The device that a call works on.
pub(crate) enum Place {
    /// A device that is served.
    Served(&'static Device),
    /// A context of the program's own, or a device that is not served.
    Other,
    /// No context is current.
    Nowhere,
}

/// The device of that ordinal, lost or not.
pub(crate) fn get(ordinal: c_int) -> Option<&'static Device> {
    DEVICES.get(usize::try_from(ordinal).ok()?)
}

/// Shows `visit` all devices that were used.
pub(crate) fn for_each_seen(visit: impl FnMut(&'static Device)) {
    DEVICES.iter().take(SEEN.load(Acquire)).for_each(visit);
}

/// The device whose primary context has this handle, current or not, if it is served.
pub(crate) fn with_context(context: usize) -> Option<&'static Device> {
    match of_context(context) {
        Place::Served(device) => Some(device),
        Place::Other | Place::Nowhere => None,
    }
}

/// The device whose default memory pool has this handle.
pub(crate) fn with_pool(pool: usize) -> Option<&'static Device> {
    DEVICES
        .iter()
        .take_while(|device| device.default_pool().is_some())
        .find(|device| device.is_default_pool(pool))
}

/// The device that calls of this thread work on now.
#[inline]
pub(crate) fn current() -> Place {
    let context = driver().and_then(Driver::current_context);
    context.map_or(Place::Nowhere, of_context)
}

/// The device of `stream`. A created stream is of its own context, a default stream of the
/// current one. A stream of a green context is of none that is served.
pub(crate) fn of_stream(stream: usize) -> Place {
    let is_created = stream > PER_THREAD;
    let context = driver().filter(|_| is_created).and_then(|driver| driver.context_of(stream));
    context.map_or_else(current, of_context)
}

/// The devices whose primary contexts may be in use, as a bit set; a single device always is.
pub(crate) fn active() -> u64 {
    /// How many there are; 0: not known yet.
    static COUNT: AtomicI32 = AtomicI32::new(0);
    let Some(driver) = driver() else { return 1 };
    let mut count = COUNT.load(Relaxed);
    if count == 0 {
        count = driver.count_devices().clamp(1, MOST_DEVICES as c_int);
        COUNT.store(count, Relaxed);
    }
    let is_active = |&device: &c_int| count == 1 || driver.is_active(device) != Some(false);
    (0..count).filter(is_active).fold(0, |devices, device| devices | 1 << device)
}

/// Waits for all work in the primary context of the device of that ordinal; returns the driver's
/// answer.
pub(crate) fn synchronize(ordinal: c_int) -> c_int {
    let Some(driver) = driver() else { return UNKNOWN };
    let known = get(ordinal).filter(|device| !device.is_lost());
    let answer = match known.map_or(0, |device| device.context.load(Acquire)) {
        // No context has no work.
        0 if driver.is_active(ordinal) == Some(false) => Some(SUCCESS),
        0 => driver.with_primary_context(ordinal, |context| driver.synchronize(context)),
        context => Some(driver.synchronize(context)),
    };
    answer.unwrap_or(UNKNOWN)
}

/// Returns true if CUDA may have memory of its own at an address that Genesis knows as free.
pub(crate) fn is_cudas(address: u64) -> bool {
    IS_ANY_LOST.load(Acquire)
        && driver().is_some_and(|driver| {
            let owner = driver.device_at(address).and_then(get);
            owner.is_none_or(Device::is_lost)
        })
}

#[inline]
fn of_context(context: usize) -> Place {
    let seen = DEVICES.iter().take(SEEN.load(Acquire));
    for device in seen {
        if device.context.load(Relaxed) == context {
            return if device.is_lost.load(Relaxed) { Place::Other } else { Place::Served(device) };
        }
    }
    identify(context)
}

/// Finds the device whose primary context has this handle.
#[cold]
fn identify(context: usize) -> Place {
    let find = || {
        let driver = driver()?;
        let ordinal = driver.device_of(context)?;
        let device = get(ordinal)?;
        if device.context.load(Acquire) == 0 {
            device.context.store(driver.primary_context(ordinal)?, Release);
            SEEN.fetch_max(ordinal as usize + 1, AcqRel);
        }
        (device.has_context(context) && !device.is_lost()).then_some(device)
    };
    find().map_or(Place::Other, Place::Served)
}

impl Device {
    /// Its number.
    pub(crate) fn ordinal(&'static self) -> c_int {
        let offset = std::ptr::from_ref(self) as usize - DEVICES.as_ptr() as usize;
        (offset / size_of::<Self>()) as c_int
    }

    /// Returns true if `context` is its primary one.
    pub(crate) fn has_context(&self, context: usize) -> bool {
        self.context.load(Acquire) == context
    }

    /// Returns true if calls of this thread work there now.
    pub(crate) fn is_current(&self) -> bool {
        matches!(current(), Place::Served(device) if std::ptr::eq(device, self))
    }

    /// The stream for `cudaMalloc`, whose context must be current; `None` if the driver refuses.
    #[inline]
    pub(crate) fn stream(&self) -> Option<usize> {
        match self.stream.load(Acquire) {
            0 => self.make_stream(),
            stream => Some(stream),
        }
    }

    #[cold]
    fn make_stream(&self) -> Option<usize> {
        let driver = driver()?;
        let made = driver.create_stream()?;
        match self.stream.compare_exchange(0, made, AcqRel, Acquire) {
            Ok(_) => Some(made),
            Err(first) => {
                driver.destroy_stream(made);
                Some(first)
            }
        }
    }

    /// Waits until all memory that has come to our stream is idle; returns true if it is. `wait` waits
    /// for a stream of ours, and returns true if its work is done.
    #[inline]
    pub(crate) fn settle(&self, wait: impl FnOnce(usize) -> bool) -> bool {
        // Each is counted before the memory behind it can be handed out to any thread.
        let queued = self.queued.load(Acquire);
        let has_got_all = || HAS_GOT.load(Relaxed) == (1 << FOR_GENESIS.len()) - 1;
        if queued == self.ended.load(Relaxed) && has_got_all() {
            return true;
        }
        let has_ended = wait(self.stream.load(Acquire));
        if has_ended {
            self.ended.fetch_max(queued, Relaxed);
        }
        has_ended
    }

    /// The program has replaced the default memory pool by `pool`, which may be the default again.
    pub(crate) fn set_pool(&'static self, pool: usize) {
        self.has_other_pool.store(!self.is_default_pool(pool), Relaxed);
    }

    /// Returns true if stream-ordered memory without a named pool comes from the default one.
    pub(crate) fn uses_default_pool(&self) -> bool {
        !self.has_other_pool.load(Relaxed)
    }

    /// Returns true if `pool` is the default memory pool.
    pub(crate) fn is_default_pool(&'static self, pool: usize) -> bool {
        self.default_pool() == Some(pool)
    }

    /// The default memory pool; `None` if there is no such device.
    fn default_pool(&'static self) -> Option<usize> {
        driver()?.default_pool_of(self.ordinal())
    }

    /// Its context is gone, with all its memory. A device that was never seen has lost nothing.
    pub(crate) fn lose(&self) {
        if self.context.load(Acquire) != 0 {
            self.is_lost.store(true, Relaxed);
            IS_ANY_LOST.store(true, Release);
            self.freed.forget();
        }
    }

    /// Returns true after [`Self::lose`].
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }
}

/// Genesis has got our function of that index among [`FOR_GENESIS`].
pub(crate) fn observe(index: usize) {
    HAS_GOT.fetch_or(1 << index, Relaxed);
}

/// Genesis has just queued a wait or a fill on `stream`, in a call that has not returned yet.
pub(crate) fn note_queued(stream: usize) {
    for_each_seen(|device| {
        if device.stream.load(Relaxed) == stream {
            device.queued.fetch_add(1, Release);
        }
    });
}
