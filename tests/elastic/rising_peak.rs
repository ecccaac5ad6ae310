//! A program that grows in each cycle gets more memory instead of moving it.

use genesis::base::size::{GIB, MIB};

use crate::ADDRESSES;
use crate::strangers::elsewhere;
use crate::support::{A, B, Rig};

/// Some whole extents.
const BLOCK_BYTES: u64 = 64 * MIB;
const BLOCKS: usize = 64;
/// As many as tell a program that grows from one whose sizes are random.
const CYCLES: usize = 16;

/// A program of whose blocks all have been freed.
struct Scene {
    rig: Rig,
    blocks: usize,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { rig: ADDRESSES.plan().capacity(80 * GIB).start(), blocks: BLOCKS };
        scene.cycle(0);
        scene.cycle(0);
        scene
    }

    /// Returns how much more is held once the blocks are allocated, `freed` of them that lie side by
    /// side are freed, and a block too large for the hole is allocated.
    fn cycle(&self, freed: usize) -> u64 {
        let mut blocks: Vec<u64> =
            (0..self.blocks).map(|_| self.rig.allocate(BLOCK_BYTES, A)).collect();
        blocks.drain(10..10 + freed).for_each(|block| self.rig.free(block));
        let before = self.rig.reserved_bytes();
        if freed > 0 {
            blocks.push(self.rig.allocate(freed as u64 * BLOCK_BYTES + 16 * MIB, A));
        }
        let more_bytes = self.rig.reserved_bytes() - before;
        blocks.into_iter().for_each(|block| self.rig.free(block));
        more_bytes
    }

    /// Each cycle needs `more` blocks than the one before it.
    fn with_cycles(mut self, more: usize) -> Self {
        for _ in 0..CYCLES {
            self.blocks += more;
            self.cycle(0);
        }
        self
    }

    /// In each cycle another thread happens to need more than in any before, on its own stream.
    fn with_cycles_beside_another_thread(self) -> Self {
        for count in 1..=CYCLES {
            let mut others = Vec::new();
            std::thread::scope(|scope| {
                let more = (0..count).map(|_| self.rig.allocate(BLOCK_BYTES, B));
                elsewhere(scope, || others.extend(more));
            });
            self.cycle(0);
            others.into_iter().for_each(|block| self.rig.free(block));
        }
        self
    }
}

#[test]
fn memory_is_moved_only_while_the_peak_does_not_rise() {
    for (more, is_moved) in [(0, true), (1, false)] {
        let scene = Scene::new().with_cycles(more);
        assert_eq!(scene.cycle(4) < 4 * BLOCK_BYTES, is_moved, "{more} more in each cycle");
        scene.rig.finish();
    }
    let scene = Scene::new().with_cycles(1).with_cycles(0);
    assert!(scene.cycle(4) < 4 * BLOCK_BYTES, "it has stopped growing");
    scene.rig.finish();
}

#[test]
fn what_another_thread_needs_raises_no_peak_of_this_one() {
    let scene = Scene::new().with_cycles_beside_another_thread();
    assert!(scene.cycle(4) < 4 * BLOCK_BYTES);
    scene.rig.finish();
}
