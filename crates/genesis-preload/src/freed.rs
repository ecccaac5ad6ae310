//! The blocks of a device that were freed and are not given back to Genesis yet.
//!
//! They are kept in batches. The open batch, `waiting`, takes what is freed now. It is closed
//! before a wait begins, because work that this wait does not cover may use what is freed during
//! it. A closed batch is given back when each device that may use its blocks has been waited for:
//!
//! ```text
//! closed(batch) < start(wait of d)  and the wait has succeeded   =>  d uses none of the batch
//! ```
//!
//! Until then its blocks are still known to be freed, so that freeing one of them again is found.
//! They are forgotten before Genesis has them, because it may hand one out at once.
//!
//! **Bounds.** [`MOST_BLOCKS`] blocks, or an eighth of the live bytes and at least [`FLOOR_BYTES`]:
//! the memory put aside is a small part of the memory in use. A wait that the driver refuses
//! doubles both until one succeeds.
//!
//! **Lock**: one for each device, held for a few instructions; nothing is called under it.

use std::collections::HashSet;
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::genesis::{Block, Found, Genesis};
use crate::short_lock::{Guard, ShortLock};
use crate::{handed, process};

/// How many blocks wait at most: the wait costs microseconds, which is then a few nanoseconds a
/// block (`benches/interposition.rs`).
const MOST_BLOCKS: usize = 512;
/// How many bytes may always wait.
const FLOOR_BYTES: u64 = 64 << 20;
/// The part of the live bytes that may wait.
const LIVE_PART: u64 = 8;
/// How many times as many blocks may wait for other devices. The bound on bytes stays the same,
/// because bytes that wait are missing elsewhere.
const ELSEWHERE_BLOCKS: usize = 4;
/// How many closed batches are kept apart.
const MOST_CLOSED: usize = 8;

/// Orders batches closed and waits begun.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// The next moment.
pub(crate) fn tick() -> u64 {
    CLOCK.fetch_add(1, SeqCst)
}

/// The blocks of a device that were freed and not given back.
pub(crate) struct Freed(ShortLock<State>);

struct State {
    /// Those freed since the last wait began.
    waiting: Batch,
    /// Older ones: for waits under way, or for devices not waited for yet.
    closed: Vec<Batch>,
    /// An empty batch, with the host memory of an earlier one.
    spare: Batch,
    /// Batches that were taken out and that Genesis does not have yet.
    under_way: usize,
    /// How many blocks and bytes may wait.
    most_blocks: usize,
    most_bytes: u64,
}

/// Blocks that were freed since a wait began.
pub(crate) struct Batch {
    addresses: Vec<u64>,
    /// The first `indexed` of them as a set, which finds a block freed again.
    set: HashSet<u64, BuildHasherDefault<AddressHasher>>,
    indexed: usize,
    bytes: u64,
    /// Of a closed batch: a moment after the last of them was freed.
    closed: u64,
    /// Of a closed batch: the devices to be waited for, as a bit set.
    devices: u64,
}

/// The result of freeing a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It waits.
    Waits,
    /// It waits, and it is time to give blocks back.
    IsDue,
    /// It was freed before.
    Twice,
}

/// Why blocks are to be given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Many wait.
    Bounds,
    /// Memory is short.
    Memory,
}

impl Batch {
    const fn new() -> Self {
        let set = HashSet::with_hasher(BuildHasherDefault::new());
        Self { addresses: Vec::new(), set, indexed: 0, bytes: 0, closed: 0, devices: 0 }
    }

    fn clear(&mut self) {
        self.set.clear();
        self.indexed = 0;
        self.addresses.clear();
        self.bytes = 0;
    }

    fn contains(&mut self, address: u64) -> bool {
        self.set.extend(&self.addresses[self.indexed..]);
        self.indexed = self.addresses.len();
        self.set.contains(&address)
    }

    fn add(&mut self, other: &Self) {
        self.addresses.extend(&other.addresses);
        self.bytes += other.bytes;
        self.closed = self.closed.max(other.closed);
        self.devices |= other.devices;
    }
}

impl State {
    /// Returns true if the block at `address` has been freed.
    fn contains(&mut self, address: u64) -> bool {
        let batches = self.closed.iter_mut().chain([&mut self.waiting]);
        batches.into_iter().any(|batch| batch.contains(address))
    }

    /// Puts a block aside.
    #[inline]
    fn push(&mut self, address: u64, bytes: u64) -> Added {
        let Self { waiting, most_blocks, most_bytes, .. } = self;
        waiting.addresses.push(address);
        waiting.bytes += bytes;
        let is_due = waiting.addresses.len() >= *most_blocks || waiting.bytes > *most_bytes;
        if is_due { Added::IsDue } else { Added::Waits }
    }

    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.closed.iter().chain([&self.waiting])
    }
}

impl Freed {
    pub(crate) const fn new() -> Self {
        Self(ShortLock::new(State {
            waiting: Batch::new(),
            closed: Vec::new(),
            spare: Batch::new(),
            under_way: 0,
            most_blocks: MOST_BLOCKS,
            most_bytes: FLOOR_BYTES,
        }))
    }

    #[inline]
    fn lock(&self) -> Guard<'_, State> {
        self.0.lock()
    }

    /// Puts a block aside of which Genesis was asked.
    pub(crate) fn add(&self, block: &Block) -> Added {
        let mut state = self.lock();
        if state.contains(block.address) {
            return Added::Twice;
        }
        handed::take(block.address);
        state.push(block.address, block.allocated_bytes as u64)
    }

    /// Puts a block aside that was handed out lately (`handed`): one that is still there has not
    /// been freed.
    #[inline]
    pub(crate) fn add_handed(&self, address: u64, requested_bytes: usize) -> Added {
        let mut state = self.lock();
        if !handed::take(address) {
            return Added::Twice;
        }
        state.push(address, requested_bytes as u64)
    }

    /// Returns true if the block at `address` has been freed.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.lock().contains(address)
    }

    /// Returns true if any block waits.
    pub(crate) fn is_any(&self) -> bool {
        self.lock().batches().any(|batch| !batch.addresses.is_empty())
    }

    /// The bytes put aside, which are free to the program, as `genesis` has them.
    pub(crate) fn bytes(&self, genesis: &Genesis) -> usize {
        let addresses: Vec<u64> = {
            let state = self.lock();
            state.batches().flat_map(|batch| &batch.addresses).copied().collect()
        };
        let bytes_of = |address| match genesis.look_up(address) {
            Found::Block(block) if block.address == address => block.allocated_bytes,
            _ => 0,
        };
        addresses.into_iter().map(bytes_of).sum()
    }

    /// All blocks are gone.
    pub(crate) fn forget(&self) {
        let batches = self.take_all();
        self.lock().under_way -= batches.len();
    }

    /// Takes all batches out, to be given back.
    pub(crate) fn take_all(&self) -> Vec<Batch> {
        let mut state = self.lock();
        let waiting = mem::replace(&mut state.waiting, Batch::new());
        let closed = mem::take(&mut state.closed);
        let batches: Vec<Batch> = closed.into_iter().chain([waiting]).collect();
        state.under_way += batches.len();
        batches
    }

    /// A wait is about to begin: it does not cover what is freed from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if state.waiting.addresses.is_empty() {
            return;
        }
        let next = mem::replace(&mut state.spare, Batch::new());
        let batch = mem::replace(&mut state.waiting, next);
        let batch = Batch { closed: tick(), devices: u64::MAX, ..batch };
        let is_full = state.closed.len() >= MOST_CLOSED;
        match state.closed.last_mut().filter(|_| is_full) {
            Some(last) => last.add(&batch),
            None => state.closed.push(batch),
        }
    }

    /// Since the batches were closed, no other devices than `active` can have used the blocks.
    pub(crate) fn narrow(&self, active: u64) {
        self.lock().closed.iter_mut().for_each(|batch| batch.devices &= active);
    }

    /// A wait for `device` that began at `start` has succeeded. Takes out the batches that no
    /// device uses any more, to be given back.
    pub(crate) fn end_wait(&self, device: c_int, start: u64) -> Vec<Batch> {
        let mut state = self.lock();
        for batch in state.closed.iter_mut().filter(|batch| batch.closed < start) {
            batch.devices &= !(1 << device);
        }
        let batches: Vec<Batch> = state.closed.extract_if(.., |batch| batch.devices == 0).collect();
        state.under_way += batches.len();
        batches
    }

    /// Returns true if something was taken out that Genesis does not have yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.lock().under_way > 0
    }

    /// A wait was refused: the next one comes later.
    pub(crate) fn postpone(&self) {
        let mut state = self.lock();
        state.most_blocks = state.most_blocks.saturating_mul(2);
        state.most_bytes = state.most_bytes.saturating_mul(2);
    }

    /// The devices to be waited for before all closed batches can be given back; none if `need`
    /// does not ask for that.
    pub(crate) fn wanted(&self, need: Need) -> u64 {
        let state = self.lock();
        let devices = state.closed.iter().fold(0, |devices, batch| devices | batch.devices);
        let blocks: usize = state.closed.iter().map(|batch| batch.addresses.len()).sum();
        let bytes: u64 = state.closed.iter().map(|batch| batch.bytes).sum();
        let is_wanted = need == Need::Memory
            || blocks / ELSEWHERE_BLOCKS >= state.most_blocks
            || bytes > state.most_bytes;
        if is_wanted { devices } else { 0 }
    }

    /// Gives the blocks of `batch`, which nothing uses any more, back to Genesis.
    pub(crate) fn give_back(&self, device: c_int, mut batch: Batch) {
        let Some(genesis) = process::genesis_if_open() else {
            self.lock().under_way -= 1;
            return;
        };
        genesis.free_all(&batch.addresses);
        let live_bytes = genesis.live_bytes(device);
        batch.clear();
        let mut state = self.lock();
        state.under_way -= 1;
        state.spare = batch;
        state.most_blocks = MOST_BLOCKS;
        state.most_bytes = FLOOR_BYTES.max(live_bytes / LIVE_PART);
    }
}

/// Spreads addresses, which are multiples of 512.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 << 8 | u64::from(byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        // Fibonacci hashing: the table takes its bits from both ends.
        let product = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}
