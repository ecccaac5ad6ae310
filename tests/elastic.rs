//! What only Elastic promises: memory goes where it is needed.
//!
//! Freed memory serves any request of as many bytes, wherever it lies and whichever stream it
//! was freed on; blocks that are live keep their bytes; and neither address space nor mappings
//! nor the host's memory grow with the number of requests. The devices here are small, so that
//! memory has to move all the time.

#[path = "elastic/addresses.rs"]
mod addresses;
#[path = "elastic/checkerboard.rs"]
mod checkerboard;
#[path = "elastic/edges.rs"]
mod edges;
#[path = "elastic/first_cycle.rs"]
mod first_cycle;
#[path = "elastic/home.rs"]
mod home;
#[path = "elastic/idle_streams.rs"]
mod idle_streams;
#[path = "elastic/peers.rs"]
mod peers;
#[path = "elastic/pools.rs"]
mod pools;
#[path = "elastic/prices.rs"]
mod prices;
#[path = "elastic/restless.rs"]
mod restless;
#[path = "elastic/rising_peak.rs"]
mod rising_peak;
#[path = "elastic/scarcity.rs"]
mod scarcity;
#[path = "elastic/shortage.rs"]
mod shortage;
#[path = "elastic/strangers.rs"]
mod strangers;
mod support;
#[path = "elastic/threads.rs"]
mod threads;

use genesis::config::PoolType;
use simgpu::StoreKind;

use support::Subject;
use support::host_memory::Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

const ADDRESSES: Subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
const REAL: Subject = Subject::new(PoolType::Elastic, StoreKind::RealBytes);
