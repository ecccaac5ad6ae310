//! A worker's blocks: asked for, used, read by other streams, freed.

use std::sync::Arc;
#[cfg(not(feature = "shuttle"))]
use std::thread;

use genesis::base::size::{KIB, MIB};
use genesis::base::{DeviceOrdinal, Result, Status};
use genesis::config::PoolType;
#[cfg(feature = "shuttle")]
use shuttle::thread; // all threads of a model are one of the system's
use simgpu::{Access, StoreKind, Work};

use super::{EVERYBODYS, Filled, Live, Place, Worker};
use crate::CAPACITY_BYTES;
use crate::operation::Way;

/// How far apart the bytes lie that are written and compared.
const STRIDE_BYTES: usize = 64 * KIB as usize;

impl Worker {
    pub(super) fn allocate(&mut self, bytes: u64, way: Way, place: Place) {
        let (device, stream) = place;
        let is_captured = self.captured[device as usize].is_of(stream);
        let way = if is_captured { Way::Plain } else { way };
        let mut requested_bytes = bytes;
        if is_captured || matches!(way, Way::Pooled | Way::Lending) {
            requested_bytes = 1 + requested_bytes % MIB; // what a pool has stays there
        }
        if way == Way::Communicating {
            requested_bytes = 1 + requested_bytes % (6 * MIB);
        }
        let is_tagged = matches!(way, Way::Tagged | Way::TaggedTwice | Way::Alone);
        match self.allocate_by(way, requested_bytes, place) {
            Ok(0) => assert_eq!(requested_bytes, 0),
            Ok(address) => {
                assert!(requested_bytes != 0 && requested_bytes <= CAPACITY_BYTES);
                let block = self.rig.heap.block_containing(address).unwrap();
                assert_eq!((block.address, block.device), (address, DeviceOrdinal(device)));
                if way == Way::Alone {
                    requested_bytes = requested_bytes.next_multiple_of(2 * MIB);
                }
                assert_eq!(block.requested_bytes, requested_bytes);
                let end = address + block.allocated_bytes;
                self.oracle.hand_out(device as usize, address, end, requested_bytes).unwrap();
                self.marks += 1;
                let live = Live {
                    address,
                    requested_bytes,
                    allocated_bytes: block.allocated_bytes,
                    device,
                    stream: Some(stream),
                    is_read: false,
                    reader: None,
                    is_tagged,
                    is_pooled: matches!(way, Way::Pooled | Way::Communicating),
                    is_registered: way == Way::Communicating,
                    is_alone: way == Way::Alone,
                    is_captured,
                    is_paused: false,
                    is_kept: false,
                    mark: self.marks as u8,
                };
                self.touch(&live, place, Access::Write);
                self.write_mark(&live.filled());
                self.live.push(live);
            }
            Err(error) if self.excuses(error.status) => {}
            Err(error) if error.status == Status::LimitReached => {
                let is_limited = matches!(way, Way::Lending | Way::Communicating);
                assert!(is_tagged || is_limited, "{error}");
            }
            Err(error) => {
                assert_eq!(error.status, Status::OutOfMemory, "{error}");
                // During a capture, nothing is waited for or released.
                if way != Way::Pooled && !self.captured[device as usize].is_begun() {
                    self.judge_refusal(requested_bytes, DeviceOrdinal(device));
                }
            }
        }
    }

    fn allocate_by(&self, way: Way, bytes: u64, place: Place) -> Result<u64> {
        let (heap, device, stream) = (&self.rig.heap, DeviceOrdinal(place.0), self.handle(place));
        match way {
            Way::Pooled => {
                let own = thread::current().id();
                let filter = move |_| thread::current().id() == own;
                heap.begin_pool(device, self.pool, Arc::new(filter)).unwrap();
            }
            Way::Lending => heap.begin_pool_of_thread(device, self.lending_pool).unwrap(),
            Way::Communicating => {
                heap.begin_pool_of_thread(device, self.communication_pool).unwrap();
            }
            _ => {}
        }
        let tags: &[&str] = match way {
            Way::Plain | Way::Pooled | Way::Lending | Way::Communicating => &[],
            Way::Tagged | Way::Alone => &[&self.tag],
            Way::TaggedTwice => &[EVERYBODYS, &self.tag],
        };
        tags.iter().for_each(|tag| heap.begin_tag(tag).unwrap());
        let allocated = match way {
            Way::Alone => heap
                .identify(device, stream)
                .and_then(|stream| heap.allocate_alone(bytes, device, stream)),
            _ => heap.allocate(bytes, device, stream),
        };
        tags.iter().for_each(|_| heap.end_tag().unwrap());
        let pool = match way {
            Way::Pooled => self.pool,
            Way::Lending => self.lending_pool,
            Way::Communicating => self.communication_pool,
            _ => return allocated,
        };
        heap.end_pool(device, pool).unwrap();
        let released = heap.release_pool(device, pool);
        released.unwrap_or_else(|error| assert!(self.excuses(error.status), "{error}"));
        allocated
    }

    /// A refusal is right when neither the limit nor the driver has room for the smallest
    /// segment that would do, with all that could be released gone.
    fn judge_refusal(&self, requested_bytes: u64, device: DeviceOrdinal) {
        if !self.conduct.is_alone || requested_bytes > CAPACITY_BYTES {
            return;
        }
        let settings = self.rig.heap.settings();
        let block_bytes = match settings.strategy.pool_type {
            PoolType::Naive => requested_bytes,
            PoolType::Round if requested_bytes > 16 * MIB => {
                requested_bytes.next_multiple_of(16 * MIB)
            }
            PoolType::Round => requested_bytes.next_power_of_two().max(4096),
            PoolType::Exact => requested_bytes,
            PoolType::Caching if settings.roundup_power2_divisions == 4 => {
                requested_bytes + requested_bytes / 4
            }
            PoolType::Caching => requested_bytes,
            PoolType::Arena | PoolType::Elastic => requested_bytes + requested_bytes / 8,
        };
        let needed_bytes = block_bytes.next_multiple_of(2 * MIB);
        let driver = self.rig.machine.memory_info(device.0).unwrap();
        let used_bytes = driver.total_bytes - driver.free_bytes;
        let limit_bytes = self.rig.heap.memory_limit(device).unwrap().unwrap_or(u64::MAX);
        let fraction = self.rig.heap.memory_fraction(device).unwrap();
        let limit_bytes = limit_bytes.min((driver.total_bytes as f64 * fraction) as u64);
        let room_bytes = driver.free_bytes.min(limit_bytes.saturating_sub(used_bytes));
        assert!(
            needed_bytes > room_bytes,
            "{requested_bytes} bytes were refused with room for {room_bytes}"
        );
    }

    pub(super) fn free(&mut self, which: u64, directly: bool) {
        let Some(index) = self.pick(which) else { return };
        let live = self.live.swap_remove(index);
        if !live.is_paused {
            self.check_mark(&live.filled());
        }
        self.oracle.take_back(live.device as usize, live.address, live.requested_bytes);
        if live.is_paused {
            self.oracle.resume(live.device as usize, live.allocated_bytes);
        }
        let freed = match directly {
            true => self.rig.heap.free_directly(live.address).map(drop),
            false => self.rig.heap.free(live.address),
        };
        freed.unwrap_or_else(|error| assert!(self.excuses(error.status), "{error}"));
        self.last_freed = live.address;
    }

    /// Lets another stream, of the block's device or of another, read a block after what its own
    /// stream has written.
    pub(super) fn read(&mut self, which: u64, device: Option<u32>, stream: u64) {
        let Some(index) = self.pick(which) else { return };
        let live = self.live[index];
        let reader = (device.unwrap_or(live.device), stream);
        let Some(writer) = live.stream.map(|stream| (live.device, stream)) else { return };
        let is_reached = reader.0 == live.device || self.peers.contains(&(live.device, reader.0));
        if live.is_paused || live.is_captured || !is_reached || self.is_captured(reader) {
            return;
        }
        if !live.is_read {
            if !self.record(live.address, reader) || !self.order(writer, reader) {
                return;
            }
            self.live[index].is_read = true;
            self.live[index].reader = Some(reader);
        } else if live.reader != Some(reader) || !self.record(live.address, reader) {
            return;
        }
        self.touch(&live, reader, Access::Read);
    }

    /// Returns true if the heap knows that the stream uses the block.
    fn record(&self, address: u64, reader: Place) -> bool {
        if !self.conduct.records_streams {
            return true;
        }
        let recorded = self.rig.heap.record_stream(address, self.handle(reader));
        recorded.map_err(|error| assert!(self.excuses(error.status), "{error}")).is_ok()
    }

    pub(super) fn touch_again(&mut self, which: u64) {
        let Some(index) = self.pick(which) else { return };
        let live = self.live[index];
        let Some(stream) = live.stream else { return };
        let place = (live.device, stream);
        if live.is_paused || self.is_captured(place) && !live.is_captured {
            return;
        }
        self.check_mark(&live.filled());
        let access = if live.is_read { Access::Read } else { Access::Write };
        self.touch(&live, place, access);
    }

    fn touch(&self, live: &Live, (device, stream): Place, access: Access) {
        if self.is_captured((device, stream)) && !live.is_captured {
            return;
        }
        let stream = self.handle((device, stream)).0;
        let work = Work::new(live.address, live.requested_bytes, access, "");
        self.rig.machine.touch(device, stream, work).unwrap();
    }

    /// Writes some of the bytes, if there are bytes.
    pub(super) fn write_mark(&self, filled: &Filled) {
        for address in self.marked(filled) {
            // SAFETY: live memory of the worker's, which nobody else uses and which is not paused.
            unsafe { (address as *mut u8).write(filled.mark) };
        }
    }

    /// Compares the same bytes.
    pub(super) fn check_mark(&self, filled: &Filled) {
        for address in self.marked(filled) {
            // SAFETY: as above.
            let found = unsafe { (address as *const u8).read() };
            assert_eq!(found, filled.mark, "{address:#x} of {filled:x?}");
        }
    }

    /// Where the mark is: each [`STRIDE_BYTES`], and in the last byte.
    fn marked(&self, &Filled { address, bytes, .. }: &Filled) -> impl Iterator<Item = u64> + use<> {
        let is_real = self.rig.machine.store() == StoreKind::RealBytes;
        let bytes = if is_real { bytes } else { 0 };
        let last = bytes.checked_sub(1).map(|last| address + last);
        (address..address + bytes).step_by(STRIDE_BYTES).chain(last)
    }
}

impl Live {
    pub(super) fn filled(&self) -> Filled {
        Filled { address: self.address, bytes: self.requested_bytes, mark: self.mark }
    }
}
