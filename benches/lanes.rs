//! What threads cost each other that replay the same recorded program on streams of their own.
//!
//! ```text
//! cargo bench --features ablations --bench lanes -- TRACE[,TRACE…] THREADS PASSES SEED TURN [together]
//! ```
//!
//! The threads take turns of at most TURN calls, whose lengths the seed decides (`tests/support/turns.rs`).
//! With `together`, lanes lend each other memory whoever calls them (`Part::Apart` is left out). The
//! machine is simulated, with 1 TiB, an H100's prices and work that completes at once.

#[path = "../tests/support/mod.rs"]
mod support;

use genesis::config::PoolType;
use genesis::heap::ablation::{Part, leave_out};
use simgpu::{Call, Usage};
use support::host_memory::Counting;
use support::replay::{recorded, rig_for};
use support::turns::{Turns, take_turns};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The calls of the driver that are shown.
const SHOWN: [Call; 6] =
    [Call::Create, Call::Map, Call::Unmap, Call::EventRecord, Call::EventQuery, Call::StreamWait];

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [names, threads, passes, seed, longest, rest @ ..] = &arguments[..] else {
        return eprintln!("usage: TRACE[,TRACE…] THREADS PASSES SEED TURN [together]");
    };
    leave_out(rest.first().map(|_| Part::Apart));
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let turns =
        Turns { threads: number(threads) as usize, seed: number(seed), longest: number(longest) };
    for name in names.split(',') {
        run(name, turns, number(passes) as usize);
    }
}

fn run(name: &str, turns: Turns, passes: usize) {
    let threads = turns.threads;
    let program = recorded(name);
    let rig = rig_for(PoolType::Elastic, program.device_count);
    // As the machine and the heap have counted after each pass.
    let mut counts = Vec::new();
    take_turns(&rig, &program, turns, passes, || counts.push((rig.usage(), rig.statistics())));
    let [(first, _), .., (before_last, before), (last, after)] = &counts[..] else {
        return eprintln!("PASSES is at least 3");
    };
    let held_bytes = after.reserved_bytes.peak as f64;
    println!(
        "{name} × {threads}: held {:.4} of the live peak, {:.4} of {threads} × one; {:.1} ms a warm \
         pass; last: {}, {} misses",
        held_bytes / after.requested_bytes.peak as f64,
        held_bytes / (program.live_peak_bytes * threads as u64) as f64,
        (last.driver_nanoseconds - first.driver_nanoseconds) as f64 / 1e6 / (passes - 1) as f64,
        shown(before_last, last),
        after.misses - before.misses,
    );
}

fn shown(before: &Usage, after: &Usage) -> String {
    let words = SHOWN.map(|call| format!("{call:?} {}", after.count(call) - before.count(call)));
    words.join(", ")
}
