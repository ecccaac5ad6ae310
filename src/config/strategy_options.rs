//! The rows of the option table that set a strategy: five rows, for device memory and for each kind
//! of host memory.
//!
//! | memory | our names | MXNet's names |
//! |---|---|---|
//! | device | `GENESIS_…` | `MXNET_GPU_…` |
//! | pageable host | `GENESIS_HOST_…` | `MXNET_CPU_…` |
//! | pinned host | `GENESIS_PINNED_…` | `MXNET_CPU_PINNED_…` |
//!
//! MXNet's names keep MXNet's meanings: its Naive is our Exact, its Unpooled our Naive.

use super::option::{Alias, OptionSpec, assign};
use super::settings::Settings;
use super::strategy::PoolType;
use super::value::{
    aligned_bytes, cutoff, mxnet_pool_type, no_pool, page_bytes, percent, show_bytes, word,
};

/// The strategies of host memory: Elastic is for devices.
const HOST_POOL_TYPES: &[PoolType] =
    &[PoolType::Naive, PoolType::Round, PoolType::Exact, PoolType::Caching, PoolType::Arena];

/// The five rows for one kind of memory, as constants of `$module`. `$field` is its strategy in
/// [`Settings`], `$ours` and `$mxnet` begin the names, `$of` completes "Round and Exact…:".
macro_rules! rows {
    (
        $module:ident, $field:ident, $ours:literal, $mxnet:literal, $of:literal, $all:literal,
        $pool_types:expr, $values:literal, $what:literal, $help:expr
    ) => {
        pub(super) mod $module {
            use super::*;

            pub(in super::super) const POOL_TYPE: OptionSpec = OptionSpec {
                name: concat!($ours, "_POOL_TYPE"),
                aliases: &[
                    Alias {
                        name: concat!($mxnet, "_MEM_POOL_TYPE"),
                        parse: |settings, text| {
                            assign(&mut settings.$field.pool_type, mxnet_pool_type(text))
                        },
                    },
                    Alias {
                        name: "MXNET_USE_NAIVE_STORAGE_MANAGER",
                        parse: |settings, text| {
                            let pool_type = &mut settings.$field.pool_type;
                            assign(pool_type, no_pool(*pool_type, text))
                        },
                    },
                ],
                values: $values,
                summary: concat!("The strategy", $of, ": where a block goes."),
                help: $help,
                runtime: false,
                parse: |settings, text| {
                    let read = word(text, $what, $pool_types, PoolType::name);
                    assign(&mut settings.$field.pool_type, read)
                },
                show: |settings| settings.$field.pool_type.name().to_owned(),
            };
            pub(in super::super) const RESERVE: OptionSpec = OptionSpec {
                name: concat!($ours, "_POOL_RESERVE"),
                aliases: &[Alias { name: concat!($mxnet, "_MEM_POOL_RESERVE"), parse: reserve }],
                values: "a percentage from 0 to 100",
                summary: concat!(
                    "Round and Exact",
                    $of,
                    ": the part of ",
                    $all,
                    " kept free of cached blocks."
                ),
                help: "If less than this is free, every cached block is released before more \
                       memory is requested.",
                runtime: false,
                parse: reserve,
                show: |settings| settings.$field.reserve_percent.to_string(),
            };
            pub(in super::super) const PAGE_SIZE: OptionSpec = OptionSpec {
                name: concat!($ours, "_PAGE_SIZE"),
                aliases: &[
                    Alias { name: concat!($mxnet, "_MEM_POOL_PAGE_SIZE"), parse: page_size },
                    Alias { name: concat!($mxnet, "_POOL_PAGE_SIZE"), parse: page_size },
                ],
                values: "a size: a power of two, at least 512 bytes",
                summary: concat!(
                    "Round and Exact",
                    $of,
                    ": the smallest block, and what Exact rounds sizes to."
                ),
                help: "MXNet documents one spelling of its variable and reads another; both work.",
                runtime: false,
                parse: page_size,
                show: |settings| show_bytes(settings.$field.page_size_bytes),
            };
            pub(in super::super) const CUTOFF: OptionSpec = OptionSpec {
                name: concat!($ours, "_ROUND_LINEAR_CUTOFF"),
                aliases: &[Alias {
                    name: concat!($mxnet, "_MEM_POOL_ROUND_LINEAR_CUTOFF"),
                    parse: linear_cutoff,
                }],
                values: "an exponent from 9 to 46",
                summary: concat!(
                    "Round",
                    $of,
                    ": the largest power of two used as a block size; above it, its multiples."
                ),
                help: "24 means 16 MiB.",
                runtime: false,
                parse: linear_cutoff,
                show: |settings| settings.$field.round_linear_cutoff.to_string(),
            };
            pub(in super::super) const LARGE: OptionSpec = OptionSpec {
                name: concat!($ours, "_LARGE_ALLOC_ROUND_SIZE"),
                aliases: &[Alias {
                    name: concat!($mxnet, "_MEM_LARGE_ALLOC_ROUND_SIZE"),
                    parse: large_round_size,
                }],
                values: "a size: a multiple of 512 bytes",
                summary: concat!(
                    "Exact",
                    $of,
                    ": requests above this are rounded to a multiple of it."
                ),
                help: "MXNet asks only that it be above 0. It need not be a multiple of the page \
                       size.",
                runtime: false,
                parse: large_round_size,
                show: |settings| show_bytes(settings.$field.large_alloc_round_size_bytes),
            };

            fn reserve(settings: &mut Settings, text: &str) -> Result<(), String> {
                assign(&mut settings.$field.reserve_percent, percent(text))
            }

            fn page_size(settings: &mut Settings, text: &str) -> Result<(), String> {
                assign(&mut settings.$field.page_size_bytes, page_bytes(text))
            }

            fn linear_cutoff(settings: &mut Settings, text: &str) -> Result<(), String> {
                assign(&mut settings.$field.round_linear_cutoff, cutoff(text))
            }

            fn large_round_size(settings: &mut Settings, text: &str) -> Result<(), String> {
                assign(&mut settings.$field.large_alloc_round_size_bytes, aligned_bytes(text))
            }
        }
    };
}

rows!(
    device,
    strategy,
    "GENESIS",
    "MXNET_GPU",
    "",
    "each device's memory",
    PoolType::ALL,
    "`Naive`, `Round`, `Exact`, `Caching`, `Arena` or `Elastic`",
    "a pool type",
    "Naive requests every block from the driver. Round and Exact are MXNet's Round and Naive. \
     Caching cuts and joins blocks in segments. Arena has pools of fixed sizes for small blocks and \
     fills segments from their start with large ones. Elastic also moves the memory under free blocks to \
     where it is needed; on a device without virtual memory management it is Caching. MXNet's \
     variables keep MXNet's meanings: its Naive is Exact, its Round is Round, its Unpooled and its \
     switch for no pool at all are Naive."
);
rows!(
    pageable,
    host,
    "GENESIS_HOST",
    "MXNET_CPU",
    " for pageable host memory",
    "the machine's memory",
    HOST_POOL_TYPES,
    "`Naive`, `Round`, `Exact`, `Caching` or `Arena`",
    "a pool type of host memory",
    "As GENESIS_POOL_TYPE for devices. Only genesis_host_malloc uses it."
);
rows!(
    pinned,
    pinned,
    "GENESIS_PINNED",
    "MXNET_CPU_PINNED",
    " for pinned host memory",
    "the machine's memory",
    HOST_POOL_TYPES,
    "`Naive`, `Round`, `Exact`, `Caching` or `Arena`",
    "a pool type of host memory",
    "As GENESIS_POOL_TYPE for devices. Only genesis_host_malloc uses it."
);
