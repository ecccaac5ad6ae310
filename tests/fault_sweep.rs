//! Every driver call fails in turn: nothing may be lost, nothing may be wrong.
//!
//! A fixed program (growth, cross-stream use, trimming, shortage) runs once to count the calls
//! of each kind that it makes. Then it runs again for each call, with that call failing: once,
//! and from there on until the driver is well again; with a shortage of memory, an unknown
//! code, and the code of a driver that has shut down. Each time:
//!
//! - no step panics, and a step fails as it did before or with the status that the code means;
//! - what a step hands out is a block: not null, and over no other;
//! - afterwards the heap is consistent, serves requests, and gives every byte back.

mod support;

use std::collections::BTreeMap;

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, Error, Status, StreamHandle};
use genesis::config::PoolType;
use simgpu::{Access, Call, Code, StoreKind, Target, Times};

use support::{A, B, C, DEVICE, Rig, Subject};

/// The kinds of call the program makes of the heap's driver.
const KINDS: [Call; 16] = [
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
    Call::Synchronize,
];
const UNKNOWN: Code = Code(12345);
const SHUT_DOWN: Code = Code(4);

#[test]
fn naive() {
    sweep(PoolType::Naive);
}

#[test]
fn round() {
    sweep(PoolType::Round);
}

#[test]
fn exact() {
    sweep(PoolType::Exact);
}

#[test]
fn caching() {
    sweep(PoolType::Caching);
}

#[test]
fn elastic() {
    sweep(PoolType::Elastic);
}

/// What came of each step: `None` for success.
type Outcomes = Vec<(&'static str, Option<Status>)>;

fn sweep(pool_type: PoolType) {
    let reference = Run::start_with(pool_type, |_| {});
    let counts = KINDS.map(|call| reference.rig.usage().count(call));
    let all_calls = reference.rig.calls();
    assert_eq!(counts.iter().sum::<u64>(), all_calls, "a kind of call is not in the list");
    let expected = reference.finish();
    assert!(expected.iter().any(|step| step.1.is_some()), "memory never ran out: {expected:?}");
    let mut absorbed = 0;
    for (call, count) in KINDS.into_iter().zip(counts) {
        for nth in 1..=count {
            for code in [Code::OUT_OF_MEMORY, UNKNOWN, SHUT_DOWN] {
                for times in [Times::Once, Times::Forever] {
                    let what = format!("{pool_type:?}: {} {nth}, {code}, {times:?}", call.name());
                    let run = Run::start_with(pool_type, |rig| {
                        rig.machine.faults().fail(Target::call(call), nth, times, code);
                    });
                    let outcomes = run.finish();
                    judge(&what, &outcomes, &expected, code);
                    absorbed += u64::from(outcomes == expected);
                    if call == Call::Allocate && code == Code::OUT_OF_MEMORY && times == Times::Once
                    {
                        assert_eq!(outcomes, expected, "{what}: the ladder should have helped");
                    }
                }
            }
        }
    }
    assert!(absorbed > 0, "no fault was absorbed");
}

/// A step that fails where it did not before must say what the code means. A fault in looking
/// for memory may also show as its consequence: memory that could not be found.
fn judge(what: &str, outcomes: &Outcomes, expected: &Outcomes, code: Code) {
    assert_eq!(outcomes.len(), expected.len(), "{what}");
    let meaning =
        if code == Code::OUT_OF_MEMORY { Status::OutOfMemory } else { Status::DriverFailed };
    for ((step, outcome), (_, before)) in outcomes.iter().zip(expected) {
        let is_right = match outcome {
            None => true,
            status if status == before => true,
            Some(Status::OutOfMemory) => true,
            Some(status) => *status == meaning,
        };
        assert!(is_right, "{what}: {step} failed with {outcome:?} and not {before:?}");
    }
}

/// The program, on its way.
struct Run {
    rig: Rig,
    outcomes: Outcomes,
    /// Start → end of each live block.
    live: BTreeMap<u64, u64>,
}

impl Run {
    /// Runs the program after `prepare`.
    fn start_with(pool_type: PoolType, prepare: impl FnOnce(&Rig)) -> Self {
        let subject = Subject { pool_type, store: StoreKind::AddressesOnly };
        let rig = subject.plan().capacity(64 * MIB).start();
        prepare(&rig);
        let mut run = Self { rig, outcomes: Vec::new(), live: BTreeMap::new() };
        run.grow_and_use_across_streams();
        run.move_between_streams();
        run.run_short();
        run
    }

    fn grow_and_use_across_streams(&mut self) {
        let small = [(); 3].map(|()| self.allocate("small", 700, A));
        self.free("small", small[1]);
        let kept = self.allocate("kept", 8 * MIB, A);
        let shared = self.claim("shared", 8 * MIB, A);
        for stream in [B, C] {
            let Some(address) = shared else { break };
            self.rig.record(address, stream);
            self.rig.machine.touch(0, stream.0, address, MIB, Access::Read, "reader").unwrap();
        }
        self.free("shared", shared);
        self.rig.run(B);
        self.rig.run(C);
        self.allocate("after B and C", 8 * MIB, A);
        self.free("kept", kept);
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

    /// Allocates a block and uses it.
    fn allocate(&mut self, step: &'static str, bytes: u64, stream: StreamHandle) -> Option<u64> {
        let address = self.claim(step, bytes, stream)?;
        self.rig.touch(address, stream);
        Some(address)
    }

    fn claim(&mut self, step: &'static str, bytes: u64, stream: StreamHandle) -> Option<u64> {
        let allocated = self.rig.heap.allocate(bytes, DEVICE, stream);
        let address = allocated.as_ref().ok().copied();
        self.note(step, allocated.map(drop));
        let start = address?;
        assert!(start != 0 && start % 512 == 0, "{step}: {start:#x}");
        let end = start + bytes;
        let before = self.live.range(..end).next_back();
        assert!(before.is_none_or(|(_, &other_end)| other_end <= start), "{step} overlaps");
        self.live.insert(start, end);
        address
    }

    fn free(&mut self, step: &'static str, address: Option<u64>) {
        let Some(address) = address else {
            return self.outcomes.push((step, None)); // it was never had
        };
        self.live.remove(&address);
        self.note(step, self.rig.heap.free(address));
    }

    fn note(&mut self, step: &'static str, result: Result<(), Error>) {
        self.outcomes.push((step, result.err().map(|error| error.status)));
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
