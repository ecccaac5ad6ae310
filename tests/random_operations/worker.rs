//! A program that does anything at all, correctly: it orders its own streams with events and
//! tells the heap of every stream that uses a block.

#[path = "pauses.rs"]
mod pauses;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use genesis::base::size::{KIB, MIB};
use genesis::base::{Backup, DeviceOrdinal, Result, Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::PoolId;
use simgpu::{Access, Work};

use crate::oracle::Oracle;
use crate::support::{Random, Rig, status_of};
use crate::{CAPACITY_BYTES, DEVICES, vary_collection};

/// Sizes that come again and again, as they do in programs.
const COMMON_BYTES: [u64; 6] = [512, 4 * KIB, 100_000, MIB, 3 * MIB, 12 * MIB];
const STREAMS: [usize; 4] = [0, 0xA000, 0xB000, 0xC000];
/// A tag that all workers use.
const EVERYBODYS: &str = "everybody's";
/// So many blocks are live at most; below half of it allocations prevail.
const MOST_LIVE: usize = 200;

/// How a worker behaves, and so what can be asserted.
#[derive(Clone, Copy, Debug)]
pub struct Conduct {
    /// Nobody else uses the heap: figures and refusals can be judged exactly.
    is_alone: bool,
    /// The heap is told of streams that use a block, as it must be.
    records_streams: bool,
}

impl Conduct {
    pub const ALONE: Self = Self { is_alone: true, records_streams: true };
    pub const AMONG_OTHERS: Self = Self { is_alone: false, records_streams: true };
    pub const FORGETFUL: Self = Self { is_alone: true, records_streams: false };
}

pub struct Worker {
    rig: Rig,
    oracle: Arc<Oracle>,
    random: Random,
    conduct: Conduct,
    live: Vec<Live>,
    /// An event of each device, to order streams with.
    events: Vec<u64>,
    last_freed: u64,
    /// Its own tag, under which some of its blocks lie, some of them also under [`EVERYBODYS`].
    tag: String,
    /// Its own private pool, as for a graph, on each device.
    pool: PoolId,
}

/// How a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Tagged,
    TaggedTwice,
    Alone,
    Pooled,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    address: u64,
    requested_bytes: u64,
    allocated_bytes: u64,
    device: u32,
    stream: usize,
    /// The other stream that reads it, if one does; nobody writes it from then on.
    reader: Option<usize>,
    is_tagged: bool,
    /// It is of the worker's own pool, which is paused with the worker's tag and not counted for it.
    is_pooled: bool,
    /// It has its memory to itself.
    is_alone: bool,
    /// Nobody touches it until its tag is resumed.
    is_paused: bool,
}

impl Worker {
    pub fn new(rig: Rig, oracle: Arc<Oracle>, random: Random, conduct: Conduct) -> Self {
        let events =
            (0..DEVICES as u32).map(|device| rig.machine.event_create(device, false).unwrap());
        let events = events.collect();
        static WORKERS: AtomicU64 = AtomicU64::new(0);
        let number = WORKERS.fetch_add(1, Relaxed);
        let (tag, pool) = (format!("worker {number}"), PoolId(number, 77));
        for device in (0..DEVICES as u32).map(DeviceOrdinal) {
            rig.heap.hold_pool(device, pool, false).unwrap();
            rig.heap.set_pool_tag(device, pool, &tag, Backup::Pageable).unwrap();
        }
        Self { rig, oracle, random, conduct, live: Vec::new(), events, last_freed: 0, tag, pool }
    }

    pub fn run(&mut self, operations: u64) {
        for n in 1..=operations {
            self.step();
            if n % 1_000 == 0 {
                self.check_tag();
            }
            if self.conduct.is_alone && n % 1_000 == 0 {
                self.oracle.compare(&self.rig);
                self.oracle.compare_peaks(&self.rig);
            }
            if self.conduct.is_alone && n % 10_000 == 0 {
                self.rig.heap.validate().unwrap();
            }
        }
    }

    pub fn free_all(&mut self) {
        while !self.live.is_empty() {
            self.free();
        }
        self.check_tag();
        for device in (0..DEVICES as u32).map(DeviceOrdinal) {
            while self.rig.heap.pool_uses(device, self.pool).unwrap() > 0 {
                self.rig.heap.release_pool(device, self.pool).unwrap();
            }
        }
    }

    fn step(&mut self) {
        let wants_more = self.live.len() < MOST_LIVE / 2;
        match self.random.below(1000) {
            0..350 => self.allocate(),
            350..400 if wants_more => self.allocate(),
            350..740 => self.free(),
            740..820 => self.read_elsewhere(),
            820..880 => self.touch_again(),
            880..960 => self.advance(),
            960..985 => self.order_streams(),
            985..992 => self.misuse(),
            992 => self.pause(),
            993 => self.pause_block(),
            994 => self.resume(),
            995 => self.resume_block(),
            996 if self.random.below(2) == 0 => self.change_limits(),
            996 => self.change_collection(),
            _ => self.give_back(),
        }
    }

    fn pick_device(&mut self) -> u32 {
        self.random.below(DEVICES as u64) as u32
    }

    fn pick_stream(&mut self) -> usize {
        STREAMS[self.random.below(STREAMS.len() as u64) as usize]
    }

    fn pick_live(&mut self) -> Option<usize> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    /// Often one of a few, mostly small, some large, now and then none or more than there is.
    fn pick_bytes(&mut self) -> u64 {
        match self.random.below(1000) {
            0..10 => 0,
            10..400 => COMMON_BYTES[self.random.below(COMMON_BYTES.len() as u64) as usize],
            400..600 => 1 + self.random.below(64 * KIB),
            600..850 => 1 + self.random.below(MIB),
            850..990 => 1 + self.random.below(12 * MIB),
            990..997 => 1 + self.random.below(100 * MIB),
            997..999 => 1 + self.random.below(CAPACITY_BYTES + 16 * MIB),
            _ => u64::MAX - self.random.below(1 << 47),
        }
    }

    fn allocate(&mut self) {
        if self.live.len() >= MOST_LIVE {
            return self.free();
        }
        let (device, stream) = (self.pick_device(), self.pick_stream());
        let way = match self.random.below(64) {
            0..8 => Way::Tagged,
            8..16 => Way::TaggedTwice,
            16 if self.is_elastic() => Way::Alone,
            17 => Way::Pooled,
            _ => Way::Plain,
        };
        let mut requested_bytes = self.pick_bytes();
        if way == Way::Pooled {
            requested_bytes = 1 + requested_bytes % MIB; // what a pool has stays there
        }
        let ordinal = DeviceOrdinal(device);
        let allocated = self.allocate_by(way, requested_bytes, (ordinal, StreamHandle(stream)));
        let is_tagged = !matches!(way, Way::Plain | Way::Pooled);
        match allocated {
            Ok(0) => assert_eq!(requested_bytes, 0),
            Ok(address) => {
                assert!(requested_bytes != 0 && requested_bytes <= CAPACITY_BYTES);
                let block = self.rig.heap.block_containing(address).unwrap();
                assert_eq!((block.address, block.device), (address, ordinal));
                if way == Way::Alone {
                    requested_bytes = requested_bytes.next_multiple_of(2 * MIB);
                }
                assert_eq!(block.requested_bytes, requested_bytes);
                let end = address + block.allocated_bytes;
                self.oracle.hand_out(device as usize, address, end, requested_bytes).unwrap();
                let live = Live {
                    address,
                    requested_bytes,
                    allocated_bytes: block.allocated_bytes,
                    device,
                    stream,
                    reader: None,
                    is_tagged,
                    is_pooled: way == Way::Pooled,
                    is_alone: way == Way::Alone,
                    is_paused: false,
                };
                self.touch(&live, stream, Access::Write);
                self.live.push(live);
            }
            Err(error) if error.status == Status::LimitReached => assert!(is_tagged, "{error}"),
            Err(error) => {
                assert_eq!(error.status, Status::OutOfMemory, "{error}");
                // During a capture, nothing is waited for or released.
                if way != Way::Pooled {
                    self.judge_refusal(requested_bytes, ordinal);
                }
            }
        }
    }

    fn allocate_by(
        &self,
        way: Way,
        bytes: u64,
        (device, stream): (DeviceOrdinal, StreamHandle),
    ) -> Result<u64> {
        let heap = &self.rig.heap;
        let tags: &[&str] = match way {
            Way::Plain | Way::Pooled => &[],
            Way::Tagged | Way::Alone => &[&self.tag],
            Way::TaggedTwice => &[EVERYBODYS, &self.tag],
        };
        if way == Way::Pooled {
            let own = std::thread::current().id();
            let filter = move |_| std::thread::current().id() == own;
            heap.begin_pool(device, self.pool, Arc::new(filter)).unwrap();
        }
        tags.iter().for_each(|tag| heap.begin_tag(tag).unwrap());
        let allocated = match way {
            Way::Alone => {
                let stream = heap.identify(device, stream).unwrap();
                heap.allocate_alone(bytes, device, stream)
            }
            _ => heap.allocate(bytes, device, stream),
        };
        tags.iter().for_each(|_| heap.end_tag().unwrap());
        if way == Way::Pooled {
            heap.end_pool(device, self.pool).unwrap();
            heap.release_pool(device, self.pool).unwrap();
        }
        allocated
    }

    fn is_elastic(&self) -> bool {
        self.rig.heap.settings().strategy.pool_type == PoolType::Elastic
    }

    /// A refusal is right when neither the limit nor the driver has room for the smallest
    /// segment that would do, with all that could be released gone.
    fn judge_refusal(&self, requested_bytes: u64, device: DeviceOrdinal) {
        if !self.conduct.is_alone || requested_bytes > CAPACITY_BYTES {
            return;
        }
        let settings = self.rig.heap.settings();
        let block_bytes = match settings.strategy.pool_type {
            PoolType::Naive => requested_bytes,
            PoolType::Round if requested_bytes > 16 * MIB => {
                requested_bytes.next_multiple_of(16 * MIB)
            }
            PoolType::Round => requested_bytes.next_power_of_two().max(4096),
            PoolType::Exact => requested_bytes,
            PoolType::Caching if settings.roundup_power2_divisions == 4 => {
                requested_bytes + requested_bytes / 4
            }
            PoolType::Caching => requested_bytes,
            PoolType::Arena | PoolType::Elastic => requested_bytes + requested_bytes / 8,
        };
        let needed_bytes = block_bytes.next_multiple_of(2 * MIB);
        let driver = self.rig.machine.memory_info(device.0).unwrap();
        let used_bytes = driver.total_bytes - driver.free_bytes;
        let limit_bytes = settings.memory_limit_bytes.unwrap_or(u64::MAX);
        let room_bytes = driver.free_bytes.min(limit_bytes.saturating_sub(used_bytes));
        assert!(
            needed_bytes > room_bytes,
            "{requested_bytes} bytes were refused with room for {room_bytes}"
        );
    }

    fn free(&mut self) {
        let Some(index) = self.pick_live() else {
            return;
        };
        let live = self.live.swap_remove(index);
        self.oracle.take_back(live.device as usize, live.address, live.requested_bytes);
        if live.is_paused {
            self.oracle.resume(live.device as usize, live.allocated_bytes);
        }
        if self.random.below(50) == 0 {
            self.rig.heap.free_directly(live.address).unwrap();
        } else {
            self.rig.heap.free(live.address).unwrap();
        }
        self.last_freed = live.address;
    }

    /// Lets another stream read a block, after what its own stream has written.
    fn read_elsewhere(&mut self) {
        let Some(index) = self.pick_live() else {
            return;
        };
        let mut live = self.live[index];
        if live.is_paused {
            return;
        }
        let reader = self.pick_stream();
        if live.reader.is_none() {
            live.reader = Some(reader);
            self.live[index] = live;
            self.order(live.device, live.stream, reader);
        }
        if live.reader == Some(reader) {
            if self.conduct.records_streams {
                self.rig.record(live.address, StreamHandle(reader));
            }
            self.touch(&live, reader, Access::Read);
        }
    }

    fn touch_again(&mut self) {
        let Some(index) = self.pick_live() else {
            return;
        };
        let live = self.live[index];
        if live.is_paused {
            return;
        }
        let access = if live.reader.is_none() { Access::Write } else { Access::Read };
        self.touch(&live, live.stream, access);
    }

    fn touch(&self, live: &Live, stream: usize, access: Access) {
        let Live { device, address, requested_bytes, .. } = *live;
        self.rig
            .machine
            .touch(device, stream, Work::new(address, requested_bytes, access, ""))
            .unwrap();
    }

    fn advance(&mut self) {
        let (device, stream) = (self.pick_device(), self.pick_stream());
        let machine = &self.rig.machine;
        match self.random.below(4) {
            0 => machine.run_to_idle(device, stream).unwrap(),
            _ => drop(machine.advance(device, stream, 8).unwrap()),
        }
    }

    fn order_streams(&mut self) {
        let (device, first, second) = (self.pick_device(), self.pick_stream(), self.pick_stream());
        self.order(device, first, second);
    }

    /// What is enqueued on `second` from now on comes after what is on `first`.
    fn order(&self, device: u32, first: usize, second: usize) {
        let event = self.events[device as usize];
        self.rig.machine.event_record(device, event, first).unwrap();
        self.rig.machine.stream_wait(device, second, event).unwrap();
    }

    /// What a wrong program might do; it must be harmless.
    fn misuse(&mut self) {
        let heap = &self.rig.heap;
        assert_eq!(status_of(heap.free(0x1000)), Status::ForeignPointer);
        assert_eq!(status_of(heap.free(u64::MAX - 7)), Status::ForeignPointer);
        if let Some(live) = self.live.last() {
            assert_eq!(status_of(heap.free(live.address + 1)), Status::ForeignPointer);
        }
        // Among others the address may be live again by now, and theirs.
        if self.conduct.is_alone && self.live.iter().all(|live| live.address != self.last_freed) {
            match heap.free(self.last_freed) {
                Ok(()) => assert_eq!(self.last_freed, 0),
                Err(error) => assert!(
                    matches!(error.status, Status::ForeignPointer | Status::DoubleFree),
                    "{error}"
                ),
            }
        }
    }

    /// Limits the worker's own tag and everybody's, or ends the limits.
    fn change_limits(&mut self) {
        for (tag, most_bytes) in [(self.tag.as_str(), 64 * MIB), (EVERYBODYS, 128 * MIB)] {
            let limit_bytes = self.random.below(most_bytes);
            let limit = (self.random.below(2) == 0).then_some(limit_bytes);
            self.rig.heap.set_tag_limit(tag, None, limit).unwrap();
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

    fn is_beside_others(&self, status: Status) -> bool {
        !self.conduct.is_alone && status == Status::Busy
    }

    fn change_collection(&mut self) {
        let mut settings = self.rig.heap.settings();
        let random = &mut self.random;
        vary_collection(&mut settings, &mut || random.below(2) == 0);
        self.rig.heap.apply(&settings);
    }

    fn give_back(&mut self) {
        let device = DeviceOrdinal(self.pick_device());
        let target_bytes = self.random.below(CAPACITY_BYTES);
        let heap = &self.rig.heap;
        match self.random.below(8) {
            0 => drop(heap.empty_cache(device).unwrap()),
            1 => drop(heap.compact(device).unwrap()),
            2 => drop(heap.collect_garbage(device).unwrap()),
            _ => drop(heap.trim(device, target_bytes).unwrap()),
        }
    }
}
