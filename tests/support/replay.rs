//! Recorded programs, replayed on a heap in this process.

use std::fs;
use std::path::{Path, PathBuf};

use genesis::base::size::GIB;
use genesis::base::{DeviceOrdinal, Error, StreamHandle};
use genesis::config::{ElasticPolicy, PoolType, StreamIds};
use genesis::heap::Heap;
use genesis::observe::EventStream;
use genesis_replay::gtr::{self, Record};
use genesis_replay::program::{Call, Kind, Program};
use genesis_replay::varied::varied;
use simgpu::{Prices, Progress, StoreKind};

use super::{A, Plan, Rig, Subject};

/// Room for every program under every strategy.
pub const DEVICE_BYTES: u64 = 1024 * GIB;
/// After so many passes a program's heap has all it needs.
const WARM_UP_PASSES: usize = 4;
/// So many passes of a program are measured.
pub const MEASURED_PASSES: u32 = 12;
/// The recorded programs. The first is so small that a granule here and there weighs much.
pub const RECORDED: [&str; 8] = [
    "alternating",
    "bert_large_var",
    "diffusion_buckets",
    "fsdp_streams",
    "gpt2_train",
    "llama1b_full_var",
    "llama7b_lora_ckpt",
    "opt13_recompute_var",
];

/// The recorded program `name`.
pub fn recorded(name: &str) -> Program {
    Program::prepare(&records_of(name)).unwrap()
}

/// The same program with other sizes, different ones for each `seed`.
pub fn recorded_with_other_sizes(name: &str, seed: u64) -> Program {
    Program::prepare(&varied(&records_of(name), seed)).unwrap()
}

fn records_of(name: &str) -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.gtr.zst"));
    gtr::read_file(&path).unwrap()
}

/// The programs of a folder of traces, with their names.
pub fn programs_in(folder: &Path) -> Vec<(String, Program)> {
    let entries = fs::read_dir(folder).expect("the folder of traces can be read");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let program = gtr::read_file(&path).and_then(|records| Program::prepare(&records));
        (path.display().to_string(), program.expect("the folder has traces only"))
    };
    paths.into_iter().map(read).collect()
}

/// What came of [`MEASURED_PASSES`] passes of a program.
pub struct Outcome {
    /// Most held / most live, over all passes.
    pub held: f64,
    /// Driver time of the first pass, in milliseconds.
    pub cold_ms: f64,
    /// That of the others on average.
    pub warm_ms: f64,
}

/// Measures `program` under Elastic's policy `policy`, on devices of `device_bytes` at the prices of
/// `list`; `None` if a request is refused.
pub fn measure(
    program: &Program,
    policy: ElasticPolicy,
    list: Prices,
    device_bytes: u64,
) -> Option<Outcome> {
    let mut replay = Replay::at_prices(program, policy, list, device_bytes);
    let driver_ms = |replay: &Replay<'_>| replay.rig.usage().driver_nanoseconds as f64 / 1e6;
    replay.pass().ok()?;
    let cold_ms = driver_ms(&replay);
    (1..MEASURED_PASSES).try_for_each(|_| replay.pass().ok())?;
    let warm_ms = (driver_ms(&replay) - cold_ms) / f64::from(MEASURED_PASSES - 1);
    let held_bytes = replay.rig.statistics().reserved_bytes.peak;
    Some(Outcome { held: held_bytes as f64 / program.live_peak_bytes as f64, cold_ms, warm_ms })
}

/// The geometric mean of what is held.
pub fn mean_held<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> f64 {
    let (count, logarithms) = outcomes
        .into_iter()
        .fold((0.0, 0.0), |(count, sum), outcome| (count + 1.0, sum + outcome.held.ln()));
    f64::exp(logarithms / count)
}

/// A heap over devices with addresses only, whose work completes at once.
pub fn rig_for(pool_type: PoolType, devices: usize) -> Rig {
    rig_on(pool_type, devices, DEVICE_BYTES)
}

/// The same, with one device, and reporting to `events`.
pub fn rig_for_events(pool_type: PoolType, events: &'static EventStream) -> Rig {
    start(plan_on(pool_type, 1, DEVICE_BYTES).events(events))
}

fn rig_on(pool_type: PoolType, devices: usize, device_bytes: u64) -> Rig {
    start(plan_on(pool_type, devices, device_bytes))
}

fn plan_on(pool_type: PoolType, devices: usize, device_bytes: u64) -> Plan {
    let subject = Subject::new(pool_type, StoreKind::AddressesOnly);
    subject.plan().devices(devices, device_bytes)
}

fn start(mut plan: Plan) -> Rig {
    plan.machine.detect_races = false;
    plan.machine.progress = Progress::Automatic;
    plan.start()
}

/// A program with the heap it runs on and a place for each pointer.
pub struct Replay<'a> {
    pub rig: Rig,
    pub program: &'a Program,
    pointers: Vec<u64>,
}

impl<'a> Replay<'a> {
    /// A program that has not started.
    pub fn new(program: &'a Program, pool_type: PoolType) -> Self {
        Self::on(program, pool_type, DEVICE_BYTES)
    }

    /// The same under Elastic's policy `policy`.
    pub fn under(program: &'a Program, policy: ElasticPolicy) -> Self {
        Self::under_on(program, policy, DEVICE_BYTES)
    }

    /// The same on devices of `device_bytes`.
    pub fn under_on(program: &'a Program, policy: ElasticPolicy, device_bytes: u64) -> Self {
        let plan = plan_on(PoolType::Elastic, program.device_count, device_bytes);
        let rig = start(plan.set(|settings| settings.elastic_policy = policy));
        Self { program, rig, pointers: vec![0; program.slot_count] }
    }

    /// The same on devices of `device_bytes`.
    pub fn on(program: &'a Program, pool_type: PoolType, device_bytes: u64) -> Self {
        let rig = rig_on(pool_type, program.device_count, device_bytes);
        Self { program, rig, pointers: vec![0; program.slot_count] }
    }

    /// The same at the prices of `list`. Like PyTorch's, its streams are never destroyed, so nobody asks
    /// for their numbers.
    pub fn at_prices(
        program: &'a Program,
        policy: ElasticPolicy,
        list: Prices,
        device_bytes: u64,
    ) -> Self {
        let plan = plan_on(PoolType::Elastic, program.device_count, device_bytes);
        let mut plan = plan.set(|settings| {
            settings.elastic_policy = policy;
            settings.stream_ids = StreamIds::Off;
        });
        plan.machine.costs = list.table();
        Self { program, rig: start(plan), pointers: vec![0; program.slot_count] }
    }

    /// A program that its heap knows.
    pub fn warm(program: &'a Program, pool_type: PoolType) -> Self {
        let mut replay = Self::new(program, pool_type);
        replay.passes(WARM_UP_PASSES);
        replay
    }

    /// So many passes.
    #[track_caller]
    pub fn passes(&mut self, count: usize) {
        (0..count).for_each(|_| self.pass().unwrap());
    }

    /// The whole program once, to its last free, but for giving memory back: what a program
    /// gives back it must ask for again.
    pub fn pass(&mut self) -> Result<(), Error> {
        let calls = self.program.calls.iter().chain(&self.program.leftovers);
        for call in calls.filter(|call| call.kind != Kind::EmptyCache) {
            self.call(call)?;
        }
        Ok(())
    }

    /// The same, with a call of `end_step` at the end of each iteration.
    pub fn pass_in_steps(&mut self, mut end_step: impl FnMut(&Rig)) -> Result<(), Error> {
        let program = self.program;
        let mut ends = program.iteration_ends.iter().peekable();
        for (index, call) in program.calls.iter().chain(&program.leftovers).enumerate() {
            if call.kind != Kind::EmptyCache {
                self.call(call)?;
            }
            while ends.next_if(|end| end.calls <= index + 1).is_some() {
                end_step(&self.rig);
            }
        }
        Ok(())
    }

    /// The program as it was recorded, up to where the recording ends.
    pub fn run(&mut self) -> Result<(), Error> {
        self.program.calls.iter().try_for_each(|call| self.call(call))
    }

    fn call(&mut self, call: &Call) -> Result<(), Error> {
        // Stream 0 of the trace is the main one; the machine makes streams of any handle.
        let stream = StreamHandle(A.0 + usize::from(call.stream) * 0x100);
        perform(&self.rig.heap, call, stream, &mut self.pointers[call.slot as usize])
    }
}

/// Makes `call` on `stream`, with the place for its block's pointer.
pub fn perform(
    heap: &Heap,
    call: &Call,
    stream: StreamHandle,
    pointer: &mut u64,
) -> Result<(), Error> {
    let device = DeviceOrdinal(u32::from(call.device));
    match call.kind {
        Kind::Allocate => *pointer = heap.allocate(call.requested_bytes, device, stream)?,
        Kind::Free => heap.free(*pointer)?,
        Kind::RecordStream => heap.record_stream(*pointer, stream)?,
        Kind::EmptyCache => drop(heap.empty_cache(device)?),
    }
    Ok(())
}
