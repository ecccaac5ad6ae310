//! Whether memory grows from step to step (`observe::Growth`), of recorded programs: those that
//! repeat themselves are not warned of, and those that leak or grow are, well before memory runs out.

mod support;

use genesis::base::size::MIB;
use genesis::config::PoolType;
use genesis::observe::{Growth, Outlook, Possible};
use genesis_replay::program::Program;
use simgpu::StoreKind;
use support::replay::{Replay, recorded};
use support::{A, B, DEVICE, Rig, Subject, tier};

const TRACES: [&str; 8] = [
    "alternating",
    "fsdp_streams",
    "diffusion_buckets",
    "gpt2_train",
    "bert_large_var",
    "llama1b_full_var",
    "opt13_recompute_var",
    "llama7b_lora_ckpt",
];
/// Nearer ends than this are warned of by default.
const HORIZON: f64 = 1000.0;

/// What is foretold at each step.
#[derive(Default)]
struct Told {
    growth: Growth,
    outlooks: Vec<Option<Outlook>>,
}

impl Told {
    /// Follows device 0 of `rig`, on which so much is possible.
    fn end_step(&mut self, rig: &Rig, possible: Possible) {
        let steps = rig.heap.steps();
        let step = steps.iter().find(|step| step.device == DEVICE).unwrap();
        self.growth.add(step.levels);
        let near = |outlook: &Outlook| outlook.steps_left <= HORIZON;
        self.outlooks.push(self.growth.outlook(possible).filter(near));
    }

    fn first_warning(&self) -> Option<usize> {
        self.outlooks.iter().position(Option::is_some)
    }
}

/// The traces of this run, and how many passes are made of each.
fn plan() -> (&'static [&'static str], usize) {
    tier::some_or_all((&TRACES[..4], 3), (&TRACES[..], 100))
}

fn peak_bytes(program: &Program) -> u64 {
    program.largest_device_peak_bytes
}

#[test]
fn programs_that_repeat_themselves_are_not_warned_of() {
    let (traces, passes) = plan();
    for name in traces {
        let program = recorded(name);
        // Hardly more than they need: whatever grows would be near.
        let bytes = peak_bytes(&program) / 100 * 101;
        let possible = Possible { most_bytes: bytes, fewest_bytes: bytes };
        let mut replay = Replay::new(&program, PoolType::Elastic);
        let (mut iterations, mut by_pass) = (Told::default(), Told::default());
        for _ in 0..passes {
            replay.pass_in_steps(|rig| iterations.end_step(rig, possible)).unwrap();
            by_pass.end_step(&replay.rig, possible);
        }
        let steps = iterations.outlooks.len();
        assert_eq!(iterations.first_warning(), None, "{name}, {steps} iterations");
        assert_eq!(by_pass.first_warning(), None, "{name}, {passes} passes");
        replay.rig.finish();
    }
}

/// The end of memory is no nearer while a block is live, pending or cached.
#[test]
fn what_is_possible_does_not_depend_on_what_becomes_of_a_block() {
    let rig = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly).plan().start();
    let most_bytes = || rig.heap.possible(DEVICE).unwrap().most_bytes;
    let address = rig.allocate(64 * MIB, A);
    let while_live = most_bytes();
    rig.touch(address, B);
    rig.record(address, B);
    rig.free(address);
    let pending_bytes = || {
        let statistics = rig.statistics();
        statistics.active_bytes.current - statistics.allocated_bytes.current
    };
    assert_eq!(pending_bytes(), 64 * MIB);
    assert_eq!(most_bytes(), while_live);
    rig.run(B);
    // The next request finds that it is free.
    let other = rig.allocate(MIB, A);
    rig.free(other);
    assert_eq!((pending_bytes(), most_bytes()), (0, while_live));
    rig.finish();
}

#[test]
fn leaks_are_warned_of_long_before_memory_runs_out() {
    for name in plan().0 {
        let program = recorded(name);
        let leak_bytes = (peak_bytes(&program) / 200).max(2 * MIB) / MIB * MIB;
        let device_bytes = peak_bytes(&program) / 10 * 15 + 60 * leak_bytes;
        let mut replay =
            Replay::on(&program, PoolType::Elastic, device_bytes / (2 * MIB) * 2 * MIB);
        let mut told = Told::default();
        let mut is_short = false;
        while !is_short && told.outlooks.len() < 2000 {
            let failed = replay.pass_in_steps(|rig| {
                let leaked = rig.heap.allocate(leak_bytes, DEVICE, A);
                is_short |= leaked.is_err();
                if !is_short {
                    told.end_step(rig, rig.heap.possible(DEVICE).unwrap());
                }
            });
            is_short |= failed.is_err();
        }
        let (warned, steps) = (told.first_warning(), told.outlooks.len());
        println!("{name}: warned after {warned:?} of {steps} steps");
        let warned = warned.unwrap_or_else(|| panic!("{name}: no warning in {steps} steps"));
        assert!(warned + 20 <= steps, "{name}: after {warned} of {steps} steps");
        // Half way from there to the end it is known that it is a leak, but for a step or two of each
        // pass, whose peak alone seems to grow faster; …
        let half_way = (warned + steps) / 2;
        let is_leak = |step: &usize| told.outlooks[*step].unwrap().is_leak;
        let seen = (half_way..steps).find(is_leak).unwrap();
        assert!(seen <= half_way + 2, "{name}: {seen} instead of {half_way}");
        let leaks = (warned..half_way).filter(is_leak).count();
        assert!(leaks * 10 >= (half_way - warned) * 9, "{name}: {leaks} to {half_way}");
        // … and when the end is.
        let outlook = told.outlooks[seen].unwrap();
        let left = (steps - seen) as f64;
        println!("{left} steps before the end: {outlook:?}");
        let told = outlook.fewest_steps_left * 0.85 - 2.0..=outlook.steps_left * 1.2 + 2.0;
        assert!(told.contains(&left), "{name}, {left}: {outlook:?}");
    }
}
