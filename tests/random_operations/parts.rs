//! What a worker gets in parts: from an arena and a pool of blocks of one size on each device, whose
//! memory comes from the heap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use genesis::base::size::{KIB, MIB};
use genesis::base::{DeviceOrdinal, Result, Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::Heap;
use genesis::suballocation::{
    Arena, ArenaOptions, FixedPool, FixedPoolOptions, Mark, Source, Threads,
};
use simgpu::{Access, Work};

use super::{COMMON_STREAMS, Filled, Place, Worker};
use crate::operation::Reset;
use crate::oracle::Oracle;

/// The own stream of arenas and pools, by its place: one that stays, and is not the legacy stream.
const OWN: u64 = 1;
/// Blocks of a pool have so many bytes. It begins without one, and grows by a few.
const POOL_BLOCK_BYTES: u64 = 96 * KIB;
const POOL_GROWTH: u32 = 3;
/// No pool has more blocks that are live.
const MOST_POOL_BLOCKS: usize = 40;
const ARENA_CHUNK_BYTES: u64 = 256 * KIB;
const ARENA_LIMIT_BYTES: u64 = 8 * MIB;

/// A device's arena and pool, with what is live of them.
pub(super) struct Parts {
    source: Arc<FromHeap>,
    arena: Arena<FromHeap>,
    pool: FixedPool<FromHeap>,
    /// In the order in which they were handed out.
    of_arena: Vec<Part>,
    of_pool: Vec<Part>,
    /// A position of the arena, and how many parts were live there.
    mark: Option<(Mark, usize)>,
}

/// A live part, which its stream wrote once.
#[derive(Clone, Copy, Debug)]
struct Part {
    filled: Filled,
    stream: u64,
}

/// The heap as the source of one device's memory.
#[derive(Debug)]
struct FromHeap {
    heap: Arc<Heap>,
    oracle: Arc<Oracle>,
    device: u32,
    /// What is taken now: start → end, and the bytes asked for.
    taken: Mutex<BTreeMap<u64, (u64, u64)>>,
}

impl Source for FromHeap {
    fn acquire(&self, bytes: u64) -> Result<u64> {
        let device = DeviceOrdinal(self.device);
        let address = self.heap.allocate(bytes, device, own_stream())?;
        let block = self.heap.block_containing(address).expect("a live block");
        let end = address + block.allocated_bytes;
        self.oracle.hand_out(self.device as usize, address, end, bytes).unwrap();
        self.taken.lock().unwrap().insert(address, (end, bytes));
        Ok(address)
    }

    fn give_back(&self, address: u64) {
        let (_, bytes) = self.taken.lock().unwrap().remove(&address).expect("a taken block");
        self.oracle.take_back(self.device as usize, address, bytes);
        // Only Naive asks the driver here, and keeps what that refuses to take.
        let freed = self.heap.free(address);
        assert!(freed.is_ok() || self.heap.settings().strategy.pool_type == PoolType::Naive);
    }

    fn stream(&self) -> Option<StreamHandle> {
        Some(own_stream())
    }

    fn order(&self, stream: StreamHandle, other: StreamHandle) -> Result<()> {
        self.heap.make_stream_wait(DeviceOrdinal(self.device), stream, other)
    }

    fn record(&self, address: u64, stream: StreamHandle) -> Result<()> {
        self.heap.record_stream(address, stream)
    }

    fn is_debugging(&self) -> bool {
        self.heap.is_debugging()
    }
}

fn own_stream() -> StreamHandle {
    StreamHandle(COMMON_STREAMS[OWN as usize])
}

impl Parts {
    pub(super) fn new(heap: &Arc<Heap>, oracle: &Arc<Oracle>, device: u32) -> Self {
        let (heap, oracle) = (Arc::clone(heap), Arc::clone(oracle));
        let source = Arc::new(FromHeap { heap, oracle, device, taken: Mutex::default() });
        let arena = ArenaOptions {
            threads: Threads::One,
            chunk_bytes: ARENA_CHUNK_BYTES,
            limit_bytes: ARENA_LIMIT_BYTES,
        };
        let pool = FixedPoolOptions {
            threads: Threads::Any,
            block_bytes: POOL_BLOCK_BYTES,
            alignment_bytes: 0,
            count: 0,
            growth: POOL_GROWTH,
        };
        Self {
            arena: Arena::new(Arc::clone(&source), arena),
            pool: FixedPool::new(Arc::clone(&source), pool).expect("a pool without blocks"),
            source,
            of_arena: Vec::new(),
            of_pool: Vec::new(),
            mark: None,
        }
    }

    /// Returns true if a block begins at `address` that was taken from the heap.
    pub(super) fn has_taken(&self, address: u64) -> bool {
        self.source.taken.lock().unwrap().contains_key(&address)
    }

    /// Parts lie in blocks of the heap, side by side.
    fn check(&self) {
        self.arena.validate().unwrap();
        self.pool.validate().unwrap();
        let taken = self.source.taken.lock().unwrap();
        let mut parts: Vec<(u64, u64)> =
            self.of_arena.iter().chain(&self.of_pool).map(bounds).collect();
        parts.sort_unstable();
        assert!(parts.is_sorted_by(|one, other| one.1 <= other.0), "parts overlap: {parts:x?}");
        for (start, end) in parts {
            let around = taken.range(..=start).next_back();
            let is_inside = around.is_some_and(|(_, &(block_end, _))| end <= block_end);
            assert!(is_inside, "[{start:#x}, {end:#x}) is in no block of the heap");
        }
    }
}

fn bounds(part: &Part) -> (u64, u64) {
    (part.filled.address, part.filled.address + part.filled.bytes)
}

impl Worker {
    /// Takes `bytes` from the device's arena, or a block of its pool, for use on `stream`.
    pub(super) fn take_part(&mut self, (device, stream): Place, bytes: Option<u64>) {
        // A worker's own streams end, and others must last as long as what they use.
        let stream = stream % COMMON_STREAMS.len() as u64;
        if self.is_captured((device, stream)) || self.is_captured((device, OWN)) {
            return;
        }
        let handle = self.handle((device, stream));
        let parts = &self.parts[device as usize];
        if bytes.is_none() && parts.of_pool.len() == MOST_POOL_BLOCKS {
            return;
        }
        let taken = match bytes {
            Some(bytes) => parts.arena.allocate_on(bytes, 0, handle),
            None => parts.pool.allocate_on(handle),
        };
        match taken {
            Ok(0) => assert_eq!(bytes, Some(0)),
            Ok(address) => {
                assert!(address.is_multiple_of(256), "{address:#x}");
                self.marks += 1;
                let is_of_pool = bytes.is_none();
                let bytes = bytes.unwrap_or(POOL_BLOCK_BYTES);
                let filled = Filled { address, bytes, mark: self.marks as u8 };
                self.write_mark(&filled);
                self.touch_part(&filled, (device, stream), Access::Write);
                let part = Part { filled, stream };
                let parts = &mut self.parts[device as usize];
                let live = if is_of_pool { &mut parts.of_pool } else { &mut parts.of_arena };
                live.push(part);
            }
            Err(error) => {
                let is_full = matches!(error.status, Status::OutOfMemory | Status::LimitReached);
                assert!(is_full || self.may_be_busy(error.status), "{error}");
            }
        }
    }

    /// Another stream reads a part of the arena, after what was written.
    pub(super) fn read_part(&mut self, which: u64, reader: Place) {
        let (device, stream) = (reader.0, reader.1 % COMMON_STREAMS.len() as u64);
        let reader = (device, stream);
        let count = self.parts[device as usize].of_arena.len() as u64;
        if count == 0 || self.is_captured(reader) || self.is_captured((device, OWN)) {
            return;
        }
        let index = (which % count) as usize;
        let part = self.parts[device as usize].of_arena[index];
        let joined = self.parts[device as usize].arena.join(self.handle(reader));
        if let Err(error) = joined {
            assert!(self.may_be_busy(error.status), "{error}");
            return;
        }
        if self.order((device, part.stream), reader) {
            self.check_mark(&part.filled);
            self.touch_part(&part.filled, reader, Access::Read);
        }
    }

    /// Frees a block of the pool.
    pub(super) fn free_part(&mut self, device: u32, which: u64) {
        let parts = &mut self.parts[device as usize];
        let count = parts.of_pool.len() as u64;
        if count == 0 {
            return;
        }
        let index = (which % count) as usize;
        let part = parts.of_pool[index];
        if self.is_captured((device, part.stream)) || self.is_captured((device, OWN)) {
            return;
        }
        self.check_mark(&part.filled);
        let freed = self.parts[device as usize].pool.free(part.filled.address);
        if freed.as_ref().is_err_and(|error| self.may_be_busy(error.status)) {
            return; // it stays as it is
        }
        freed.unwrap();
        self.parts[device as usize].of_pool.swap_remove(index);
    }

    /// Frees what the arena has handed out, or remembers how far that is.
    pub(super) fn reset_arena(&mut self, device: u32, how: Reset) {
        if (0..COMMON_STREAMS.len() as u64).any(|stream| self.is_captured((device, stream))) {
            return;
        }
        let parts = &self.parts[device as usize];
        let kept = match (how, parts.mark) {
            (Reset::All, _) => 0,
            (Reset::ToMark, Some((_, kept))) => kept,
            (Reset::Trim | Reset::Mark | Reset::ToMark, _) => parts.of_arena.len(),
        };
        parts.of_arena[kept..].iter().for_each(|part| self.check_mark(&part.filled));
        let done = match (how, parts.mark) {
            (Reset::All, _) => parts.arena.reset(),
            (Reset::ToMark, Some((mark, _))) => parts.arena.rewind(mark),
            (Reset::ToMark, None) => Ok(()),
            (Reset::Trim, _) => parts.arena.trim(),
            (Reset::Mark, _) => parts.arena.mark().map(|mark| {
                self.parts[device as usize].mark = Some((mark, kept));
            }),
        };
        match done {
            Ok(()) => {
                let parts = &mut self.parts[device as usize];
                parts.of_arena.truncate(kept);
                if how == Reset::All {
                    parts.mark = None;
                }
            }
            // Nothing is freed.
            Err(error) => assert!(self.may_be_busy(error.status), "{error}"),
        }
    }

    fn touch_part(&self, part: &Filled, (device, stream): Place, access: Access) {
        let work = Work::new(part.address, part.bytes, access, "");
        self.rig.machine.touch(device, self.handle((device, stream)).0, work).unwrap();
    }

    pub(super) fn check_parts(&self) {
        self.parts.iter().for_each(Parts::check);
    }

    /// All goes back; no stream is captured, and the driver is well.
    pub(super) fn drop_parts(&mut self) {
        for device in 0..self.parts.len() as u32 {
            self.reset_arena(device, Reset::All);
            while !self.parts[device as usize].of_pool.is_empty() {
                self.free_part(device, 0);
            }
            self.check_parts();
        }
        for parts in self.parts.drain(..) {
            let source = Arc::clone(&parts.source);
            drop(parts);
            assert!(source.taken.lock().unwrap().is_empty(), "not given back");
        }
    }
}
