//! The segments of a device, and those that a private pool has of its own (`own_memory`): the types.

use std::sync::Arc;

use crate::config::{PoolType, Settings};
use crate::memory::{Registrar, SegmentSource, SegmentStore};
use crate::strategy::Sizing;

/// The segments of one device, or of one private pool there.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) store: SegmentStore,
}

/// What a private pool has of its own.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Whether each segment stays one block.
    pub keeps_whole: bool,
    /// Whether its blocks are kept as under the strategy Arena; not with `keeps_whole`.
    pub has_arenas: bool,
    /// Where segments come from; `None`: from the device.
    pub source: Option<Arc<dyn SegmentSource>>,
    /// Whether others reach its memory by address (`memory::communication`); with none of the above.
    pub communicates: bool,
    /// With whom such memory is registered.
    pub registrar: Option<Arc<dyn Registrar>>,
}

/// The memory of such a pool.
#[derive(Debug)]
pub(super) struct OwnMemory {
    pub(super) segments: Segments,
    pub(super) keeps_whole: bool,
    pub(super) has_arenas: bool,
}

impl OwnMemory {
    /// Changes the settings for the lanes of the pool.
    pub(super) fn adapt(&self, settings: &mut Settings) {
        let pool_type = &mut settings.strategy.pool_type;
        if self.has_arenas {
            *pool_type = PoolType::Arena;
        } else if *pool_type == PoolType::Elastic || self.keeps_whole {
            *pool_type = PoolType::Caching;
        }
        if self.keeps_whole {
            settings.max_split_size_bytes = Some(0);
        }
    }

    /// The sizes of its segments, where the device has `sizing`.
    pub(super) fn sizing(&self, sizing: Sizing) -> Sizing {
        if self.has_arenas { Sizing::Arena } else { sizing }
    }
}
