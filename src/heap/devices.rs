//! The heap's devices, and the calls that name one by its ordinal. A device is opened at its first
//! use; no driver call is made before that.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::account::TagUsage;
use super::description::LiveBlock;
use super::owner::LaneKey;
use super::plan::DevicePlan;
use super::pool_blocks::{Place, PoolBlock};
use super::pool_limits::PoolUsage;
use super::pool_memory::PoolOptions;
use super::pools::{PoolFilter, PoolId, PoolNumber, PoolUse};
use super::state::{DeviceHeap, DeviceSlot, DeviceState, Heap};
use crate::base::lock::assert_none_held;
use crate::base::size::SizeClass;
use crate::base::sync::atomic::fence;
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle, blocking, thread};
use crate::config::LogLevel;
use crate::driver::{Device, MemoryInfo};
use crate::memory::{Communication, Neighbour};
use crate::observe::{PoolStatistics, Statistics};
use crate::order::{Stream, StreamName};

impl Heap {
    #[inline]
    pub(super) fn device(&self, ordinal: DeviceOrdinal) -> Result<DeviceHeap<'_>> {
        match self.opened(ordinal) {
            Some(device) => Ok(device),
            None => self.open(ordinal),
        }
    }

    #[inline]
    pub(super) fn opened(&self, ordinal: DeviceOrdinal) -> Option<DeviceHeap<'_>> {
        let state = self.devices.get(ordinal.index())?.state.get()?;
        Some(DeviceHeap { heap: self, state })
    }

    /// The devices in use.
    pub(super) fn opened_devices(&self) -> impl Iterator<Item = DeviceHeap<'_>> {
        let states = self.devices.iter().filter_map(|slot| slot.state.get());
        states.map(|state| DeviceHeap { heap: self, state })
    }

    pub(super) fn slot(&self, ordinal: DeviceOrdinal) -> Result<&DeviceSlot> {
        self.devices.get(ordinal.index()).ok_or_else(|| no_such_device(ordinal, self.devices.len()))
    }

    /// Opens the device; after a failure, the next call tries again.
    #[cold]
    fn open(&self, ordinal: DeviceOrdinal) -> Result<DeviceHeap<'_>> {
        let slot = self.slot(ordinal)?;
        let mut messages = Vec::new();
        let preallocated_bytes = self.settings.lock().preallocate_bytes;
        let mut is_new = false;
        let opened = slot.state.get_or_try_init(|| {
            is_new = true;
            let driver = Arc::clone(&slot.driver);
            let captures = Arc::clone(&slot.captures);
            let mut state = DeviceState::open(
                driver,
                captures,
                &self.settings(),
                &mut messages,
                self.events(),
                &self.join,
            )?;
            let model = DeviceHeap { heap: self, state: &state }.model();
            if slot.finer_if.get() == Some(&model) && state.backing.make_finer() {
                messages.push((LogLevel::Info, finer(ordinal)));
            }
            // Before another thread can use it.
            let device = DeviceHeap { heap: self, state: &state };
            device.introduce_all(&mut messages);
            let least = usize::from(preallocated_bytes > 0);
            device.expect_streams(slot.expected_streams.load(Relaxed).max(least))?;
            Ok(state)
        });
        let opened = opened.map(|state| DeviceHeap { heap: self, state });
        if let Ok(device) = &opened {
            // Again, for a device that another thread was opening at the same time.
            fence(SeqCst);
            device.introduce_all(&mut messages);
            if is_new
                && preallocated_bytes > 0
                && let Err(error) = device.preallocate_for_first(preallocated_bytes)
            {
                messages.push((LogLevel::Warn, format!("GENESIS_PREALLOCATE: {error}")));
            }
        }
        if let Err(error) = &opened {
            messages.push((LogLevel::Error, format!("device {ordinal}: {error}")));
        }
        // Only now, because the user's log function may call the library.
        for (level, message) in messages {
            self.log.write(level, &message);
        }
        opened
    }

    /// How many devices there are.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// The name of `device`.
    pub fn device_name(&self, device: DeviceOrdinal) -> Result<String> {
        Ok(self.slot(device)?.driver.name())
    }

    /// The driver of `device`, for calls that do not concern the heap.
    pub fn driver(&self, device: DeviceOrdinal) -> Result<&Arc<dyn Device>> {
        Ok(&self.slot(device)?.driver)
    }

    /// Returns true if `device` exists and has been used; otherwise it holds nothing.
    pub fn is_opened(&self, device: DeviceOrdinal) -> bool {
        self.opened(device).is_some()
    }

    /// Releases everything cached on `device` to the driver, after waiting for the device if other
    /// streams still use freed blocks. Returns the bytes released.
    pub fn empty_cache(&self, device: DeviceOrdinal) -> Result<u64> {
        Ok(self.device(device)?.empty_cache())
    }

    /// Releases cached memory of `device`, what lay idle most first, until at most `target_bytes`
    /// are reserved or nothing more can be released. Does not wait for other streams that use a
    /// block. Returns the bytes released.
    pub fn trim(&self, device: DeviceOrdinal, target_bytes: u64) -> Result<u64> {
        Ok(self.device(device)?.trim(target_bytes))
    }

    /// Releases cached memory of `device` for another process that is short of it, what lay idle most
    /// first, until `bytes` are released: only what is known to be idle, and nothing during a
    /// capture. Waits for no stream. Returns the bytes released.
    pub fn give_back(&self, device: DeviceOrdinal, bytes: u64) -> Result<u64> {
        Ok(self.device(device)?.give_back(bytes))
    }

    /// Releases cached memory of `device` that has been unused for as long as `GENESIS_GC_AGE_*`
    /// set, or since the previous collection if none is set. Returns the bytes released.
    pub fn collect_garbage(&self, device: DeviceOrdinal) -> Result<u64> {
        Ok(self.device(device)?.collect_garbage())
    }

    /// Makes more free memory of `device` usable, without releasing any: frees pending blocks whose
    /// streams have finished, and joins free neighbours (Caching and Elastic do so at each free,
    /// Round and Exact never). Returns the bytes that became free.
    pub fn compact(&self, device: DeviceOrdinal) -> Result<u64> {
        Ok(self.device(device)?.compact())
    }

    /// Takes `bytes` of `device` from the driver beforehand, as free memory for `stream`, from which
    /// others can take it: all of them or none. `OutOfMemory` if there are not so many;
    /// `NotSupported` under a strategy that does not cut free memory.
    pub fn preallocate(
        &self,
        device: DeviceOrdinal,
        stream: StreamHandle,
        bytes: u64,
    ) -> Result<()> {
        self.preallocate_on(device, self.identify(device, stream)?, bytes)
    }

    /// [`Self::preallocate`] for a stream that is identified already.
    pub fn preallocate_on(&self, device: DeviceOrdinal, stream: Stream, bytes: u64) -> Result<()> {
        let key = LaneKey { stream: stream.key, pool: PoolNumber::COMMON };
        let device = self.device(device)?;
        let (lane, mut state) = device.enter(key, stream.handle)?;
        // The lane stays this stream's until the end.
        lane.begin_climb(&mut state);
        drop(state);
        let made = device.preallocate(lane, bytes);
        lane.end_climb(false);
        made
    }

    /// What each device in use holds, for [`Self::make_ready`] in the next run of the program.
    pub fn plan(&self) -> Vec<DevicePlan> {
        self.opened_devices().map(DeviceHeap::plan).collect()
    }

    /// From now on `plan` may be made ready. The streams that it is for are counted from its
    /// device's first use, so call it before that.
    pub fn expect(&self, plan: &DevicePlan) -> Result<()> {
        let slot = self.slot(plan.device)?;
        slot.expected_streams.store(plan.lanes.len(), Relaxed);
        if plan.needs_finer {
            slot.finer_if.get_or_init(|| plan.model.clone());
        }
        Ok(())
    }

    /// Makes ready what [`Self::plan`] returned in an earlier run, as far as there is memory, until
    /// `is_over` is set. The program may make requests meanwhile.
    ///
    /// `InvalidArgument` if the plan is of another kind of device, or of another strategy.
    pub fn make_ready(&self, plan: &DevicePlan, is_over: &AtomicBool) -> Result<()> {
        self.device(plan.device)?.make_ready(plan, is_over)
    }

    /// Free and total memory of `device`, as a caller can use it: what the driver and the limits in
    /// force allow, with cached memory counted as free.
    pub fn memory_info(&self, device: DeviceOrdinal) -> Result<MemoryInfo> {
        self.device(device)?.memory_info()
    }

    /// The part of the memory of `device` that may be reserved.
    pub fn memory_fraction(&self, device: DeviceOrdinal) -> Result<f64> {
        Ok(self.device(device)?.memory_fraction())
    }

    /// Changes the part of the memory of `device` that may be reserved, in (0, 1]. Memory
    /// held already stays; cached memory above the limit is released when more is needed.
    pub fn set_memory_fraction(&self, device: DeviceOrdinal, fraction: f64) -> Result<()> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Error::invalid_argument(format!(
                "a memory fraction of {fraction} is not in (0, 1]"
            )));
        }
        self.device(device)?.set_memory_fraction(fraction);
        Ok(())
    }

    /// The most that may be reserved on `device`, in bytes, if it is limited.
    pub fn memory_limit(&self, device: DeviceOrdinal) -> Result<Option<u64>> {
        Ok(self.device(device)?.memory_limit())
    }

    /// Changes the most that may be reserved on `device`, in bytes, like
    /// [`Self::set_memory_fraction`].
    pub fn set_memory_limit(&self, device: DeviceOrdinal, bytes: Option<u64>) -> Result<()> {
        self.device(device)?.set_memory_limit(bytes);
        Ok(())
    }

    /// The most that `device` keeps cached, in bytes, if it is limited.
    pub fn cache_limit(&self, device: DeviceOrdinal) -> Result<Option<u64>> {
        let bytes = self.device(device)?.cache_limit_bytes();
        Ok((bytes != u64::MAX).then_some(bytes))
    }

    /// Changes the most that `device` keeps cached, in bytes, and releases what is above it.
    pub fn set_cache_limit(&self, device: DeviceOrdinal, bytes: Option<u64>) -> Result<()> {
        let device = self.device(device)?;
        device.set_cache_limit_bytes(bytes.unwrap_or(u64::MAX));
        device.settle();
        Ok(())
    }

    /// The statistics of `device`.
    pub fn statistics(&self, device: DeviceOrdinal) -> Result<Statistics> {
        Ok(self.device(device)?.statistics())
    }

    /// The statistics of the blocks and segments of `device`: of one size class, or of all.
    pub fn pool_statistics(
        &self,
        device: DeviceOrdinal,
        class: Option<SizeClass>,
    ) -> Result<PoolStatistics> {
        Ok(self.device(device)?.pool_statistics(class))
    }

    /// Counts, logs and returns the failure of a request on `device` that is larger than any
    /// device.
    pub fn too_large(&self, device: DeviceOrdinal, requested_bytes: u64) -> Result<Error> {
        Ok(self.device(device)?.too_large(requested_bytes))
    }

    /// Resets the peaks of `device` to its current levels.
    pub fn reset_peaks(&self, device: DeviceOrdinal) -> Result<()> {
        self.device(device)?.reset_peaks();
        Ok(())
    }

    /// The live blocks of `device` asked for with at least `least_bytes`, largest first.
    pub fn largest_allocations(
        &self,
        device: DeviceOrdinal,
        least_bytes: u64,
    ) -> Result<Vec<LiveBlock>> {
        Ok(self.device(device)?.largest_allocations(least_bytes))
    }

    /// From now on requests on `device` whose stream passes `filter` are served from the
    /// private pool `pool`, which is made if it is not held.
    ///
    /// The filter runs in the thread of each request, without a lock held, and must not call
    /// the library. `InvalidArgument` if the pool is begun already.
    pub fn begin_pool(
        &self,
        device: DeviceOrdinal,
        pool: PoolId,
        filter: PoolFilter,
    ) -> Result<()> {
        self.device(device)?.begin_pool(pool, filter, PoolUse::Capture)
    }

    /// [`Self::begin_pool`] for the requests of the calling thread, from which no graph is captured:
    /// the heap may wait and release memory meanwhile, also free memory of the pool if that has a
    /// limit.
    pub fn begin_pool_of_thread(&self, device: DeviceOrdinal, pool: PoolId) -> Result<()> {
        let owner = thread::number();
        let filter: PoolFilter = Arc::new(move |_| thread::number() == owner);
        self.device(device)?.begin_pool(pool, filter, PoolUse::Requests)
    }

    /// Ends what [`Self::begin_pool`] began; the pool keeps its memory. Requests that other
    /// threads are making at this moment may still be served from it.
    pub fn end_pool(&self, device: DeviceOrdinal, pool: PoolId) -> Result<()> {
        self.device(device)?.end_pool(pool)
    }

    /// Ends one of the uses that [`Self::begin_pool`] counted. At the last, the pool's free memory
    /// is released to the driver, at once unless another pool is begun.
    pub fn release_pool(&self, device: DeviceOrdinal, pool: PoolId) -> Result<()> {
        self.device(device)?.release_pool(pool)
    }

    /// Counts a use of `pool`, which is made if it is not held, until [`Self::release_pool`]. If
    /// `lends`, from now on a request from outside of the pool that would fail takes free memory of
    /// the pool's blocks on the same stream.
    pub fn hold_pool(&self, device: DeviceOrdinal, pool: PoolId, lends: bool) -> Result<()> {
        self.device(device)?.pools.hold(pool, lends);
        Ok(())
    }

    /// Makes `pool`, with the memory that `options` say, and counts a use of it. `InvalidArgument` if
    /// it is held; `NotSupported` for a source while there are guard pages.
    pub fn create_pool(
        &self,
        device: DeviceOrdinal,
        pool: PoolId,
        options: PoolOptions,
    ) -> Result<()> {
        self.device(device)?.create_pool(pool, options)
    }

    /// The processes that share `device` with this one, itself first; empty if it is not shared.
    pub fn neighbours(&self, device: DeviceOrdinal) -> Result<Vec<Neighbour>> {
        let ledger = &self.device(device)?.state.ledger;
        Ok(ledger.neighbours().map_or_else(Vec::new, |neighbours| neighbours.list()))
    }

    /// How the memory of `pool` is made, if others reach it by its address. `InvalidArgument` if it
    /// is not held.
    pub fn pool_communication(
        &self,
        device: DeviceOrdinal,
        pool: PoolId,
    ) -> Result<Option<Arc<Communication>>> {
        self.device(device)?.pool_communication(pool)
    }

    /// How often `pool` was held and begun, and not released.
    pub fn pool_uses(&self, device: DeviceOrdinal, pool: PoolId) -> Result<u64> {
        Ok(self.device(device)?.pools.uses(pool))
    }

    /// From now on at most `limit_bytes` may be reserved for `pool`; `None`: any number.
    /// `InvalidArgument` if it is not held.
    pub fn set_pool_limit(
        &self,
        device: DeviceOrdinal,
        pool: PoolId,
        limit_bytes: Option<u64>,
    ) -> Result<()> {
        self.device(device)?.set_pool_limit(pool, limit_bytes)
    }

    /// What `pool` holds. `InvalidArgument` if it is not held.
    pub fn pool_usage(&self, device: DeviceOrdinal, pool: PoolId) -> Result<PoolUsage> {
        self.device(device)?.pool_usage(pool)
    }

    /// From now on requests under tags leave `bytes` of each device's memory free; 0: none.
    pub fn set_tag_margin(&self, bytes: u64) {
        self.tags.margin_bytes.store(bytes, Relaxed);
    }

    /// From now on at most `limit_bytes` may be live under the tag `name`, also under tags within
    /// it, on `device`, or on each; `None`: any number. The tag is known from now on. What is live
    /// stays.
    pub fn set_tag_limit(
        &self,
        name: &str,
        device: Option<DeviceOrdinal>,
        limit_bytes: Option<u64>,
    ) -> Result<()> {
        device.map(|device| self.slot(device)).transpose()?;
        let ordinals = (0..self.device_count() as u32).map(DeviceOrdinal);
        let chosen = ordinals.filter(|ordinal| device.is_none_or(|device| device == *ordinal));
        self.with_tag(name, |known, position| {
            for ordinal in chosen {
                known.account_mut(position, ordinal).limit_bytes = limit_bytes.unwrap_or(u64::MAX);
            }
        })
    }

    /// What each known tag holds on `device`.
    pub fn tag_usage(&self, device: DeviceOrdinal) -> Result<Vec<TagUsage>> {
        self.slot(device)?;
        let known = self.tags.known.lock();
        Ok(known.all_accounts(device).map(|(name, account)| account.usage(name, device)).collect())
    }

    /// The blocks of `pool`, by address. `InvalidArgument` if it is not held.
    pub fn pool_blocks(&self, device: DeviceOrdinal, pool: PoolId) -> Result<Vec<PoolBlock>> {
        self.device(device)?.pool_blocks(pool)
    }

    /// Makes free memory of `pool` live at the places given: all of them or none. So a pool becomes
    /// again what [`Self::pool_blocks`] once returned, if what became live since is freed first.
    ///
    /// Waits for the device if blocks of the pool are pending. The streams of the places must
    /// exist. `InvalidArgument` if the pool is not held, places overlap, or one is not free.
    pub fn place_in_pool(
        &self,
        device: DeviceOrdinal,
        pool: PoolId,
        places: &[Place],
    ) -> Result<()> {
        self.device(device)?.place_in_pool(pool, places)
    }

    /// Announces that a stream of `device` is about to be captured: until the matching
    /// [`Self::end_capture`] the heap neither waits for the device nor releases its memory.
    pub fn begin_capture(&self, device: DeviceOrdinal) -> Result<()> {
        assert_none_held();
        self.slot(device)?.captures.begin();
        Ok(())
    }

    /// Ends what [`Self::begin_capture`] began; `InvalidArgument` if nothing was begun.
    pub fn end_capture(&self, device: DeviceOrdinal) -> Result<()> {
        if !self.slot(device)?.captures.end() {
            let message = format!("no capture is begun on device {device}");
            return Err(Error::invalid_argument(message));
        }
        if let Some(device) = self.opened(device) {
            device.capture_has_ended();
        }
        Ok(())
    }

    /// Lets `peer` access all memory of `device`, held now or later. Does nothing if it can
    /// already, or if both are the same device.
    ///
    /// `NotSupported` under strategies other than Elastic, on a device without virtual memory
    /// management, and if the driver has no path from `peer` to `device`. If a driver call fails,
    /// the peer is not enabled, but may be able to access part of what is held.
    pub fn enable_peer_access(&self, device: DeviceOrdinal, peer: DeviceOrdinal) -> Result<()> {
        self.require_elastic()?;
        let accessing = self.slot(peer)?;
        let held = self.device(device)?;
        if device == peer {
            return Ok(());
        }
        held.enable_peer_access(accessing.driver.deref())
    }

    /// Makes work queued on `stream` from now on wait, on the device, for the work queued on
    /// `other` until now. The host does not wait. `DriverFailed` while `other` is captured.
    pub fn make_stream_wait(
        &self,
        device: DeviceOrdinal,
        stream: StreamHandle,
        other: StreamHandle,
    ) -> Result<()> {
        if StreamName::of(stream) == StreamName::of(other) {
            return Ok(());
        }
        let device = self.device(device)?;
        let events = device.contexts.own();
        let event = events.record(other)?;
        let waiting = blocking(|| device.driver.stream_wait(stream, event));
        // The wait is for what the event stands for now, so the event can be reused.
        events.put(event);
        Ok(waiting?)
    }
}

#[cold]
fn finer(ordinal: DeviceOrdinal) -> String {
    format!(
        "GENESIS_PLAN: device {ordinal}: an earlier run was refused memory although as much was free, in \
         pieces, so extents are as small as they can be"
    )
}

#[cold]
fn no_such_device(ordinal: DeviceOrdinal, count: usize) -> Error {
    Error::new(Status::InvalidDevice, format!("no device {ordinal}: there are {count}"))
}
