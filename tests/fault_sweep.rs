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

#[path = "fault_sweep/moving.rs"]
mod moving;
mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, Error, Status, StreamHandle};
use genesis::config::{DebugModes, ElasticPolicy, PoolType, Settings};
use genesis::heap::PoolId;
use genesis::observe::Statistics;
use simgpu::{Access, Call, CaptureMode, Code, StoreKind, Target, Times, Usage};

use support::{A, B, C, DEVICE, Random, Rig, Subject, tier};

/// The kinds of call the program makes of the heap's driver.
const KINDS: [Call; 20] = [
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
    Call::StreamWait,
    Call::StreamIsCapturing,
    Call::StreamGetId,
    Call::StreamGetContext,
    Call::Synchronize,
    Call::Fill,
    Call::CopyToHost,
];
/// Those it makes of its own.
const OWN_KINDS: [Call; 4] =
    [Call::StreamCreate, Call::StreamDestroy, Call::BeginCapture, Call::EndCapture];
/// Requests that a shortage may refuse: nothing may be waited for or given back.
const BESIDE_A_CAPTURE: &str = "beside a capture";
const BESIDE_CAPTURES: [&str; 3] = [BESIDE_A_CAPTURE, "captured", "captured again"];
/// Calls by which memory comes back, is known to be free, or gets addresses to move to: if one
/// fails, memory may be short.
const FINDING: [Call; 9] = [
    Call::MemoryInfo,
    Call::Free,
    Call::Reserve,
    Call::Release,
    Call::Unmap,
    Call::EventQuery,
    Call::StreamIsCapturing,
    Call::StreamGetContext,
    Call::Synchronize,
];
const UNKNOWN: Code = Code(12345);
const SHUT_DOWN: Code = Code(4);
/// On every change, the calls of each kind that fail in all ways: the first so many.
const FIRST_CALLS: u64 = 4;
/// And the most of the later ones, each of which fails in one of the ways.
const LATER_CALLS: u64 = 12;

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
fn elastic() {
    sweep(PoolType::Elastic, GENERAL);
}

/// A second program, in which memory moves.
#[test]
fn elastic_moving_memory() {
    let seen = sweep(PoolType::Elastic, MOVING);
    assert_eq!(
        seen,
        Seen { grown: true, moved: true, stolen: true, restored: true, dropped: true }
    );
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

/// One step of the program and how it ended.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    step: &'static str,
    /// What was live before, in bytes.
    live_bytes: u64,
    /// The error; `None` for success.
    status: Option<Status>,
    /// Whether the fault had struck when the step ended, and whether it first did so in this step.
    is_struck: bool,
    is_struck_now: bool,
}

type Outcomes = Vec<Outcome>;

fn statuses(outcomes: &Outcomes) -> impl Iterator<Item = Option<Status>> {
    outcomes.iter().map(|outcome| outcome.status)
}

/// From the `nth` call of a kind on, so many fail.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: Call,
    nth: u64,
    code: Code,
    times: Times,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}, {}, {:?}", self.call.name(), self.nth, self.code, self.times)
    }
}

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
    /// And shadows were unmapped on the way.
    dropped: bool,
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

/// Before the fault strikes, a step ends as it does without it. From then on a step may fail where
/// it did not before: with the status that the code means, or as [`is_consequence`] allows.
fn judge(what: &str, fault: Fault, outcomes: &Outcomes, expected: &Outcomes) {
    assert_eq!(outcomes.len(), expected.len(), "{what}");
    assert!(outcomes.last().is_some_and(|last| last.is_struck), "{what}: it never struck");
    let is_shortage = fault.code == Code::OUT_OF_MEMORY;
    let meaning = if is_shortage { Status::OutOfMemory } else { Status::DriverFailed };
    for (outcome, before) in outcomes.iter().zip(expected) {
        let is_right = outcome.status == before.status
            || outcome.is_struck
                && (outcome.status.is_none()
                    || outcome.status == Some(meaning)
                    || is_consequence(fault, outcome, before));
        assert!(is_right, "{what}: {outcome:?}, where there was {before:?}");
        // One shortage that passes costs no request anything: the ladder helps, except where
        // nothing may be waited for or given back.
        if is_shortage && fault.call == Call::Allocate && fault.times == Times::Once {
            let is_helped = outcome.status == before.status || outcome.step == BESIDE_A_CAPTURE;
            assert!(is_helped, "{what}: the ladder should have helped: {outcome:?}");
        }
    }
}

/// A shortage that `fault` brought about: more is live than without it, or the call was one of
/// those in [`FINDING`]. One that failed once has an effect in its own step, and in later ones only
/// where a capture forbids to look again.
fn is_consequence(fault: Fault, outcome: &Outcome, before: &Outcome) -> bool {
    let lasts = fault.times == Times::Forever
        || outcome.is_struck_now
        || BESIDE_CAPTURES.contains(&outcome.step);
    outcome.status == Some(Status::OutOfMemory)
        && (outcome.live_bytes > before.live_bytes || FINDING.contains(&fault.call) && lasts)
}

/// The program, on its way.
struct Run {
    rig: Rig,
    outcomes: Outcomes,
    /// Start → end of each live block.
    live: BTreeMap<u64, u64>,
    seen: Seen,
    fault: Option<Fault>,
    is_struck: bool,
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
        let mut run = Self { rig, outcomes, live, seen, fault, is_struck };
        (program.run)(&mut run);
        run
    }

    fn use_everything(&mut self) {
        self.grow_and_use_across_streams();
        self.move_between_streams();
        self.run_short();
        self.free_all();
        self.give_a_handle_again();
        self.use_a_stream_of_another_context();
        self.free_all();
        self.run_short_beside_a_capture();
    }

    fn grow_and_use_across_streams(&mut self) {
        let small = [(); 3].map(|()| self.allocate("small", 700, A));
        self.free("small", small[1]);
        let kept = self.allocate("kept", 8 * MIB, A);
        let shared = self.allocate_unused("shared", 8 * MIB, A);
        for stream in [B, C] {
            self.read_elsewhere("shared", shared, (0, stream));
        }
        self.free("shared", shared);
        self.rig.run(B);
        self.rig.run(C);
        self.allocate("after B and C", 8 * MIB, A);
        self.free("kept", kept);
        let direct = self.allocate("direct", 6 * MIB, A);
        let address = direct.unwrap_or(0); // which is freed by doing nothing
        self.live.remove(&address);
        self.note("direct", self.rig.heap.free_directly(address).map(drop));
    }

    fn move_between_streams(&mut self) {
        let given = self.allocate("given", 12 * MIB, A);
        self.free("given", given);
        let first = self.allocate("asks for a fence", 12 * MIB, B);
        self.allocate("makes the fence", 700, A);
        let second = self.allocate("waits for the fence", 12 * MIB, B);
        self.free("first", first);
        self.free("second", second);
    }

    fn run_short(&mut self) {
        self.note("trim", self.rig.heap.trim(DEVICE, 40 * MIB).map(drop));
        self.note("compact", self.rig.heap.compact(DEVICE).map(drop));
        self.allocate("too much", 100 * MIB, A);
        let large = self.allocate("all that is left", 36 * MIB, C);
        self.allocate("what is not there", 30 * MIB, A);
        self.free("large", large);
        self.allocate("from a stream that never called again", 36 * MIB, B);
        self.note("collect", self.rig.heap.collect_garbage(DEVICE).map(drop));
        self.note("information", self.rig.heap.memory_info(DEVICE).map(drop));
        self.note("empty", self.rig.heap.empty_cache(DEVICE).map(drop));
        self.allocate("afresh", 700, C);
    }

    /// A stream is destroyed while its work is outstanding, and the next has its handle: once with
    /// a word before, once without.
    fn give_a_handle_again(&mut self) {
        for is_told in [false, true] {
            let old = StreamHandle(self.rig.machine.stream_create(0, false).unwrap());
            let kept = self.allocate("of a stream that ends", 8 * MIB, old);
            let freed = self.allocate("of a stream that ends", 8 * MIB, old);
            self.free("of a stream that ends", freed);
            let shared = self.allocate_unused("used by it", 4 * MIB, A);
            self.read_elsewhere("used by it", shared, (0, old));
            if is_told {
                self.note("forget", self.rig.heap.forget_stream(old));
            } else {
                self.free("used by it", shared);
            }
            self.rig.machine.stream_destroy(0, old.0).unwrap();
            let new = StreamHandle(self.rig.machine.stream_create(0, false).unwrap());
            assert_eq!(new, old, "the handle is given again");
            let other = self.allocate("of the next stream", 8 * MIB, new);
            if is_told {
                self.free("used by the stream before", shared);
            }
            self.free("of the next stream", other);
            self.free("of a stream that has ended", kept);
            self.allocate("of a stream that lasts", 700, A);
            self.note("forget the next", self.rig.heap.forget_stream(new));
            self.rig.machine.stream_destroy(0, new.0).unwrap();
        }
        let all = self.allocate("what they had", 40 * MIB, B);
        self.free("what they had", all);
    }

    fn use_a_stream_of_another_context(&mut self) {
        let context = self.rig.machine.context_create(0).unwrap();
        let foreign = StreamHandle(self.rig.machine.stream_create(context, false).unwrap());
        let shared = self.allocate_unused("used in another context", 16 * MIB, A);
        self.read_elsewhere("used in another context", shared, (context, foreign));
        self.free("used in another context", shared);
        let own = self.allocate_unused("of another context", 12 * MIB, foreign);
        if let Some(address) = own {
            let machine = &self.rig.machine;
            machine.touch(context, foreign.0, address, MIB, Access::Write, "foreign").unwrap();
        }
        self.free("of another context", own);
        let large = self.allocate("what both contexts used", 48 * MIB, B);
        self.free("what both contexts used", large);
    }

    /// Another thread captures, and has said so.
    fn run_short_beside_a_capture(&mut self) {
        let waits = self.allocate_unused("waits for the reader", 12 * MIB, A);
        self.read_elsewhere("waits for the reader", waits, (0, B));
        self.note("begin a capture", self.rig.heap.begin_capture(DEVICE));
        let (rig, told) = (self.rig.clone(), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
                told.wait();
                told.wait();
                rig.machine.end_capture(0, C.0).expect("nothing has disturbed it");
            });
            told.wait();
            self.free("waits for the reader", waits);
            self.allocate(BESIDE_A_CAPTURE, 4 * MIB, C);
            let much = self.allocate(BESIDE_A_CAPTURE, 60 * MIB, A);
            self.free(BESIDE_A_CAPTURE, much);
            self.note("empty", self.rig.heap.empty_cache(DEVICE).map(drop));
            told.wait();
        });
        self.note("end the capture", self.rig.heap.end_capture(DEVICE));
        let after = self.allocate("after the capture", 32 * MIB, A);
        self.free("after the capture", after);
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
            machine.touch(context, stream.0, address, MIB, Access::Read, "reader").unwrap();
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
        self.seen.dropped |= made(Call::Unmap) && !made(Call::Release);
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
        self.outcomes.push(Outcome { step, live_bytes, status, is_struck, is_struck_now });
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
        self.rig.finish();
        outcomes
    }
}
