//! How large extents are follows what the driver charges.

use genesis::base::size::{GIB, MIB};
use genesis::config::{ElasticPolicy, LogLevel};
use simgpu::{Call, Prices};

use crate::ADDRESSES;
use crate::support::{A, DEVICE, Rig};

const BLOCK_BYTES: u64 = 64 * MIB;
/// A program of so many bytes has extents as large as they may be.
const LARGE_BYTES: u64 = 8 * GIB;

/// A device with the prices of `list`.
fn start(list: Prices, policy: ElasticPolicy) -> Rig {
    let mut plan = ADDRESSES.plan().capacity(80 * GIB);
    plan.machine.costs = list.table();
    plan.settings.elastic_policy = policy;
    plan.settings.log = LogLevel::Info;
    plan.start()
}

/// Allocates small blocks, whose extents are the first calls, and then large ones of `live_bytes`, twice.
/// Returns how many extents each large block has the second time, when the program no longer loads.
fn extents_of_a_block(rig: &Rig, live_bytes: u64) -> u64 {
    let created = extents_of_blocks(rig, live_bytes, 2);
    let count = live_bytes / BLOCK_BYTES;
    assert_eq!(created % count, 0);
    created / count
}

/// The same, and for each block of the second time `temporaries` as large as it come and go. Returns how many
/// extents all the blocks have.
fn extents_of_blocks(rig: &Rig, live_bytes: u64, temporaries: usize) -> u64 {
    let small: Vec<u64> = (0..20).map(|_| rig.allocate(900_000, A)).collect();
    let count = live_bytes / BLOCK_BYTES;
    let allocate = || rig.allocate(BLOCK_BYTES, A);
    let first: Vec<u64> = (0..count).map(|_| allocate()).collect();
    first.into_iter().for_each(|block| rig.free(block));
    rig.heap.empty_cache(DEVICE).unwrap();
    let temporary = allocate();
    let before = rig.usage().count(Call::Create);
    let mut live = vec![temporary];
    for _ in 0..count {
        for _ in 0..temporaries {
            rig.free(live.pop().unwrap());
            live.push(allocate());
        }
        live.push(allocate());
    }
    let created = rig.usage().count(Call::Create) - before;
    live.into_iter().chain(small).for_each(|block| rig.free(block));
    created
}

fn lines_about_prices(rig: &Rig) -> Vec<String> {
    rig.lines().into_iter().filter(|line| line.contains("set access")).collect()
}

#[test]
fn extents_are_finer_where_they_are_cheap_and_coarser_where_they_are_dear() {
    for (list, extents, said) in [
        (Prices::H100, 2, "extents of 8.00 MiB to 32.00 MiB"),
        (Prices::RtxPro6000, 2, "extents of 8.00 MiB to 32.00 MiB"),
        (Prices::B300, 8, "extents of 2.00 MiB to 8.00 MiB"),
        (Prices::A100, 1, "extents of 16.00 MiB to 64.00 MiB"),
    ] {
        let rig = start(list, ElasticPolicy::Balanced);
        assert_eq!(extents_of_a_block(&rig, LARGE_BYTES), extents, "{}", list.name());
        let lines = lines_about_prices(&rig);
        assert!(matches!(&*lines, [line] if line.ends_with(said)), "said once: {lines:?}");
        rig.finish();
    }
}

/// One live block keeps its whole extent from moving, so a program of a few GiB has finer ones; but not one
/// that has probably just begun.
#[test]
fn extents_follow_what_the_program_holds() {
    for (live_bytes, extents) in [(GIB, 4), (3 * GIB, 8), (5 * GIB, 4), (LARGE_BYTES, 2)] {
        let rig = start(Prices::H100, ElasticPolicy::Balanced);
        assert_eq!(extents_of_a_block(&rig, live_bytes), extents, "{} GiB", live_bytes / GIB);
        rig.finish();
    }
}

/// What a program loads after it has freed much, it keeps, too.
#[test]
fn extents_are_larger_while_a_program_loads_again() {
    let rig = start(Prices::H100, ElasticPolicy::Balanced);
    let count = LARGE_BYTES / BLOCK_BYTES;
    let extents = extents_of_blocks(&rig, LARGE_BYTES, 0);
    // The first are of 32 MiB: a few blocks may be an accident.
    assert!((count..count + count / 4).contains(&extents), "{extents} extents for {count} blocks");
    rig.finish();
}

#[test]
fn tight_has_the_smallest_extents_at_every_price() {
    for list in Prices::ALL {
        let rig = start(*list, ElasticPolicy::Tight);
        assert_eq!(extents_of_a_block(&rig, LARGE_BYTES), 32, "{}", list.name());
        rig.finish();
    }
}

/// On a simulated device the time is virtual, so a program that is repeated is served by the same
/// calls.
#[test]
fn the_same_program_at_the_same_prices_is_served_alike() {
    let usage = |list| {
        let rig = start(list, ElasticPolicy::Balanced);
        extents_of_a_block(&rig, LARGE_BYTES);
        rig.usage()
    };
    for list in [Prices::H100, Prices::A100, Prices::B300] {
        assert_eq!(usage(list), usage(list), "{}", list.name());
    }
}

/// A driver that pretends takes no time, which says nothing about the real one.
#[test]
fn times_that_no_driver_has_are_not_believed() {
    let mut plan = ADDRESSES.plan().capacity(80 * GIB);
    plan.machine.costs = simgpu::CostTable::free_of_charge();
    let rig = plan.start();
    assert_eq!(extents_of_a_block(&rig, LARGE_BYTES), 2);
    rig.finish();
}
