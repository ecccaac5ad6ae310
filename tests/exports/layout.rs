//! Structs and enumerations as a C compiler lays them out, held against those of the library.
//!
//! A C program is written from the Rust types: one line for each struct, member and enumerator.
//! It is compiled with the header and prints what C makes of them. The lists below cannot fall
//! behind the Rust types (patterns without `..`), nor behind the header (its names are compared).

use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use genesis::base::{Backup, Gauge, Status};
use genesis::config::{HostKind, LogLevel};
use genesis::ffi::allocation::BlockInfo;
use genesis::ffi::arenas::{ArenaCreateOptions, ArenaMark, ArenaStats};
use genesis::ffi::callbacks::CompactionDone;
use genesis::ffi::communication_pools::{PoolCommunication, PoolRegistrar};
use genesis::ffi::fixed_pools::{FixedPoolCreateOptions, FixedPoolStats};
use genesis::ffi::forecasts::Forecast;
use genesis::ffi::live::LiveBlock;
use genesis::ffi::managed::ManagedAdvice;
use genesis::ffi::memory::OptimizationDone;
use genesis::ffi::memory_managers::{MemoryManagerCreateOptions, MemoryManagerStats, MemoryTier};
use genesis::ffi::neighbours::Neighbour;
use genesis::ffi::objects::{MemoryKind, MemoryUse};
use genesis::ffi::onnxruntime::OnnxruntimeFunctions;
use genesis::ffi::private_pools::{BlockState, PoolBlock, PoolId, PoolSource, PoolUsage};
use genesis::ffi::sharing::BlockHandle;
use genesis::ffi::statistics::Pool;
use genesis::ffi::tags::TagUsage;
use genesis::observe::{PoolStatistics, Statistics};

use crate::header;
use crate::programs::Language::{self, C99, Cpp17};
use crate::programs::{compiler, text};

/// A Rust type's size, or a member's offset, or an enumerator's number, under its name in C.
type Facts = Vec<(String, usize)>;

/// The size, and the offset and size of each member, of `$rust`, which C calls `$c`.
macro_rules! structure {
    ($c:literal, $rust:ident { $($member:ident),* $(,)? }) => {{
        fn size_of_member<M>(_: fn($rust) -> M) -> usize {
            size_of::<M>()
        }
        // Names every member: one that is added does not compile here.
        let _ = |value: $rust| {
            let $rust { $($member: _),* } = value;
        };
        let mut facts: Facts = vec![(format!("sizeof({})", $c), size_of::<$rust>())];
        $(
            let member = stringify!($member);
            facts.push((format!("offsetof({}, {member})", $c), offset_of!($rust, $member)));
            let size = size_of_member(|value: $rust| value.$member);
            facts.push((format!("sizeof((({} *)0)->{member})", $c), size));
        )*
        ($c, facts)
    }};
}

/// The size and the numbers of `$rust`, which C calls `$c`.
macro_rules! enumeration {
    ($c:literal, $rust:ident { $($variant:ident = $name:literal),* $(,)? }) => {{
        // As above.
        let _ = |value: $rust| match value { $($rust::$variant => ()),* };
        let mut facts: Facts = vec![(format!("sizeof({})", $c), size_of::<$rust>())];
        $(facts.push(($name.to_owned(), $rust::$variant as usize));)*
        ($c, facts)
    }};
}

fn structures() -> Vec<(&'static str, Facts)> {
    vec![
        structure!("genesis_gauge", Gauge { current, peak, total }),
        structure!(
            "genesis_block_info",
            BlockInfo { address, requested_bytes, allocated_bytes, stream, device }
        ),
        structure!(
            "genesis_live_block",
            LiveBlock {
                address,
                requested_bytes,
                allocated_bytes,
                device,
                stream,
                age_ns,
                tag,
                location,
            }
        ),
        structure!(
            "genesis_pool_block",
            PoolBlock {
                address,
                requested_bytes,
                allocated_bytes,
                stream,
                state,
                is_small,
                segment_address,
                segment_bytes,
            }
        ),
        structure!(
            "genesis_pool_usage",
            PoolUsage { limit_bytes, reserved_bytes, live_bytes, refusals }
        ),
        structure!(
            "genesis_tag_usage",
            TagUsage { tag, device, limit_bytes, live_bytes, live_blocks, refusals }
        ),
        structure!("genesis_pool_id", PoolId { first, second }),
        structure!("genesis_block_handle", BlockHandle { bytes }),
        structure!("genesis_pool_source", PoolSource { user_data, allocate, free }),
        structure!("genesis_pool_registrar", PoolRegistrar { user_data, map, unmap }),
        structure!(
            "genesis_pool_communication",
            PoolCommunication { granularity_bytes, handle_types, is_rdma, peer_count }
        ),
        structure!(
            "genesis_neighbour",
            Neighbour {
                process,
                is_own,
                live_bytes,
                cached_bytes,
                held_bytes,
                guarantee_bytes,
                limit_bytes,
                part_bytes,
                program
            }
        ),
        structure!("genesis_memory_use", MemoryUse { kind, device, stream, any_thread }),
        structure!(
            "genesis_arena_options",
            ArenaCreateOptions { struct_size, memory, chunk_bytes, limit_bytes }
        ),
        structure!("genesis_arena_position", ArenaMark { number }),
        structure!(
            "genesis_arena_stats",
            ArenaStats { struct_size, used_bytes, held_bytes, high_water_bytes, chunks, resets }
        ),
        structure!(
            "genesis_fixed_pool_options",
            FixedPoolCreateOptions { struct_size, memory, block_bytes, alignment, count, growth }
        ),
        structure!(
            "genesis_fixed_pool_stats",
            FixedPoolStats {
                struct_size,
                live_blocks,
                peak_live_blocks,
                blocks,
                held_bytes,
                refusals,
            }
        ),
        structure!(
            "genesis_compaction",
            CompactionDone { reserved_bytes, free_bytes, released_bytes }
        ),
        structure!(
            "genesis_optimization",
            OptimizationDone {
                struct_size,
                reserved_bytes,
                released_bytes,
                compacted_bytes,
                driver_calls,
                driver_nanoseconds,
                nanoseconds,
            }
        ),
        structure!(
            "genesis_forecast",
            Forecast {
                struct_size,
                steps,
                peak_bytes,
                possible_bytes,
                bytes_per_step,
                steps_left,
                fewest_steps_left,
                confidence,
                is_leak,
            }
        ),
        structure!("genesis_memory_tier", MemoryTier { block_bytes, count }),
        structure!(
            "genesis_memory_manager_options",
            MemoryManagerCreateOptions { struct_size, memory, tiers, tier_count, arena_bytes }
        ),
        structure!(
            "genesis_memory_manager_stats",
            MemoryManagerStats {
                struct_size,
                pool_blocks,
                arena_blocks,
                arena_used_bytes,
                held_bytes,
                overflows,
            }
        ),
        structure!(
            "genesis_onnxruntime_functions",
            OnnxruntimeFunctions { alloc, free, empty_cache }
        ),
        structure!(
            "genesis_stats",
            Statistics {
                struct_size,
                requested_bytes,
                allocated_bytes,
                reserved_bytes,
                active_bytes,
                inactive_bytes,
                allocations,
                frees,
                hits,
                misses,
                driver_calls,
                driver_memory_calls,
                driver_nanoseconds,
                retries,
                out_of_memory_events,
                cross_stream_reuses,
                free_bytes,
                largest_free_bytes,
                hit_rate,
                fragmentation_ratio,
                fragmentation_index,
                cache_empties,
                managed_bytes,
                oversubscribed_bytes,
                peak_oversubscribed_bytes,
            }
        ),
        structure!(
            "genesis_pool_stats",
            PoolStatistics {
                struct_size,
                allocated_bytes,
                reserved_bytes,
                active_bytes,
                inactive_split_bytes,
                requested_bytes,
                allocation,
                segment,
                active,
                inactive_split,
            }
        ),
    ]
}

fn enumerations() -> Vec<(&'static str, Facts)> {
    vec![
        enumeration!("genesis_status", Status {
            Success = "GENESIS_STATUS_SUCCESS",
            InvalidArgument = "GENESIS_STATUS_INVALID_ARGUMENT",
            OutOfMemory = "GENESIS_STATUS_OUT_OF_MEMORY",
            InvalidDevice = "GENESIS_STATUS_INVALID_DEVICE",
            ForeignPointer = "GENESIS_STATUS_FOREIGN_POINTER",
            DoubleFree = "GENESIS_STATUS_DOUBLE_FREE",
            InvalidConfiguration = "GENESIS_STATUS_INVALID_CONFIGURATION",
            DriverUnavailable = "GENESIS_STATUS_DRIVER_UNAVAILABLE",
            DriverFailed = "GENESIS_STATUS_DRIVER_FAILED",
            NotSupported = "GENESIS_STATUS_NOT_SUPPORTED",
            ForkedChild = "GENESIS_STATUS_FORKED_CHILD",
            Internal = "GENESIS_STATUS_INTERNAL",
            FileFailed = "GENESIS_STATUS_FILE_FAILED",
            Busy = "GENESIS_STATUS_BUSY",
            LimitReached = "GENESIS_STATUS_LIMIT_REACHED",
            OutOfHostMemory = "GENESIS_STATUS_OUT_OF_HOST_MEMORY",
        }),
        enumeration!("genesis_log_level", LogLevel {
            Off = "GENESIS_LOG_LEVEL_OFF",
            Error = "GENESIS_LOG_LEVEL_ERROR",
            Warn = "GENESIS_LOG_LEVEL_WARN",
            Info = "GENESIS_LOG_LEVEL_INFO",
            Debug = "GENESIS_LOG_LEVEL_DEBUG",
        }),
        enumeration!("genesis_pool", Pool {
            All = "GENESIS_POOL_ALL",
            Small = "GENESIS_POOL_SMALL",
            Large = "GENESIS_POOL_LARGE",
        }),
        enumeration!("genesis_block_state", BlockState {
            Live = "GENESIS_BLOCK_STATE_LIVE",
            Pending = "GENESIS_BLOCK_STATE_PENDING",
            Free = "GENESIS_BLOCK_STATE_FREE",
        }),
        enumeration!("genesis_memory_kind", MemoryKind {
            Device = "GENESIS_MEMORY_KIND_DEVICE",
            Pageable = "GENESIS_MEMORY_KIND_PAGEABLE",
            Pinned = "GENESIS_MEMORY_KIND_PINNED",
        }),
        enumeration!("genesis_backup", Backup {
            None = "GENESIS_BACKUP_NONE",
            Pinned = "GENESIS_BACKUP_PINNED",
            Pageable = "GENESIS_BACKUP_PAGEABLE",
            Disk = "GENESIS_BACKUP_DISK",
        }),
        enumeration!("genesis_host_kind", HostKind {
            Pageable = "GENESIS_HOST_KIND_PAGEABLE",
            Pinned = "GENESIS_HOST_KIND_PINNED",
        }),
        enumeration!("genesis_managed_advice", ManagedAdvice {
            ReadMostly = "GENESIS_MANAGED_ADVICE_READ_MOSTLY",
            NotReadMostly = "GENESIS_MANAGED_ADVICE_NOT_READ_MOSTLY",
            PreferredLocation = "GENESIS_MANAGED_ADVICE_PREFERRED_LOCATION",
            NoPreferredLocation = "GENESIS_MANAGED_ADVICE_NO_PREFERRED_LOCATION",
            AccessedBy = "GENESIS_MANAGED_ADVICE_ACCESSED_BY",
            NotAccessedBy = "GENESIS_MANAGED_ADVICE_NOT_ACCESSED_BY",
        }),
    ]
}

/// The names of the types that the header defines as a `kind`, in order.
fn defined(kind: &str) -> Vec<String> {
    let header = header();
    let start = format!("typedef {kind} {{");
    let mut names: Vec<String> = header
        .split(&start)
        .skip(1)
        .map(|body| {
            let (_, after) = body.split_once('}').expect("a definition ends");
            after.split_once(';').expect("with a name").0.trim().to_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn layouts_of_the_header_are_those_of_the_library() {
    for (kind, types) in [("struct", structures()), ("enum", enumerations())] {
        let mut known: Vec<&str> = types.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        assert_eq!(defined(kind), known, "every {kind} of the header is compared");
        let expected: Facts = types.into_iter().flat_map(|(_, facts)| facts).collect();
        for language in [C99, Cpp17] {
            assert_eq!(as_compiled(kind, &expected, language), expected, "{language:?}");
        }
    }
}

/// The values that a compiler finds for the expressions in `facts`.
fn as_compiled(kind: &str, facts: &Facts, language: Language) -> Facts {
    let mut source = "#include <genesis.h>\n#include <stdio.h>\nint main(void)\n{\n".to_owned();
    for (expression, _) in facts {
        writeln!(source, "    printf(\"%zu\\n\", (size_t)({expression}));").unwrap();
    }
    source.push_str("    return 0;\n}\n");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stem = format!("layout-{kind}-{language:?}-{}", std::process::id());
    let (path, program) = (folder.join(format!("{stem}.c")), folder.join(&stem));
    fs::write(&path, source).unwrap();
    let compiled = compiler(language).arg(&path).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let said = Command::new(&program).output().unwrap();
    fs::remove_file(path).and_then(|()| fs::remove_file(program)).unwrap();
    let values = text(&said.stdout);
    let values = values.lines().map(|value| value.parse().unwrap());
    facts.iter().map(|(expression, _)| expression.clone()).zip(values).collect()
}
