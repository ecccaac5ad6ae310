//! Every driver call fails in turn: nothing may be lost, nothing may be wrong.
//!
//! A fixed program (growth, cross-stream use, trimming, shortage; for Elastic another in which
//! memory moves in every way there is) runs once to count the calls of each kind that it makes.
//! Then it runs again for each call, with that call failing: once,
//! and from there on until the driver is well again; with a shortage of memory, an unknown
//! code, and the code of a driver that has shut down. That is quadratic in the program's length,
//! so that on every change only some of the calls fail ([`faults_to_try`]). Each time:
//!
//! - no step panics, and a step fails as it did before or with the status that the code means;
//! - what a step hands out is a block: not null, and over no other;
//! - afterwards the heap is consistent, serves requests, and gives every byte back.

#[path = "fault_sweep/general.rs"]
mod general;
#[path = "fault_sweep/moving.rs"]
mod moving;
mod support;
#[path = "fault_sweep/verdict.rs"]
mod verdict;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use genesis::base::size::MIB;
use genesis::base::{Backup, DeviceOrdinal, Error, StreamHandle};
use genesis::config::{DebugModes, ElasticPolicy, Oversubscription, PoolType, Settings};
use genesis::heap::{Keeping, PoolId, PoolOptions, Registrar};
use genesis::observe::Statistics;
use simgpu::{Call, CaptureMode, Code, StoreKind, Target, Times, Usage, Work};

use support::{A, B, C, DEVICE, Random, Rig, Subject, tier};
use verdict::{Fault, Outcome, Outcomes, judge, statuses};

/// The kinds of call the program makes of the heap's driver.
const KINDS: [Call; 28] = [
    Call::MemoryInfo,
    Call::Allocate,
    Call::Free,
    Call::Reserve,
    Call::Unreserve,
    Call::Create,
    Call::Release,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::EventCreate,
    Call::EventRecord,
    Call::EventQuery,
    Call::StreamQuery,
    Call::StreamWait,
    Call::StreamIsCapturing,
    Call::StreamGetId,
    Call::StreamGetContext,
    Call::Synchronize,
    Call::Fill,
    Call::CopyToHost,
    Call::CopyToDevice,
    Call::HostRegister,
    Call::HostUnregister,
    Call::CanAccessPeer,
    Call::AllocateManaged,
    Call::Advise,
    Call::Prefetch,
];
/// Those it makes of its own.
const OWN_KINDS: [Call; 4] =
    [Call::StreamCreate, Call::StreamDestroy, Call::BeginCapture, Call::EndCapture];
/// A tag with a limit.
const LIMITED: &str = "limited";
/// A tag that is paused, and a graph's pool that is paused with it.
const SLEEPING: &str = "sleeping";
const SLEEPING_POOL: PoolId = PoolId(60, 61);
/// The tag of a pool for NCCL, and the pool.
const REGISTERED: &str = "registered";
const REGISTERED_POOL: PoolId = PoolId(70, 71);
/// A private pool with a limit.
const LIMITED_POOL: PoolId = PoolId(50, 51);
const UNKNOWN: Code = Code(12345);
const SHUT_DOWN: Code = Code(4);
/// On every change, the calls of each kind that fail in all ways: the first so many.
const FIRST_CALLS: u64 = 3;
/// And the most of the later ones, each of which fails in one of the ways.
const LATER_CALLS: u64 = 8;

#[test]
fn naive() {
    sweep(PoolType::Naive, GENERAL);
}

#[test]
fn round() {
    sweep(PoolType::Round, GENERAL);
}

#[test]
fn exact() {
    sweep(PoolType::Exact, GENERAL);
}

#[test]
fn caching() {
    sweep(PoolType::Caching, GENERAL);
}

#[test]
fn arena() {
    sweep(PoolType::Arena, GENERAL);
}

#[test]
fn elastic() {
    sweep(PoolType::Elastic, GENERAL);
}

/// A second program, in which memory moves.
#[test]
fn elastic_moving_memory() {
    let seen = sweep(PoolType::Elastic, MOVING);
    assert_eq!(seen, Seen { grown: true, moved: true, stolen: true, restored: true });
}

/// While the program is debugged, more is asked of the driver, and nothing fails for it.
#[test]
fn caching_debugged() {
    sweep(PoolType::Caching, Program { vary: debugged, ..GENERAL });
}

#[test]
fn elastic_debugged() {
    sweep(PoolType::Elastic, Program { vary: debugged, ..GENERAL });
}

#[test]
fn guarded() {
    sweep(PoolType::Elastic, Program { vary: guard, ..GENERAL });
}

/// Elastic with the least memory, and with handles for blocks alone.
#[test]
fn elastic_with_other_settings() {
    for vary in [tight as fn(&mut Settings), single_handles] {
        sweep(PoolType::Elastic, Program { vary, faults: &BRIEF, ..GENERAL });
    }
}

/// Managed memory, of which more is held than the device has.
#[test]
fn managed() {
    let program = Program { vary: manage, faults: &BRIEF, ..GENERAL };
    sweep(PoolType::Caching, Program { capacity_bytes: 32 * MIB, ..program });
}

/// Memory that goes back by its age and beyond a threshold.
#[test]
fn collecting() {
    for pool_type in [PoolType::Round, PoolType::Caching, PoolType::Elastic] {
        sweep(pool_type, Program { vary: collect, faults: &BRIEF, ..GENERAL });
    }
}

fn debugged(settings: &mut Settings) {
    settings.debug = DebugModes::ALL;
}

fn guard(settings: &mut Settings) {
    settings.debug = DebugModes { guard: true, poison: true, ..DebugModes::OFF };
}

fn tight(settings: &mut Settings) {
    settings.elastic_policy = ElasticPolicy::Tight;
}

fn single_handles(settings: &mut Settings) {
    settings.single_handle_size_bytes = Some(2 * MIB);
}

fn manage(settings: &mut Settings) {
    settings.managed = Oversubscription::Most(32 * MIB);
}

fn collect(settings: &mut Settings) {
    settings.gc_threshold = Some(0.25);
    settings.gc_age_allocations = Some(8);
    settings.gc_age_seconds = Some(0.0);
}

/// What to sweep, and on what.
#[derive(Clone, Copy)]
struct Program {
    capacity_bytes: u64,
    run: fn(&mut Run),
    vary: fn(&mut Settings),
    /// What each call fails with, and how often.
    faults: &'static [(Code, Times)],
}

const EVERY_FAULT: [(Code, Times); 6] = [
    (Code::OUT_OF_MEMORY, Times::Once),
    (Code::OUT_OF_MEMORY, Times::Forever),
    (UNKNOWN, Times::Once),
    (UNKNOWN, Times::Forever),
    (SHUT_DOWN, Times::Once),
    (SHUT_DOWN, Times::Forever),
];
/// One of each code and of each duration, where the program is one that every fault meets anyway.
const BRIEF: [(Code, Times); 2] = [(Code::OUT_OF_MEMORY, Times::Once), (UNKNOWN, Times::Forever)];
const GENERAL: Program = Program {
    capacity_bytes: 64 * MIB,
    run: Run::use_everything,
    vary: |_| (),
    faults: &EVERY_FAULT,
};
/// A device of eight pages.
const MOVING: Program = Program { capacity_bytes: 16 * MIB, run: Run::move_memory, ..GENERAL };

/// Where memory for requests has come from, as their driver calls tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// From the driver.
    grown: bool,
    /// From other addresses of the lane.
    moved: bool,
    /// From another stream.
    stolen: bool,
    /// From addresses it had before, with nothing mapped.
    restored: bool,
}

/// Says what was seen where nothing failed.
fn sweep(pool_type: PoolType, program: Program) -> Seen {
    let reference = Run::start(pool_type, program, None);
    let counts = KINDS.map(|call| reference.rig.usage().count(call));
    let own_calls: u64 = OWN_KINDS.map(|call| reference.rig.usage().count(call)).iter().sum();
    let all_calls = reference.rig.usage().calls.iter().sum::<u64>() - own_calls;
    let seen = reference.seen;
    assert_eq!(counts.iter().sum::<u64>(), all_calls, "a kind of call is not in the list");
    let expected = reference.finish();
    assert!(
        statuses(&expected).any(|status| status.is_some()),
        "memory never ran out: {expected:?}"
    );
    let mut absorbed = 0;
    for (call, count) in KINDS.into_iter().zip(counts) {
        for (nth, (code, times)) in faults_to_try(count, program.faults) {
            let fault = Fault { call, nth, code, times };
            let outcomes = Run::start(pool_type, program, Some(fault)).finish();
            judge(&format!("{pool_type:?}, {fault}"), fault, &outcomes, &expected);
            absorbed += u64::from(statuses(&outcomes).eq(statuses(&expected)));
        }
    }
    assert!(absorbed > 0, "no fault was absorbed");
    seen
}

/// Which of the `count` calls of a kind fail, and how. Nightly each call fails in every way. On
/// every change the first calls do, and the later ones are drawn evenly, always the same ones.
fn faults_to_try(count: u64, faults: &[(Code, Times)]) -> Vec<(u64, (Code, Times))> {
    let in_every_way = |nth: u64| faults.iter().map(move |&fault| (nth, fault));
    let first = if tier::is_full() { count } else { count.min(FIRST_CALLS) };
    let mut chosen: Vec<_> = (1..=first).flat_map(in_every_way).collect();
    let stride = (count - first).div_ceil(LATER_CALLS).max(1);
    let mut random = Random(count);
    let later = (first + 1..=count).step_by(stride as usize);
    let drawn = later.map(|nth| nth + random.below(stride)).filter(|nth| *nth <= count);
    chosen.extend(drawn.zip(faults.iter().copied().cycle()));
    chosen
}

/// With whom memory is registered: what is.
#[derive(Debug, Default)]
struct Book(Mutex<BTreeMap<u64, u64>>);

impl Registrar for Book {
    fn register(&self, address: u64, bytes: u64) -> bool {
        let before = self.0.lock().unwrap().insert(address, bytes);
        assert_eq!(before, None, "{address:#x} is registered twice");
        true
    }

    fn deregister(&self, address: u64, bytes: u64) {
        let before = self.0.lock().unwrap().remove(&address);
        assert_eq!(before, Some(bytes), "{address:#x} is not registered");
    }
}

/// The program, on its way.
struct Run {
    capacity_bytes: u64,
    rig: Rig,
    outcomes: Outcomes,
    /// Start → end of each live block.
    live: BTreeMap<u64, u64>,
    seen: Seen,
    fault: Option<Fault>,
    is_struck: bool,
    /// At the end nothing is registered.
    books: Vec<Arc<Book>>,
}

impl Run {
    /// Runs the program with `fault`.
    fn start(pool_type: PoolType, program: Program, fault: Option<Fault>) -> Self {
        let subject = Subject::new(pool_type, StoreKind::AddressesOnly);
        let plan = subject.plan().capacity(program.capacity_bytes);
        let rig = plan.set(program.vary).start();
        if let Some(Fault { call, nth, code, times }) = fault {
            rig.machine.faults().fail(Target::call(call), nth, times, code);
        }
        let seen = Seen::default();
        let (outcomes, live, is_struck) = (Vec::new(), BTreeMap::new(), false);
        let capacity_bytes = program.capacity_bytes;
        let mut run =
            Self { capacity_bytes, rig, outcomes, live, seen, fault, is_struck, books: Vec::new() };
        (program.run)(&mut run);
        run
    }

    /// Allocates a block and uses it.
    fn allocate(&mut self, step: &'static str, bytes: u64, stream: StreamHandle) -> Option<u64> {
        let address = self.allocate_unused(step, bytes, stream)?;
        self.rig.touch(address, stream);
        Some(address)
    }

    /// Has a stream of a context read a block, if the heap takes note of it.
    fn read_elsewhere(
        &mut self,
        step: &'static str,
        address: Option<u64>,
        (context, stream): (u32, StreamHandle),
    ) {
        let Some(address) = address else {
            return self.note(step, Ok(())); // it was never had
        };
        let recorded = self.rig.heap.record_stream(address, stream);
        if recorded.is_ok() && self.order_after_a(context, stream).is_ok() {
            let machine = &self.rig.machine;
            machine.touch(context, stream.0, Work::read(address, MIB, "reader")).unwrap();
        }
        self.note(step, recorded);
    }

    /// What is enqueued on a stream from now on comes after what is on A, unless that fails, too.
    fn order_after_a(&self, context: u32, stream: StreamHandle) -> simgpu::Result<()> {
        let machine = &self.rig.machine;
        let event = machine.event_create(0, false)?;
        machine.event_record(0, event, A.0)?;
        machine.stream_wait(context, stream.0, event)
    }

    /// Frees what is live, as one step.
    fn free_all(&mut self) {
        let live = std::mem::take(&mut self.live);
        let freed = live.keys().map(|&address| self.rig.heap.free(address));
        // All of them, also behind one that fails.
        let freed: Vec<Result<(), Error>> = freed.collect();
        let freed = freed.into_iter().collect();
        self.note("all", freed);
    }

    /// Allocates a block; the program has not used it yet.
    fn allocate_unused(
        &mut self,
        step: &'static str,
        bytes: u64,
        stream: StreamHandle,
    ) -> Option<u64> {
        let (usage, handles) = (self.rig.usage(), self.rig.machine.census().handles);
        // To ask a device for statistics opens it, which is for the allocation to do.
        let is_opened = self.rig.heap.is_opened(DEVICE);
        let statistics = if is_opened { self.rig.statistics() } else { Statistics::default() };
        let allocated = self.rig.heap.allocate(bytes, DEVICE, stream);
        let address = allocated.as_ref().ok().copied();
        if address.is_some() {
            self.see(&usage, &statistics, handles);
        }
        self.note(step, allocated.map(drop));
        let left_bytes = self.capacity_bytes - self.rig.machine.used_bytes(0).unwrap();
        self.outcomes.last_mut().unwrap().is_without_room = left_bytes < bytes;
        let start = address?;
        assert!(start != 0 && start % 512 == 0, "{step}: {start:#x}");
        let end = start + bytes;
        let before = self.live.range(..end).next_back();
        assert!(before.is_none_or(|(_, &other_end)| other_end <= start), "{step} overlaps");
        self.live.insert(start, end);
        address
    }

    /// Notes where memory for an allocation came from, that was served since the figures given.
    fn see(&mut self, usage: &Usage, statistics: &Statistics, handles: usize) {
        let (usage_now, now) = (self.rig.usage(), self.rig.statistics());
        let made = |call: Call| usage_now.count(call) > usage.count(call);
        let is_stolen = now.cross_stream_reuses > statistics.cross_stream_reuses;
        let is_grown = self.rig.machine.census().handles > handles;
        self.seen.grown |= is_grown;
        self.seen.stolen |= is_stolen;
        self.seen.moved |= made(Call::Map) && !is_grown && !is_stolen;
        self.seen.restored |= now.misses > statistics.misses && !made(Call::Map);
    }

    fn free(&mut self, step: &'static str, address: Option<u64>) {
        let Some(address) = address else {
            return self.note(step, Ok(())); // it was never had
        };
        self.live.remove(&address);
        self.note(step, self.rig.heap.free(address));
    }

    fn note(&mut self, step: &'static str, result: Result<(), Error>) {
        let was_struck = self.is_struck;
        let struck = |fault: Fault| self.rig.usage().count(fault.call) >= fault.nth;
        self.is_struck = was_struck || self.fault.is_some_and(struck);
        let live_bytes = self.live.iter().map(|(start, end)| end - start).sum();
        let status = result.err().map(|error| error.status);
        let is_struck_now = self.is_struck && !was_struck;
        let is_struck = self.is_struck;
        let asked = self.rig.usage().count(Call::Allocate);
        let is_without_room = false;
        self.outcomes.push(Outcome {
            step,
            live_bytes,
            status,
            asked,
            is_without_room,
            is_struck,
            is_struck_now,
        });
    }

    /// The driver is well again: everything must be there, and go back.
    fn finish(mut self) -> Outcomes {
        let outcomes = std::mem::take(&mut self.outcomes);
        self.rig.machine.faults().clear();
        self.rig.check();
        let live = self.rig.heap.largest_allocations(DeviceOrdinal(0), 0).unwrap();
        assert_eq!(live.len(), self.live.len(), "live blocks were lost or came back");
        assert!(live.iter().all(|block| self.live.contains_key(&block.address)));
        self.allocate("the next request", 512, A).expect("it works");
        let heap = self.rig.heap.clone();
        self.rig.finish();
        for book in self.books {
            assert_eq!(*book.0.lock().unwrap(), BTreeMap::new(), "still registered");
        }
        for usage in heap.tag_usage(DEVICE).unwrap() {
            assert_eq!((usage.live_bytes, usage.live_blocks), (0, 0), "{usage:?}");
        }
        outcomes
    }
}
