//! The fence behind `cudaFree`: one wait for the device for many blocks.
//!
//! CUDA's `cudaFree` waits until nothing uses the memory. Here a freed block is put aside, and
//! nobody gets it before the device has been waited for after that: when the program waits for it
//! of its own accord, when many blocks or many bytes have come together, or when a request would
//! fail otherwise. So programs that free and allocate in turns wait once for hundreds of blocks.
//!
//! **Bounds.** [`MOST_BLOCKS`] blocks, or an eighth of what is live and at least [`FLOOR_BYTES`]:
//! the memory put aside is a small part of the memory in use. A wait that the driver refuses
//! doubles both until one succeeds; the blocks stay aside.
//!
//! **While any stream is captured** nothing is waited for: the driver would end the capture.
//!
//! **Order.** A batch is taken out before the wait begins, as what is freed during it may be used
//! by work that it does not cover, and is given to Genesis after the wait. In between the blocks
//! are still known to be freed, so that freeing one of them again is found; they are forgotten
//! before Genesis has them, as it may hand one out at once.
//!
//! **Lock**: one for each device, held for a few instructions and while nothing is called.

use std::collections::HashSet;
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{self, Device};
use crate::driver_api::SUCCESS;
use crate::genesis::Block;
use crate::{capture, inside, process, report};

/// How many blocks wait at most: the wait costs microseconds, which is then a few nanoseconds a
/// block (`benches/interposition.rs`).
const MOST_BLOCKS: usize = 512;
/// How many bytes may wait however few are live.
const FLOOR_BYTES: u64 = 64 << 20;
/// The part of the live bytes that may wait.
const LIVE_PART: u64 = 8;

/// The blocks of a device that were freed and not given back.
pub(crate) struct Freed(Mutex<State>);

struct State {
    /// Those that no wait under way is for.
    waiting: Batch,
    /// Those of the waits under way.
    under_way: Vec<Batch>,
    /// An empty batch, which has the host memory of one before.
    spare: Batch,
    /// How many blocks and bytes may wait.
    most_blocks: usize,
    most_bytes: u64,
}

/// Blocks that were freed since a wait began.
struct Batch {
    /// As a set, to find what is freed again, and in order.
    set: HashSet<u64, BuildHasherDefault<AddressHasher>>,
    addresses: Vec<u64>,
    bytes: u64,
}

/// What freeing a block came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It waits.
    Waits,
    /// It waits, and it is time to give blocks back.
    IsDue,
    /// It was freed before.
    Twice,
}

impl Batch {
    const fn new() -> Self {
        let set = HashSet::with_hasher(BuildHasherDefault::new());
        Self { set, addresses: Vec::new(), bytes: 0 }
    }

    fn clear(&mut self) {
        self.set.clear();
        self.addresses.clear();
        self.bytes = 0;
    }
}

impl State {
    /// Whether a wait under way is for the block at `address`.
    fn is_under_way(&self, address: u64) -> bool {
        self.under_way.iter().any(|batch| batch.set.contains(&address))
    }

    /// Takes out of the waits under way the one for the batch that begins with `first`.
    fn end_wait(&mut self, first: u64) -> Option<Batch> {
        let index = self.under_way.iter().position(|batch| batch.addresses.first() == Some(&first));
        index.map(|index| self.under_way.swap_remove(index))
    }
}

impl Freed {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            waiting: Batch::new(),
            under_way: Vec::new(),
            spare: Batch::new(),
            most_blocks: MOST_BLOCKS,
            most_bytes: FLOOR_BYTES,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a block aside.
    #[inline]
    pub(crate) fn add(&self, block: &Block) -> Added {
        let mut state = self.lock();
        let is_under_way = state.is_under_way(block.address);
        let State { waiting, most_blocks, most_bytes, .. } = &mut *state;
        if is_under_way || !waiting.set.insert(block.address) {
            return Added::Twice;
        }
        waiting.addresses.push(block.address);
        waiting.bytes += block.allocated_bytes as u64;
        let is_due = waiting.addresses.len() >= *most_blocks || waiting.bytes > *most_bytes;
        if is_due { Added::IsDue } else { Added::Waits }
    }

    /// Whether the block at `address` has been freed.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let state = self.lock();
        state.is_under_way(address) || state.waiting.set.contains(&address)
    }

    /// Whether any block waits that no wait under way is for.
    fn is_any_waiting(&self) -> bool {
        !self.lock().waiting.addresses.is_empty()
    }

    /// The bytes put aside, which the program takes for free.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.lock();
        state.under_way.iter().chain([&state.waiting]).map(|batch| batch.bytes).sum()
    }

    /// All blocks are gone.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        state.under_way.clear();
    }

    /// A wait begins: what is freed from now on is not for it. `None` if nothing was freed, else
    /// the first block, which names the batch.
    fn begin_wait(&self) -> Option<u64> {
        let mut state = self.lock();
        let first = *state.waiting.addresses.first()?;
        let next = mem::replace(&mut state.spare, Batch::new());
        let batch = mem::replace(&mut state.waiting, next);
        state.under_way.push(batch);
        Some(first)
    }

    /// The device could not be waited for.
    fn put_back(&self, first: u64) {
        let mut state = self.lock();
        let Some(batch) = state.end_wait(first) else { return };
        let State { waiting, most_blocks, most_bytes, .. } = &mut *state;
        waiting.set.extend(&batch.addresses);
        waiting.addresses.extend(&batch.addresses);
        waiting.bytes += batch.bytes;
        *most_blocks = waiting.addresses.len() * 2;
        *most_bytes = waiting.bytes * 2;
    }

    /// Nothing uses the blocks any more.
    fn give_back(&self, device: c_int, first: u64) {
        let batch = self.lock().end_wait(first);
        let (Some(mut batch), Some(genesis)) = (batch, process::genesis_if_open()) else { return };
        for &address in &batch.addresses {
            genesis.free(address);
        }
        let live_bytes = genesis.live_bytes(device);
        batch.clear();
        let mut state = self.lock();
        state.spare = batch;
        state.most_blocks = MOST_BLOCKS;
        state.most_bytes = FLOOR_BYTES.max(live_bytes / LIVE_PART);
    }
}

/// Lets `wait` wait for `device`, and gives back what was freed before; its answer.
pub(crate) fn around_wait(device: Option<&'static Device>, wait: impl FnOnce() -> c_int) -> c_int {
    let first = device.and_then(|device| device.freed.begin_wait());
    let status = wait();
    if let (Some(device), Some(first)) = (device, first) {
        match status {
            SUCCESS => device.freed.give_back(device.ordinal(), first),
            _ => device.freed.put_back(first),
        }
    }
    status
}

/// Waits for a device, and gives back what was freed before; whether anything was.
#[cold]
pub(crate) fn retire(ordinal: c_int) -> bool {
    let Some(device) = device::get(ordinal).filter(|device| !device.is_lost()) else {
        return false;
    };
    if capture::is_any() || !device.freed.is_any_waiting() {
        return false;
    }
    report::fenced();
    let _inside = inside::enter();
    around_wait(Some(device), || device.synchronize().unwrap_or(-1)) == SUCCESS
}

/// At the end of the process, when nothing is allocated any more: gives back what waits, so that
/// Genesis does not take it for live.
pub(crate) fn end() {
    device::for_each_seen(|device| {
        if let Some(first) = device.freed.begin_wait() {
            device.freed.give_back(device.ordinal(), first);
        }
    });
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
