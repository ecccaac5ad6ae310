//! The settings as plain values, which the option table reads.

use std::collections::BTreeMap;

use simgpu::Prices;

use super::strategy::{PoolType, StrategySettings};
use crate::base::size::{GIB, MIB};
use crate::base::{Backup, DeviceOrdinal};

/// Which device implementation to use: the value of `GENESIS_BACKEND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// CUDA where the machine has a driver library, otherwise [`Self::Host`] with a warning.
    Auto,
    /// The CUDA driver, or an error.
    Cuda,
    /// The simulated device with real bytes in host memory.
    Host,
    /// The simulated device with addresses only: for replays larger than the machine.
    Sim,
}

impl BackendChoice {
    /// Every choice, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[Self::Auto, Self::Cuda, Self::Host, Self::Sim];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Host => "host",
            Self::Sim => "sim",
        }
    }
}

/// What Elastic saves where it cannot save both: the value of `GENESIS_ELASTIC_POLICY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElasticPolicy {
    /// Driver time while the device has room, memory where it has little.
    Balanced,
    /// Memory that decides whether a program fits, for more driver time while it starts.
    Fine,
    /// Memory, always.
    Tight,
}

impl ElasticPolicy {
    /// Every policy, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[Self::Balanced, Self::Fine, Self::Tight];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Fine => "fine",
            Self::Tight => "tight",
        }
    }
}

/// How memory can be shared with other processes: the value of `GENESIS_HANDLE_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleType {
    /// Not at all.
    None,
    /// As POSIX file descriptors, within the machine.
    Posix,
    /// By fabric handles, over the machines of an NVLink domain.
    Fabric,
}

impl HandleType {
    /// Every type, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[Self::None, Self::Posix, Self::Fabric];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Posix => "posix",
            Self::Fabric => "fabric",
        }
    }
}

/// Whose streams are identified by the driver's numbers: the value of `GENESIS_STREAM_IDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamIds {
    /// Those of all callers except PyTorch, whose streams last as long as the process.
    Auto,
    /// Those of all callers.
    On,
    /// None: streams last, or their end is announced.
    Off,
}

impl StreamIds {
    /// Every choice, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[Self::Auto, Self::On, Self::Off];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// How much the library says: the value of `GENESIS_LOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub enum LogLevel {
    /// Nothing at all.
    Off,
    /// Failures, which the caller also gets as a status.
    Error,
    /// What a user should fix.
    Warn,
    /// What was chosen, and each release of cached memory.
    Info,
    /// Every driver allocation.
    Debug,
}

impl LogLevel {
    /// Every level, from the quietest, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The debugging modes: the value of `GENESIS_DEBUG`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugModes {
    /// Report at exit what is still live.
    pub leaks: bool,
    /// Fill memory with a pattern when it is allocated and when it is freed.
    pub poison: bool,
    /// End each block at a page that is not mapped; fixed once a device is in use.
    pub guard: bool,
    /// Keep freed blocks from being reused.
    pub quarantine: bool,
}

impl DebugModes {
    /// Nothing.
    pub const OFF: Self = Self { leaks: false, poison: false, guard: false, quarantine: false };
    /// The meaning of `all`: everything except guard, which changes the strategy.
    pub const ALL: Self = Self { leaks: true, poison: true, guard: false, quarantine: true };

    /// Returns true if any mode is on.
    pub fn is_any(self) -> bool {
        self != Self::OFF
    }
}

/// Which stack is recorded as the place of a call: the value of `GENESIS_CALL_SITES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallSites {
    /// Nothing.
    Off,
    /// The Python stack, or the native one in a thread that runs no Python code.
    Python,
    /// The native stack.
    Native,
    /// The native stack up to the interpreter, and the Python stack.
    All,
}

impl CallSites {
    /// Every choice, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[Self::Off, Self::Python, Self::Native, Self::All];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Python => "python",
            Self::Native => "native",
            Self::All => "all",
        }
    }
}

/// How much more may be reserved than a device has: the value of `GENESIS_MANAGED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversubscription {
    /// Nothing: memory is not managed.
    Off,
    /// As much as half of the machine's memory.
    Auto,
    /// So many bytes.
    Most(u64),
}

/// The most that may be held on each device, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// On those that are not named.
    pub(super) others: Option<u64>,
    pub(super) named: BTreeMap<u32, Option<u64>>,
    /// The part of them that all processes of a container have together: HAMi's.
    pub(super) container: Option<Box<Self>>,
}

impl DeviceLimits {
    /// The limit of a device; `None` if it has none.
    pub fn of(&self, device: DeviceOrdinal) -> Option<u64> {
        self.named.get(&device.0).copied().unwrap_or(self.others)
    }

    /// The limit that all processes of the container have together; `None` if there is none.
    pub fn of_container(&self, device: DeviceOrdinal) -> Option<u64> {
        self.container.as_ref()?.of(device)
    }
}

/// Every setting, with its default. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The strategy of device memory.
    pub strategy: StrategySettings,
    /// The strategy of pageable host memory.
    pub host: StrategySettings,
    /// The strategy of pinned host memory.
    pub pinned: StrategySettings,
    /// The device implementation.
    pub backend: BackendChoice,
    /// The part of each device's memory that may be reserved, in (0, 1].
    pub memory_fraction: f64,
    /// The most that may be reserved on each device; `None` for no limit but the fraction.
    pub memory_limit_bytes: Option<u64>,
    /// Whether memory is managed, and how much more than a device has.
    pub managed: Oversubscription,
    /// How much memory each device seems to have.
    pub device_limits: DeviceLimits,
    /// The name of those processes that share devices; `None`: nobody does.
    pub share: Option<String>,
    /// What they leave to this one of each device.
    pub share_guarantee_bytes: u64,
    /// This process's part of the rest, in proportion to the others'.
    pub share_weight: u32,
    /// The most that each device keeps cached (reserved and not live); `None` for no limit.
    pub cache_size_bytes: Option<u64>,
    /// Caching: free blocks larger than this are not cut; `None` for no limit.
    pub max_split_size_bytes: Option<u64>,
    /// Caching: round sizes up to 1/n of a power of two; 0 for off, else a power of two.
    pub roundup_power2_divisions: u32,
    /// Elastic: whether driver time or memory is saved if it cannot be both.
    pub elastic_policy: ElasticPolicy,
    /// Elastic: how memory can be shared with other processes, if the device can.
    pub handle_type: HandleType,
    /// Elastic: whether memory is made for GPUDirect RDMA, if the device can.
    pub rdma: bool,
    /// Elastic: requests of at least this size get memory from one handle of their own; `None`
    /// for no request.
    pub single_handle_size_bytes: Option<u64>,
    /// Whose streams are identified by the driver's numbers and not by their handles.
    pub stream_ids: StreamIds,
    /// Start releasing old cached blocks once this part of the memory allowed is reserved; `None`
    /// for never.
    pub gc_threshold: Option<f64>,
    /// Return free memory after a miss if it is more than this part of what is held; `None` for never.
    pub compact_above: Option<f64>,
    /// Release cached blocks unused for this many allocations; `None` for never.
    pub gc_age_allocations: Option<u64>,
    /// Release cached blocks unused for this many seconds; `None` for never.
    pub gc_age_seconds: Option<f64>,
    /// Where files with the contents of paused memory are made; `None`: the system's folder for
    /// temporary files.
    pub backup_folder: Option<String>,
    /// Whether what was saved of paused memory stays after it was resumed.
    pub backup_retain: bool,
    /// Whether a terminal shows how far a pause or resume is.
    pub shows_progress: bool,
    /// The tag of threads that have begun none; `None` for no tag.
    pub default_tag: Option<String>,
    /// What is kept of the memory of that tag while it is paused.
    pub default_backup: Backup,
    /// The kind of backup in host memory that torch_memory_saver's functions choose.
    pub saver_backup: Backup,
    /// How much to say.
    pub log: LogLevel,
    /// The file to record every call to, from the start; `None` for no recording.
    pub trace: Option<String>,
    /// The longest time before a recorded call is written, in seconds.
    pub trace_flush_seconds: f64,
    /// There is a warning if memory runs out within so many steps; `None` for none.
    pub forecast_steps: Option<u64>,
    /// The file from which a run's memory is made ready, and which keeps what it held; `None` for none.
    pub plan: Option<String>,
    /// The number of this process among those of its program on the machine; `None`: it is the only
    /// one.
    pub rank: Option<u64>,
    /// The number of this process among those of its program on all machines; `None`: it is the only
    /// one, or that is not known.
    pub global_rank: Option<u64>,
    /// How much of each device is taken from the driver when it is first used, in bytes.
    pub preallocate_bytes: u64,
    /// The file to write a profile of the whole run to at exit; `None` for no profile.
    pub profile: Option<String>,
    /// The number of events that the history of a profile keeps.
    pub profile_events: u64,
    /// Whether to write the file for `genesis top`.
    pub top: bool,
    /// The file to write metrics to for Prometheus; `None` for none.
    pub metrics: Option<String>,
    /// The time between two writes of it, in seconds.
    pub metrics_seconds: f64,
    /// The debugging modes.
    pub debug: DebugModes,
    /// The most that quarantine keeps from reuse on each device, in bytes.
    pub quarantine_size_bytes: u64,
    /// Which stack is recorded as the place of a call.
    pub call_sites: CallSites,
    /// The preload library: whether it serves CUDA's calls.
    pub preload: bool,
    /// The preload library: whether memory given to `cudaFree` waits for the device.
    pub preload_fence: bool,
    /// The preload library: the file of `genesis run` that it counts into; `None` for none.
    pub preload_report: Option<String>,
    /// Simulated backends: how many devices.
    pub sim_devices: u32,
    /// Simulated backends: the memory of each device; `None`: 80 GiB for `sim`, half of the
    /// machine's memory for `host`.
    pub sim_memory_bytes: Option<u64>,
    /// Simulated backends: the prices of driver calls.
    pub sim_prices: Prices,
}

/// The default memory of a device simulated with addresses only: an H100's.
pub const SIM_MEMORY_BYTES: u64 = 80 * GIB;

impl Default for Settings {
    fn default() -> Self {
        Self {
            strategy: StrategySettings::new(PoolType::Elastic),
            host: StrategySettings::new(PoolType::Caching),
            pinned: StrategySettings::new(PoolType::Caching),
            backend: BackendChoice::Auto,
            memory_fraction: 1.0,
            memory_limit_bytes: None,
            managed: Oversubscription::Off,
            device_limits: DeviceLimits::default(),
            share: None,
            share_guarantee_bytes: 0,
            share_weight: 0,
            cache_size_bytes: None,
            max_split_size_bytes: None,
            roundup_power2_divisions: 0,
            elastic_policy: ElasticPolicy::Balanced,
            handle_type: HandleType::None,
            rdma: true,
            single_handle_size_bytes: None,
            stream_ids: StreamIds::Auto,
            gc_threshold: None,
            compact_above: None,
            gc_age_allocations: None,
            gc_age_seconds: None,
            forecast_steps: Some(1000),
            backup_folder: None,
            backup_retain: false,
            shows_progress: false,
            default_tag: None,
            default_backup: Backup::None,
            saver_backup: Backup::Pinned,
            log: LogLevel::Warn,
            trace: None,
            trace_flush_seconds: 1.0,
            plan: None,
            rank: None,
            global_rank: None,
            preallocate_bytes: 0,
            profile: None,
            profile_events: 1 << 20,
            top: false,
            metrics: None,
            metrics_seconds: 15.0,
            debug: DebugModes::OFF,
            quarantine_size_bytes: 256 * MIB,
            call_sites: CallSites::Python,
            preload: true,
            preload_fence: true,
            preload_report: None,
            sim_devices: 1,
            sim_memory_bytes: None,
            sim_prices: Prices::default(),
        }
    }
}
