//! Threads of one stream that want what only free edges of extents can serve, and lend the same ones.
//!
//! A device was full, and every second block of it was freed. Extents are pages of 2 MiB, and what stays
//! and the holes begin or end in the middle of one. No two live blocks have a byte in common: each is
//! marked all over, and still is when it is freed. In the end all that is whole is there again, and edges.

use genesis::base::Status;
use genesis::base::size::MIB;
use genesis::config::PoolType;
use simgpu::StoreKind;

use crate::support::{A, DEVICE, Random, Rig, Subject, schedules::explore};

const KEPT_BYTES: u64 = 3 * MIB;
const HOLE_BYTES: u64 = 4 * MIB;
const HOLES: u64 = 8;
const CAPACITY_BYTES: u64 = HOLES * (KEPT_BYTES + HOLE_BYTES);
/// What is free at first, the most of a request, in MiB; …
const MOST_MIB: u64 = HOLES * HOLE_BYTES / MIB;
/// … and what of it are whole extents: each block that stays has an edge beside it, of a mebibyte.
const WHOLE_MIB: u64 = MOST_MIB - HOLES;
/// The most of every second request: once all that is whole is used, two edges serve two.
const SMALL_MIB: u64 = 3;
/// The steps of a thread, and its live blocks at most.
const STEPS: u64 = 40;
const MOST_LIVE: usize = 6;
/// Marks are so many bytes apart. Each edge has some.
const MARKS_APART: usize = 256 << 10;

#[test]
fn edges_are_lent_once() {
    explore(|seed| {
        let mut random = Random(seed);
        let rig = Subject::new(PoolType::Elastic, StoreKind::RealBytes)
            .plan()
            .capacity(CAPACITY_BYTES)
            .start();
        let (kept, holes): (Vec<_>, Vec<_>) = (0..HOLES)
            .map(|number| {
                let kept = Marked::allocate(&rig, KEPT_BYTES, number).expect("there is room");
                (kept, rig.allocate(HOLE_BYTES, A))
            })
            .unzip();
        holes.into_iter().for_each(|hole| rig.free(hole));
        let threads = (1..=2 + random.below(2)).map(|thread| {
            let (rig, random) = (rig.clone(), Random(random.next()));
            shuttle::thread::spawn(move || allocate_and_free(&rig, random, thread * STEPS))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let over_edges = Marked::allocate(&rig, (WHOLE_MIB + 1) * MIB, HOLES);
        over_edges.expect("an edge is lent").check_and_free(&rig);
        kept.into_iter().for_each(|block| block.check_and_free(&rig));
        rig.finish();
    });
}

/// What a thread does: blocks of any size, marked with the numbers from `first` on.
fn allocate_and_free(rig: &Rig, mut random: Random, first: u64) {
    let mut live: Vec<Marked> = Vec::new();
    for number in first..first + STEPS {
        if live.len() < MOST_LIVE && random.below(3) > 0 {
            let most_mib = if random.below(2) == 0 { MOST_MIB } else { SMALL_MIB };
            let bytes = (1 + random.below(most_mib)) * MIB;
            live.extend(Marked::allocate(rig, bytes, number));
        } else if !live.is_empty() {
            let index = random.below(live.len() as u64) as usize;
            live.swap_remove(index).check_and_free(rig);
        }
    }
    live.into_iter().for_each(|block| block.check_and_free(rig));
}

/// A block in which its number stands all over.
struct Marked {
    address: u64,
    bytes: u64,
    number: u64,
}

impl Marked {
    /// `None` if there is no memory for it.
    fn allocate(rig: &Rig, bytes: u64, number: u64) -> Option<Self> {
        match rig.heap.allocate(bytes, DEVICE, A) {
            Ok(address) => {
                let block = Self { address, bytes, number };
                // SAFETY: within a live block of real bytes, which nobody else uses.
                block.places().for_each(|place| unsafe { place.write(number) });
                Some(block)
            }
            Err(error) => {
                assert_eq!(error.status, Status::OutOfMemory, "{error}");
                None
            }
        }
    }

    fn check_and_free(self, rig: &Rig) {
        // SAFETY: within a live block of real bytes, which nobody else should use.
        let is_marked = |place: *mut u64| unsafe { place.read() } == self.number;
        assert!(self.places().all(is_marked), "the block at {:#x} has changed", self.address);
        rig.free(self.address);
    }

    fn places(&self) -> impl Iterator<Item = *mut u64> {
        let addresses = (self.address..self.address + self.bytes).step_by(MARKS_APART);
        addresses.map(|address| address as *mut u64)
    }
}
