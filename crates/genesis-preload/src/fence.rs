//! The fence behind `cudaFree`: one wait for the device for many blocks.
//!
//! CUDA's `cudaFree` waits until nothing uses the memory. Here a freed block is put aside, and
//! nobody gets it before the devices that may use it have been waited for after that: when the
//! program waits for them of its own accord, when many blocks or many bytes have come together, or
//! when a request would fail otherwise. So programs that free and allocate in turns wait once for
//! hundreds of blocks.
//!
//! **Several devices.** A peer may be reading a block of this device's, and CUDA's `cudaFree` waits
//! for "all GPUs which have P2P enabled with the local GPU" too (NVIDIA/nccl#744, by NCCL's
//! authors). Memory of Genesis's may be within reach of every device of the process, so a block is
//! given back when each device whose primary context is in use has been waited for, by whomever
//! and in any order. A fence waits for its own device first, and for others only when memory is
//! short or [`Need::Bounds`] is exceeded by what still waits for them: a program with a thread for
//! each device, whose fences serve each other, hardly ever waits for another's.
//!
//! ```text
//! closed(batch) < start(wait of d)  and the wait has succeeded   =>  d uses none of the batch
//! ```
//!
//! **Bounds.** [`MOST_BLOCKS`] blocks, or an eighth of what is live and at least [`FLOOR_BYTES`]:
//! the memory put aside is a small part of the memory in use. A wait that the driver refuses
//! doubles both until one succeeds; the blocks stay aside.
//!
//! **While any stream is captured** nothing is waited for: the driver would end the capture. And
//! none begins between that look and the wait (`capture`).
//!
//! **Order.** A batch is closed before a wait begins, as what is freed during it may be used by work
//! that it does not cover, and is given to Genesis after the wait. In between the blocks are still
//! known to be freed, so that freeing one of them again is found; they are forgotten before Genesis
//! has them, as it may hand one out at once.
//!
//! **Lock**: one for each device, held for a few instructions and while nothing is called.

use std::collections::HashSet;
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device;
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
/// How many times as many blocks may wait for other devices; no more bytes, which are missed.
const ELSEWHERE_BLOCKS: usize = 4;
/// How many closed batches are kept apart.
const MOST_CLOSED: usize = 8;

/// Counts what must be told apart in time: batches closed and waits begun.
static CLOCK: AtomicU64 = AtomicU64::new(0);

fn tick() -> u64 {
    CLOCK.fetch_add(1, SeqCst)
}

/// The blocks of a device that were freed and not given back.
pub(crate) struct Freed(Mutex<State>);

struct State {
    /// Those freed since a wait began last.
    waiting: Batch,
    /// Older ones: for waits under way, or for devices not waited for yet.
    closed: Vec<Batch>,
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
    /// When the last of them was freed, or later; of a closed batch.
    closed: u64,
    /// The devices to be waited for, as a bit set; of a closed batch.
    devices: u64,
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
        Self { set, addresses: Vec::new(), bytes: 0, closed: 0, devices: 0 }
    }

    fn clear(&mut self) {
        self.set.clear();
        self.addresses.clear();
        self.bytes = 0;
    }

    fn add(&mut self, other: &Self) {
        self.set.extend(&other.addresses);
        self.addresses.extend(&other.addresses);
        self.bytes += other.bytes;
        self.closed = self.closed.max(other.closed);
        self.devices |= other.devices;
    }
}

impl State {
    /// Whether the block at `address` is in a closed batch.
    fn is_closed(&self, address: u64) -> bool {
        self.closed.iter().any(|batch| batch.set.contains(&address))
    }

    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.closed.iter().chain([&self.waiting])
    }
}

impl Freed {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            waiting: Batch::new(),
            closed: Vec::new(),
            spare: Batch::new(),
            most_blocks: MOST_BLOCKS,
            most_bytes: FLOOR_BYTES,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a block aside.
    pub(crate) fn add(&self, block: &Block) -> Added {
        let mut state = self.lock();
        let is_under_way = state.is_closed(block.address);
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
        state.is_closed(address) || state.waiting.set.contains(&address)
    }

    /// Whether any block waits.
    fn is_any(&self) -> bool {
        self.lock().batches().any(|batch| !batch.addresses.is_empty())
    }

    /// The bytes put aside, which the program takes for free.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().batches().map(|batch| batch.bytes).sum()
    }

    /// All blocks are gone.
    pub(crate) fn forget(&self) {
        self.take_all();
    }

    fn take_all(&self) -> Vec<Batch> {
        let mut state = self.lock();
        let waiting = mem::replace(&mut state.waiting, Batch::new());
        let closed = mem::take(&mut state.closed);
        closed.into_iter().chain([waiting]).collect()
    }

    /// A wait is about to begin: what is freed from now on is not for it.
    fn close(&self) {
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
    fn narrow(&self, active: u64) {
        self.lock().closed.iter_mut().for_each(|batch| batch.devices &= active);
    }

    /// A wait for `device` that began at `start` has succeeded; what nothing uses any more.
    fn end_wait(&self, device: c_int, start: u64) -> Vec<Batch> {
        let mut state = self.lock();
        for batch in state.closed.iter_mut().filter(|batch| batch.closed < start) {
            batch.devices &= !(1 << device);
        }
        state.closed.extract_if(.., |batch| batch.devices == 0).collect()
    }

    /// A wait was refused: the next one comes later.
    fn postpone(&self) {
        let mut state = self.lock();
        state.most_blocks = state.most_blocks.saturating_mul(2);
        state.most_bytes = state.most_bytes.saturating_mul(2);
    }

    /// The devices to be waited for before all closed batches can be given back, if that `need` is
    /// for them.
    fn wanted(&self, need: Need) -> u64 {
        let state = self.lock();
        let devices = state.closed.iter().fold(0, |devices, batch| devices | batch.devices);
        let blocks: usize = state.closed.iter().map(|batch| batch.addresses.len()).sum();
        let bytes: u64 = state.closed.iter().map(|batch| batch.bytes).sum();
        let is_wanted = need == Need::Memory
            || blocks / ELSEWHERE_BLOCKS >= state.most_blocks
            || bytes > state.most_bytes;
        if is_wanted { devices } else { 0 }
    }

    /// Nothing uses the blocks of `batch` any more.
    fn give_back(&self, device: c_int, mut batch: Batch) {
        let Some(genesis) = process::genesis_if_open() else { return };
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

/// Lets `wait` wait for `device`, and gives back what was freed before and is in use on no device
/// any more; its answer.
pub(crate) fn around_wait(device: Option<c_int>, wait: impl FnOnce() -> c_int) -> c_int {
    let start = device.and_then(|_| begin_wait());
    let status = wait();
    if let (Some(waited), Some(start)) = (device, start) {
        device::for_each_seen(|owner| match status {
            SUCCESS => {
                let batches = owner.freed.end_wait(waited, start);
                batches.into_iter().for_each(|batch| owner.freed.give_back(owner.ordinal(), batch));
            }
            _ if owner.ordinal() == waited => owner.freed.postpone(),
            _ => {}
        });
    }
    status
}

/// Closes the batches of all devices; when that was done, unless nothing waits.
fn begin_wait() -> Option<u64> {
    let mut is_any = false;
    device::for_each_seen(|device| is_any |= device.freed.is_any());
    if !is_any {
        return None;
    }
    device::for_each_seen(|device| device.freed.close());
    let start = tick();
    let active = device::active();
    device::for_each_seen(|device| device.freed.narrow(active | 1 << device.ordinal()));
    Some(start)
}

/// Waits for a device and, as far as there is need, for others, and gives back what was freed
/// before; whether any may have been.
#[cold]
pub(crate) fn retire(ordinal: c_int, need: Need) -> bool {
    let Some(device) = device::get(ordinal).filter(|device| !device.is_lost()) else {
        return false;
    };
    if capture::is_any() || !device.freed.is_any() {
        return false;
    }
    report::fenced();
    let _inside = inside::enter();
    if !wait_for(ordinal) {
        return false;
    }
    let others = device.freed.wanted(need) & !(1 << ordinal);
    (0..u64::BITS as c_int).filter(|other| others >> other & 1 != 0).all(wait_for);
    true
}

/// Waits for a device unless there are captures; whether it was waited for.
fn wait_for(ordinal: c_int) -> bool {
    let Some(_waiting) = capture::permit_wait() else { return false };
    around_wait(Some(ordinal), || device::synchronize(ordinal)) == SUCCESS
}

/// At the end of the process, when nothing is allocated any more: gives back what waits, so that
/// Genesis does not take it for live.
pub(crate) fn end() {
    device::for_each_seen(|device| {
        for batch in device.freed.take_all() {
            device.freed.give_back(device.ordinal(), batch);
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
