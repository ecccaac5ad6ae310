//! The rows of the option table for host memory: five for each kind, the same but for the kind.
//!
//! They are what MXNet lets its users set of its own pools, `MXNET_CPU_…` and
//! `MXNET_CPU_PINNED_…`, under names and with values of our own. MXNet's names keep MXNet's
//! meanings, as they do for devices.

use super::settings::{PoolType, Settings};
use super::table::{Alias, OptionSpec, assign};
use super::value::{
    aligned_bytes, cutoff, mxnet_pool_type, no_pool, page_bytes, percent, show_bytes, word,
};

/// The strategies that host memory can have: Elastic is for devices.
const POOL_TYPES: &[PoolType] =
    &[PoolType::Naive, PoolType::Round, PoolType::Exact, PoolType::Caching];

/// The rows for one kind of host memory: their module, the fields of [`Settings`], what our names
/// and MXNet's begin with, and the kind in words.
macro_rules! rows {
    (
        $module:ident, $ours:literal, $mxnet:literal, $kind:literal,
        $pool_type:ident, $reserve:ident, $page:ident, $cutoff:ident, $large:ident
    ) => {
        pub(super) mod $module {
            use super::*;

            pub(in super::super) const POOL_TYPE: OptionSpec = OptionSpec {
                name: concat!($ours, "_POOL_TYPE"),
                aliases: &[
                    Alias {
                        name: concat!($mxnet, "_MEM_POOL_TYPE"),
                        parse: |settings, text| {
                            assign(&mut settings.$pool_type, mxnet_pool_type(text))
                        },
                    },
                    Alias {
                        name: "MXNET_USE_NAIVE_STORAGE_MANAGER",
                        parse: |settings, text| {
                            let now = settings.$pool_type;
                            assign(&mut settings.$pool_type, no_pool(now, text))
                        },
                    },
                ],
                values: "`Naive`, `Round`, `Exact` or `Caching`",
                summary: concat!("The strategy for ", $kind, " host memory."),
                help: "As GENESIS_POOL_TYPE is for devices; of genesis_host_malloc only.",
                runtime: false,
                parse: |settings, text| {
                    let what = "a pool type of host memory";
                    let read = word(text, what, POOL_TYPES, |pool_type| pool_type.name());
                    assign(&mut settings.$pool_type, read)
                },
                show: |settings| settings.$pool_type.name().to_owned(),
            };
            pub(in super::super) const RESERVE: OptionSpec = OptionSpec {
                name: concat!($ours, "_POOL_RESERVE"),
                aliases: &[Alias {
                    name: concat!($mxnet, "_MEM_POOL_RESERVE"),
                    parse: |settings, text| assign(&mut settings.$reserve, percent(text)),
                }],
                values: "a percentage from 0 to 100",
                summary: concat!(
                    "Round and Exact of ",
                    $kind,
                    " host memory: the part of the machine's memory kept free of cached blocks."
                ),
                help: "",
                runtime: false,
                parse: |settings, text| assign(&mut settings.$reserve, percent(text)),
                show: |settings| settings.$reserve.to_string(),
            };
            pub(in super::super) const PAGE_SIZE: OptionSpec = OptionSpec {
                name: concat!($ours, "_PAGE_SIZE"),
                aliases: &[
                    Alias { name: concat!($mxnet, "_MEM_POOL_PAGE_SIZE"), parse: page_size },
                    Alias { name: concat!($mxnet, "_POOL_PAGE_SIZE"), parse: page_size },
                ],
                values: "a size: a power of two, at least 512 bytes",
                summary: concat!(
                    "Round and Exact of ",
                    $kind,
                    " host memory: the smallest block, and what Exact rounds sizes to."
                ),
                help: "",
                runtime: false,
                parse: page_size,
                show: |settings| show_bytes(settings.$page),
            };
            pub(in super::super) const CUTOFF: OptionSpec = OptionSpec {
                name: concat!($ours, "_ROUND_LINEAR_CUTOFF"),
                aliases: &[Alias {
                    name: concat!($mxnet, "_MEM_POOL_ROUND_LINEAR_CUTOFF"),
                    parse: |settings, text| assign(&mut settings.$cutoff, cutoff(text)),
                }],
                values: "an exponent from 9 to 46",
                summary: concat!(
                    "Round of ",
                    $kind,
                    " host memory: the largest power of two used as a block size."
                ),
                help: "",
                runtime: false,
                parse: |settings, text| assign(&mut settings.$cutoff, cutoff(text)),
                show: |settings| settings.$cutoff.to_string(),
            };
            pub(in super::super) const LARGE: OptionSpec = OptionSpec {
                name: concat!($ours, "_LARGE_ALLOC_ROUND_SIZE"),
                aliases: &[Alias {
                    name: concat!($mxnet, "_MEM_LARGE_ALLOC_ROUND_SIZE"),
                    parse: |settings, text| assign(&mut settings.$large, aligned_bytes(text)),
                }],
                values: "a size: a multiple of 512 bytes",
                summary: concat!(
                    "Exact of ",
                    $kind,
                    " host memory: requests above this are rounded to a multiple of it."
                ),
                help: "",
                runtime: false,
                parse: |settings, text| assign(&mut settings.$large, aligned_bytes(text)),
                show: |settings| show_bytes(settings.$large),
            };

            fn page_size(settings: &mut Settings, text: &str) -> Result<(), String> {
                assign(&mut settings.$page, page_bytes(text))
            }
        }
    };
}

rows!(
    pageable,
    "GENESIS_HOST",
    "MXNET_CPU",
    "pageable",
    host_pool_type,
    host_pool_reserve_percent,
    host_page_size_bytes,
    host_round_linear_cutoff,
    host_large_alloc_round_size_bytes
);
rows!(
    pinned,
    "GENESIS_PINNED",
    "MXNET_CPU_PINNED",
    "pinned",
    pinned_pool_type,
    pinned_pool_reserve_percent,
    pinned_page_size_bytes,
    pinned_round_linear_cutoff,
    pinned_large_alloc_round_size_bytes
);
