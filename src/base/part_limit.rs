//! The figures of a request that failed because a part of the program has reached its limit: a tag,
//! or a private pool. Memory itself is not short.

use std::fmt;
use std::sync::Arc;

use super::DeviceOrdinal;
use super::size::Bytes;

/// A part of a program that has a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A tag, by name. Its limit counts live bytes.
    Tag(Arc<str>),
    /// A private pool, by its two numbers. Its limit counts reserved bytes.
    Pool(u64, u64),
}

/// The limit that stopped a request, and what its part holds. Displays as one line of `name=value`
/// pairs and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLimit {
    /// Whose limit it is.
    pub part: Part,
    /// The device.
    pub device: DeviceOrdinal,
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// What counts against it, in bytes.
    pub held_bytes: u64,
    /// How many live blocks a tag has; 0 for a pool.
    pub live_blocks: u64,
    /// What was asked for, in bytes.
    pub requested_bytes: u64,
    /// What it would have added, in bytes.
    pub added_bytes: u64,
}

impl PartLimit {
    /// One sentence for people, without a trailing stop.
    pub fn sentence(&self) -> String {
        let device = self.device;
        let (limit, held) = (Bytes(self.limit_bytes), Bytes(self.held_bytes));
        match &self.part {
            Part::Tag(name) => format!(
                "The tag {name:?} may have {limit} live on GPU {device}, and has {held} (blocks: \
                 {})",
                self.live_blocks
            ),
            Part::Pool(first, second) => format!(
                "The private pool ({first}, {second}) may reserve {limit} on GPU {device}, and has \
                 reserved {held}"
            ),
        }
    }

    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self.part {
            _ if self.added_bytes > self.limit_bytes => {
                "the request alone is above the limit: raise it, or split the request"
            }
            Part::Tag(_) => "free what the tag holds, or raise its limit (genesis_tag_limit_set)",
            Part::Pool(..) => {
                "what the pool has free is in pieces that are too small: raise its limit \
                 (genesis_private_pool_limit_set)"
            }
        }
    }
}

impl fmt::Display for PartLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Part::Tag(name) => write!(formatter, "limit reached: tag={name:?}")?,
            Part::Pool(first, second) => {
                write!(formatter, "limit reached: pool=({first}, {second})")?;
            }
        }
        write!(
            formatter,
            " device={} requested_bytes={} ({}) added_bytes={} limit_bytes={} ({}) held_bytes={} \
             ({}) live_blocks={} hint: {}",
            self.device,
            self.requested_bytes,
            Bytes(self.requested_bytes),
            self.added_bytes,
            self.limit_bytes,
            Bytes(self.limit_bytes),
            self.held_bytes,
            Bytes(self.held_bytes),
            self.live_blocks,
            self.hint(),
        )
    }
}
