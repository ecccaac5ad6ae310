//! Tests of the table through the environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use simgpu::Prices;

use super::super::{
    BackendChoice, CallSites, DebugModes, ElasticPolicy, HandleType, LogLevel, OPTIONS,
    Oversubscription, PoolType, Settings, StrategySettings, StreamIds, device_limits,
};
use crate::base::size::{GIB, KIB, MIB};
use crate::base::{Backup, Result, Status};

fn read(variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>)> {
    Settings::from_variables(variables.iter().map(|(name, value)| (name.into(), value.into())))
}

/// The settings; no warning is expected.
fn quiet(variables: &[(&str, &str)]) -> Settings {
    let (settings, warnings) = read(variables).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    settings
}

fn mistake(variables: &[(&str, &str)]) -> String {
    let error = read(variables).unwrap_err();
    assert_eq!(error.status, Status::InvalidConfiguration);
    error.message.to_string()
}

/// No field at its default.
fn unusual() -> Settings {
    Settings {
        strategy: StrategySettings {
            pool_type: PoolType::Exact,
            reserve_percent: 12.5,
            page_size_bytes: 64 * KIB,
            round_linear_cutoff: 46,
            large_alloc_round_size_bytes: 3 * MIB,
        },
        host: StrategySettings {
            pool_type: PoolType::Round,
            reserve_percent: 1.5,
            page_size_bytes: 8 * KIB,
            round_linear_cutoff: 9,
            large_alloc_round_size_bytes: 5 * MIB,
        },
        pinned: StrategySettings {
            pool_type: PoolType::Naive,
            reserve_percent: 100.0,
            page_size_bytes: 512,
            round_linear_cutoff: 20,
            large_alloc_round_size_bytes: 512,
        },
        backend: BackendChoice::Sim,
        memory_fraction: 0.1 + 0.2,
        memory_limit_bytes: Some(3 * GIB + 1),
        managed: Oversubscription::Most(5 * GIB),
        device_limits: device_limits::parse("0=3GiB,5=unlimited").unwrap(),
        share: Some("two-jobs_1.x".to_owned()),
        share_guarantee_bytes: GIB,
        share_weight: 7,
        cache_size_bytes: Some(0),
        max_split_size_bytes: Some(20 * MIB),
        roundup_power2_divisions: 8,
        elastic_policy: ElasticPolicy::Tight,
        handle_type: HandleType::Fabric,
        rdma: false,
        single_handle_size_bytes: Some(32 * MIB),
        stream_ids: StreamIds::On,
        gc_threshold: Some(0.8),
        compact_above: Some(0.3),
        gc_age_allocations: Some(u64::MAX),
        gc_age_seconds: Some(1e-9),
        backup_folder: Some("/var/a folder".to_owned()),
        backup_retain: true,
        shows_progress: true,
        default_tag: Some("all of it".to_owned()),
        default_backup: Backup::Disk,
        saver_backup: Backup::Pageable,
        log: LogLevel::Debug,
        trace: Some("/tmp/a trace-%p.gtr.zst".to_owned()),
        trace_flush_seconds: 0.25,
        plan: Some("/tmp/train.plan".to_owned()),
        forecast_steps: Some(1),
        rank: Some(7),
        global_rank: Some(71),
        preallocate_bytes: 2 << 30,
        profile: Some("/tmp/profile-%p.html".to_owned()),
        profile_events: 0,
        top: true,
        metrics: Some("/tmp/genesis.prom".to_owned()),
        metrics_seconds: 0.5,
        debug: DebugModes { guard: true, ..DebugModes::ALL },
        quarantine_size_bytes: 0,
        call_sites: CallSites::All,
        preload: false,
        preload_fence: false,
        preload_report: Some("/dev/shm/genesis-run-1".to_owned()),
        sim_devices: 64,
        sim_memory_bytes: Some(1 << 47),
        sim_prices: Prices::B300,
    }
}

#[test]
fn an_empty_environment_gives_the_defaults_and_empty_values_are_unset() {
    assert_eq!(quiet(&[]), Settings::default());
    assert_eq!(quiet(&[("GENESIS_POOL_TYPE", ""), ("GENESIS_LOG", " \t")]), Settings::default());
    let alias = quiet(&[("GENESIS_POOL_TYPE", ""), ("MXNET_GPU_MEM_POOL_TYPE", "Round")]);
    assert_eq!(alias.strategy.pool_type, PoolType::Round);
}

#[test]
fn torch_memory_savers_variables_mean_what_they_do_there() {
    let all = |backend| {
        quiet(&[
            ("TMS_INIT_ENABLE", "1"),
            ("TMS_INIT_ENABLE_CPU_BACKUP", "yes"),
            ("TMS_INIT_CPU_BACKUP_BACKEND", backend),
            ("TMS_RETAIN_CPU_BACKUP", "TRUE"),
            ("TMS_DISK_BACKUP_DIR", "/var/backups"),
        ])
    };
    let read = all("mmap");
    assert_eq!(read.default_tag.as_deref(), Some("default"));
    assert_eq!((read.default_backup, read.saver_backup), (Backup::Pageable, Backup::Pageable));
    assert_eq!((read.backup_retain, read.backup_folder.as_deref()), (true, Some("/var/backups")));
    assert_eq!(all("pinned").default_backup, Backup::Pinned);
    assert_eq!(quiet(&[("TMS_INIT_ENABLE_DISK_BACKUP", "1")]).default_backup, Backup::Disk);
    assert_eq!(quiet(&[("TMS_INIT_ENABLE", "0")]), Settings::default());
    assert!(mistake(&[("TMS_INIT_ENABLE", "maybe")]).contains("not 1 or 0"));
    assert!(mistake(&[("TMS_INIT_CPU_BACKUP_BACKEND", "tape")]).contains("pinned, mmap"));
}

#[test]
fn modes_of_debugging_are_listed_in_any_order() {
    let modes = |text| quiet(&[("GENESIS_DEBUG", text)]).debug;
    assert_eq!(modes("off"), DebugModes::OFF);
    assert_eq!(modes("0"), DebugModes::OFF);
    assert_eq!(modes("ALL"), DebugModes::ALL);
    let [leaks, guard] = [true; 2];
    assert_eq!(modes(" guard, Leaks,"), DebugModes { leaks, guard, ..DebugModes::OFF });
    assert_eq!(modes("guard,all"), DebugModes { guard, ..DebugModes::ALL });
    assert_eq!(modes("all,guard"), DebugModes { guard, ..DebugModes::ALL });
    let message = mistake(&[("GENESIS_DEBUG", "leaks,posion")]);
    assert!(message.contains("posion is not a mode; valid: leaks, poison, guard, quarantine, all"));
    assert!(message.contains("did you mean poison?"), "{message}");
}

#[test]
fn rows_are_well_formed_and_distinct() {
    let mut names = std::collections::HashSet::new();
    // No alias is an option's own name; one of MXNet's variables sets several options.
    let mut aliases = std::collections::HashSet::new();
    for option in OPTIONS {
        assert!(option.name.starts_with("GENESIS_"));
        assert!(option.summary.ends_with('.') && !option.summary.contains('\n'));
        assert!(names.insert(option.name), "{} twice", option.name);
        for alias in option.aliases {
            let is_new = aliases.insert(alias.name);
            let is_shared = alias.name == "MXNET_USE_NAIVE_STORAGE_MANAGER";
            assert!(is_new || is_shared, "{} twice", alias.name);
        }
    }
    assert!(names.is_disjoint(&aliases));
}

#[test]
fn what_is_shown_reads_back() {
    for expected in [Settings::default(), unusual()] {
        let shown: Vec<(&str, String)> =
            OPTIONS.iter().map(|option| (option.name, (option.show)(&expected))).collect();
        let variables: Vec<(&str, &str)> =
            shown.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(quiet(&variables), expected);
    }
}

/// Setting every option from `unusual` leaves no field at its default, so none lacks a row;
/// each row changes exactly the field that it shows.
#[test]
fn every_field_has_a_row_of_its_own() {
    let (unusual, default) = (unusual(), Settings::default());
    // Each field begins a line with four spaces; lines within a field have more.
    let is_field = |line: &&str| {
        line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic()))
    };
    let count_fields = |debug: String| debug.lines().filter(is_field).count();
    let of_strategy = count_fields(format!("{:#?}", default.strategy));
    // Three fields are strategies, each with fields of its own.
    let fields = count_fields(format!("{default:#?}")) + 3 * (of_strategy - 1);
    for option in OPTIONS {
        let settings = quiet(&[(option.name, &(option.show)(&unusual))]);
        for other in OPTIONS {
            let source = if other.name == option.name { &unusual } else { &default };
            assert_eq!((other.show)(&settings), (other.show)(source), "{}", option.name);
        }
        assert_ne!(settings, default, "{}", option.name);
    }
    assert_eq!(fields, OPTIONS.len());
}

#[test]
fn values_are_read_in_the_forms_people_write() {
    let settings = quiet(&[
        ("GENESIS_POOL_TYPE", " rOUND "),
        ("GENESIS_CACHE_SIZE", "2GB"),
        ("GENESIS_MEMORY_LIMIT", "0"),
        ("GENESIS_MAX_SPLIT_SIZE", "Unlimited"),
        ("GENESIS_GC_THRESHOLD", "0.0"),
        ("GENESIS_GC_AGE_SECONDS", "NEVER"),
        ("GENESIS_TRACE", "OFF"),
        ("GENESIS_RDMA", "OFF"),
        ("GENESIS_HANDLE_TYPE", "Posix"),
        ("GENESIS_SINGLE_HANDLE_SIZE", "0"),
        ("GENESIS_SIM_MEMORY", "0GB"),
        ("GENESIS_PAGE_SIZE", "512"),
        ("GENESIS_POOL_RESERVE", "-0"),
        ("GENESIS_LIBRARY", "/usr/lib/libgenesis.so"),
        ("GENESIS_PRELOAD_LIBRARY", "/usr/lib/libgenesis_preload.so"),
        ("MXNET_SOMETHING_ELSE", "1"),
    ]);
    assert_eq!(
        settings,
        Settings {
            strategy: StrategySettings {
                page_size_bytes: 512,
                reserve_percent: 0.0,
                ..StrategySettings::new(PoolType::Round)
            },
            cache_size_bytes: Some(2 * GIB),
            handle_type: HandleType::Posix,
            rdma: false,
            ..Settings::default()
        }
    );
    assert_eq!(settings.strategy.reserve_percent.to_string(), "0");
    let nothing_cached = quiet(&[("GENESIS_CACHE_SIZE", "0")]);
    assert_eq!(nothing_cached.cache_size_bytes, Some(0));
}

#[test]
fn wrong_values_are_refused_with_what_would_be_right() {
    const POOLS: &str = "not a pool type; valid: Naive, Round, Exact, Caching, Arena, Elastic";
    const FRACTION: &str = "not a number above 0 and at most 1";
    const SIZE: &str = "not a size such as 4096, 512KB or 2GB";
    const LEVELS: &str = "not a log level; valid: off, error, warn, info, debug";
    for (name, value, complaint) in [
        ("GENESIS_POOL_TYPE", "Stretchy", POOLS.to_owned()),
        ("GENESIS_POOL_TYPE", "Rund", format!("{POOLS} (did you mean Round?)")),
        ("GENESIS_POOL_TYPE", "Unpooled", POOLS.to_owned()),
        ("GENESIS_BACKEND", "gpu", "not a backend; valid: auto, cuda, host, sim".to_owned()),
        ("GENESIS_LOG", "3", LEVELS.to_owned()),
        ("GENESIS_MEMORY_FRACTION", "0", FRACTION.to_owned()),
        ("GENESIS_MEMORY_FRACTION", "1.01", FRACTION.to_owned()),
        ("GENESIS_MEMORY_FRACTION", "NaN", FRACTION.to_owned()),
        ("GENESIS_MEMORY_FRACTION", "80%", FRACTION.to_owned()),
        ("GENESIS_GC_THRESHOLD", "nan", format!("{FRACTION}, or never")),
        ("GENESIS_TRACE_FLUSH_SECONDS", "0", "not a number of seconds above 0".to_owned()),
        ("GENESIS_GC_AGE_SECONDS", "inf", "not a number of seconds above 0, or never".to_owned()),
        ("GENESIS_GC_AGE_SECONDS", "-1", "not a number of seconds above 0, or never".to_owned()),
        (
            "GENESIS_GC_AGE_ALLOCATIONS",
            "1.5",
            "not a whole number from 1 to 18446744073709551615, or never".to_owned(),
        ),
        ("GENESIS_MEMORY_LIMIT", "-1", format!("{SIZE}, or unlimited")),
        ("GENESIS_MEMORY_LIMIT", "0.8", format!("{SIZE}, or unlimited")),
        ("GENESIS_CACHE_SIZE", "0.8", format!("{SIZE}, or unlimited")),
        ("GENESIS_CACHE_SIZE", "lots", format!("{SIZE}, or unlimited")),
        (
            "GENESIS_MAX_SPLIT_SIZE",
            "64k",
            "not a size from 1MiB to 128TiB, or unlimited".to_owned(),
        ),
        ("GENESIS_SIM_MEMORY", "1", "not a size from 2MiB to 128TiB, or auto".to_owned()),
        (
            "GENESIS_SIM_PRICES",
            "h300",
            "not a price list; valid: h100, a100, rtxpro6000, vattention, b300, h200, h200rested \
             (did you mean h100?)"
                .to_owned(),
        ),
        ("GENESIS_PAGE_SIZE", "256", "not a size from 512 to 128TiB".to_owned()),
        ("GENESIS_PAGE_SIZE", "5000", "not a power of two".to_owned()),
        ("GENESIS_LARGE_ALLOC_ROUND_SIZE", "0", "not a size from 512 to 128TiB".to_owned()),
        ("GENESIS_LARGE_ALLOC_ROUND_SIZE", "1000", "not a multiple of 512 bytes".to_owned()),
        ("GENESIS_ROUND_LINEAR_CUTOFF", "8", "not a whole number from 9 to 46".to_owned()),
        ("GENESIS_ROUND_LINEAR_CUTOFF", "47", "not a whole number from 9 to 46".to_owned()),
        ("GENESIS_POOL_RESERVE", "101", "not a number from 0 to 100".to_owned()),
        ("GENESIS_POOL_RESERVE", "nan", "not a number from 0 to 100".to_owned()),
        ("GENESIS_ROUNDUP_POWER2_DIVISIONS", "3", "not 0 or a power of two".to_owned()),
        ("GENESIS_HANDLE_TYPE", "fd", "not a handle type; valid: none, posix, fabric".to_owned()),
        ("GENESIS_RDMA", "1", "not a switch; valid: on, off".to_owned()),
        (
            "GENESIS_SINGLE_HANDLE_SIZE",
            "1MB",
            "not a size from 2MiB to 128TiB, or never".to_owned(),
        ),
        ("GENESIS_SIM_DEVICES", "0", "not a whole number from 1 to 64".to_owned()),
        (
            "MXNET_GPU_MEM_POOL_TYPE",
            "Exact",
            "not a pool type of MXNet's; valid: Naive, Round, Unpooled".to_owned(),
        ),
    ] {
        assert_eq!(mistake(&[(name, value)]), format!("{name}={value}: {complaint}"));
    }
}

#[test]
fn all_mistakes_come_in_one_message() {
    let message = mistake(&[
        ("GENESIS_LOG", "loud"),
        ("GENESIS_PAGE_SIZE", "7"),
        ("GENESIS_SIM_DEVICES", "2"),
    ]);
    assert_eq!(
        message,
        "2 settings are wrong: (1) GENESIS_PAGE_SIZE=7: not a size from 512 to 128TiB \
         (2) GENESIS_LOG=loud: not a log level; valid: off, error, warn, info, debug"
    );
}

#[test]
fn mxnet_names_have_mxnet_meanings() {
    for (value, pool_type) in
        [("Naive", PoolType::Exact), ("round", PoolType::Round), ("Unpooled", PoolType::Naive)]
    {
        assert_eq!(quiet(&[("MXNET_GPU_MEM_POOL_TYPE", value)]).strategy.pool_type, pool_type);
    }
    let settings = quiet(&[
        ("MXNET_GPU_MEM_POOL_RESERVE", "10"),
        ("MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE", "4194304"),
        ("MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF", "26"),
        ("MXNET_GPU_POOL_PAGE_SIZE", "8192"),
    ]);
    assert_eq!(
        settings,
        Settings {
            strategy: StrategySettings {
                pool_type: PoolType::Elastic,
                reserve_percent: 10.0,
                large_alloc_round_size_bytes: 4 * MIB,
                round_linear_cutoff: 26,
                page_size_bytes: 8192,
            },
            ..Settings::default()
        }
    );
}

#[test]
fn mxnets_variables_for_host_memory_are_honoured() {
    let settings = quiet(&[
        ("MXNET_CPU_MEM_POOL_TYPE", "Round"),
        ("MXNET_CPU_MEM_POOL_RESERVE", "7"),
        ("MXNET_CPU_MEM_POOL_PAGE_SIZE", "8192"),
        ("MXNET_CPU_MEM_POOL_ROUND_LINEAR_CUTOFF", "20"),
        ("MXNET_CPU_MEM_LARGE_ALLOC_ROUND_SIZE", "1048576"),
        ("MXNET_CPU_PINNED_MEM_POOL_TYPE", "Naive"),
        ("MXNET_CPU_PINNED_POOL_PAGE_SIZE", "16384"),
        ("MXNET_CPU_PINNED_MEM_POOL_RESERVE", "9"),
    ]);
    assert_eq!(
        settings,
        Settings {
            host: StrategySettings {
                pool_type: PoolType::Round,
                reserve_percent: 7.0,
                page_size_bytes: 8192,
                round_linear_cutoff: 20,
                large_alloc_round_size_bytes: MIB,
            },
            pinned: StrategySettings {
                page_size_bytes: 16384,
                reserve_percent: 9.0,
                ..StrategySettings::new(PoolType::Exact)
            },
            ..Settings::default()
        }
    );
    let message = mistake(&[("GENESIS_HOST_POOL_TYPE", "Elastic")]);
    assert!(message.contains("not a pool type of host memory; valid: Naive, Round"), "{message}");
}

#[test]
fn mxnets_switch_takes_all_pools_away() {
    let none = quiet(&[("MXNET_USE_NAIVE_STORAGE_MANAGER", "1")]);
    let types = [none.strategy, none.host, none.pinned].map(|strategy| strategy.pool_type);
    assert_eq!(types, [PoolType::Naive; 3]);
    assert_eq!(quiet(&[("MXNET_USE_NAIVE_STORAGE_MANAGER", "0")]), Settings::default());
    mistake(&[("MXNET_USE_NAIVE_STORAGE_MANAGER", "yes")]);
}

#[test]
fn the_own_name_wins_over_its_aliases_unread() {
    let settings = quiet(&[
        ("MXNET_GPU_MEM_POOL_TYPE", "nonsense"),
        ("GENESIS_POOL_TYPE", "Naive"),
        ("MXNET_GPU_MEM_POOL_PAGE_SIZE", "1024"),
        ("MXNET_GPU_POOL_PAGE_SIZE", "2048"),
        ("GENESIS_PAGE_SIZE", "512"),
    ]);
    assert_eq!(
        (settings.strategy.pool_type, settings.strategy.page_size_bytes),
        (PoolType::Naive, 512)
    );
}

#[test]
fn of_two_spellings_of_mxnet_the_documented_one_wins_with_a_warning() {
    let documented = ("MXNET_GPU_MEM_POOL_PAGE_SIZE", "1024");
    assert_eq!(
        quiet(&[documented, ("MXNET_GPU_POOL_PAGE_SIZE", "1024")]).strategy.page_size_bytes,
        1024
    );
    let (settings, warnings) = read(&[("MXNET_GPU_POOL_PAGE_SIZE", "2048"), documented]).unwrap();
    assert_eq!(settings.strategy.page_size_bytes, 1024);
    assert_eq!(
        warnings,
        ["MXNET_GPU_MEM_POOL_PAGE_SIZE=1024 wins over MXNET_GPU_POOL_PAGE_SIZE=2048"]
    );
}

#[test]
fn unknown_names_are_warned_of_with_the_nearest() {
    let (settings, warnings) =
        read(&[("GENESIS_POOL_TPYE", "Round"), ("GENESIS_FROBNICATE", "1")]).unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(
        warnings,
        [
            "GENESIS_FROBNICATE is not an option; `genesis options` lists them",
            "GENESIS_POOL_TPYE is not an option; did you mean GENESIS_POOL_TYPE?",
        ]
    );
}

#[test]
fn values_that_are_not_utf8_are_refused_and_the_first_of_two_counts() {
    let bytes = || OsString::from_vec(vec![b'4', 0xff]);
    let error = Settings::from_variables([("GENESIS_PAGE_SIZE".into(), bytes())].into_iter());
    assert_eq!(error.unwrap_err().message, "GENESIS_PAGE_SIZE=4\u{fffd}: not valid UTF-8");
    let unrelated = Settings::from_variables([("PATH".into(), bytes())].into_iter());
    assert_eq!(unrelated.unwrap(), (Settings::default(), Vec::new()));
    let twice = quiet(&[("GENESIS_SIM_DEVICES", "2"), ("GENESIS_SIM_DEVICES", "3")]);
    assert_eq!(twice.sim_devices, 2);
}
