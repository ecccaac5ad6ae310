//! The profile of a program that never ran, for tests and for looking at the forms.
//!
//! The program trains a model. It allocates parameters, then runs steps: a forward pass that keeps
//! activations, a backward pass that frees them, and at times a gathering of gradients on a second
//! stream, a trim, or a request that fails. Lengths vary, so memory becomes fragmented. The same
//! [`Shape`] always makes the same profile, and every sum in it agrees with its events.

#![allow(dead_code, reason = "each user of the sample needs a part of it")]

mod heap;

use genesis_profile::model::{Action, FORMAT, Frame, Profile, Site};
use heap::{Call, Heap};

const MIB: u64 = 1 << 20;

/// The names of annotations and the call sites, by index.
const NAMES: [&str; 6] = ["step", "forward", "backward", "optimizer", "checkpoint", "kv cache"];
const SITES: [(&str, &str, u32); 10] = [
    ("", "", 0),
    ("Embedding.__init__", "/srv/train/model.py", 31),
    ("Attention.forward", "/srv/train/model.py", 112),
    ("Mlp.forward", "/srv/train/model.py", 164),
    ("softmax", "/srv/train/ops.py", 57),
    ("cross_entropy", "/srv/train/loss.py", 18),
    ("Attention.backward", "/srv/train/autograd.py", 203),
    ("Mlp.backward", "/srv/train/autograd.py", 241),
    ("Adam.step", "/srv/train/optimizer.py", 77),
    ("all_gather", "/srv/train/comm.py", 40),
];

/// The size of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of events.
    pub events: usize,
    /// The number of latest events that the history keeps.
    pub kept: usize,
    /// The number of devices; the events are spread over them.
    pub devices: u32,
    /// Whether events have call sites.
    pub has_sites: bool,
}

/// The profile of one device with `events` events and call sites.
pub fn profile(events: usize) -> Profile {
    shaped(Shape { events, kept: events, devices: 1, has_sites: true })
}

/// The profile of a shape.
pub fn shaped(shape: Shape) -> Profile {
    let mut heap = Heap::new(shape.devices.max(1), shape.events);
    Training { heap: &mut heap, random: 0x9e37_79b9_7f4a_7c15, has_sites: shape.has_sites }.run();
    let mut profile = heap.into_profile(shape.has_sites);
    profile.format = FORMAT.to_owned();
    profile.genesis_version = env!("CARGO_PKG_VERSION").to_owned();
    profile.program = "python train.py --layers 24 --lengths mixed".to_owned();
    profile.process_id = 4711;
    profile.started_unix_ns = 1_790_000_000_000_000_000;
    profile.strategy = "Caching".to_owned();
    profile.backend = "simulated".to_owned();
    profile.names = NAMES.map(str::to_owned).to_vec();
    let sites = if shape.has_sites { &SITES[..] } else { &SITES[..1] };
    profile.sites =
        sites.iter().map(|&(function, file, line)| site(function, file, line)).collect();
    heap::forget_oldest(&mut profile, shape.kept);
    profile
}

fn site(function: &str, file: &str, line: u32) -> Site {
    if file.is_empty() {
        return Site::default();
    }
    let frame = |function: &str, file: &str, line| Frame {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    };
    let outer = frame("train", "/srv/train/train.py", 88);
    Site { frames: vec![frame(function, file, line), outer, frame("main", "train.py", 130)] }
}

struct Training<'h> {
    heap: &'h mut Heap,
    random: u64,
    has_sites: bool,
}

impl Training<'_> {
    const LAYERS: usize = 24;

    fn run(&mut self) {
        for device in 0..self.heap.devices() {
            for layer in 0..Self::LAYERS {
                let mib = if layer == 0 { 500 } else { 192 };
                self.allocate(device, 0, mib * MIB, 1);
            }
        }
        let mut step = 0;
        while !self.heap.is_full() {
            for device in 0..self.heap.devices() {
                self.step(device, step);
            }
            step += 1;
        }
    }

    fn step(&mut self, device: u32, step: u64) {
        let length = 512 + self.below(1500) + self.below(2100) * u64::from(step % 7 == 3);
        self.heap.note(Action::RangePush, device, 0, 0);
        self.heap.note(Action::RangePush, device, 1, 0);
        let mut kept = Vec::new();
        for _ in 0..Self::LAYERS {
            let scores = self.allocate(device, 0, length * length * 32 + 100, 4);
            kept.push(self.allocate(device, 0, length * 16384, 2));
            let wide = self.allocate(device, 0, length * 65536, 3);
            self.heap.free(scores, false);
            kept.push(self.allocate(device, 0, length * 40960, 3));
            self.heap.free(wide, false);
            for _ in 0..self.below(6) {
                let bytes = 64 + self.below(40_000);
                kept.push(self.allocate(device, 0, bytes, 5));
            }
        }
        self.heap.note(Action::RangePop, device, 0, 0);
        self.heap.note(Action::RangePush, device, 2, 0);
        while let Some(block) = kept.pop() {
            let bytes = if kept.len() % 2 == 0 { length * 32768 } else { length * 16384 };
            let gradient = self.allocate(device, 0, bytes, 6 + (kept.len() % 2) as u32);
            self.heap.free(block, false);
            self.heap.free(gradient, false);
        }
        self.heap.note(Action::RangePop, device, 0, 0);
        self.heap.note(Action::RangePush, device, 3, 0);
        if step == 0 {
            for _ in 0..2 * Self::LAYERS {
                self.allocate(device, 0, 96 * MIB, 8);
            }
        }
        let buckets: Vec<Call> = (0..4).map(|_| self.allocate(device, 1, 25 * MIB, 9)).collect();
        for bucket in buckets {
            self.heap.free(bucket, true);
        }
        self.heap.note(Action::RangePop, device, 0, 0);
        self.heap.note(Action::RangePop, device, 0, 0);
        if step.is_power_of_two() && step > 4 {
            self.heap.note(Action::Mark, device, 4, 0);
        }
        if (step + 1).is_power_of_two() && step > 20 {
            self.heap.fail(device, 90 << 30);
            self.heap.trim(device);
            self.heap.pass(20_000_000);
        }
        self.heap.note(Action::Iteration, device, 0, step);
    }

    fn allocate(&mut self, device: u32, stream: u32, bytes: u64, site: u32) -> Call {
        let nanoseconds = 400 + self.below(30_000);
        self.heap.pass(nanoseconds);
        let site = if self.has_sites { site } else { 0 };
        self.heap.allocate(device, stream, bytes, site)
    }

    /// A number below `end`, by Marsaglia's xorshift.
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) % end
    }
}
