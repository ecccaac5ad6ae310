//! Private pools with memory of their own: segments, whatever the rest of the device consists of.
//!
//! | a pool | its segments come from | its blocks |
//! |---|---|---|
//! | with a source | functions of the caller's | as elsewhere; under Elastic as under Caching |
//! | whose segments stay whole | the driver | one is a segment, neither cut nor joined |
//! | with arenas | the driver | as under the strategy Arena |
//!
//! A pool whose memory others reach by address (`communication`) has the device's extents, one for
//! each block.
//!
//! A pool with arenas is scratch: unless a graph was captured from it, its free memory goes back as
//! that of no pool does, also while it is held. A source may be combined with either of the others.
//!
//! The pool's lanes have a strategy of their own; a climb from one of them is served by the pool's
//! segments, and its memory is released to where it came from. All else is as for every private
//! pool. What a pool has is known until its lanes hold nothing, which may be after its last release.

use std::sync::Arc;

use super::lane::Lane;
use super::pool_memory::{OwnMemory, PoolOptions, Segments};
use super::pools::{PoolId, PoolNumber};
use super::state::DeviceHeap;
use crate::base::{Error, Result, Status};
use crate::memory::{Communication, Registrar, SegmentStore};

impl DeviceHeap<'_> {
    /// `Heap::create_pool` of the device.
    pub(super) fn create_pool(self, pool: PoolId, options: PoolOptions) -> Result<()> {
        let holds_memory = |lane: &&Lane| !lane.lock().blocks.is_empty();
        let in_use: Vec<PoolNumber> = self.lanes().filter(holds_memory).map(Lane::pool).collect();
        if options.communicates {
            let communication = self.open_communication(options.registrar)?;
            return self.pools.create(pool, None, Some(Arc::new(communication)), &in_use);
        }
        let PoolOptions { keeps_whole, has_arenas, source, .. } = options;
        if source.is_some() && self.is_guarded {
            let message = "no source of memory while GENESIS_DEBUG has guard pages";
            return Err(Error::new(Status::NotSupported, message));
        }
        // Other strategies never cut a segment.
        let cuts = self.pool_type.cuts_blocks();
        let (keeps_whole, has_arenas) = (keeps_whole && cuts, has_arenas && cuts);
        let store = match source {
            Some(source) => Some(SegmentStore::with_source(Arc::clone(&self.state.driver), source)),
            None => (keeps_whole || has_arenas).then(|| self.segment_store()),
        };
        let segments = |store| Segments { store };
        let own =
            store.map(|store| OwnMemory { segments: segments(store), keeps_whole, has_arenas });
        self.pools.create(pool, own.map(Arc::new), None, &in_use)
    }

    /// `Heap::pool_communication` of the device.
    pub(super) fn pool_communication(self, pool: PoolId) -> Result<Option<Arc<Communication>>> {
        Ok(self.pools.communication(self.pools.number_of(pool)?))
    }

    /// How memory is made that others reach by its address; only under Elastic.
    fn open_communication(self, registrar: Option<Arc<dyn Registrar>>) -> Result<Communication> {
        self.heap.require_elastic()?;
        if self.backing.extents().is_none() {
            return Err(self.no_virtual_memory());
        }
        Ok(Communication::open(&self.driver, registrar)?)
    }
}
