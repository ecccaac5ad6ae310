//! The text of a plan (`GENESIS_PLAN`). What is read is written so that it is read the same, and is
//! made ready on a simulated device, as far as that can have it; then memory is served as always,
//! and all of it goes back.
#![no_main]

#[allow(dead_code)]
#[path = "../../src/instance/plan/form.rs"]
mod form;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use form::Plan;
use genesis::base::size::{GIB, MIB};
use genesis::base::{DeviceOrdinal, Status, StreamHandle};
use genesis::config::{LogLevel, PoolType, Settings, StrategySettings};
use genesis::driver::simulated::SimulatedDevice;
use genesis::driver::{Backend, Device, Platform};
use genesis::heap::{DeviceModel, DevicePlan, Heap, Surroundings};
use genesis::observe::Log;
// For the form's own imports.
use genesis::{base, config, heap};
use libfuzzer_sys::fuzz_target;
use simgpu::{Machine, StoreKind};

const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
const STREAMS: [StreamHandle; 2] = [StreamHandle(0xA000), StreamHandle(0xB000)];
const SIZES: [u64; 4] = [1, 100_000, 3 * MIB, 40 * MIB];

/// What plans must be for, under each strategy.
static MODELS: LazyLock<Vec<DeviceModel>> = LazyLock::new(|| {
    let model = |pool_type: &PoolType| {
        let (_, heap) = start(*pool_type);
        let block = heap.allocate(1, DEVICE, STREAMS[0]).unwrap();
        let model = heap.plan().remove(0).model;
        heap.free(block).unwrap();
        model
    };
    PoolType::ALL.iter().map(model).collect()
});

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::of_text(text) else { return };
    assert_eq!(Plan::of_text(&plan.text()).unwrap().devices, plan.devices);
    plan.devices.into_iter().for_each(make_ready);
});

fn start(pool_type: PoolType) -> (Arc<Machine>, Heap) {
    let machine = Machine::new(simgpu::Config::new(StoreKind::AddressesOnly, 1, GIB)).unwrap();
    let device: Arc<dyn Device> = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0));
    let platform = Platform { backend: Backend::Sim, devices: vec![device], notice: None };
    let settings = Settings {
        strategy: StrategySettings::new(pool_type),
        log: LogLevel::Off,
        ..Settings::default()
    };
    let surroundings = Surroundings::new(Arc::new(Log::new(LogLevel::Off)));
    let heap = Heap::new(platform, &settings, surroundings);
    (machine, heap)
}

/// As if the plan were for the device that is here.
fn make_ready(mut plan: DevicePlan) {
    let pool_type = plan.model.pool_type;
    let model = MODELS.iter().find(|model| model.pool_type == pool_type).unwrap();
    plan = DevicePlan { device: DEVICE, model: model.clone(), ..plan };
    let (machine, heap) = start(pool_type);
    heap.expect(&plan).unwrap();
    if let Err(error) = heap.make_ready(&plan, &AtomicBool::new(false)) {
        assert_ne!(error.status, Status::Internal, "{error}");
    }
    heap.validate().unwrap();
    let wanted = SIZES.into_iter().flat_map(|bytes| STREAMS.map(|stream| (bytes, stream)));
    let live: Vec<u64> =
        wanted.filter_map(|(bytes, stream)| heap.allocate(bytes, DEVICE, stream).ok()).collect();
    heap.validate().unwrap();
    live.into_iter().for_each(|block| heap.free(block).unwrap());
    heap.empty_cache(DEVICE).unwrap();
    heap.validate().unwrap();
    machine.validate().unwrap();
    assert_eq!(heap.statistics(DEVICE).unwrap().reserved_bytes.current, 0);
    assert_eq!(machine.census().used_bytes, 0);
    assert!(machine.take_violations().is_empty());
}
