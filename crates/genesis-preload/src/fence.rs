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
//! are still known to be freed, so that freeing one of them again is found.
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
    /// All of them.
    addresses: HashSet<u64, BuildHasherDefault<AddressHasher>>,
    /// Those that no wait under way is for.
    waiting: Vec<u64>,
    /// The memory of the list before, for the next one.
    spare: Vec<u64>,
    waiting_bytes: u64,
    /// The bytes of all.
    bytes: u64,
    /// How many may wait.
    most_blocks: usize,
    most_bytes: u64,
}

/// Blocks that a wait is for.
pub(crate) struct Batch {
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

impl Freed {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            addresses: HashSet::with_hasher(BuildHasherDefault::new()),
            waiting: Vec::new(),
            spare: Vec::new(),
            waiting_bytes: 0,
            bytes: 0,
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
        if !state.addresses.insert(block.address) {
            return Added::Twice;
        }
        let bytes = block.allocated_bytes as u64;
        state.waiting.push(block.address);
        state.waiting_bytes += bytes;
        state.bytes += bytes;
        let is_due =
            state.waiting.len() >= state.most_blocks || state.waiting_bytes > state.most_bytes;
        if is_due { Added::IsDue } else { Added::Waits }
    }

    /// Whether the block at `address` has been freed.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.lock().addresses.contains(&address)
    }

    /// The bytes put aside, which the program takes for free.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// All blocks are gone.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.addresses.clear();
        state.waiting.clear();
        (state.waiting_bytes, state.bytes) = (0, 0);
    }

    fn take(&self) -> Batch {
        let mut state = self.lock();
        let spare = mem::take(&mut state.spare);
        let addresses = mem::replace(&mut state.waiting, spare);
        Batch { addresses, bytes: mem::take(&mut state.waiting_bytes) }
    }

    /// The device could not be waited for.
    fn put_back(&self, batch: Batch) {
        let mut state = self.lock();
        state.waiting.extend(batch.addresses);
        state.waiting_bytes += batch.bytes;
        state.most_blocks = state.waiting.len() * 2;
        state.most_bytes = state.waiting_bytes * 2;
    }

    /// Nothing uses the blocks any more.
    fn give_back(&self, device: c_int, mut batch: Batch) {
        let Some(genesis) = process::genesis_if_open() else { return };
        {
            let mut state = self.lock();
            for address in &batch.addresses {
                state.addresses.remove(address);
            }
            state.bytes = state.bytes.saturating_sub(batch.bytes);
        }
        for &address in &batch.addresses {
            genesis.free(address);
        }
        let live_bytes = genesis.live_bytes(device);
        batch.addresses.clear();
        let mut state = self.lock();
        state.spare = batch.addresses;
        state.most_blocks = MOST_BLOCKS;
        state.most_bytes = FLOOR_BYTES.max(live_bytes / LIVE_PART);
    }
}

/// Lets `wait` wait for `device`, and gives back what was freed before; its answer.
pub(crate) fn around_wait(device: Option<&'static Device>, wait: impl FnOnce() -> c_int) -> c_int {
    let Some(device) = device else { return wait() };
    let batch = device.freed.take();
    let status = wait();
    match status {
        SUCCESS if batch.addresses.is_empty() => {}
        SUCCESS => device.freed.give_back(device.ordinal(), batch),
        _ => device.freed.put_back(batch),
    }
    status
}

/// Waits for a device, and gives back what was freed before; whether anything was.
#[cold]
pub(crate) fn retire(ordinal: c_int) -> bool {
    let Some(device) = device::get(ordinal).filter(|device| !device.is_lost()) else {
        return false;
    };
    if capture::is_any() || device.freed.lock().waiting.is_empty() {
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
        let batch = device.freed.take();
        device.freed.give_back(device.ordinal(), batch);
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
