//! The memory under test: heaps of each kind as sources, and a record of what was taken from them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use genesis::base::{Result, StreamHandle};
use genesis::config::{DebugModes, LogLevel, PoolType, Settings, StrategySettings};
use genesis::driver::host::{HostMemory, OpenGate};
use genesis::driver::simulated::SimulatedDevice;
use genesis::driver::{Backend, Platform};
use genesis::heap::{Heap, Surroundings};
use genesis::observe::Log;
use genesis::suballocation::Source;
use simgpu::{Config, Machine, StoreKind, Work};

use crate::support::{A, DEVICE, Rig, Subject as HeapSubject};

/// An object made for any thread. Its type does not say so, because it may be for one.
pub struct AnyThread<T>(pub T);

// SAFETY: see above.
unsafe impl<T> Sync for AnyThread<T> {}

impl<T> AnyThread<T> {
    pub fn get(&self) -> &T {
        &self.0
    }
}

/// A kind of memory.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    Device(StoreKind),
    Pageable,
    Pinned,
}

/// A heap, with what is taken from it now.
#[derive(Debug)]
pub struct FromHeap {
    heap: Arc<Heap>,
    stream: Option<StreamHandle>,
    pub taken: Mutex<HashMap<u64, u64>>,
}

impl Source for FromHeap {
    fn acquire(&self, bytes: u64) -> Result<u64> {
        let address =
            self.heap.allocate(bytes, DEVICE, self.stream.unwrap_or(StreamHandle::LEGACY))?;
        assert_eq!(self.taken.lock().unwrap().insert(address, bytes), None);
        Ok(address)
    }

    fn give_back(&self, address: u64) {
        assert!(self.taken.lock().unwrap().remove(&address).is_some(), "{address:#x}");
        self.heap.free(address).unwrap();
    }

    fn stream(&self) -> Option<StreamHandle> {
        self.stream
    }

    fn order(&self, stream: StreamHandle, other: StreamHandle) -> Result<()> {
        self.heap.make_stream_wait(DEVICE, stream, other)
    }

    fn record(&self, address: u64, stream: StreamHandle) -> Result<()> {
        self.heap.record_stream(address, stream)
    }

    fn is_debugging(&self) -> bool {
        self.heap.is_debugging()
    }
}

/// A heap under test, and for a device the machine around it.
pub struct Bench {
    pub source: Arc<FromHeap>,
    pub rig: Option<Rig>,
    machine: Option<Arc<Machine>>,
}

impl Subject {
    pub fn start(self) -> Bench {
        self.start_with(|_| ())
    }

    /// With other settings.
    pub fn start_with(self, change: impl FnOnce(&mut Settings)) -> Bench {
        match self {
            Self::Device(store) => {
                let plan = HeapSubject::new(PoolType::Elastic, store).plan().set(change);
                let rig = plan.start();
                Bench {
                    source: source(Arc::clone(&rig.heap), Some(A)),
                    rig: Some(rig),
                    machine: None,
                }
            }
            Self::Pageable => {
                let heap = host_heap(HostMemory::pageable(), change);
                Bench { source: source(heap, None), rig: None, machine: None }
            }
            Self::Pinned => {
                let config = Config::new(StoreKind::RealBytes, 1, 64 << 20);
                let machine = Machine::new(config).unwrap();
                let device = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0));
                let heap = host_heap(HostMemory::pinned(device, Arc::new(OpenGate)), change);
                Bench { source: source(heap, None), rig: None, machine: Some(machine) }
            }
        }
    }

    /// With `GENESIS_DEBUG=poison`.
    pub fn start_poisoned(self) -> Bench {
        self.start_with(|settings| {
            settings.debug = DebugModes { poison: true, ..DebugModes::OFF };
        })
    }

    /// Whether the memory can be written to here.
    pub fn has_bytes(self) -> bool {
        !matches!(self, Self::Device(StoreKind::AddressesOnly))
    }
}

fn source(heap: Arc<Heap>, stream: Option<StreamHandle>) -> Arc<FromHeap> {
    Arc::new(FromHeap { heap, stream, taken: Mutex::default() })
}

fn host_heap(memory: HostMemory, change: impl FnOnce(&mut Settings)) -> Arc<Heap> {
    let platform =
        Platform { backend: Backend::Host, devices: vec![Arc::new(memory)], notice: None };
    let mut settings = Settings {
        strategy: StrategySettings::new(PoolType::Caching),
        log: LogLevel::Off,
        ..Settings::default()
    };
    change(&mut settings);
    let surroundings = Surroundings::new(Arc::new(Log::new(LogLevel::Off)));
    Arc::new(Heap::new(platform, &settings, surroundings))
}

impl Bench {
    /// The device's machine.
    pub fn rig(&self) -> &Rig {
        self.rig.as_ref().expect("a device")
    }

    /// Enqueues work on `stream` that writes these bytes.
    #[track_caller]
    pub fn touch(&self, address: u64, bytes: u64, stream: StreamHandle) {
        let work = Work::write(address, bytes, "a test");
        self.rig().machine.touch(0, stream.0, work).unwrap();
    }

    /// How often the race detector has spoken since the last look.
    pub fn races(&self) -> usize {
        self.rig().machine.take_violations().len()
    }

    /// The driver calls so far; 0 for host memory.
    pub fn calls(&self) -> u64 {
        self.rig.as_ref().map_or(0, Rig::calls)
    }

    /// Gives back what an object could not, because the driver failed.
    pub fn give_back_rest(&self) {
        let rest: Vec<u64> = self.source.taken.lock().unwrap().keys().copied().collect();
        rest.into_iter().for_each(|address| self.source.give_back(address));
    }

    /// Everything was given back, and the heap is whole.
    #[track_caller]
    pub fn finish(self) {
        assert_eq!(self.source.taken.lock().unwrap().len(), 0, "not given back");
        match self.rig {
            Some(rig) => rig.finish(),
            None => {
                let heap = &self.source.heap;
                heap.empty_cache(DEVICE).unwrap();
                heap.validate().unwrap();
                assert_eq!(heap.statistics(DEVICE).unwrap().reserved_bytes.current, 0);
            }
        }
        if let Some(machine) = self.machine {
            assert_eq!(machine.census().host_bytes, 0);
        }
    }
}
