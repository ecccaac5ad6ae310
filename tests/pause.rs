//! Memory paused and resumed by tag, on both stores and under the race detector.
//!
//! A [`Scene`] is a heap with blocks of two tags and of none, on two streams, each filled with
//! bytes of its own where there are bytes. Every case ends by comparing them all, and with a
//! [`Rig::finish`], by which nothing is left behind, no host memory either.

#[path = "pause/backups.rs"]
mod backups;
#[path = "pause/basics.rs"]
mod basics;
#[path = "pause/blocks.rs"]
mod blocks;
#[path = "pause/failures.rs"]
mod failures;
#[path = "pause/pools.rs"]
mod pools;
#[path = "pause/progress.rs"]
mod progress;
#[path = "pause/sharing.rs"]
mod sharing;
mod support;

use genesis::base::StreamHandle;
use genesis::base::size::{KIB, MIB};
use genesis::config::PoolType;
use simgpu::StoreKind;

use support::{A, B, DEVICE, Plan, Rig, Subject, is_filled};

const WEIGHTS: &str = "weights";
const CACHE: &str = "cache";
/// Small blocks, some of a page, blocks that share extents and blocks with one of their own.
const SIZES_BYTES: [u64; 7] = [300, 70 * KIB, 2 * MIB, 700 * KIB, 3 * MIB + 512, 24 * MIB, 5 * MIB];

/// A block, and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    pub address: u64,
    pub bytes: u64,
    pub stream: StreamHandle,
    pub pattern: u8,
}

/// A heap with blocks of two tags and of none.
struct Scene {
    pub rig: Rig,
    pub weights: Vec<Held>,
    pub cache: Vec<Held>,
    pub untagged: Vec<Held>,
}

fn subject(store: StoreKind) -> Subject {
    Subject::new(PoolType::Elastic, store)
}

impl Scene {
    pub fn new(store: StoreKind) -> Self {
        Self::on(subject(store).plan())
    }

    pub fn on(plan: Plan) -> Self {
        let rig = plan.start();
        let mut scene = Self { rig, weights: Vec::new(), cache: Vec::new(), untagged: Vec::new() };
        for (number, bytes) in SIZES_BYTES.into_iter().enumerate() {
            let stream = if number % 2 == 0 { A } else { B };
            let pattern = 1 + 3 * number as u8;
            scene.weights.push(scene.rig.hold(Some(WEIGHTS), bytes, stream, pattern));
            scene.cache.push(scene.rig.hold(Some(CACHE), bytes, stream, pattern + 1));
            scene.untagged.push(scene.rig.hold(None, bytes, stream, pattern + 2));
        }
        // Free parts next to live ones.
        for number in [4, 1] {
            scene.rig.free(scene.weights.remove(number).address);
        }
        scene
    }

    /// All that is not of the tag `WEIGHTS` is as it was.
    #[track_caller]
    pub fn check_others(&self) {
        for held in self.cache.iter().chain(&self.untagged) {
            self.rig.check_held(held);
        }
    }

    /// Everything is as it was, and can be used.
    #[track_caller]
    pub fn check_all(&self) {
        self.check_others();
        for held in &self.weights {
            self.rig.check_held(held);
            self.rig.touch(held.address, held.stream);
        }
        self.rig.check();
    }

    #[track_caller]
    pub fn finish(self) {
        self.check_all();
        self.rig.finish_without_host_memory();
    }
}

impl Rig {
    /// A block of the tag, with work queued on it, and then with bytes in it.
    #[track_caller]
    pub fn hold(&self, tag: Option<&str>, bytes: u64, stream: StreamHandle, pattern: u8) -> Held {
        if let Some(tag) = tag {
            self.heap.begin_tag(tag).unwrap();
        }
        let address = self.allocate_and_touch(bytes, stream);
        if tag.is_some() {
            self.heap.end_tag().unwrap();
        }
        self.filled(Held { address, bytes, stream, pattern })
    }

    /// The block, with its bytes in it.
    pub fn filled(&self, held: Held) -> Held {
        if self.has_bytes() {
            let Held { address, bytes, pattern, .. } = held;
            // SAFETY: a live block of so many bytes, which nobody else knows.
            unsafe { std::ptr::write_bytes(address as *mut u8, pattern, bytes as usize) };
        }
        held
    }

    fn has_bytes(&self) -> bool {
        self.machine.store() == StoreKind::RealBytes
    }

    /// The block is there, with its bytes.
    #[track_caller]
    pub fn check_held(&self, held: &Held) {
        let block = self.heap.block_containing(held.address).unwrap();
        assert_eq!((block.address, block.requested_bytes), (held.address, held.bytes));
        if self.has_bytes() {
            // SAFETY: a live block of so many bytes, which has its memory.
            let bytes = unsafe {
                std::slice::from_raw_parts(held.address as *const u8, held.bytes as usize)
            };
            assert!(is_filled(bytes, held.pattern), "{held:?} has changed");
        }
    }

    #[track_caller]
    pub fn pause(&self, tag: &str, keep_contents: bool) {
        self.heap.pause(tag, keep_contents).unwrap();
        self.check();
    }

    #[track_caller]
    pub fn resume(&self, tag: &str) {
        self.heap.resume(tag).unwrap();
        self.check();
    }

    pub fn host_bytes(&self) -> u64 {
        self.machine.census().host_bytes
    }

    #[track_caller]
    pub fn finish_without_host_memory(self) {
        let machine = self.machine.clone();
        for block in self.heap.largest_allocations(DEVICE, 0).unwrap() {
            self.free(block.address);
        }
        assert_eq!(machine.census().host_bytes, 0);
        self.finish();
        let census = machine.census();
        assert_eq!((census.mappings, census.reservations), (0, 0), "{census:?}");
    }
}

/// Makes every case a test on each store.
#[macro_export]
macro_rules! on_both_stores {
    ($($case:ident)*) => {
        mod real {
            $(#[test] fn $case() { super::$case(simgpu::StoreKind::RealBytes); })*
        }
        mod addresses {
            $(#[test] fn $case() { super::$case(simgpu::StoreKind::AddressesOnly); })*
        }
    };
}
