//! Prices are the published ones: calls of the machine cost the points of each column, to the
//! nanosecond.

use std::sync::Arc;

use simgpu::{Call, Config, CostTable, Machine, Prices, StoreKind};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CAPACITY_BYTES: u64 = 64 * GIB;

fn machine(costs: CostTable) -> Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, 1, CAPACITY_BYTES);
    config.costs = costs;
    Machine::new(config).unwrap()
}

/// MiB of a handle, and what each of its calls costs.
type Point = (u64, [u64; 5]);

/// How much `call` was charged.
fn charged<T>(machine: &Machine, call: impl FnOnce() -> T) -> (u64, T) {
    let before = machine.usage(0).unwrap().driver_nanoseconds;
    let answer = call();
    (machine.usage(0).unwrap().driver_nanoseconds - before, answer)
}

/// Prices of one handle of `bytes`: create, map, set access, unmap, release.
fn of_a_handle(machine: &Machine, bytes: u64) -> [u64; 5] {
    let address = machine.reserve(0, bytes, 0).unwrap();
    let (create, handle) = charged(machine, || machine.create(0, bytes).unwrap());
    let (map, _) = charged(machine, || machine.map(0, address, bytes, handle).unwrap());
    let (access, _) = charged(machine, || machine.set_access(0, address, bytes, &[0]).unwrap());
    let (unmap, _) = charged(machine, || machine.unmap(0, address, bytes).unwrap());
    let (release, _) = charged(machine, || machine.release(0, handle).unwrap());
    machine.unreserve(0, address, bytes).unwrap();
    [create, map, access, unmap, release]
}

#[test]
fn points_come_out_exactly() {
    let published: [(Prices, &[Point]); 7] = [
        (
            Prices::H100,
            &[
                (2, [10_000, 450, 77_000, 36_000, 36_000]),
                (16, [12_000, 450, 77_000, 36_000, 39_000]),
                (64, [11_000, 450, 77_000, 36_000, 49_000]),
                (256, [15_000, 450, 98_000, 36_000, 91_000]),
            ],
        ),
        (Prices::A100, &[(2, [193_000, 1_500, 36_000, 26_000, 36_000])]),
        (
            Prices::RtxPro6000,
            &[
                (2, [14_000, 1_000, 69_000, 39_000, 36_000]),
                (64, [14_000, 1_000, 69_000, 39_000, 49_636]),
            ],
        ),
        (Prices::VAttention, &[(2, [29_000, 2_000, 38_000, 34_000, 23_000])]),
        (
            Prices::B300,
            &[
                (2, [17_000, 1_000, 1_000, 39_000, 36_000]),
                (16, [25_000, 1_000, 1_000, 39_000, 39_000]),
                (256, [140_000, 1_000, 1_000, 39_000, 158_451]),
            ],
        ),
        (
            Prices::H200,
            &[
                (2, [13_777, 1_062, 28_251, 18_748, 14_128]),
                (16, [13_777, 1_062, 29_037, 18_931, 28_257]),
            ],
        ),
        (
            Prices::H200Rested,
            &[
                (2, [121_328, 27_935, 202_722, 149_261, 124_125]),
                (16, [127_830, 27_935, 202_722, 152_294, 124_125]),
            ],
        ),
    ];
    for (prices, points) in published {
        let machine = machine(prices.table());
        for (mebibytes, expected) in points {
            assert_eq!(of_a_handle(&machine, mebibytes * MIB), *expected, "{}", prices.name());
        }
    }
}

#[test]
fn plain_and_pinned_memory_cost_the_dearest_that_is_known() {
    for prices in Prices::ALL {
        if [Prices::H200, Prices::H200Rested].contains(prices) {
            continue; // all of theirs is measured
        }
        let machine = machine(prices.table());
        for (mebibytes, allocate_ns, free_ns) in [
            (2, 223_000, 75_000),
            (128, 286_000, 152_000),
            (1024, 388_000, 690_329),
            (4096, 1_747_943, 2_912_108),
        ] {
            let (allocate, address) =
                charged(&machine, || machine.allocate(0, mebibytes * MIB).unwrap());
            let (free, ()) = charged(&machine, || machine.free(0, address).unwrap());
            assert_eq!((allocate, free), (allocate_ns, free_ns), "{mebibytes} MiB");
        }
        let pin = |bytes| charged(&machine, || machine.host_allocate(0, bytes).unwrap());
        let (whole, address) = pin(8 * GIB);
        assert!(whole >= 2_700_000_000, "published for 8 GiB: {whole}");
        machine.host_free(0, address).unwrap();
        assert_eq!(pin(2 * MIB).0, 967_597);
    }
}

#[test]
fn access_and_unmapping_cost_as_much_for_each_mapping() {
    const COUNT: u64 = 64;
    let machine = machine(Prices::H100.table());
    let bytes = COUNT * 2 * MIB;
    let address = machine.reserve(0, bytes, 0).unwrap();
    for index in 0..COUNT {
        let handle = machine.create(0, 2 * MIB).unwrap();
        machine.map(0, address + index * 2 * MIB, 2 * MIB, handle).unwrap();
    }
    let (access, ()) = charged(&machine, || machine.set_access(0, address, bytes, &[0]).unwrap());
    let (unmap, ()) = charged(&machine, || machine.unmap(0, address, bytes).unwrap());
    assert_eq!((access, unmap), (COUNT * 77_000, COUNT * 36_000));
}

#[test]
fn each_hundredth_call_is_slow() {
    let machine = machine(Prices::H100.table());
    for number in 1..=200 {
        let slow = [10_000, 450, 1_000_000, 1_850_000, 1_200_000];
        let usual = [10_000, 450, 77_000, 36_000, 36_000];
        let expected = if number % 100 == 0 { slow } else { usual };
        assert_eq!(of_a_handle(&machine, 2 * MIB), expected, "round {number}");
    }
}

#[test]
fn without_tails_no_call_is_slow() {
    let machine = machine(Prices::H100.table().without_tails());
    for _ in 0..200 {
        assert_eq!(of_a_handle(&machine, 2 * MIB), [10_000, 450, 77_000, 36_000, 36_000]);
    }
}

#[test]
fn a_call_that_fails_costs_the_least() {
    let machine = machine(Prices::H100.table());
    let (create, answer) = charged(&machine, || machine.create(0, 2 * CAPACITY_BYTES));
    assert!(answer.is_err());
    assert_eq!(create, 10_000);
}

#[test]
fn every_column_has_its_least_price_first() {
    for prices in Prices::ALL {
        let table = prices.table();
        for call in Call::ALL {
            let cost = table.get(call);
            for points in [cost.points, cost.further] {
                assert!(points.iter().all(|point| point.1 >= points[0].1), "{call:?}");
                assert!(points.is_sorted_by(|one, next| one.0 < next.0), "{call:?}");
            }
            let is_slow = cost.tail.is_none_or(|tail| tail.nanoseconds > cost.base_ns());
            assert!(is_slow, "{call:?}");
        }
        let memory = [Call::Reserve, Call::Create, Call::Map, Call::SetAccess, Call::Unmap];
        let all = memory.into_iter().chain([Call::Release, Call::Unreserve]);
        assert!(all.into_iter().all(|call| table.get(call).base_ns() > 0), "{}", prices.name());
    }
}

#[test]
fn columns_are_known_by_name() {
    for prices in Prices::ALL {
        assert_eq!(prices.name().parse(), Ok(*prices));
        assert_eq!(prices.name().to_uppercase().parse(), Ok(*prices));
    }
    assert_eq!(CostTable::default(), Prices::H100.table());
    let unknown = "h1000".parse::<Prices>().unwrap_err();
    assert_eq!(
        unknown,
        "not a price list; valid: h100, a100, rtxpro6000, vattention, b300, h200, h200rested"
    );
}
