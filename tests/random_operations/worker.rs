//! A program that does anything at all, correctly: it orders its own streams with events and
//! tells the heap of every stream that uses a block.

#[path = "blocks.rs"]
mod blocks;
#[path = "captures.rs"]
mod captures;
#[path = "communication.rs"]
mod communication;
#[path = "host.rs"]
mod host;
#[path = "parts.rs"]
mod parts;
#[path = "pauses.rs"]
mod pauses;
#[path = "streams.rs"]
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use genesis::base::{Backup, DeviceOrdinal, Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::PoolId;
use simgpu::{Call, Code, Target, Times};

use crate::oracle::Oracle;
use crate::support::{Rig, status_of};
use crate::{DEVICES, operation};

use captures::Captured;
use communication::Book;
use host::Pinned;
use operation::{GiveBack, OWN_STREAMS, Operation, STREAMS};
use parts::Parts;

/// The streams that all workers use.
const COMMON_STREAMS: [usize; (STREAMS - OWN_STREAMS) as usize] = [0, 0xA000, 0xB000, 0xC000];
/// A tag that all workers use.
const EVERYBODYS: &str = "everybody's";

/// How a worker behaves, and so what can be asserted.
#[derive(Clone, Copy, Debug)]
pub struct Conduct {
    /// Nobody else uses the heap: figures and refusals can be judged exactly.
    pub is_alone: bool,
    /// The heap is told of streams that use a block, as it must be.
    pub records_streams: bool,
    /// So many blocks are live at most; below half of it allocations prevail.
    pub most_live: usize,
}

impl Conduct {
    pub const ALONE: Self = Self { is_alone: true, records_streams: true, most_live: 200 };
    pub const AMONG_OTHERS: Self = Self { is_alone: false, ..Self::ALONE };
    pub const FORGETFUL: Self = Self { records_streams: false, ..Self::ALONE };
}

pub struct Worker {
    rig: Rig,
    oracle: Arc<Oracle>,
    conduct: Conduct,
    live: Vec<Live>,
    /// An event of each device, to order streams with.
    events: Vec<u64>,
    /// Of each device the worker's own streams.
    own_streams: Vec<[usize; OWN_STREAMS as usize]>,
    last_freed: u64,
    /// Its own tag, under which some of its blocks lie, some of them also under [`EVERYBODYS`].
    tag: String,
    /// Its own private pools on each device: as for a graph, one that lends, one for captures, and
    /// under Elastic one for NCCL, with whom its memory is registered.
    pool: PoolId,
    lending_pool: PoolId,
    capture_pool: PoolId,
    communication_pool: PoolId,
    book: Arc<Book>,
    captured: Vec<Captured>,
    /// Of each device, what is handed out in parts.
    parts: Vec<Parts>,
    pinned: Pinned,
    /// Pairs of devices of which the second has access to the first's memory.
    peers: Vec<(u32, u32)>,
    /// Blocks handed out so far: the next one's mark.
    marks: u64,
    /// A driver call was made to fail, or memory was taken by others, at some time.
    pub meets_faults: bool,
    /// The seconds since the start, in thousandths, which are operations.
    clock: Arc<AtomicU64>,
}

/// A stream: its device and its place among the device's streams.
type Place = (u32, u64);

#[derive(Clone, Copy, Debug)]
struct Live {
    address: u64,
    requested_bytes: u64,
    allocated_bytes: u64,
    device: u32,
    /// `None`: it has been destroyed.
    stream: Option<u64>,
    /// Another stream reads it; nobody writes it from then on.
    is_read: bool,
    /// That stream, unless it has been destroyed.
    reader: Option<Place>,
    is_tagged: bool,
    /// It is of one of the worker's own pools that are paused with its tag and not counted for it.
    is_pooled: bool,
    /// It is of the pool for NCCL.
    is_registered: bool,
    /// It has its memory to itself.
    is_alone: bool,
    /// It was made while its stream was captured, whose graph uses it.
    is_captured: bool,
    /// Nobody touches it until its tag is resumed.
    is_paused: bool,
    /// Whether its contents are kept while it is paused.
    is_kept: bool,
    /// What it is filled with.
    mark: u8,
}

/// Memory that is filled with a mark, if it has bytes.
#[derive(Clone, Copy, Debug)]
struct Filled {
    address: u64,
    bytes: u64,
    mark: u8,
}

impl Worker {
    pub fn new(rig: Rig, oracle: Arc<Oracle>, conduct: Conduct, clock: Arc<AtomicU64>) -> Self {
        let devices = 0..DEVICES as u32;
        let machine = &rig.machine;
        let event = |device| machine.event_create(device, false).unwrap();
        let own =
            |device| [(); OWN_STREAMS as usize].map(|()| machine.stream_create(device, false));
        static WORKERS: AtomicU64 = AtomicU64::new(0);
        let number = WORKERS.fetch_add(1, Relaxed);
        let pool = |kind| PoolId(number, kind);
        let worker = Self {
            events: devices.clone().map(event).collect(),
            own_streams: devices.map(|device| own(device).map(|made| made.unwrap())).collect(),
            conduct,
            live: Vec::new(),
            last_freed: 0,
            tag: format!("worker {number}"),
            pool: pool(77),
            lending_pool: pool(78),
            capture_pool: pool(79),
            communication_pool: pool(80),
            book: Arc::default(),
            captured: (0..DEVICES).map(|_| Captured::default()).collect(),
            parts: (0..DEVICES as u32)
                .map(|device| Parts::new(&rig.heap, &oracle, device))
                .collect(),
            pinned: Pinned::new(&rig),
            peers: Vec::new(),
            marks: 0,
            meets_faults: false,
            clock,
            oracle,
            rig,
        };
        for device in (0..DEVICES as u32).map(DeviceOrdinal) {
            let heap = &worker.rig.heap;
            heap.hold_pool(device, worker.pool, false).unwrap();
            heap.hold_pool(device, worker.lending_pool, true).unwrap();
            heap.set_pool_tag(device, worker.pool, &worker.tag, Backup::Pageable).unwrap();
            if worker.is_elastic() {
                worker.create_communication_pool(device);
            }
        }
        worker
    }

    /// Judges what nothing but the whole shows.
    pub fn check(&self) {
        self.check_tag();
        self.check_registered();
        self.check_parts();
        self.check_pinned();
        if self.conduct.is_alone {
            self.oracle.compare(&self.rig);
            self.oracle.compare_peaks(&self.rig);
        }
    }

    /// Ends everything: nothing of the worker's is left.
    pub fn finish(&mut self) {
        self.rig.machine.faults().clear();
        for device in 0..DEVICES as u32 {
            self.rig.machine.faults().restore_capacity(device).unwrap();
            self.drop_graph(device);
        }
        while !self.live.is_empty() {
            self.free(0, false);
        }
        self.drop_parts();
        self.drop_pinned();
        self.check();
        for device in (0..DEVICES as u32).map(DeviceOrdinal) {
            for pool in [self.pool, self.lending_pool, self.communication_pool] {
                while self.rig.heap.pool_uses(device, pool).unwrap() > 0 {
                    self.rig.heap.release_pool(device, pool).unwrap();
                }
            }
        }
    }

    pub fn perform(&mut self, operation: &Operation) {
        self.clock.fetch_add(1, Relaxed);
        match *operation {
            Operation::Allocate { device, stream, bytes, way, sparing, which } => {
                let most = self.conduct.most_live / if sparing { 2 } else { 1 };
                if self.live.len() >= most {
                    return self.free(which, false);
                }
                self.allocate(bytes, way, (device, stream));
            }
            Operation::Free { which, directly } => self.free(which, directly),
            Operation::Read { which, stream } => self.read(which, None, stream),
            Operation::ReadAcross { which, device, stream } => {
                self.read(which, Some(device), stream);
            }
            Operation::Touch { which } => self.touch_again(which),
            Operation::Advance { device, stream, count } => self.advance((device, stream), count),
            Operation::Order { device, first, second } => {
                self.order((device, first), (device, second));
            }
            Operation::RenewStream { device, stream, told } => {
                self.renew_stream((device, stream), told);
            }
            Operation::Misuse => self.misuse(),
            Operation::EnablePeer { device, peer } => self.enable_peer(device, peer),
            Operation::BeginCapture { device, stream, told, mode } => {
                self.begin_capture((device, stream), told, mode);
            }
            Operation::EndCapture { device } => self.end_capture(device),
            Operation::Launch { device } => self.launch(device),
            Operation::DropGraph { device } => self.drop_graph(device),
            Operation::PauseTag { kept, version } => self.pause(kept, version),
            Operation::ResumeTag => self.resume(),
            Operation::PauseBlock { which } => self.pause_block(which),
            Operation::ResumeBlock => self.resume_block(),
            Operation::LimitTag { everybodys, bytes } => {
                let tag = if everybodys { EVERYBODYS } else { self.tag.as_str() };
                self.rig.heap.set_tag_limit(tag, None, bytes).unwrap();
            }
            Operation::LimitPool { device, bytes } => {
                let device = DeviceOrdinal(device);
                self.rig.heap.set_pool_limit(device, self.lending_pool, bytes).unwrap();
            }
            Operation::Set { ref option, ref value } => self.set(option, value),
            Operation::GiveBack { device, how } => self.give_back(DeviceOrdinal(device), how),
            Operation::Preallocate { device, stream, bytes } => {
                self.preallocate((device, stream), bytes);
            }
            Operation::TakePart { device, stream, bytes } => {
                self.take_part((device, stream), bytes);
            }
            Operation::ReadPart { which, device, stream } => {
                self.read_part(which, (device, stream));
            }
            Operation::FreePart { which, device } => self.free_part(device, which),
            Operation::ResetArena { device, how } => self.reset_arena(device, how),
            Operation::TakePinned { bytes } => self.take_pinned(bytes),
            Operation::CopyPinned { which, stream } => self.copy_pinned(which, stream),
            Operation::FreePinned { which } => self.free_pinned(which),
            Operation::TrimPinned => self.trim_pinned(),
            Operation::Fault { ref call, nth, forever, code } => {
                self.fail(call, nth, forever, code);
            }
            Operation::Mend => self.rig.machine.faults().clear(),
            Operation::Squeeze { device, bytes } => {
                self.meets_faults = true;
                let faults = self.rig.machine.faults();
                faults.limit_capacity(device, bytes.unwrap_or(u64::MAX)).unwrap();
            }
        }
    }

    fn is_elastic(&self) -> bool {
        self.rig.heap.settings().strategy.pool_type == PoolType::Elastic
    }

    fn handle(&self, (device, stream): Place) -> StreamHandle {
        let common = COMMON_STREAMS.get(stream as usize).copied();
        let own = || self.own_streams[device as usize][stream as usize - COMMON_STREAMS.len()];
        StreamHandle(common.unwrap_or_else(own))
    }

    /// The number of the live block that `which` means.
    fn pick(&self, which: u64) -> Option<usize> {
        let count = self.live.len() as u64;
        (count > 0).then(|| (which % count) as usize)
    }

    /// Returns true if an operation may fail with any status: a driver call was made to.
    fn excuses(&self, status: Status) -> bool {
        self.meets_faults && status != Status::Internal
    }

    /// Returns true if the call may have been refused because of something that is under way.
    fn may_be_busy(&self, status: Status) -> bool {
        let is_beside = !self.conduct.is_alone || self.captured.iter().any(Captured::is_begun);
        is_beside && status == Status::Busy || self.excuses(status)
    }

    fn set(&self, option: &str, value: &str) {
        let mut settings = self.rig.heap.settings();
        genesis::config::set(&mut settings, option, value, true).unwrap();
        self.rig.heap.apply(&settings);
    }

    fn give_back(&self, device: DeviceOrdinal, how: GiveBack) {
        let heap = &self.rig.heap;
        let given = match how {
            GiveBack::EmptyCache => heap.empty_cache(device),
            GiveBack::Compact => heap.compact(device),
            GiveBack::Collect => heap.collect_garbage(device),
            GiveBack::Trim(target_bytes) => heap.trim(device, target_bytes),
        };
        given.map_or_else(|error| assert!(self.excuses(error.status), "{error}"), drop);
    }

    fn preallocate(&self, place: Place, bytes: u64) {
        let (device, stream) = (DeviceOrdinal(place.0), self.handle(place));
        if let Err(error) = self.rig.heap.preallocate(device, stream, bytes) {
            let is_plain = matches!(error.status, Status::OutOfMemory | Status::NotSupported);
            assert!(is_plain || self.may_be_busy(error.status), "{error}");
        }
    }

    fn fail(&mut self, call: &str, nth: u64, forever: bool, code: i32) {
        self.meets_faults = true;
        let call = Call::ALL.into_iter().find(|known| known.name() == call).expect("a call");
        let times = if forever { Times::Forever } else { Times::Once };
        self.rig.machine.faults().fail(Target::call(call), nth, times, Code(code));
    }

    /// What a wrong program might do; it must be harmless.
    fn misuse(&self) {
        let heap = &self.rig.heap;
        assert_eq!(status_of(heap.free(0x1000)), Status::ForeignPointer);
        assert_eq!(status_of(heap.free(u64::MAX - 7)), Status::ForeignPointer);
        if let Some(live) = self.live.last() {
            assert_eq!(status_of(heap.free(live.address + 1)), Status::ForeignPointer);
        }
        // Among others the address may be live again by now, and theirs.
        let is_live = self.live.iter().any(|live| live.address == self.last_freed)
            || self.parts.iter().any(|parts| parts.has_taken(self.last_freed));
        if self.conduct.is_alone && !is_live {
            match heap.free(self.last_freed) {
                Ok(()) => assert_eq!(self.last_freed, 0),
                Err(error) => assert!(
                    matches!(error.status, Status::ForeignPointer | Status::DoubleFree),
                    "{error}"
                ),
            }
        }
    }

    /// The account of the worker's own tag has its blocks, and no others.
    fn check_tag(&self) {
        for device in 0..DEVICES as u32 {
            let usage = self.rig.heap.tag_usage(DeviceOrdinal(device)).unwrap();
            let counted = usage.iter().find(|usage| *usage.name == *self.tag);
            let is_own = |live: &&Live| live.is_tagged && live.device == device;
            let own = self.live.iter().filter(is_own).count() as u64;
            assert_eq!(counted.map_or(0, |usage| usage.live_blocks), own, "{counted:?}");
        }
    }
}
