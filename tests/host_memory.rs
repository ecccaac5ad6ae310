//! Host heaps: the heap over `driver::host`, its faults, threads and numbers; and the
//! process they live in (`c_tests/processes/host_memory.c`).
//!
//! What C programs see of them is in `c_tests/host_memory.c`.

#[path = "host_memory/order.rs"]
mod order;
#[path = "c_interface/programs.rs"]
mod programs;
mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use genesis::base::size::{GIB, KIB, MIB};
use genesis::base::{DeviceOrdinal, Status, StreamHandle};
use genesis::config::{LogLevel, PoolType, Settings, StrategySettings};
use genesis::driver::host::{HostMemory, OpenGate};
use genesis::driver::simulated::SimulatedDevice;
use genesis::driver::{Backend, Platform};
use genesis::heap::{Heap, Stream, StreamKey, Surroundings};
use genesis::observe::Log;
use programs::Language::C99;
use programs::{command, compile, run, run_silently, text};
use simgpu::{Call, Code, Config, Machine, StoreKind, Target, Times};
use support::{Random, status_of, tier};

const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
const STREAM: StreamHandle = StreamHandle::LEGACY;
/// The host's own order, in which the process's heaps have their memory.
const ORDER: Stream = Stream { handle: StreamHandle::LEGACY, key: StreamKey::HOST };
const POOL_TYPES: [PoolType; 5] =
    [PoolType::Naive, PoolType::Round, PoolType::Exact, PoolType::Caching, PoolType::Arena];
const UNKNOWN: Code = Code(12345);

fn heap_over(memory: HostMemory, pool_type: PoolType) -> Heap {
    support::heap_over(Arc::new(memory), pool_type)
}

/// A host heap of pinned memory, and the machine whose driver pins it, up to `most_bytes`.
fn pinned(pool_type: PoolType, most_bytes: u64) -> (Arc<Machine>, Heap) {
    pinned_on(StoreKind::RealBytes, pool_type, most_bytes)
}

/// The same; with addresses only, the driver allocates all of it.
fn pinned_on(store: StoreKind, pool_type: PoolType, most_bytes: u64) -> (Arc<Machine>, Heap) {
    let mut config = Config::new(store, 1, 64 * MIB);
    config.host_memory_bytes = most_bytes;
    let machine = Machine::new(config).unwrap();
    let device = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0));
    (machine, heap_over(HostMemory::pinned(device, Arc::new(OpenGate)), pool_type))
}

fn finish(heap: &Heap) {
    heap.empty_cache(DEVICE).unwrap();
    let statistics = heap.statistics(DEVICE).unwrap();
    assert_eq!(statistics.reserved_bytes.current, 0);
    assert_eq!(statistics.allocations, statistics.frees);
    assert_eq!(statistics.requested_bytes.current, 0);
    heap.validate().unwrap();
}

/// A random program against a table of what is live; statistics are the table's sums.
#[test]
fn numbers_are_exact() {
    for (seed, pool_type) in (1..).zip(POOL_TYPES) {
        let heap = heap_over(HostMemory::pageable(), pool_type);
        let mut random = Random(seed);
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut peak_bytes = 0;
        for _ in 0..3000 {
            if random.below(2) == 0 || live.is_empty() {
                let magnitude = 4 + random.below(19);
                let bytes = 1 + random.below(1 << magnitude);
                let address = heap.allocate(bytes, DEVICE, STREAM).unwrap();
                assert!(address.is_multiple_of(512));
                assert!(
                    live.iter().all(|&(at, size)| at + size <= address || address + bytes <= at)
                );
                live.push((address, bytes));
            } else {
                let (address, _) = live.swap_remove(random.below(live.len() as u64) as usize);
                match random.below(10) {
                    0 => drop(heap.free_directly(address).unwrap()),
                    _ => heap.free(address).unwrap(),
                }
            }
            let live_bytes = live.iter().map(|(_, bytes)| bytes).sum();
            peak_bytes = peak_bytes.max(live_bytes);
            let requested = heap.statistics(DEVICE).unwrap().requested_bytes;
            assert_eq!((requested.current, requested.peak), (live_bytes, peak_bytes));
        }
        heap.validate().unwrap();
        live.drain(..).for_each(|(address, _)| heap.free(address).unwrap());
        finish(&heap);
    }
}

#[test]
fn threads_share_a_host_heap() {
    for pool_type in POOL_TYPES {
        let (machine, heap) = pinned(pool_type, 8 * GIB);
        thread::scope(|scope| {
            for seed in 0..4 {
                let heap = &heap;
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..300 {
                        let sizes = [1 + random.below(8 * KIB), 1 + random.below(4 * MIB)];
                        let blocks =
                            sizes.map(|bytes| heap.allocate(bytes, DEVICE, STREAM).unwrap());
                        heap.free(blocks[0]).unwrap();
                        heap.free_directly(blocks[1]).unwrap();
                    }
                });
            }
        });
        assert_eq!(heap.statistics(DEVICE).unwrap().allocations, 4 * 300 * 2);
        finish(&heap);
        assert_eq!(machine.census().host_bytes, 0);
    }
}

/// Each call of the driver's fails once: nothing is lost, and the next request is served.
#[test]
fn a_driver_that_fails_loses_nothing() {
    for pool_type in POOL_TYPES {
        for (store, call, number) in [
            (StoreKind::AddressesOnly, Call::HostAllocate, 1),
            (StoreKind::AddressesOnly, Call::HostAllocate, 2),
            (StoreKind::AddressesOnly, Call::HostFree, 1),
            (StoreKind::RealBytes, Call::HostRegister, 1),
            (StoreKind::RealBytes, Call::HostRegister, 2),
            (StoreKind::RealBytes, Call::HostUnregister, 1),
        ] {
            let (machine, heap) = pinned_on(store, pool_type, GIB);
            machine.faults().fail(Target::call(call), number, Times::Once, UNKNOWN);
            let served: Vec<u64> = (0..4)
                .filter_map(|_| match heap.allocate(15 * MIB, DEVICE, STREAM) {
                    Ok(address) => Some(address),
                    Err(error) => {
                        assert_eq!(error.status, Status::DriverFailed);
                        None
                    }
                })
                .collect();
            assert!(served.len() >= 3, "{pool_type:?} {call:?}");
            for address in served {
                // Naive hands the driver's refusal on; the memory is offered again later.
                let freed = heap.free(address);
                assert!(freed.is_ok() || pool_type == PoolType::Naive);
            }
            let address = heap.allocate(15 * MIB, DEVICE, STREAM).unwrap();
            let _ = heap.free_directly(address);
            heap.empty_cache(DEVICE).unwrap();
            finish(&heap);
            assert!(machine.usage(0).unwrap().count(call) >= number, "{call:?} was not made");
            assert_eq!(machine.census().host_bytes, 0, "{pool_type:?} {call:?}");
        }
    }
}

/// When no more can be pinned, what is cached goes back first; then the request fails.
#[test]
fn cached_memory_makes_room() {
    for pool_type in POOL_TYPES {
        let (_machine, heap) = pinned(pool_type, 100 * MIB);
        let first = heap.allocate(60 * MIB, DEVICE, STREAM).unwrap();
        assert_eq!(status_of(heap.allocate(60 * MIB, DEVICE, STREAM)), Status::OutOfMemory);
        heap.free(first).unwrap();
        let second = heap.allocate(80 * MIB, DEVICE, STREAM).unwrap();
        heap.free(second).unwrap();
        finish(&heap);
    }
}

/// Round and Exact: below the reserve every miss empties the cache, but is served.
#[test]
fn the_reserve_is_kept_free_of_cached_blocks() {
    let reserve = |percent: f64| {
        let memory = vec![Arc::new(HostMemory::pageable()) as _];
        let platform = Platform { backend: Backend::Host, devices: memory, notice: None };
        let settings = Settings {
            strategy: StrategySettings {
                reserve_percent: percent,
                ..StrategySettings::new(PoolType::Round)
            },
            ..Settings::default()
        };
        Heap::new(platform, &settings, Surroundings::new(Arc::new(Log::new(LogLevel::Off))))
    };
    for (percent, kept_bytes) in [(0.0, MIB), (100.0, 0)] {
        let heap = reserve(percent);
        heap.free(heap.allocate(MIB, DEVICE, STREAM).unwrap()).unwrap();
        let other = heap.allocate(2 * MIB, DEVICE, STREAM).unwrap();
        let reserved_bytes = heap.statistics(DEVICE).unwrap().reserved_bytes.current;
        assert_eq!(reserved_bytes, 2 * MIB + kept_bytes, "{percent} %");
        heap.free(other).unwrap();
        finish(&heap);
    }
}

/// What `c_tests/processes/host_sizes.c` prints of blocks of `sizes` of the kind with this number.
fn sizes_of(program: &Path, kind: usize, sizes: &[u64], variables: &[(String, &str)]) -> Vec<u64> {
    let mut command = command(program);
    command.arg(kind.to_string()).args(sizes.iter().map(u64::to_string));
    let printed = run_silently(command.envs(variables.iter().map(|(name, value)| (name, value))));
    printed.lines().map(|line| line.parse().unwrap()).collect()
}

/// The options of Round and Exact for each kind of host memory: they change its blocks, and not
/// those of the other kind.
#[test]
fn each_option_changes_its_own_kind_of_memory() {
    const KINDS: [&str; 2] = ["GENESIS_HOST", "GENESIS_PINNED"];
    const OTHER_BYTES: u64 = 64 * MIB;
    // Strategy, option, its value, a size; what is printed without the option, and with it.
    let rows = [
        (
            "Exact",
            "PAGE_SIZE",
            "64KiB",
            5000,
            [8 * KIB, OTHER_BYTES + 8 * KIB],
            [64 * KIB, OTHER_BYTES + 64 * KIB],
        ),
        (
            "Exact",
            "LARGE_ALLOC_ROUND_SIZE",
            "4MiB",
            5 * MIB,
            [6 * MIB, OTHER_BYTES + 6 * MIB],
            [8 * MIB, OTHER_BYTES + 8 * MIB],
        ),
        (
            "Round",
            "ROUND_LINEAR_CUTOFF",
            "20",
            2 * MIB + 1,
            [4 * MIB, OTHER_BYTES + 4 * MIB],
            [3 * MIB, OTHER_BYTES + 3 * MIB],
        ),
        ("Round", "POOL_RESERVE", "100", MIB, [MIB, OTHER_BYTES + MIB], [MIB, OTHER_BYTES]),
    ];
    let program = compile("host_sizes", "processes/host_sizes.c", C99, true);
    for (pool_type, option, value, bytes, without, with) in rows {
        for (changed, prefix) in KINDS.iter().enumerate() {
            let mut variables = KINDS.map(|kind| (format!("{kind}_POOL_TYPE"), pool_type)).to_vec();
            variables.extend(KINDS.map(|kind| (format!("{kind}_POOL_RESERVE"), "0")));
            variables.push((format!("{prefix}_{option}"), value));
            for kind in 0..KINDS.len() {
                let expected = if kind == changed { with } else { without };
                let printed = sizes_of(&program, kind, &[bytes], &variables);
                assert_eq!(printed, expected, "{prefix}_{option}={value}, kind {kind}");
            }
        }
    }
}

#[test]
fn a_host_heap_says_what_it_is() {
    let (_machine, heap) = pinned(PoolType::Caching, MIB);
    assert_eq!(heap.device_name(DEVICE).unwrap(), "Pinned host memory");
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let written = Arc::clone(&lines);
    heap.log().set_level(LogLevel::Error);
    heap.log().set_sink(Some(Arc::new(move |_, line| written.lock().unwrap().push(line.into()))));
    assert_eq!(status_of(heap.allocate(2 * MIB, DEVICE, STREAM)), Status::OutOfMemory);
    assert_eq!(lines.lock().unwrap().len(), 1);
}

#[test]
fn pageable_memory_survives_fork() {
    let program = compile("host_memory", "processes/host_memory.c", C99, true);
    for pool_type in &POOL_TYPES[..tier::some_or_all(2, POOL_TYPES.len())] {
        let mut command = command(&program);
        run_silently(command.arg("fork").env("GENESIS_HOST_POOL_TYPE", pool_type.name()));
    }
}

#[test]
fn pageable_memory_needs_no_device() {
    let program = compile("host_memory_alone", "processes/host_memory.c", C99, true);
    // A driver that is not there, which only pinned memory asks for.
    let mut command = command(&program);
    command.arg("alone").env("GENESIS_BACKEND", "cuda").env("CUDA_VISIBLE_DEVICES", "");
    let output = run(&mut command);
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
    run_silently(command.env("GENESIS_LOG", "off"));
}

#[test]
fn wrong_settings_are_told_once() {
    let program = compile("host_memory_wrong", "processes/host_memory.c", C99, true);
    let mut command = command(&program);
    command.arg("misconfigured").env("GENESIS_HOST_POOL_TYPE", "Elastic");
    let said = text(&run(&mut command).stderr);
    assert_eq!(said.matches("GENESIS_HOST_POOL_TYPE=Elastic").count(), 1, "{said}");
    assert_eq!(said.lines().count(), 2, "and the pointer that is no block: {said}");
    run_silently(command.env("GENESIS_LOG", "off"));
}
