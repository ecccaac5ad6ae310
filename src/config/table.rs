//! The option table: one row for each option.
//!
//! Only the row has an option's name, its aliases, how its value is written and checked, and its
//! documentation. Reading the environment, changing options at run time and all documentation use
//! the rows. A row's default is what `show` writes of `Settings::default()`. The rows of
//! strategies, which exist for three kinds of memory, are in `strategy_options`, those of paused memory
//! in `backup_options`, those of shared devices in `share_options`, those of memory made ready in
//! `plan_options`, that of managed memory in `managed_options`.
//!
//! **Invariants**, tested: names are distinct and start with `GENESIS_`; `parse` reads back what
//! `show` writes; each field of `Settings` has a row; a `parse` that fails changes nothing.

use simgpu::Prices;

use super::backup_options as backup;
use super::managed_options as managed;
use super::nearest::nearest;
use super::option::{OptionSpec, assign};
use super::plan_options as plan;
use super::settings::{BackendChoice, CallSites, ElasticPolicy, HandleType, LogLevel, StreamIds};
use super::share_options as share;
use super::strategy_options::{device, pageable, pinned};
use super::value::{
    AUTO, NEVER, OFF, UNLIMITED, bytes, bytes_from, debug_modes, divisions, fraction, optional,
    seconds, show_bytes, show_debug_modes, show_optional, show_switch, switch, whole, word,
};
use crate::base::size::MIB;

/// The beginning of all options' names.
pub(super) const PREFIX: &str = "GENESIS_";

/// The row with this name.
pub(super) fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.name == name)
}

/// The message for a name that is not an option, with the nearest one that is.
pub(super) fn unknown_name(name: &str) -> String {
    let stem = name.strip_prefix(PREFIX).unwrap_or(name);
    let stems = OPTIONS.iter().filter_map(|option| option.name.strip_prefix(PREFIX));
    match nearest(stem, stems) {
        Some(near) => format!("{name} is not an option; did you mean {PREFIX}{near}?"),
        None => format!("{name} is not an option; `genesis options` lists them"),
    }
}

/// Every option, in the order in which users are shown them.
pub static OPTIONS: &[OptionSpec] = &[
    device::POOL_TYPE,
    OptionSpec {
        name: "GENESIS_BACKEND",
        aliases: &[],
        values: "`auto`, `cuda`, `host` or `sim`",
        summary: "The device implementation.",
        help: "auto is cuda if the machine has a driver library, otherwise host, with a warning. \
               host simulates devices with real bytes in host memory, sim with addresses only.",
        runtime: false,
        parse: |settings, text| {
            let choice = word(text, "a backend", BackendChoice::ALL, BackendChoice::name);
            assign(&mut settings.backend, choice)
        },
        show: |settings| settings.backend.name().to_owned(),
    },
    OptionSpec {
        name: "GENESIS_MEMORY_FRACTION",
        aliases: &[],
        values: "a number above 0, at most 1",
        summary: "The part of each device's memory that may be reserved.",
        help: "Physical bytes count, cached or live.",
        runtime: true,
        parse: |settings, text| assign(&mut settings.memory_fraction, fraction(text)),
        show: |settings| settings.memory_fraction.to_string(),
    },
    OptionSpec {
        name: "GENESIS_MEMORY_LIMIT",
        aliases: &[],
        values: "a size such as `40GB`, or `unlimited`",
        summary: "The most memory that may be reserved on each device.",
        help: "0 means unlimited. The fraction limits as well; the smaller of the two applies.",
        runtime: true,
        parse: |settings, text| {
            assign(&mut settings.memory_limit_bytes, optional(text, UNLIMITED, bytes))
        },
        show: |settings| show_optional(settings.memory_limit_bytes, UNLIMITED, show_bytes),
    },
    managed::MANAGED,
    share::DEVICE_LIMITS,
    share::SHARE,
    share::GUARANTEE,
    share::WEIGHT,
    OptionSpec {
        name: "GENESIS_CACHE_SIZE",
        aliases: &[],
        values: "a size such as `2GB`, or `unlimited`",
        summary: "The most memory that each device keeps cached: reserved and not live.",
        help: "0 keeps nothing cached.",
        runtime: true,
        parse: |settings, text| {
            let read = match bytes(text) {
                Ok(0) => Ok(Some(0)),
                _ => optional(text, UNLIMITED, bytes),
            };
            assign(&mut settings.cache_size_bytes, read)
        },
        show: |settings| show_optional(settings.cache_size_bytes, UNLIMITED, show_bytes),
    },
    plan::PREALLOCATE,
    plan::PLAN,
    plan::FORECAST_STEPS,
    plan::RANK,
    plan::GLOBAL_RANK,
    device::RESERVE,
    device::PAGE_SIZE,
    device::CUTOFF,
    device::LARGE,
    pageable::POOL_TYPE,
    pageable::RESERVE,
    pageable::PAGE_SIZE,
    pageable::CUTOFF,
    pageable::LARGE,
    pinned::POOL_TYPE,
    pinned::RESERVE,
    pinned::PAGE_SIZE,
    pinned::CUTOFF,
    pinned::LARGE,
    OptionSpec {
        name: "GENESIS_MAX_SPLIT_SIZE",
        aliases: &[],
        values: "a size of at least 1 MiB, or `unlimited`",
        summary: "Caching: free blocks larger than this are not cut.",
        help: "0 means unlimited.",
        runtime: false,
        parse: |settings, text| {
            let read = optional(text, UNLIMITED, |text| bytes_from(text, MIB));
            assign(&mut settings.max_split_size_bytes, read)
        },
        show: |settings| show_optional(settings.max_split_size_bytes, UNLIMITED, show_bytes),
    },
    OptionSpec {
        name: "GENESIS_ROUNDUP_POWER2_DIVISIONS",
        aliases: &[],
        values: "0, or a power of two",
        summary: "Caching: round sizes up to this many steps between two powers of two.",
        help: "With 4, a request of 1200 bytes is rounded to 1280. 0 turns it off.",
        runtime: false,
        parse: |settings, text| assign(&mut settings.roundup_power2_divisions, divisions(text)),
        show: |settings| settings.roundup_power2_divisions.to_string(),
    },
    OptionSpec {
        name: "GENESIS_ELASTIC_POLICY",
        aliases: &[],
        values: "`balanced`, `fine` or `tight`",
        summary: "Elastic: whether to save driver calls while there is room, or memory always.",
        help: "balanced makes few and large extents, and finer ones once hardly any memory is left. \
               fine makes the smallest, for devices that a program fills: a hundredth more than what is \
               live is mostly enough, for ten times the driver calls while a program starts. tight makes \
               the smallest, too, and moves memory instead of holding more: it mostly holds less than 1 % \
               above what is live, but some programs make driver calls as long as they run.",
        runtime: false,
        parse: |settings, text| {
            let policy = word(text, "a policy of Elastic", ElasticPolicy::ALL, ElasticPolicy::name);
            assign(&mut settings.elastic_policy, policy)
        },
        show: |settings| settings.elastic_policy.name().to_owned(),
    },
    OptionSpec {
        name: "GENESIS_HANDLE_TYPE",
        aliases: &[],
        values: "`none`, `posix` or `fabric`",
        summary: "Elastic: how its memory can be shared with other processes.",
        help: "posix is a file descriptor, within the machine; fabric reaches other machines and \
               needs an IMEX channel. A device that cannot do it makes memory without.",
        runtime: false,
        parse: |settings, text| {
            let handle_type = word(text, "a handle type", HandleType::ALL, HandleType::name);
            assign(&mut settings.handle_type, handle_type)
        },
        show: |settings| settings.handle_type.name().to_owned(),
    },
    OptionSpec {
        name: "GENESIS_RDMA",
        aliases: &[],
        values: "`on` or `off`",
        summary: "Elastic: whether its memory is made for GPUDirect RDMA.",
        help: "A device that cannot do it makes memory without.",
        runtime: false,
        parse: |settings, text| assign(&mut settings.rdma, switch(text)),
        show: |settings| show_switch(settings.rdma).to_owned(),
    },
    OptionSpec {
        name: "GENESIS_SINGLE_HANDLE_SIZE",
        aliases: &[],
        values: "a size of at least 2 MiB, or `never`",
        summary: "Elastic: requests of at least this size get memory from one handle of their own.",
        help: "NCCL and RDMA may fail to register memory made of several handles. 0 means never.",
        runtime: false,
        parse: |settings, text| {
            let read = optional(text, NEVER, |text| bytes_from(text, 2 * MIB));
            assign(&mut settings.single_handle_size_bytes, read)
        },
        show: |settings| show_optional(settings.single_handle_size_bytes, NEVER, show_bytes),
    },
    OptionSpec {
        name: "GENESIS_STREAM_IDS",
        aliases: &[],
        values: "`auto`, `on` or `off`",
        summary: "Whether the driver is asked for a stream's number, because it reuses handles.",
        help: "auto asks at every call that names a stream (cuStreamGetId), except PyTorch's \
               hooks, whose streams last as long as the process. off is for programs whose \
               streams all last, or that call genesis_stream_forget before they destroy one: what any \
               stream leaves free is then lent as soon as the stream has nothing to do, otherwise \
               only what default streams and PyTorch's own leave. The \
               preload library calls it for every program and sets this option to off.",
        runtime: true,
        parse: |settings, text| {
            let ids = word(text, "a choice", StreamIds::ALL, StreamIds::name);
            assign(&mut settings.stream_ids, ids)
        },
        show: |settings| settings.stream_ids.name().to_owned(),
    },
    OptionSpec {
        name: "GENESIS_GC_THRESHOLD",
        aliases: &[],
        values: "a number above 0, at most 1, or `never`",
        summary: "Release old cached blocks once this part of the memory allowed is reserved.",
        help: "0 means never.",
        runtime: true,
        parse: |settings, text| assign(&mut settings.gc_threshold, optional(text, NEVER, fraction)),
        show: |settings| show_optional(settings.gc_threshold, NEVER, |part| part.to_string()),
    },
    OptionSpec {
        name: "GENESIS_COMPACT_ABOVE",
        aliases: &[],
        values: "a number above 0, at most 1, or `never`",
        summary: "After a miss, return free memory if it is more than this part of what is held.",
        help: "It is returned until half that part is free, what lay idle most first, and less often if \
               the program needs it again. 0 means never.",
        runtime: true,
        parse: |settings, text| {
            assign(&mut settings.compact_above, optional(text, NEVER, fraction))
        },
        show: |settings| show_optional(settings.compact_above, NEVER, |part| part.to_string()),
    },
    OptionSpec {
        name: "GENESIS_GC_AGE_ALLOCATIONS",
        aliases: &[],
        values: "a number of allocations, or `never`",
        summary: "Release cached blocks unused for this many allocations.",
        help: "0 means never.",
        runtime: true,
        parse: |settings, text| {
            let read = optional(text, NEVER, |text| whole(text, 1..=u64::MAX));
            assign(&mut settings.gc_age_allocations, read)
        },
        show: |settings| show_optional(settings.gc_age_allocations, NEVER, |age| age.to_string()),
    },
    OptionSpec {
        name: "GENESIS_GC_AGE_SECONDS",
        aliases: &[],
        values: "a number of seconds, or `never`",
        summary: "Release cached blocks unused for this many seconds.",
        help: "0 means never.",
        runtime: true,
        parse: |settings, text| {
            assign(&mut settings.gc_age_seconds, optional(text, NEVER, seconds))
        },
        show: |settings| show_optional(settings.gc_age_seconds, NEVER, |age| age.to_string()),
    },
    OptionSpec {
        name: "GENESIS_LOG",
        aliases: &[],
        values: "`off`, `error`, `warn`, `info` or `debug`",
        summary: "How much the library says on standard error.",
        help: "",
        runtime: true,
        parse: |settings, text| {
            assign(&mut settings.log, word(text, "a log level", LogLevel::ALL, LogLevel::name))
        },
        show: |settings| settings.log.name().to_owned(),
    },
    OptionSpec {
        name: "GENESIS_TRACE",
        aliases: &[],
        values: "the path of a file, or `off`",
        summary: "Record every allocation and free to this file, for `genesis replay`.",
        help: "Compressed if the name ends in .zst; %p stands for the process's number. If the \
               file cannot be written, there is a warning and no recording.",
        runtime: false,
        parse: |settings, text| {
            assign(&mut settings.trace, optional(text, OFF, |path| Ok(path.to_owned())))
        },
        show: |settings| show_optional(settings.trace.clone(), OFF, |path| path),
    },
    OptionSpec {
        name: "GENESIS_TRACE_FLUSH_SECONDS",
        aliases: &[],
        values: "a number of seconds",
        summary: "The longest time before a recorded call is written to the file.",
        help: "A process that crashes loses at most this much of its recording.",
        runtime: false,
        parse: |settings, text| assign(&mut settings.trace_flush_seconds, seconds(text)),
        show: |settings| settings.trace_flush_seconds.to_string(),
    },
    OptionSpec {
        name: "GENESIS_DEBUG",
        aliases: &[],
        values: "`off`, or some of `leaks`, `poison`, `guard` and `quarantine` with commas \
                 between them, or `all`",
        summary: "Which wrong uses of memory to find.",
        help: "leaks reports at exit what is still live. poison fills memory when it is allocated \
               and when it is freed. quarantine keeps freed blocks from being reused. guard ends \
               each block at a page that is not mapped, on devices with virtual memory \
               management; it cannot be changed once a device is in use. all is everything except \
               guard.",
        runtime: true,
        parse: |settings, text| assign(&mut settings.debug, debug_modes(text)),
        show: |settings| show_debug_modes(settings.debug),
    },
    OptionSpec {
        name: "GENESIS_QUARANTINE_SIZE",
        aliases: &[],
        values: "a size such as `256MiB`",
        summary: "Quarantine: how much freed memory of each device is kept from being reused.",
        help: "",
        runtime: true,
        parse: |settings, text| assign(&mut settings.quarantine_size_bytes, bytes(text)),
        show: |settings| show_bytes(settings.quarantine_size_bytes),
    },
    OptionSpec {
        name: "GENESIS_PROFILE",
        aliases: &[],
        values: "the path of a file, or `off`",
        summary: "Profile the whole run, and write it to this file at exit.",
        help: "The ending of the name chooses the form: .html, .json, .trace.json or .txt. %p \
               stands for the process's number. If the profile cannot be made, there is a \
               warning.",
        runtime: false,
        parse: |settings, text| {
            assign(&mut settings.profile, optional(text, OFF, |path| Ok(path.to_owned())))
        },
        show: |settings| show_optional(settings.profile.clone(), OFF, |path| path),
    },
    OptionSpec {
        name: "GENESIS_PROFILE_EVENTS",
        aliases: &[],
        values: "a number of events",
        summary: "How many of the latest events a profile keeps.",
        help: "Each takes 56 bytes of host memory. Sums and the coarse timeline cover the whole \
               run.",
        runtime: true,
        parse: |settings, text| assign(&mut settings.profile_events, whole(text, 0..=1 << 32)),
        show: |settings| settings.profile_events.to_string(),
    },
    OptionSpec {
        name: "GENESIS_CALL_SITES",
        aliases: &[],
        values: "`off`, `python`, `native` or `all`",
        summary: "Which stack is recorded as the place of a call.",
        help: "Only while a profile or debugging wants call sites. python is the Python stack, or \
               the native one if the thread runs no Python code, as in C programs and backward \
               passes; native is always the native stack; all is both.",
        runtime: true,
        parse: |settings, text| {
            let read = word(text, "a kind of call sites", CallSites::ALL, CallSites::name);
            assign(&mut settings.call_sites, read)
        },
        show: |settings| settings.call_sites.name().to_owned(),
    },
    OptionSpec {
        name: "GENESIS_TOP",
        aliases: &[],
        values: "`on` or `off`",
        summary: "Let `genesis top` show this process while it runs.",
        help: "Every second the present state is written to a small file in /dev/shm that the \
               same user can read.",
        runtime: true,
        parse: |settings, text| assign(&mut settings.top, switch(text)),
        show: |settings| show_switch(settings.top).to_owned(),
    },
    OptionSpec {
        name: "GENESIS_METRICS",
        aliases: &[],
        values: "the path of a .prom file, or `off`",
        summary: "Write metrics to this file for Prometheus' node exporter.",
        help: "For its textfile collector; %p stands for the process's number. The file is \
               replaced as a whole and removed when the process exits.",
        runtime: true,
        parse: |settings, text| {
            assign(&mut settings.metrics, optional(text, OFF, |path| Ok(path.to_owned())))
        },
        show: |settings| show_optional(settings.metrics.clone(), OFF, |path| path),
    },
    OptionSpec {
        name: "GENESIS_METRICS_SECONDS",
        aliases: &[],
        values: "a number of seconds",
        summary: "How often metrics are written.",
        help: "",
        runtime: true,
        parse: |settings, text| assign(&mut settings.metrics_seconds, seconds(text)),
        show: |settings| settings.metrics_seconds.to_string(),
    },
    backup::TAG,
    backup::TAG_BACKUP,
    backup::SAVER_BACKUP,
    backup::FOLDER,
    backup::RETAIN,
    backup::PROGRESS,
    OptionSpec {
        name: "GENESIS_PRELOAD",
        aliases: &[],
        values: "`on` or `off`",
        summary: "The preload library: whether CUDA's calls for memory are served.",
        help: "off passes all of them to CUDA, as without the library.",
        runtime: false,
        parse: |settings, text| assign(&mut settings.preload, switch(text)),
        show: |settings| show_switch(settings.preload).to_owned(),
    },
    OptionSpec {
        name: "GENESIS_PRELOAD_FENCE",
        aliases: &[],
        values: "`on` or `off`",
        summary: "The preload library: whether memory given to cudaFree is reused only after a \
                  wait for the device.",
        help: "CUDA's own cudaFree waits for the device, and programs may rely on it. off is for \
               programs that wait for their own work before they free.",
        runtime: false,
        parse: |settings, text| assign(&mut settings.preload_fence, switch(text)),
        show: |settings| show_switch(settings.preload_fence).to_owned(),
    },
    OptionSpec {
        name: "GENESIS_PRELOAD_REPORT",
        aliases: &[],
        values: "the path of a file, or `off`",
        summary: "The preload library: the file that `genesis run` reads its account from.",
        help: "Set by that command.",
        runtime: false,
        parse: |settings, text| {
            assign(&mut settings.preload_report, optional(text, OFF, |path| Ok(path.to_owned())))
        },
        show: |settings| show_optional(settings.preload_report.clone(), OFF, |path| path),
    },
    OptionSpec {
        name: "GENESIS_SIM_DEVICES",
        aliases: &[],
        values: "a number from 1 to 64",
        summary: "Simulated backends: how many devices there are.",
        help: "",
        runtime: false,
        parse: |settings, text| assign(&mut settings.sim_devices, whole(text, 1..=64)),
        show: |settings| settings.sim_devices.to_string(),
    },
    OptionSpec {
        name: "GENESIS_SIM_MEMORY",
        aliases: &[],
        values: "a size of at least 2 MiB, or `auto`",
        summary: "Simulated backends: the memory of each device.",
        help: "auto (or 0) means 80 GiB for sim and half of the machine's memory for host.",
        runtime: false,
        parse: |settings, text| {
            let read = optional(text, AUTO, |text| bytes_from(text, 2 * MIB));
            assign(&mut settings.sim_memory_bytes, read)
        },
        show: |settings| show_optional(settings.sim_memory_bytes, AUTO, show_bytes),
    },
    OptionSpec {
        name: "GENESIS_SIM_PRICES",
        aliases: &[],
        values: "`h100`, `a100`, `rtxpro6000`, `vattention`, `b300`, `h200` or `h200rested`",
        summary: "Simulated backends: the price list by which driver time is counted.",
        help: "Each list has the measurements published for one machine; for a call without one \
               it has the highest of the others. The time is only counted, not spent.",
        runtime: false,
        parse: |settings, text| {
            let read = word(text, "a price list", Prices::ALL, Prices::name);
            assign(&mut settings.sim_prices, read)
        },
        show: |settings| settings.sim_prices.name().to_owned(),
    },
];
