//! What threads cost each other that replay the same recorded program on streams of their own.
//!
//! ```text
//! cargo bench --features ablations --bench lanes -- TRACE[,TRACE…] THREADS PASSES SEED TURN [together]
//! ```
//!
//! The threads take turns of at most TURN calls, whose lengths the seed decides, so that counts are
//! the same everywhere. How far each has come differs from pass to pass, as if they ran at once.
//! Nothing contends. With `together`, lanes lend each other memory whoever calls them (`Part::Apart`
//! is left out). The machine is simulated, with 1 TiB, an H100's prices and work that completes at
//! once.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::mpsc::{Receiver, Sender, channel};

use genesis::base::StreamHandle;
use genesis::config::PoolType;
use genesis::heap::ablation::{Part as PolicyPart, leave_out};
use genesis_replay::program::{Call, Kind, Program};
use simgpu::{Call as DriverCall, Usage};
use support::host_memory::Counting;
use support::replay::{perform, recorded, rig_for};
use support::{Random, Rig};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The calls of the driver that are shown.
const SHOWN: [DriverCall; 6] = [
    DriverCall::Create,
    DriverCall::Map,
    DriverCall::Unmap,
    DriverCall::EventRecord,
    DriverCall::EventQuery,
    DriverCall::StreamWait,
];

/// A thread that is told where a turn begins and how many calls it has, and tells when it is done.
type Thread = (Sender<(usize, usize)>, Receiver<()>);

/// One thread's part of a program.
struct Part {
    calls: Vec<Call>,
    pointers: Vec<u64>,
    /// Its streams' handles begin here.
    first_stream: usize,
}

impl Part {
    /// Makes `count` calls from the one numbered `start`.
    fn play(&mut self, rig: &Rig, start: usize, count: usize) {
        let end = self.calls.len().min(start + count);
        for call in &self.calls[start..end] {
            let stream = StreamHandle(self.first_stream + usize::from(call.stream) * 0x100);
            perform(&rig.heap, call, stream, &mut self.pointers[call.slot as usize]).unwrap();
        }
    }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [names, threads, passes, seed, longest_turn, rest @ ..] = &arguments[..] else {
        return eprintln!("usage: TRACE[,TRACE…] THREADS PASSES SEED TURN [together]");
    };
    leave_out(rest.first().map(|_| PolicyPart::Apart));
    let number = |text: &String| text.parse::<u64>().expect("a number");
    for name in names.split(',') {
        let turns = Turns { random: Random(number(seed)), longest: number(longest_turn) };
        run(name, number(threads) as usize, number(passes), turns);
    }
}

/// How many calls a thread makes before the next one's turn.
struct Turns {
    random: Random,
    longest: u64,
}

fn run(name: &str, threads: usize, passes: u64, mut turns: Turns) {
    let program = recorded(name);
    let rig = rig_for(PoolType::Elastic, program.device_count);
    let calls = part_calls(&program);
    std::thread::scope(|scope| {
        let crew: Vec<Thread> = (0..threads)
            .map(|thread| {
                let mut part = Part {
                    calls: calls.clone(),
                    pointers: vec![0; program.slot_count],
                    first_stream: 0xA000 + thread * 0x10000,
                };
                let (tell, told) = channel();
                let (answer, answers) = channel();
                let rig = rig.clone();
                scope.spawn(move || {
                    for (start, count) in told {
                        part.play(&rig, start, count);
                        answer.send(()).unwrap();
                    }
                });
                (tell, answers)
            })
            .collect();
        let mut live = Live::default();
        let mut warm_ns = 0;
        for pass in 0..passes {
            let (before, misses) = (rig.usage(), rig.statistics().misses);
            let mut done = vec![0; threads];
            let rate = |_| 900 + turns.random.below(200);
            let rates: Vec<u64> = (0..threads).map(rate).collect();
            while done.iter().any(|&done| done < calls.len()) {
                for (thread, (tell, answers)) in crew.iter().enumerate() {
                    let turn = rates[thread] * (1 + turns.random.below(turns.longest)) / 1000;
                    let end = calls.len().min(done[thread] + turn as usize);
                    tell.send((done[thread], end - done[thread])).unwrap();
                    answers.recv().unwrap();
                    calls[done[thread]..end].iter().for_each(|call| live.follow(call));
                    done[thread] = end;
                }
            }
            let after = rig.usage();
            let ns = after.driver_nanoseconds - before.driver_nanoseconds;
            warm_ns += if pass > 0 { ns } else { 0 };
            if pass + 1 == passes {
                let held_bytes = rig.statistics().reserved_bytes.peak as f64;
                println!(
                    "{name} × {threads}: held {:.4} of the live peak, {:.4} of {threads} × one; {:.1} ms a warm \
                     pass; last: {}, {} misses",
                    held_bytes / live.peak_bytes as f64,
                    held_bytes / (program.live_peak_bytes * threads as u64) as f64,
                    warm_ns as f64 / 1e6 / (passes.max(2) - 1) as f64,
                    shown(&before, &after),
                    rig.statistics().misses - misses,
                );
            }
        }
    });
}

fn part_calls(program: &Program) -> Vec<Call> {
    let calls = program.calls.iter().chain(&program.leftovers);
    calls.filter(|call| call.kind != Kind::EmptyCache).copied().collect()
}

fn shown(before: &Usage, after: &Usage) -> String {
    let words = SHOWN.map(|call| format!("{call:?} {}", after.count(call) - before.count(call)));
    words.join(", ")
}

/// The live bytes of all threads, as requested.
#[derive(Default)]
struct Live {
    bytes: u64,
    peak_bytes: u64,
}

impl Live {
    fn follow(&mut self, call: &Call) {
        match call.kind {
            Kind::Allocate => self.bytes += call.requested_bytes,
            Kind::Free => self.bytes -= call.requested_bytes,
            Kind::RecordStream | Kind::EmptyCache => {}
        }
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }
}
