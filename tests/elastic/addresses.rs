//! Address space, mappings and what the host keeps of them: bounded by what is live, not by how
//! much was ever asked for. And a want of addresses is told from a want of memory.

use genesis::base::size::{GIB, MIB};
use genesis::base::{Status, StreamHandle};
use genesis::config::LogLevel;
use simgpu::{Call, Code, Progress, Target, Times, Work};

use crate::ADDRESSES;
use crate::support::host_memory::held_bytes;
use crate::support::{A, B, DEVICE, Plan, Random, Rig, tier};

const CAPACITY_BYTES: u64 = 256 * MIB;
/// So much is live most of the time, in bytes: little enough that most requests can be served,
/// and enough that memory has to move for them.
const LIVE_BYTES: u64 = 224 * MIB;
const LARGEST_BYTES: u64 = 40 * MIB;

/// A device whose streams are done with everything at once.
#[test]
fn sizes_that_never_repeat() {
    let cycles = tier::some_or_all(15_000, 100_000);
    Churn::new(&[A], Progress::Automatic).run_and_judge(cycles, 0);
}

/// A miss that needs what the other stream has freed since its last event waits for the device:
/// about one request in six.
#[test]
fn sizes_that_never_repeat_on_two_streams() {
    let cycles = tier::some_or_all(15_000, 30_000);
    Churn::new(&[A, B], Progress::Automatic).run_and_judge(cycles, cycles as u64 / 4);
}

/// Each search for a place reads all mappings, so thousands of extents do not each keep many views that
/// nobody comes back to, whether or not the stream keeps up.
#[test]
fn sizes_that_never_repeat_on_a_large_device() {
    for progress in [Progress::Automatic, Progress::Manual] {
        let mut plan = ADDRESSES.plan().capacity(8 * GIB);
        plan.machine.progress = progress;
        let mut churn = Churn::start(plan, &[A]);
        churn.most_live_bytes = 8 * GIB - 256 * MIB;
        churn.largest_bytes = 200 * MIB;
        let mappings = churn.run(tier::some_or_all(4_000, 20_000)).mappings;
        let extents = churn.rig.machine.census().handles;
        assert!(mappings > 2 * extents, "memory moves: {mappings} mappings of {extents} extents");
        assert!(mappings <= 5 * extents, "{mappings} mappings of {extents} extents");
        churn.rig.finish();
    }
}

/// A block cannot lie across two reservations, so a stream has one for all that it will hold: each of
/// many has, on a device of any size.
#[test]
fn each_of_many_streams_has_its_memory_side_by_side() {
    for device_bytes in [16 * GIB, 80 * GIB, 288 * GIB] {
        let rig = ADDRESSES.plan().capacity(device_bytes).start();
        let streams: Vec<_> = (1..=16).map(|number| StreamHandle(number * 0x1000)).collect();
        let block_bytes = device_bytes / 16 / 8;
        let mut live = Vec::new();
        for _ in 0..7 {
            live.extend(streams.iter().map(|&stream| rig.allocate(block_bytes, stream)));
        }
        assert_eq!(rig.usage().count(Call::Reserve), streams.len() as u64, "{device_bytes}");
        live.into_iter().for_each(|address| rig.free(address));
        rig.finish();
    }
}

/// Streams that are always behind the host, so that the latest event is never complete.
#[test]
fn streams_that_lag_behind() {
    let cycles = tier::some_or_all(15_000, 30_000);
    Churn::new(&[A, B], Progress::Manual).run_and_judge(cycles, cycles as u64 / 4);
}

/// Extents are not made one by one until the device is full, only to be given back.
#[test]
fn a_request_larger_than_the_device_asks_it_for_no_memory() {
    let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
    rig.allocate_and_touch(32 * MIB, A);
    let before = rig.usage().count(Call::Create);
    assert_eq!(rig.refusal(CAPACITY_BYTES, A), Status::OutOfMemory);
    assert_eq!(rig.usage().count(Call::Create), before);
    assert_eq!(rig.statistics().reserved_bytes.peak, 32 * MIB);
    rig.allocate_and_touch(CAPACITY_BYTES - 32 * MIB, A);
    rig.finish();
}

/// An answer of the driver that there are no addresses is met with a smaller reservation.
#[test]
fn a_reservation_refused_once_is_asked_for_smaller() {
    let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
    rig.machine.faults().fail(Target::call(Call::Reserve), 1, Times::Once, Code::OUT_OF_MEMORY);
    rig.allocate_and_touch(32 * MIB, A);
    assert_eq!(rig.usage().count(Call::Reserve), 2);
    assert_eq!(rig.machine.census().reserved_bytes, GIB);
    rig.allocate_and_touch(64 * MIB, A);
    rig.finish();
}

#[test]
fn a_want_of_addresses_is_told_from_one_of_memory() {
    for (code, status) in
        [(Code::OUT_OF_MEMORY, Status::OutOfMemory), (Code(12345), Status::DriverFailed)]
    {
        let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
        let kept = rig.allocate_and_touch(600 * 1024, A);
        let before = rig.machine.census();
        rig.machine.faults().fail(Target::call(Call::Reserve), 1, Times::Forever, code);
        for bytes in [32 * MIB, 64 * MIB, 3 * MIB] {
            let error = rig.heap.allocate(bytes, DEVICE, A).unwrap_err();
            assert_eq!(error.status, status, "{error}");
            assert!(error.message.contains("no address space"), "{error}");
            rig.check();
        }
        // Nothing was lost on the way, and the addresses there are serve on.
        assert_eq!(rig.machine.census(), before);
        let small = rig.allocate_and_touch(600 * 1024, A);
        rig.free(small);
        rig.machine.faults().clear();
        rig.allocate_and_touch(32 * MIB, A);
        rig.free(kept);
        rig.finish();
    }
}

/// A want of memory says nothing of addresses.
#[test]
fn a_want_of_memory_is_no_want_of_addresses() {
    let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
    rig.allocate(CAPACITY_BYTES - 2 * MIB, A);
    let error = rig.heap.allocate(4 * MIB, DEVICE, A).unwrap_err();
    assert_eq!(error.status, Status::OutOfMemory);
    assert!(!error.message.contains("address space"), "{error}");
    rig.finish();
}

/// Addresses that do end: there are twice as many as bytes, so that they fill with shadows.
#[test]
fn addresses_that_run_out() {
    let mut plan = ADDRESSES.plan().capacity(CAPACITY_BYTES);
    plan.machine.address_space_bytes = Some(2 * CAPACITY_BYTES);
    plan.machine.progress = Progress::Automatic;
    let mut churn = Churn::start(plan, &[A]);
    churn.is_refused_addresses = true;
    churn.run(5_000);
    // Wanted: hardly any. But shadows are not dropped for want of addresses.
    assert!(churn.refusals < 3_000, "{} of 5,000 requests were refused", churn.refusals);
    churn.rig.finish();
}

/// A stream that has moved its memory makes no more calls, so none of its events complete: its
/// shadows stay, but not all that come after them.
#[test]
fn shadows_behind_a_quiet_stream() {
    let mut churn = Churn::new(&[B], Progress::Automatic);
    churn.run(200);
    churn.streams = &[A];
    churn.run_and_judge(20_000, 200);
}

/// The same with few addresses: a wait gets them back.
#[test]
fn addresses_behind_a_quiet_stream() {
    let mut plan = ADDRESSES.plan().capacity(CAPACITY_BYTES);
    plan.machine.address_space_bytes = Some(12 * CAPACITY_BYTES);
    plan.machine.progress = Progress::Automatic;
    let mut churn = Churn::start(plan, &[B]);
    churn.is_refused_addresses = true;
    churn.run(200);
    churn.streams = &[A];
    churn.run(5_000);
    assert!(churn.refusals <= 50, "{} of 5,000 requests were refused", churn.refusals);
    churn.rig.finish();
}

/// A program that allocates and frees blocks of sizes of its own each time.
struct Churn {
    rig: Rig,
    streams: &'static [StreamHandle],
    random: Random,
    live: Vec<(u64, u64)>,
    live_bytes: u64,
    most_live_bytes: u64,
    largest_bytes: u64,
    refusals: usize,
    /// Whether requests may fail for want of addresses.
    is_refused_addresses: bool,
}

/// What must not grow.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    reserved_bytes: u64,
    mappings: usize,
    host_bytes: i64,
}

impl Size {
    fn max(self, other: Self) -> Self {
        Self {
            reserved_bytes: self.reserved_bytes.max(other.reserved_bytes),
            mappings: self.mappings.max(other.mappings),
            host_bytes: self.host_bytes.max(other.host_bytes),
        }
    }
}

impl Churn {
    fn new(streams: &'static [StreamHandle], progress: Progress) -> Self {
        let mut plan = ADDRESSES.plan().capacity(CAPACITY_BYTES);
        plan.machine.progress = progress;
        Self::start(plan, streams)
    }

    fn start(mut plan: Plan, streams: &'static [StreamHandle]) -> Self {
        plan.machine.detect_races = false;
        plan.settings.log = LogLevel::Off;
        Self {
            rig: plan.start(),
            streams,
            random: Random(1),
            live: Vec::new(),
            live_bytes: 0,
            most_live_bytes: LIVE_BYTES,
            largest_bytes: LARGEST_BYTES,
            refusals: 0,
            is_refused_addresses: false,
        }
    }

    fn run_and_judge(mut self, cycles: usize, most_host_waits: u64) {
        let before_bytes = held_bytes();
        let warm = self.run(cycles / 2);
        let usage = self.rig.usage();
        let later = self.run(cycles / 2);
        let moves = self.rig.usage().count(Call::Map) - usage.count(Call::Map);
        assert!(moves > cycles as u64 / 2, "memory has to move: {moves} mappings");
        let host_waits = self.rig.usage().host_waits;
        assert!(host_waits.explicit <= most_host_waits, "{host_waits:?}");
        assert!(self.refusals <= cycles / 1000, "{} requests were refused", self.refusals);
        let most_bytes = warm.reserved_bytes + warm.reserved_bytes / 8;
        assert!(later.reserved_bytes <= most_bytes, "{warm:?}, {later:?}");
        assert!(later.mappings <= warm.mappings + warm.mappings / 8, "{warm:?}, {later:?}");
        let grown_bytes = later.host_bytes - warm.host_bytes;
        assert!(grown_bytes <= (warm.host_bytes - before_bytes) / 4, "{warm:?}, {later:?}");
        self.rig.finish();
    }

    /// The most that there was of everything in so many cycles.
    fn run(&mut self, cycles: usize) -> Size {
        let mut most = Size::default();
        for cycle in 0..cycles {
            self.step();
            if cycle % 100 == 0 {
                let census = self.rig.machine.census();
                most = most.max(Size {
                    reserved_bytes: census.reserved_bytes,
                    mappings: census.mappings,
                    host_bytes: held_bytes(),
                });
            }
        }
        most
    }

    fn step(&mut self) {
        let bytes = 512 * (1 + self.random.below(self.largest_bytes / 512));
        while self.live_bytes + bytes > self.most_live_bytes {
            self.free_one();
        }
        let stream = self.streams[self.random.below(self.streams.len() as u64) as usize];
        match self.rig.heap.allocate(bytes, DEVICE, stream) {
            Ok(address) => {
                self.rig.machine.touch(0, stream.0, Work::write(address, bytes, "")).unwrap();
                self.live.push((address, bytes));
                self.live_bytes += bytes;
            }
            Err(error) => {
                assert_eq!(error.status, Status::OutOfMemory, "{error}");
                let is_of_addresses = error.message.contains("no address space");
                assert!(!is_of_addresses || self.is_refused_addresses, "{error}");
                self.refusals += 1;
                self.free_one();
            }
        }
        for stream in self.streams {
            let pending = self.rig.machine.pending(0, stream.0).unwrap();
            self.rig.machine.advance(0, stream.0, pending.saturating_sub(50)).unwrap();
        }
    }

    fn free_one(&mut self) {
        let index = self.random.below(self.live.len() as u64) as usize;
        let (address, bytes) = self.live.swap_remove(index);
        self.rig.free(address);
        self.live_bytes -= bytes;
    }
}
