//! Memory handed out in parts, from blocks of a heap: arenas, fixed-size pools, and tiers of both.
//!
//! | object | allocate | free | for |
//! |---|---|---|---|
//! | [`Arena`] | adds to a position | all at once, or back to a mark | what dies together |
//! | [`FixedPool`] | takes a block from a stack | puts it back | many blocks of one size |
//! | [`Tiers`] | asks the pool of the size, else an arena | asks the part that has it | a few known sizes |
//!
//! They are objects over any [`Source`]: a heap of device memory, of pinned or of pageable host
//! memory. A request that needs no memory from the source makes no other call: it takes a few
//! nanoseconds. The whole of `GENESIS_POOL_TYPE=Arena` is another thing, a strategy of a heap
//! (`strategy::arenas`): there each block has a record, as under every strategy.
//!
//! **Stream order.** An object of device memory belongs to one stream, the *own* one, on which all
//! its memory is free again. Another stream joins before it uses memory: it waits, on the device,
//! for the own one. Before memory that other streams have used is free, the own stream waits for
//! each of them. So programs of one stream cause no driver call, and the host never waits. The own
//! stream must exist as long as the object, every other one until what it used is free.
//!
//! **Threads.** An object is for one thread at a time, which costs little, or for any (`Access`).
//! No lock is held while the source is asked.
//!
//! **Debugging.** If the source asks for it, each request becomes a block of the source. So all that
//! `GENESIS_DEBUG` finds in blocks, it finds here: a use after a reset is a use after free.

mod access;
mod apart;
mod arena;
mod chunks;
mod fixed_pool;
mod shortcuts;
mod slabs;
mod source;
mod tiers;
mod users;

pub use arena::{Arena, ArenaOptions, ArenaStatistics, Lease, Mark};
pub use fixed_pool::{FixedPool, FixedPoolOptions, FixedPoolStatistics};
pub use source::{Source, Threads};
pub use tiers::{Tier, Tiers, TiersStatistics};
