//! The one machine of the process, made at the first call that needs it.
//!
//! With the machine come the tables of what CUDA hands out and `simgpu` does not know: stream
//! properties, graphs, registered host memory, functions waiting for their stream. Each has its
//! own lock, taken before the machine's and never held while a function of the program runs.
//!
//! Loading the library does nothing. After a fork, the child's driver returns `NOT_INITIALIZED`;
//! at the end of the process it returns `DEINITIALIZED`, as CUDA's own does.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use simgpu::{Call, Code, Config, Machine, Target, Times};

use crate::graphs::Graphs;
use crate::host_functions::HostFunctions;
use crate::host_memory::HostMemory;
use crate::log::Log;
use crate::pools::Pools;
use crate::script::Script;
use crate::settings::{Fabric, Fault, Settings};
use crate::streams::Streams;
use crate::violations::Violations;
use crate::{current, kernels};

/// All device addresses, in bytes: far below the host's own memory, so that an address shows
/// which of the two it is.
const ADDRESS_SPACE_BYTES: u64 = 32 << 40;

/// The machine and its tables.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) machine: Arc<Machine>,
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) script: Script,
    pub(crate) violations: Violations,
    pub(crate) streams: Streams,
    pub(crate) graphs: Graphs,
    pub(crate) host_memory: HostMemory,
    pub(crate) host_functions: HostFunctions,
    pub(crate) pools: Pools,
}

/// The stages of the driver's life.
const NEW: u8 = 0;
const FORKED: u8 = 1;
const ENDED: u8 = 2;

static LIFE: AtomicU8 = AtomicU8::new(NEW);
static STARTED: AtomicBool = AtomicBool::new(false);
static SIMULATION: OnceLock<Option<Simulation>> = OnceLock::new();

/// The simulation. Otherwise the driver's own code for no device, for a forked child or for a
/// process that is exiting.
pub(crate) fn simulation() -> Result<&'static Simulation, Code> {
    match LIFE.load(Ordering::Acquire) {
        NEW => {}
        FORKED => return Err(crate::code::NOT_INITIALIZED),
        _ => return Err(crate::code::DEINITIALIZED),
    }
    SIMULATION.get_or_init(Simulation::open).as_ref().ok_or(crate::code::NO_DEVICE)
}

/// The simulation if there already is one, for reports: also at the end of the process.
pub(crate) fn existing() -> Option<&'static Simulation> {
    if LIFE.load(Ordering::Acquire) == FORKED { None } else { SIMULATION.get()?.as_ref() }
}

/// `cuInit`: from now on driver calls work.
pub(crate) fn start() -> Result<(), Code> {
    simulation()?;
    // Each runtime call comes here, from all threads.
    if !is_started() && !STARTED.swap(true, Ordering::AcqRel) {
        // SAFETY: both register functions of this library that take nothing and only store to
        // an atomic; the C library keeps them no longer than this library is loaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork));
            libc::atexit(at_exit);
        }
    }
    Ok(())
}

/// Returns true if [`start`] has succeeded.
pub(crate) fn is_started() -> bool {
    STARTED.load(Ordering::Acquire)
}

unsafe extern "C" fn after_fork() {
    LIFE.store(FORKED, Ordering::Release);
}

extern "C" fn at_exit() {
    LIFE.store(ENDED, Ordering::Release);
}

impl Simulation {
    fn open() -> Option<Self> {
        let complain = |message: String| eprintln!("simcuda: {message}");
        let settings = Settings::read().map_err(complain).ok()?;
        if settings.devices == 0 {
            return None;
        }
        let mut config =
            Config::new(settings.store, settings.devices as usize, settings.memory_bytes);
        if settings.store == simgpu::StoreKind::AddressesOnly {
            config.address_space_bytes = Some(ADDRESS_SPACE_BYTES);
        }
        for device in &mut config.devices {
            device.handles.fabric = settings.fabric != Fabric::Off;
            device.imex_channel = settings.fabric == Fabric::On;
            device.managed = settings.managed;
        }
        config.descending_addresses = settings.descending_addresses;
        config.host_bytes = true;
        config.common.clone_from(&settings.common);
        config.implicit_streams = false;
        config.progress = settings.progress;
        config.detect_races = settings.detect_races;
        config.costs = settings.prices.table();
        config.takes_time = settings.takes_time;
        let machine = Machine::new(config);
        let machine = machine.map_err(|code| complain(format!("no machine: {code}"))).ok()?;
        let log = Log::open(settings.log_path.as_deref()).map_err(complain).ok()?;
        let script = Script::default();
        for fault in &settings.faults {
            fail(&machine, &script, fault);
        }
        Some(Self {
            machine,
            log,
            script,
            violations: Violations::new(settings.abort_on_violation),
            streams: Streams::default(),
            graphs: Graphs::default(),
            host_memory: HostMemory::default(),
            host_functions: HostFunctions::default(),
            pools: Pools::default(),
            settings,
        })
    }

    /// Returns true if something is to be done after a call. Replays time what they call, with the
    /// driver in it, so where nothing is this costs three loads.
    #[inline]
    pub(crate) fn must_follow_up(&self) -> bool {
        self.log.is_on() || self.machine.has_violations() || self.host_functions.is_any()
    }

    /// Lets `context` touch plain allocations of `peer`; a second time is an error, as in CUDA.
    pub(crate) fn enable_peer(&self, context: u32, peer: u32) -> Result<(), Code> {
        if self.machine.context_device(context)? == peer {
            return Err(Code::INVALID_DEVICE);
        }
        self.machine.enable_peer_access(context, peer)
    }

    /// The context of a handle, as the machine counts it.
    pub(crate) fn context(&self, handle: usize) -> Result<u32, Code> {
        let context = current::context_number(handle)?;
        let unknown =
            |code| if code == Code::INVALID_DEVICE { Code::INVALID_CONTEXT } else { code };
        self.machine.context_device(context).map_err(unknown)?;
        Ok(context)
    }

    /// `cudaDeviceReset`: ends what the machine and the tables have of `device`.
    pub(crate) fn reset(&self, device: u32) -> Result<(), Code> {
        self.machine.device_reset(device)?;
        self.streams.forget(device);
        self.pools.forget(device);
        kernels::forget_variables(device);
        current::deactivate(device);
        Ok(())
    }

    /// Device `ordinal` as the machine counts it.
    pub(crate) fn device(&self, ordinal: i32) -> Result<u32, Code> {
        let device = u32::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        if device < self.settings.devices { Ok(device) } else { Err(Code::INVALID_DEVICE) }
    }
}

/// Makes calls of one name fail. If the name is one of the machine's calls, the machine fails
/// it, no matter by which symbol the program reaches it; otherwise the symbol of that name fails.
pub(crate) fn fail(machine: &Machine, script: &Script, fault: &Fault) {
    let symbol = fault.call.strip_prefix('@');
    match machine_call(&fault.call) {
        None => script.add(symbol.unwrap_or(&fault.call), fault.nth, fault.code, fault.times),
        Some(call) => {
            let times = Times::Count(fault.times);
            machine.faults().fail(Target::call(call), fault.nth, times, Code(fault.code));
        }
    }
}

/// The machine's call of that name, if there is one.
pub(crate) fn machine_call(name: &str) -> Option<Call> {
    Call::ALL.into_iter().find(|call| call.name() == name)
}
