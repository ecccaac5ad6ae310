//! The types that a heap consists of. Their methods are in the other files of this folder.
//!
//! ```text
//! Heap ── DeviceState (per device) ── Backing: Segments | Extents
//!   │           └ LaneIndex ─┐
//!   └ Lanes ── Lane (per stream of a device, under its own lock) ── blocks, strategy, fence
//! ```
//!
//! [`DeviceHeap`] is one device together with its heap: every operation on one device is a method
//! of it. [`Climb`] is one request that its lane did not serve.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::attempts::Attempts;
use super::callbacks::Callbacks;
use super::captures::Captures;
use super::kept::Debugging;
use super::lane::Lane;
use super::lanes::{LaneIndex, Lanes};
use super::loading::Loading;
use super::notes::Notes;
use super::plan::{DeviceModel, DevicePlan};
use super::policy::Policy;
use super::pool_memory::Segments;
use super::pools::Pools;
use super::saved_bytes::Waste;
use super::shared_blocks::{Kept, SharedBlocks};
use super::tags::Tags;
use super::watch::{Told, Watch};
use crate::base::lock::{Lock, rank};
use crate::base::sync::OnceCell;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::base::{CachePadded, DeviceOrdinal, Result, StreamHandle};
use crate::config::{ElasticPolicy, LogLevel, PoolType, Settings};
use crate::driver::{Backend, Device};
use crate::memory::{Directory, ExtentStore, Ledger, Neighbours};
use crate::observe::{Combined, EventStream, Log, Peaks, Tallies};
use crate::order::Contexts;
use crate::strategy::Sizing;

/// Time since some fixed moment.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// Returns true if a stream of the device, which the calling thread has named in a request, certainly lasts
/// as long as the process.
pub type Lasts = fn(DeviceOrdinal, StreamHandle) -> bool;

/// Joins the processes that share a device, before its first use, if the settings ask for it.
/// Other threads wait for the device meanwhile, so messages are only added.
pub type Join =
    Box<dyn Fn(&dyn Device, &Settings, &mut Messages) -> Option<Arc<dyn Neighbours>> + Send + Sync>;

/// An allocator over all devices of a platform.
pub struct Heap {
    pub(super) settings: Lock<Settings, { rank::LEAF }>,
    pub(super) policy: Policy,
    pub(super) directory: Arc<Directory>,
    pub(super) lanes: Lanes,
    pub(super) backend: Backend,
    pub(super) devices: Vec<DeviceSlot>,
    pub(super) callbacks: Callbacks,
    /// Told of compactions.
    pub(super) compactions: Told,
    pub(super) asked_whether_lasting: OnceCell<Lasts>,
    pub(super) tags: Tags,
    pub(super) debugging: Debugging,
    pub(super) shared: SharedBlocks,
    pub(super) remains: Lock<Kept, { rank::LEAF }>,
    pub(super) clock: Clock,
    pub(super) join: Join,
    pub(super) log: Arc<Log>,
    pub(super) notes: Notes,
}

/// What a heap uses of the process around it.
pub struct Surroundings {
    /// Its log.
    pub log: Arc<Log>,
    /// The stream of events to which it reports.
    pub events: &'static EventStream,
    /// Its clock.
    pub clock: Clock,
    /// The other processes that share its devices.
    pub join: Join,
}

impl Surroundings {
    /// A log, the time since now, a stream of events without a listener, and nobody else.
    pub fn new(log: Arc<Log>) -> Self {
        let start = std::time::Instant::now();
        Self {
            log,
            events: EventStream::silent(),
            clock: Box::new(move || start.elapsed()),
            join: Box::new(|_, _, _| None),
        }
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Heap").field("devices", &self.devices).finish_non_exhaustive()
    }
}

/// A device that may not have been used yet.
#[derive(Debug)]
pub(super) struct DeviceSlot {
    pub(super) driver: Arc<dyn Device>,
    pub(super) captures: Arc<Captures>,
    pub(super) state: OnceCell<DeviceState>,
    /// For how many streams lanes are made when it is opened.
    pub(super) expected_streams: AtomicUsize,
    /// If it is this one then, its extents are to be finer.
    pub(super) finer_if: OnceCell<DeviceModel>,
}

impl DeviceSlot {
    pub(super) fn new(driver: Arc<dyn Device>) -> Self {
        Self {
            driver,
            captures: Arc::default(),
            state: OnceCell::new(),
            expected_streams: AtomicUsize::new(0),
            finer_if: OnceCell::new(),
        }
    }
}

/// What is kept of one device. What slow paths write has cache lines of its own: each call reads others.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) ordinal: DeviceOrdinal,
    pub(super) name: String,
    pub(super) driver: Arc<dyn Device>,
    /// The strategy in force.
    pub(super) pool_type: PoolType,
    pub(super) sizing: Sizing,
    /// A block of at least this many bytes is never taken from a lane's free blocks.
    pub(super) always_missed_bytes: u64,
    pub(super) backing: Backing,
    pub(super) ledger: CachePadded<Ledger>,
    /// Whether each block is one of the driver's, with a guard page behind it.
    pub(super) is_guarded: bool,
    /// How many bytes more than it has may be held; `None`: its memory is not managed.
    pub(super) beyond_bytes: Option<u64>,
    pub(super) contexts: Contexts,
    pub(super) lane_index: LaneIndex,
    /// The lanes made for streams to come, in the order in which these get them.
    pub(super) coming: Lock<Vec<u32>, { rank::LEAF }>,
    /// What was held before a release on request, if it was the most.
    pub(super) kept_plan: Lock<Option<DevicePlan>, { rank::LEAF }>,
    pub(super) pools: Pools,
    pub(super) captures: Arc<Captures>,
    pub(super) attempts: CachePadded<Attempts>,
    pub(super) introductions: Introductions,
    pub(super) tallies: CachePadded<Tallies>,
    /// What is no longer needed of paused memory's bytes, and not freed yet.
    pub(super) waste: Waste,
    pub(super) limits: Lock<Limits, { rank::DEVICE }>,
    /// The most bytes to keep cached; `u64::MAX`: no limit.
    pub(super) cache_limit_bytes: AtomicU64,
    pub(super) peaks: CachePadded<Combined<Peaks>>,
    pub(super) watch: CachePadded<Lock<Watch, { rank::DEVICE }>>,
    /// The most bytes that were live when sums were made; never reset.
    pub(super) live_peak_bytes: CachePadded<AtomicU64>,
    /// The live peak of an earlier run of the program, in bytes; 0: not known.
    pub(super) expected_peak_bytes: AtomicU64,
}

/// The devices that one device was introduced to: a bit by ordinal; none above 63.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    /// Done, or impossible.
    pub(super) settled: AtomicU64,
    /// Failed, and the failure was logged.
    pub(super) failed: AtomicU64,
}

/// The limits; the lowest becomes the ledger's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The user's.
    pub(super) fraction: f64,
    pub(super) bytes: Option<u64>,
    /// What is set outside of the program; `u64::MAX`: nothing is.
    pub(super) outer_bytes: u64,
}

/// The memory of one device.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each device")]
pub(super) enum Backing {
    /// Allocations of the driver.
    Segments(Segments),
    /// Handles of memory, mapped into reservations of addresses.
    Extents(Extents),
}

/// The extents of one device.
#[derive(Debug)]
pub(super) struct Extents {
    pub(super) store: ExtentStore,
    /// Requests of at least this many bytes get one extent each.
    pub(super) single_handle_bytes: u64,
    pub(super) policy: ElasticPolicy,
    /// Whether that is because of how an earlier run ended (`DevicePlan::needs_finer`).
    pub(super) is_finer: bool,
    /// Whether a request was refused although as much was free, in pieces.
    pub(super) was_in_pieces: AtomicBool,
    /// Whether memory is scarce: hardly any is left, and about as much lies in pieces (`elastic::scarcity`).
    pub(super) is_scarce: AtomicBool,
    /// The addresses reserved in all lanes, in bytes.
    pub(super) area_bytes: AtomicU64,
    /// Whether memory was ever short: a request was not served without memory being released.
    pub(super) is_short: AtomicBool,
    /// Whether the program loads what it keeps.
    pub(super) loading: Lock<Loading, { rank::DEVICE }>,
}

/// One device, and the heap that it is part of.
#[derive(Clone, Copy)]
pub(super) struct DeviceHeap<'a> {
    pub(super) heap: &'a Heap,
    pub(super) state: &'a DeviceState,
}

impl Deref for DeviceHeap<'_> {
    type Target = DeviceState;

    #[inline]
    fn deref(&self) -> &DeviceState {
        self.state
    }
}

/// Messages to log later.
pub type Messages = Vec<(LogLevel, String)>;

/// The number of a climb that is no request: its stream may be gone, so nothing is queued there.
pub(super) const NO_STREAM: u64 = 0;

/// A request on its way up the ladder.
#[derive(Clone, Copy)]
pub(super) struct Climb<'a> {
    pub(super) device: DeviceHeap<'a>,
    pub(super) lane: &'a Lane,
    pub(super) stream: StreamHandle,
    pub(super) requested_bytes: u64,
    pub(super) block_bytes: u64,
    /// Whether the block gets an extent to itself.
    pub(super) is_alone: bool,
    /// How many captures had become known before those that may have been under way when it began.
    pub(super) captures_before: u32,
    /// Identifies the request, or is [`NO_STREAM`]; may repeat the number of one that was refused.
    pub(super) number: u64,
}

/// What is done before a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    /// Nothing: no wait, and no release of memory that is not old.
    None,
    /// The device was waited for: every stream can use all free memory.
    Waited,
    /// Cached memory is released first, as much as needed.
    Releasing,
}

/// A rung returns the address if it has served the request; an error ends the climb.
pub(super) type Rung = Result<Option<u64>>;
