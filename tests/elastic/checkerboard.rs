//! pytorch#35901 to the letter: a full device of which every second block is freed serves one
//! request for all that was freed, and the blocks in between keep their bytes.
//!
//! Every block is written by work on its stream, which stands still, so that the race detector
//! sees whether memory that moved is used in order; and where the store has bytes, by the host,
//! through the addresses it has at the time.

use genesis::base::size::{GIB, KIB, MIB};
use genesis::base::{Status, StreamHandle};
use simgpu::{StoreKind, Work};

use crate::support::{A, B, C, DEVICE, Random, Rig, Subject, is_filled, tier};
use crate::{ADDRESSES, REAL};

const D: StreamHandle = StreamHandle(0xD000);
const STREAMS: [StreamHandle; 4] = [A, B, C, D];
/// Little enough to fill with bytes again and again.
const CAPACITY_BYTES: u64 = 192 * MIB;

/// On every change the one whose blocks have bytes.
fn both_stores() -> &'static [Subject] {
    tier::some_or_all(&[REAL][..], &[ADDRESSES, REAL])
}

#[test]
fn blocks_of_a_page() {
    for &subject in both_stores() {
        rounds(subject, &STREAMS[..1], |_| 2 * MIB);
    }
}

#[test]
fn blocks_of_eight_pages() {
    for &subject in both_stores() {
        rounds(subject, &STREAMS[..1], |_| 16 * MIB);
    }
}

#[test]
fn blocks_of_any_number_of_pages() {
    for &subject in both_stores() {
        rounds(subject, &STREAMS[..1], |random| (1 + random.below(12)) * 2 * MIB);
    }
}

#[test]
fn blocks_of_a_page_on_four_streams() {
    for &subject in both_stores() {
        rounds(subject, &STREAMS, |_| 2 * MIB);
    }
}

#[test]
fn blocks_of_eight_pages_on_four_streams() {
    for &subject in both_stores() {
        rounds(subject, &STREAMS, |_| 16 * MIB);
    }
}

#[test]
fn blocks_of_any_number_of_pages_on_four_streams() {
    for &subject in both_stores() {
        rounds(subject, &STREAMS, |random| (1 + random.below(12)) * 2 * MIB);
    }
}

/// A device of a size that exists. A program that only grows gets extents of 64 MiB, and an extent
/// moves only when no block in it is live: what every second block leaves cannot serve one request
/// of as many bytes. It serves blocks of the size that was freed.
#[test]
fn a_large_device() {
    for bytes in [2 * MIB, 6 * MIB, 16 * MIB, 50 * MIB] {
        let mut board = large_board(bytes);
        board.fill_with(bytes);
        let freed_bytes = board.free_every_second();
        board.refuse(freed_bytes);
        // All but what the refused request has left in pieces.
        (0..freed_bytes / bytes * 98 / 100).for_each(|_| board.allocate(bytes, A));
        board.finish();
    }
}

/// Blocks that fill whole extents leave extents that can move: those made while there was room.
#[test]
fn a_large_device_of_large_blocks() {
    let mut board = large_board(1);
    board.fill_with(128 * MIB);
    let freed_bytes = board.free_every_second();
    board.allocate(freed_bytes / 2, A);
    board.finish();
}

/// A device of 80 GiB for one stream; `seed` says which blocks are freed.
fn large_board(seed: u64) -> Board<'static> {
    let rig = ADDRESSES.plan().capacity(80 * GIB).start();
    Board::new(rig, &STREAMS[..1], Random(seed))
}

/// Streams that have been asked for events before lend their memory with no wait of the host:
/// the stream that takes it waits, on the device.
#[test]
fn what_other_streams_have_freed_is_taken_behind_their_events() {
    for &subject in both_stores() {
        let rig = subject.plan().capacity(CAPACITY_BYTES).start();
        let mut board = Board::new(rig, &STREAMS, Random(7));
        (0..32).for_each(|n| board.allocate(4 * MIB, STREAMS[n % 4]));
        let freed_bytes = board.free_every_second();
        // A miss beside them, while there is other memory, asks them for events; the next call
        // on each makes one.
        board.allocate(freed_bytes, A);
        for stream in [B, C, D] {
            board.allocate(4 * KIB, stream);
        }
        // All but the rests of the pages of the small blocks.
        let pages = board.free_bytes() / (2 * MIB) - 2;
        (0..pages).for_each(|_| board.allocate(2 * MIB, A));
        assert_eq!(board.rig.usage().host_waits.explicit, 0);
        assert!(board.rig.statistics().cross_stream_reuses >= 3);
        board.rig.machine.advance(0, A.0, 10_000).unwrap();
        assert_ne!(board.rig.machine.pending(0, A.0).unwrap(), 0, "A waits for the others");
        for stream in [B, C, D] {
            board.rig.run(stream);
        }
        board.rig.machine.advance(0, A.0, 10_000).unwrap();
        assert_eq!(board.rig.machine.pending(0, A.0).unwrap(), 0, "and no more");
        board.finish();
    }
}

/// Fills the device, makes holes, asks for them as one, and so again on what has come of it.
fn rounds(subject: Subject, streams: &[StreamHandle], bytes_of: fn(&mut Random) -> u64) {
    for seed in 1..=2 {
        let rig = subject.plan().capacity(CAPACITY_BYTES).start();
        let mut board = Board::new(rig, streams, Random(seed));
        for round in 0..4 {
            board.fill(bytes_of);
            let freed_bytes = board.free_every_second();
            board.allocate(freed_bytes, streams[round % streams.len()]);
            assert_eq!(board.rig.reserved_bytes(), CAPACITY_BYTES, "nothing was given back");
            board.check_bytes();
            // Half of the blocks, the large one among them as it comes, make room for the next.
            board.free_every_second();
        }
        board.finish();
    }
}

/// A device and what is live on it.
struct Board<'a> {
    rig: Rig,
    streams: &'a [StreamHandle],
    random: Random,
    blocks: Vec<Block>,
    count: u64,
    /// Requests that were refused, as they had to be.
    refusals: u64,
}

/// A live block and what its bytes were made.
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    bytes: u64,
    mark: u8,
}

impl<'a> Board<'a> {
    fn new(rig: Rig, streams: &'a [StreamHandle], random: Random) -> Self {
        Self { rig, streams, random, blocks: Vec::new(), count: 0, refusals: 0 }
    }

    /// Blocks of sizes that `bytes_of` says, on each stream in turn, until none fits.
    fn fill(&mut self, bytes_of: impl Fn(&mut Random) -> u64) {
        loop {
            let free_bytes = self.free_bytes();
            let bytes = bytes_of(&mut self.random).min(free_bytes / (2 * MIB) * 2 * MIB);
            if bytes == 0 {
                return;
            }
            let stream = self.streams[self.count as usize % self.streams.len()];
            self.allocate(bytes, stream);
        }
    }

    /// Blocks of `bytes` on the first stream, as long as some pieces of free memory are left over.
    fn fill_with(&mut self, bytes: u64) {
        while self.free_bytes() >= 8 * bytes {
            self.allocate(bytes, self.streams[0]);
        }
    }

    /// A request that cannot be served.
    #[track_caller]
    fn refuse(&mut self, bytes: u64) {
        assert_eq!(self.rig.refusal(bytes, self.streams[0]), Status::OutOfMemory);
        self.refusals += 1;
    }

    fn free_bytes(&self) -> u64 {
        self.rig.machine.config().devices[0].capacity_bytes
            - self.rig.statistics().allocated_bytes.current
    }

    /// A block that must be had.
    #[track_caller]
    fn allocate(&mut self, bytes: u64, stream: StreamHandle) {
        let address = self.rig.allocate(bytes, stream);
        let touched = self.rig.machine.touch(0, stream.0, Work::write(address, bytes, "board"));
        touched.unwrap();
        self.count += 1;
        let block = Block { address, bytes, mark: self.count as u8 };
        if self.rig.machine.store() == StoreKind::RealBytes {
            // SAFETY: a live block of so many bytes, which nobody else knows.
            unsafe { std::ptr::write_bytes(address as *mut u8, block.mark, bytes as usize) };
        }
        self.blocks.push(block);
    }

    /// Frees one of each two blocks; returns the bytes freed.
    fn free_every_second(&mut self) -> u64 {
        self.blocks.sort_by_key(|block| block.address);
        let first = self.random.below(2) as usize;
        let (freed, kept) = (self.blocks.iter().enumerate())
            .partition::<Vec<(usize, &Block)>, _>(|(index, _)| index % 2 == first);
        let freed_bytes = freed.iter().map(|(_, block)| block.bytes).sum();
        freed.iter().for_each(|(_, block)| self.rig.free(block.address));
        self.blocks = kept.into_iter().map(|(_, block)| *block).collect();
        freed_bytes
    }

    fn check_bytes(&self) {
        if self.rig.machine.store() != StoreKind::RealBytes {
            return;
        }
        for &Block { address, bytes, mark } in &self.blocks {
            // SAFETY: a live block of so many bytes, which nobody writes now.
            let held = unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
            assert!(is_filled(held, mark), "the block at {address:#x} has changed");
        }
    }

    fn finish(self) {
        self.check_bytes();
        assert_eq!(self.rig.statistics().out_of_memory_events, self.refusals);
        self.rig.heap.validate().unwrap();
        assert!(self.rig.heap.compact(DEVICE).is_ok());
        self.rig.finish();
    }
}
