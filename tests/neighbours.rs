//! Processes that share a device (`GENESIS_SHARE`), on simcuda, whose processes share one capacity.
//!
//! A *town* is a share name, a file of simcuda's and the peers that have both. What the processes
//! wrote is read from their register, as `genesis top` does.

#[path = "neighbours/budgets.rs"]
mod budgets;
#[path = "neighbours/giving.rs"]
mod giving;
#[path = "neighbours/killed.rs"]
mod killed;
#[path = "neighbours/limits.rs"]
mod limits;
#[path = "neighbours/managed.rs"]
mod managed;
#[path = "support/on_simcuda.rs"]
mod on_simcuda;
#[path = "sharing/peer.rs"]
#[allow(dead_code)] // tests/sharing.rs uses the rest
mod peer;
#[path = "support/tier.rs"]
mod tier;
#[path = "neighbours/town.rs"]
mod town;

const MIB: u64 = 1 << 20;
/// The device's memory.
const DEVICE_BYTES: u64 = 1 << 30;
