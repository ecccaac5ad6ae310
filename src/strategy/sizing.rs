//! The sizes of blocks for requests, and of segments for blocks.
//!
//! Pure arithmetic, the same for all lanes, so it runs outside their locks.

use crate::base::size::{
    ALIGNMENT_BYTES, LARGEST_REQUEST_BYTES, MIB, SMALL_BLOCK_LIMIT_BYTES, round_up,
};
use crate::config::{PoolType, Settings};

/// Caching's and Arena's segments for small blocks, in bytes.
const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// Both put large blocks below this size, in bytes, together in common segments …
const COMMON_BLOCK_LIMIT_BYTES: u64 = 10 * MIB;
/// … of this size, in bytes.
pub const COMMON_SEGMENT_BYTES: u64 = 20 * MIB;
/// Both round segments for one larger block to a multiple of this, in bytes.
const SEGMENT_MULTIPLE_BYTES: u64 = 2 * MIB;

/// Elastic and Arena have this many sizes from one power of two to the next …
const CLASSES_PER_DOUBLING: u64 = 8;
/// … up to this one, in bytes. Arena has them for all small blocks.
const CLASSES_LIMIT_BYTES: u64 = 256 * 1024;

/// The sizes of one strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// The request as it is, so that tools which watch the driver see its true size.
    Naive,
    /// Powers of two; above `1 << cutoff`, multiples of that. The sizes of MXNet's
    /// `GPUPooledRoundedStorageManager`, without its table that ends at 16 GiB.
    Round {
        /// The smallest block, in bytes.
        page_bytes: u64,
        /// The largest power of two used as a size, as an exponent.
        cutoff: u32,
    },
    /// Multiples of the page; above `large_bytes`, multiples of that. The sizes of MXNet's
    /// `GPUPooledStorageManager`.
    Exact {
        /// The unit of small sizes, in bytes.
        page_bytes: u64,
        /// The unit of large sizes, in bytes.
        large_bytes: u64,
    },
    /// Multiples of 512 bytes; small blocks in eight sizes per doubling.
    Elastic,
    /// Small blocks in eight sizes per doubling, large ones multiples of 512 bytes.
    Arena,
    /// Multiples of 512 bytes in segments; the sizes of PyTorch's `CUDACachingAllocator`.
    Caching {
        /// Round up to a power of two divided by this; 0: only to 512 bytes.
        power2_divisions: u32,
    },
}

impl Sizing {
    /// The sizes that `settings` ask for.
    pub fn new(settings: &Settings) -> Self {
        let page_bytes = settings.strategy.page_size_bytes;
        match settings.strategy.pool_type {
            PoolType::Naive => Self::Naive,
            PoolType::Round => {
                Self::Round { page_bytes, cutoff: settings.strategy.round_linear_cutoff }
            }
            PoolType::Exact => Self::Exact {
                page_bytes,
                large_bytes: settings.strategy.large_alloc_round_size_bytes,
            },
            PoolType::Arena => Self::Arena,
            PoolType::Elastic => Self::Elastic,
            PoolType::Caching => {
                Self::Caching { power2_divisions: settings.roundup_power2_divisions }
            }
        }
    }

    /// The size of a block for `requested_bytes` (not 0), in bytes; `None` above
    /// [`LARGEST_REQUEST_BYTES`].
    #[inline(always)]
    pub fn block_bytes(&self, requested_bytes: u64) -> Option<u64> {
        match self {
            _ if requested_bytes > LARGEST_REQUEST_BYTES => None,
            // No larger than that, which is a multiple of 512 bytes.
            Self::Elastic => Some(elastic_bytes(requested_bytes)),
            other => other.other_bytes(requested_bytes),
        }
    }

    /// [`Self::block_bytes`] of all but Elastic, the default.
    #[inline(never)]
    fn other_bytes(&self, requested_bytes: u64) -> Option<u64> {
        let bytes = match *self {
            Self::Elastic => elastic_bytes(requested_bytes),
            Self::Naive => requested_bytes,
            Self::Round { page_bytes, cutoff } => {
                let power = requested_bytes.next_power_of_two();
                if power <= 1 << cutoff {
                    power.max(page_bytes)
                } else {
                    round_up(requested_bytes, 1 << cutoff)?
                }
            }
            Self::Exact { page_bytes, large_bytes } => {
                let paged = round_up(requested_bytes, page_bytes)?;
                if paged > large_bytes { round_up(paged, large_bytes)? } else { paged }
            }
            Self::Arena if requested_bytes <= SMALL_BLOCK_LIMIT_BYTES => {
                class_bytes(requested_bytes)
            }
            Self::Arena => round_up(requested_bytes, ALIGNMENT_BYTES)?,
            Self::Caching { power2_divisions } => {
                let aligned = round_up(requested_bytes, ALIGNMENT_BYTES)?;
                let divisions = u64::from(power2_divisions);
                if divisions > 1 && requested_bytes > ALIGNMENT_BYTES * divisions {
                    let part = (1 << requested_bytes.ilog2()) / divisions;
                    round_up(requested_bytes, part.max(ALIGNMENT_BYTES))?
                } else {
                    aligned
                }
            }
        };
        (bytes <= LARGEST_REQUEST_BYTES).then_some(bytes)
    }

    /// The largest free block that can serve `block_bytes` at all, in bytes.
    pub fn largest_usable_bytes(self, block_bytes: u64) -> u64 {
        match self {
            Self::Caching { .. } | Self::Arena | Self::Elastic => u64::MAX,
            _ => block_bytes,
        }
    }

    /// The size of the segment to allocate when no free block serves `block_bytes`.
    pub fn segment_bytes(self, block_bytes: u64) -> u64 {
        match self {
            Self::Caching { .. } | Self::Arena if block_bytes <= SMALL_BLOCK_LIMIT_BYTES => {
                SMALL_SEGMENT_BYTES
            }
            Self::Caching { .. } | Self::Arena if block_bytes < COMMON_BLOCK_LIMIT_BYTES => {
                COMMON_SEGMENT_BYTES
            }
            Self::Caching { .. } | Self::Arena | Self::Elastic => {
                block_bytes.next_multiple_of(SEGMENT_MULTIPLE_BYTES)
            }
            _ => block_bytes,
        }
    }
}

#[inline(always)]
fn elastic_bytes(requested_bytes: u64) -> u64 {
    if requested_bytes <= CLASSES_LIMIT_BYTES {
        class_bytes(requested_bytes)
    } else {
        multiple_above(requested_bytes, ALIGNMENT_BYTES)
    }
}

/// The class of a small request, in bytes.
#[inline(always)]
fn class_bytes(requested_bytes: u64) -> u64 {
    let doubling = 1 << ((requested_bytes - 1) | 1).ilog2();
    multiple_above(requested_bytes, ALIGNMENT_BYTES.max(doubling / CLASSES_PER_DOUBLING))
}

/// The multiple of `power`, a power of two, that `bytes` reaches, which is below 2^63.
#[inline(always)]
fn multiple_above(bytes: u64, power: u64) -> u64 {
    (bytes + power - 1) & !(power - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Sizing = Sizing::Round { page_bytes: 4096, cutoff: 24 };
    const EXACT: Sizing = Sizing::Exact { page_bytes: 4096, large_bytes: 2 * MIB };
    const CACHING: Sizing = Sizing::Caching { power2_divisions: 0 };

    /// The sizes that MXNet and PyTorch compute for a request.
    #[test]
    fn sizes_are_those_of_mxnet_and_pytorch() {
        for (requested, exact, round, caching) in [
            (1, 4096, 4096, 512),
            (4097, 8192, 8192, 4608),
            (1_048_577, 1_052_672, 2_097_152, 1_049_088),
            (2_097_153, 4_194_304, 4_194_304, 2_097_664),
            (10_485_760, 10_485_760, 16_777_216, 10_485_760),
            (16_777_217, 18_874_368, 33_554_432, 16_777_728),
            (34_603_008, 35_651_584, 50_331_648, 34_603_008),
            (17_179_869_185, 17_181_966_336, 17_196_646_400, 17_179_869_696),
        ] {
            assert_eq!(EXACT.block_bytes(requested), Some(exact), "Exact {requested}");
            assert_eq!(ROUND.block_bytes(requested), Some(round), "Round {requested}");
            assert_eq!(CACHING.block_bytes(requested), Some(caching), "Caching {requested}");
            assert_eq!(Sizing::Naive.block_bytes(requested), Some(requested));
        }
    }

    #[test]
    fn absurd_sizes_are_refused_by_all() {
        for sizing in [Sizing::Naive, ROUND, EXACT, CACHING, Sizing::Arena, Sizing::Elastic] {
            for requested in [u64::MAX, u64::MAX - 510, (1 << 47) + 1] {
                assert_eq!(sizing.block_bytes(requested), None, "{sizing:?} {requested}");
            }
        }
    }

    #[test]
    fn elastics_classes_waste_at_most_an_eighth() {
        let mut sizes = std::collections::BTreeSet::new();
        for requested in (1..=CLASSES_LIMIT_BYTES).step_by(37) {
            let bytes = Sizing::Elastic.block_bytes(requested).unwrap();
            assert!(bytes >= requested && bytes.is_multiple_of(ALIGNMENT_BYTES));
            assert!(bytes - requested < ALIGNMENT_BYTES.max(requested / 8), "{requested}");
            sizes.insert(bytes);
        }
        assert_eq!(sizes.len(), 8 + 8 * 6, "8 multiples of 512, then 8 for each of 6 doublings");
        assert_eq!(Sizing::Elastic.block_bytes(CLASSES_LIMIT_BYTES + 1), Some(262_656));
    }

    /// Arena has them for all small blocks; above, and in Elastic above 256 KiB, sizes are exact.
    #[test]
    fn classes_end_where_blocks_are_large() {
        for (requested, arena, elastic) in [
            (1, 512, 512),
            (513, 1024, 1024),
            (CLASSES_LIMIT_BYTES - 1, CLASSES_LIMIT_BYTES, CLASSES_LIMIT_BYTES),
            (CLASSES_LIMIT_BYTES + 1, 288 * 1024, CLASSES_LIMIT_BYTES + 512),
            (MIB - 65_536, MIB - 65_536, MIB - 65_536),
            (MIB - 65_535, MIB, MIB - 65_536 + 512),
            (MIB, MIB, MIB),
            (MIB + 1, MIB + 512, MIB + 512),
        ] {
            assert_eq!(Sizing::Arena.block_bytes(requested), Some(arena), "{requested}");
            assert_eq!(Sizing::Elastic.block_bytes(requested), Some(elastic), "{requested}");
        }
    }

    #[test]
    fn divisions_of_a_power_of_two() {
        let quarters = Sizing::Caching { power2_divisions: 4 };
        for (requested, bytes) in
            [(512, 512), (2048, 2048), (2049, 2560), (1200 * 1024, 1280 * 1024), (1 << 20, 1 << 20)]
        {
            assert_eq!(quarters.block_bytes(requested), Some(bytes), "{requested}");
        }
    }

    #[test]
    fn segments_are_those_of_pytorch() {
        for (block, segment) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 512, 12 * MIB),
        ] {
            assert_eq!(CACHING.segment_bytes(block), segment, "{block}");
        }
    }
}
