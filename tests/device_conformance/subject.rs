//! The devices under test, and what a case may assume of them.

use std::sync::{Arc, Mutex, PoisonError};

use genesis::driver::simulated::SimulatedDevice;
use genesis::driver::{Device, HandleOptions, Shareable, cuda};
use simgpu::{Config, Machine, StoreKind};

/// Memory without special properties.
pub(crate) const PLAIN: HandleOptions = HandleOptions { shareable: Shareable::None, rdma: false };

/// A device and what a case needs to know of it.
pub(crate) struct Subject {
    pub(crate) driver: Arc<dyn Device>,
    /// Another device that can be given access to this one's memory.
    pub(crate) peer: Option<Arc<dyn Device>>,
    /// True if the host can read and write device memory through its address.
    pub(crate) device_bytes: bool,
    /// True if every mistake is refused. Real drivers let some pass (`simgpu`'s rules of virtual
    /// memory say which), so cases do not make these there.
    pub(crate) is_strict: bool,
    /// True if pinned host memory can be read and written.
    pub(crate) host_bytes: bool,
    /// Runs after the case, when everything was freed.
    pub(crate) epilogue: Box<dyn Fn()>,
}

/// Runs one case. Cases take turns, because on a real device they look at its free memory.
pub(crate) fn hold(subject: Subject, case: fn(&Subject)) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    case(&subject);
    (subject.epilogue)();
}

/// The first of two simulated devices of 1 GiB. Afterwards the machine must be consistent,
/// without violations and empty.
pub(crate) fn simulated(store: StoreKind) -> Subject {
    let mut config = Config::new(store, 2, 1 << 30);
    config.detect_races = true;
    let machine = Machine::new(config).unwrap();
    let device_bytes = store == StoreKind::RealBytes;
    Subject {
        driver: Arc::new(SimulatedDevice::new(machine.clone(), 0)),
        peer: Some(Arc::new(SimulatedDevice::new(machine.clone(), 1))),
        device_bytes,
        is_strict: true,
        host_bytes: device_bytes,
        epilogue: Box::new(move || {
            machine.validate().unwrap();
            assert_eq!(machine.take_violations(), []);
            assert_eq!(machine.census(), simgpu::Census::default());
        }),
    }
}

/// The first CUDA device. A machine without one fails.
pub(crate) fn cuda() -> Subject {
    let platform = cuda::open().unwrap_or_else(|error| panic!("no CUDA device: {error}"));
    let driver = platform.devices.first().cloned().expect("an open driver has a device");
    let epilogue = Box::new(|| ());
    let (device_bytes, is_strict, host_bytes) = (false, false, true);
    Subject { driver, peer: None, device_bytes, is_strict, host_bytes, epilogue }
}

impl Subject {
    /// Writes a pattern that depends on `seed` over device memory, if it has bytes.
    pub(crate) fn fill(&self, address: u64, bytes: u64, seed: u8) {
        if self.device_bytes {
            write_pattern(address, bytes, seed);
        }
    }

    /// Checks that [`Self::fill`]'s pattern is there, if device memory has bytes.
    pub(crate) fn expect(&self, address: u64, bytes: u64, seed: u8) {
        if self.device_bytes {
            assert!(has_pattern(address, bytes, seed), "{address:#x} lost its bytes");
        }
    }
}

/// The distance of a pattern's bytes: a page has several, and a granule is still quick.
const PATTERN_STEP_BYTES: u64 = 509;

pub(crate) fn write_pattern(address: u64, bytes: u64, seed: u8) {
    for offset in (0..bytes).step_by(PATTERN_STEP_BYTES as usize) {
        // SAFETY: the caller holds accessible memory of `bytes` at `address`, and no other
        // thread uses it; the write is volatile because aliases may show the same byte.
        unsafe { ((address + offset) as *mut u8).write_volatile(pattern(offset, seed)) };
    }
}

pub(crate) fn has_pattern(address: u64, bytes: u64, seed: u8) -> bool {
    (0..bytes).step_by(PATTERN_STEP_BYTES as usize).all(|offset| {
        // SAFETY: as in `write_pattern`; every byte read was written before.
        let byte = unsafe { ((address + offset) as *const u8).read_volatile() };
        byte == pattern(offset, seed)
    })
}

fn pattern(offset: u64, seed: u8) -> u8 {
    (offset / PATTERN_STEP_BYTES) as u8 ^ seed
}
