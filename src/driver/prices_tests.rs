use simgpu::{Call, Config, Cost, CostTable, Machine, StoreKind, Target, Times};

use super::*;
use crate::driver::simulated::SimulatedDevice;

const GRANULE: u64 = 2 << 20;

fn device(costs: CostTable) -> (std::sync::Arc<Machine>, SimulatedDevice) {
    let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
    config.costs = costs;
    let machine = Machine::new(config).unwrap();
    (machine.clone(), SimulatedDevice::new(machine, 0))
}

#[test]
fn every_published_driver_is_as_dear_as_the_table_says() {
    use simgpu::Prices::{A100, B300, H100, H200, H200Rested, RtxPro6000, VAttention};
    for (list, dearness, text) in [
        (H100, 0, "create 10.0 µs, map 0.5 µs, set access 77.0 µs, unmap 36.0 µs, release 36.0 µs"),
        (RtxPro6000, 0, "create 14.0 µs, map 1.0 µs, set access 69.0 µs"),
        (VAttention, 0, "create 29.0 µs, map 2.0 µs, set access 38.0 µs"),
        (A100, 1, "create 193.0 µs, map 1.5 µs, set access 36.0 µs"),
        (H200, 0, "create 13.8 µs, map 1.1 µs, set access 28.3 µs, unmap 18.7 µs, release 14.1 µs"),
        (H200Rested, 2, "create 121.3 µs, map 27.9 µs, set access 202.7 µs"),
        (B300, -2, "create 17.0 µs, map 1.0 µs, set access 1.0 µs"),
    ] {
        let (machine, device) = device(list.table());
        let prices = Prices::try_out(&device).unwrap();
        assert_eq!(prices.dearness(), dearness, "{}", list.name());
        assert!(prices.to_string().starts_with(text), "{}: {prices}", list.name());
        let census = machine.census();
        assert_eq!((census.handles, census.mappings, census.reservations), (0, 0, 0));
    }
}

#[test]
fn bounds_hold_and_a_driver_that_pretends_is_not_believed() {
    let dearness = |create_us: u64, access_us: u64| {
        let access_ns = access_us * 1000;
        dearness_of(create_us * 1000, create_us * 1000 + 450 + access_ns)
    };
    assert_eq!(dearness(10, 77), 0);
    assert_eq!(dearness(10, 4_000), MOST_DEARNESS, "4 ms for each access");
    assert_eq!(dearness(1_000_000, 1_000_000), MOST_DEARNESS, "a breakpoint");
    assert_eq!(dearness(5, 0), LEAST_DEARNESS);
    assert_eq!((dearness(4, 0), dearness(0, 0), dearness(4, 77)), (0, 0, 0));
    // Half as dear again, or a third of the price, is no reason yet.
    assert_eq!([22, 62, 87, 123, 124].map(|us| dearness(us, 0)), [0, 0, 0, 0, 1]);
    assert_eq!([10, 11, 21].map(|us| dearness(us, 0)), [-3, -2, -2]);
}

/// Slow calls among the first, calls that fail and calls for large extents change nothing.
#[test]
fn single_calls_do_not_count() {
    static SLOW: &[(u64, u64)] = &[(GRANULE, 10_000), (32 * MIB, 10_000), (64 * MIB, 9_000_000)];
    let mut costs = simgpu::Prices::H100.table();
    costs.set(Call::Create, Cost::by_size(SLOW).with_tail(2, 5_000_000));
    let (machine, device) = device(costs);
    let prices = Prices::default();
    let options = HandleOptions::default();
    let create =
        |bytes| prices.timed(&device, Priced::Create, (bytes, 1), || device.create(bytes, options));
    machine.faults().fail(Target::call(Call::Create), 1, Times::Once, simgpu::Code(12345));
    assert!(create(GRANULE).is_err());
    assert_eq!(prices.to_string(), "");
    create(64 * MIB).unwrap();
    assert_eq!(prices.to_string(), "", "not timed");
    for _ in 0..SAMPLES {
        create(GRANULE).unwrap();
    }
    assert_eq!(prices.to_string(), "create 10.0 µs");
    assert_eq!((prices.dearness(), prices.is_news()), (0, false), "the rest is unknown");
}

/// Setting access is charged for each mapping, so its price is that of one, in one call or many.
#[test]
fn the_price_of_access_is_that_of_one_mapping() {
    let (_, device) = device(simgpu::Prices::H100.table().without_tails());
    let prices = Prices::default();
    let address = device.reserve(8 * GRANULE, 0).unwrap();
    for index in 0..8 {
        let handle = device.create(GRANULE, HandleOptions::default()).unwrap();
        device.map(address + index * GRANULE, GRANULE, handle).unwrap();
    }
    let size = (8 * GRANULE, 8);
    let access = || device.set_access(address, 8 * GRANULE, &[]);
    prices.timed(&device, Priced::SetAccess, size, access).unwrap();
    assert_eq!(prices.to_string(), "set access 77.0 µs");
}

/// What becomes known stays, and is news once, in one of many threads.
#[test]
fn a_conclusion_is_news_once() {
    let (_, device) = device(simgpu::Prices::B300.table());
    let prices = Prices::try_out(&device).unwrap();
    let told = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| prices.is_news())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(told.iter().filter(|is_news| **is_news).count(), 1);
    assert!(!prices.is_news());
    for priced in Priced::OF_AN_EXTENT {
        prices.timed(&device, priced, (GRANULE, 1), || Ok(())).unwrap();
    }
    assert_eq!(prices.dearness(), -2);
}

/// Other threads' calls of the same device are not part of a call's time.
#[test]
fn time_is_that_of_the_callers_own_calls() {
    let (_, device) = device(simgpu::Prices::H100.table().without_tails());
    let prices = Prices::default();
    let call = || {
        std::thread::scope(|scope| {
            scope.spawn(|| device.create(GRANULE, HandleOptions::default()).unwrap());
        });
        device.create(GRANULE, HandleOptions::default())
    };
    prices.timed(&device, Priced::Create, (GRANULE, 1), call).unwrap();
    assert_eq!(prices.to_string(), "create 10.0 µs");
}
