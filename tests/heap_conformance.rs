//! One suite for every strategy: what every heap guarantees, whatever its strategy.
//!
//! Each case is a function of a [`Subject`](support::Subject): a strategy, a store of the simulated
//! device, and settings. A subject runs the cases for all subjects and those for each of its
//! traits:
//!
//! | trait | subjects |
//! |---|---|
//! | `bytes` | the store has bytes |
//! | `naive` | the strategy keeps no freed block |
//! | `keeping` | the strategy keeps freed blocks for reuse |
//! | `whole` | blocks are never cut |
//! | `cutting` | blocks are cut from larger ones and joined again |
//! | `elastic` | memory moves between addresses |
//!
//! So a case that does not apply to a subject is not run for it, and no case returns early. A new
//! strategy is two lines at the end of this file; a test checks that they name all its traits.

#[path = "heap_conformance/basics.rs"]
mod basics;
#[path = "heap_conformance/captures.rs"]
mod captures;
#[path = "heap_conformance/contexts.rs"]
mod contexts;
#[path = "heap_conformance/handles.rs"]
mod handles;
#[path = "heap_conformance/limits.rs"]
mod limits;
#[path = "heap_conformance/own_memory.rs"]
mod own_memory;
#[path = "heap_conformance/pool_blocks.rs"]
mod pool_blocks;
#[path = "heap_conformance/pool_limits.rs"]
mod pool_limits;
#[path = "heap_conformance/pools.rs"]
mod pools;
#[path = "heap_conformance/races.rs"]
mod races;
#[path = "heap_conformance/release.rs"]
mod release;
#[path = "heap_conformance/shortage.rs"]
mod shortage;
#[path = "heap_conformance/statistics.rs"]
mod statistics;
#[path = "heap_conformance/streams.rs"]
mod streams;
mod support;
#[path = "heap_conformance/tag_limits.rs"]
mod tag_limits;

use genesis::config::{ElasticPolicy, Oversubscription, PoolType, Settings};
use simgpu::StoreKind;
use support::Subject;

/// The cases of all subjects, or of those with one trait.
macro_rules! cases {
    (all) => {
        tests! {
            basics::zero_bytes_are_address_zero
            basics::addresses_are_aligned_and_disjoint
            basics::absurd_sizes_are_refused
            basics::unknown_devices_are_refused
            basics::foreign_pointers_are_reported_and_harmless
            basics::double_frees_are_reported_and_harmless
            basics::devices_are_independent
            basics::block_sizes_are_the_strategys
            basics::nothing_is_asked_of_a_device_not_used
            streams::same_stream_reuses_at_once
            streams::another_stream_waits_for_the_event
            streams::another_stream_takes_nothing_without_an_event
            streams::recording_the_own_stream_changes_nothing
            streams::a_shortage_leaves_a_capture_alone
            streams::the_end_of_a_capture_that_was_seen_is_found
            streams::a_joined_block_is_as_fresh_as_its_freshest_part
            streams::a_destroyed_stream_is_never_touched
            streams::names_of_the_default_stream_are_one
            streams::each_threads_default_stream_is_its_own
            handles::a_new_stream_does_not_get_an_old_ones_blocks
            handles::a_new_streams_events_do_not_end_an_old_ones_waits
            handles::a_new_streams_fence_does_not_cover_an_old_ones_blocks
            handles::a_forgotten_stream_is_not_touched
            handles::streams_that_come_and_go_leave_little_behind
            contexts::a_stream_of_another_device_delays_reuse
            contexts::a_stream_of_another_context_delays_reuse
            contexts::default_streams_of_two_devices_are_two
            contexts::a_device_that_joins_a_wait_may_capture
            contexts::a_request_waits_for_captures_on_a_device_that_uses_its_memory
            contexts::the_end_of_a_capture_on_a_device_that_uses_the_memory_is_found
            contexts::a_capture_on_a_device_that_uses_the_memory_may_end_at_any_call
            captures::a_capture_that_was_told_of_is_left_alone
            captures::a_capture_that_was_seen_is_left_alone
            captures::a_request_waits_for_another_threads_captures
            captures::a_capture_may_end_in_another_thread
            captures::a_request_that_its_own_capture_waits_for_is_refused_at_once
            captures::callbacks_are_asked_again_after_a_capture
            captures::captures_that_follow_each_other_are_outlasted
            captures::a_free_that_meets_a_capture_keeps_its_memory
            captures::blocks_of_another_threads_default_stream_do_not_pile_up
            captures::blocks_recorded_on_a_capturing_stream_do_not_pile_up
            limits::a_fraction_of_the_memory
            limits::a_limit_in_bytes
            limits::a_limit_is_kept_as_the_driver_counts
            limits::threads_together_keep_the_limit
            limits::the_cache_limit
            limits::the_cache_limit_holds_when_waiting_blocks_become_free
            limits::the_cache_limit_of_many_threads
            limits::the_reserve
            limits::the_collection_threshold
            limits::age_in_allocations
            limits::age_in_seconds
            limits::settings_change_at_run_time
            limits::memory_info_counts_the_cache_as_free
            pools::a_pool_takes_nothing_and_gives_nothing
            pools::addresses_stay_until_the_last_release
            pools::a_shortage_does_not_take_a_pools_memory
            pools::what_is_live_at_the_release_goes_back_later
            pools::pools_do_not_mix
            pools::misuse_of_pools_is_reported
            pools::a_capture_is_not_disturbed
            own_memory::segments_of_a_pool_stay_whole
            own_memory::a_pool_with_arenas_fills_them_in_order
            own_memory::a_pools_memory_comes_from_its_source
            own_memory::a_source_gets_back_what_outlives_its_pool
            own_memory::a_source_without_memory_is_a_shortage
            own_memory::a_capture_calls_no_source_to_free
            own_memory::a_pool_that_is_held_is_not_made_again
            tag_limits::a_request_beyond_the_limit_is_refused
            tag_limits::a_refused_request_leaves_no_trace
            tag_limits::nested_tags_all_hold
            tag_limits::a_limit_changes_while_it_is_in_use
            tag_limits::each_device_has_its_own_account
            tag_limits::what_a_tag_does_not_count
            tag_limits::frees_count_once
            tag_limits::random_tags_in_threads_keep_their_limits
            pool_limits::a_pools_limit_leaves_others_alone
            pool_limits::a_pool_returns_its_own_free_memory_first
            pool_limits::a_pools_account_is_exact_when_memory_is_short
            pool_limits::threads_together_keep_a_pools_limit
            pool_blocks::the_pool_begun_last_serves
            pool_blocks::holding_a_pool_counts_as_a_use
            pool_blocks::a_state_comes_back_at_the_same_addresses
            pool_blocks::places_that_are_not_free_change_nothing
            pool_blocks::a_place_that_another_stream_still_uses_is_waited_for
            pool_blocks::a_place_whose_memory_has_another_stream_is_of_both
            pool_blocks::a_pool_that_lends_serves_rather_than_fail
            races::threads_on_several_streams_refuse_each_other_nothing
            races::threads_on_one_stream_refuse_each_other_nothing
            races::threads_in_a_limited_pool_refuse_each_other_nothing
            release::a_direct_free_gives_its_memory_back
            release::a_direct_free_leaves_what_is_shared
            release::trim_to_a_target
            release::what_is_given_back_is_idle_and_nothing_is_waited_for
            release::emptying_the_cache_keeps_what_is_live
            release::emptying_the_cache_waits_for_other_streams
            release::garbage_is_what_two_collections_saw_unused
            release::compaction_takes_in_what_has_finished
            shortage::callbacks_are_asked_until_removed
            shortage::callbacks_may_use_the_heap
            shortage::a_request_waits_for_another_threads_callback
            shortage::the_line_has_every_figure
            shortage::the_hint_is_true
            shortage::sixty_then_seventy_of_eighty
            shortage::every_second_block_of_a_full_device
            shortage::memory_comes_from_another_streams_cache
            statistics::levels_and_totals
            statistics::peaks_and_their_reset
            statistics::pools_of_sizes
            statistics::hits_and_misses
            statistics::fragmentation
            statistics::largest_allocations_first
        }
    };
    (bytes) => {
        tests! {
            basics::bytes_survive_what_happens_around_them
        }
    };
    (naive) => {
        tests! {
            streams::the_driver_waits_for_recorded_streams
            captures::what_a_capture_kept_goes_back
        }
    };
    (keeping) => {
        tests! {
            pool_limits::a_pool_keeps_its_limit
            streams::recorded_streams_delay_reuse
            streams::a_capturing_recorded_stream_delays_until_idle
            release::trim_releases_the_longest_unused_first
            limits::collection_is_switched_on_and_off_at_run_time
        }
    };
    (whole) => {
        tests! {
            statistics::nothing_is_cut
        }
    };
    (cutting) => {
        tests! {
            statistics::free_parts_of_segments
        }
    };
    (elastic) => {
        tests! {
            basics::large_blocks_have_one_handle_if_asked_for
        }
    };
}

/// The cases with more streams than a device has lanes, which take seconds to minutes each. On every
/// change they run for one strategy.
macro_rules! cases_of_many_streams {
    (Caching AddressesOnly) => {
        tests! {
            streams::streams_come_and_go
            streams::streams_of_one_device_leave_room_for_another
        }
    };
    ($pool:ident $store:ident) => {
        tests! {
            #[ignore = "nightly"]
            streams::streams_come_and_go
            #[ignore = "nightly"]
            streams::streams_of_one_device_leave_room_for_another
        }
    };
}

/// Makes each case a test of the subject of the module.
macro_rules! tests {
    ($($(#[$attribute:meta])* $module:ident::$case:ident)*) => {
        $(#[test]
        $(#[$attribute])*
        fn $case() {
            super::$module::$case(SUBJECT);
        })*
    };
}

/// Makes a module for each subject, and the list of them all.
macro_rules! conformance {
    ($($name:ident: $pool:ident on $store:ident, $vary:expr, [$($trait:ident)*];)*) => {
        $(mod $name {
            use super::*;

            pub const SUBJECT: Subject =
                Subject { vary: $vary, ..Subject::new(PoolType::$pool, StoreKind::$store) };
            cases! { all }
            cases_of_many_streams! { $pool $store }
            $(cases! { $trait })*
        })*

        /// Each subject, and the traits whose cases it runs.
        const SUBJECTS: &[(Subject, &[&str])] =
            &[$(($name::SUBJECT, &[$(stringify!($trait)),*])),*];
    };
}

fn as_it_comes(_: &mut Settings) {}

fn tight(settings: &mut Settings) {
    settings.elastic_policy = ElasticPolicy::Tight;
}

/// One handle for each block that is larger than most of the cases ask for.
fn single_handles(settings: &mut Settings) {
    settings.single_handle_size_bytes = Some(64 << 20);
}

/// Managed memory, and no more than the device has, so that a shortage is one.
fn managed(settings: &mut Settings) {
    settings.managed = Oversubscription::Most(0);
}

conformance! {
    naive_real: Naive on RealBytes, as_it_comes, [bytes naive whole];
    naive_addresses: Naive on AddressesOnly, as_it_comes, [naive whole];
    round_real: Round on RealBytes, as_it_comes, [bytes keeping whole];
    round_addresses: Round on AddressesOnly, as_it_comes, [keeping whole];
    exact_real: Exact on RealBytes, as_it_comes, [bytes keeping whole];
    exact_addresses: Exact on AddressesOnly, as_it_comes, [keeping whole];
    caching_real: Caching on RealBytes, as_it_comes, [bytes keeping cutting];
    caching_addresses: Caching on AddressesOnly, as_it_comes, [keeping cutting];
    arena_real: Arena on RealBytes, as_it_comes, [bytes keeping cutting];
    arena_addresses: Arena on AddressesOnly, as_it_comes, [keeping cutting];
    elastic_real: Elastic on RealBytes, as_it_comes, [bytes keeping cutting elastic];
    elastic_addresses: Elastic on AddressesOnly, as_it_comes, [keeping cutting elastic];
    elastic_tight: Elastic on AddressesOnly, tight, [keeping cutting elastic];
    elastic_single_handles: Elastic on AddressesOnly, single_handles, [keeping cutting elastic];
    managed_real: Arena on RealBytes, managed, [bytes keeping cutting];
    managed_addresses: Caching on AddressesOnly, managed, [keeping cutting];
}

/// No subject misses the cases of a trait that it has, and every strategy is a subject.
#[test]
fn every_subject_has_the_cases_of_its_traits() {
    for (subject, traits) in SUBJECTS {
        let has = [
            ("bytes", subject.store == StoreKind::RealBytes),
            ("naive", !subject.keeps_blocks()),
            ("keeping", subject.keeps_blocks()),
            ("whole", !subject.splits_blocks()),
            ("cutting", subject.splits_blocks()),
            ("elastic", subject.pool_type == PoolType::Elastic),
        ];
        let expected: Vec<&str> =
            has.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        assert_eq!(*traits, expected, "{subject:?}");
    }
    for pool_type in PoolType::ALL {
        for store in [StoreKind::RealBytes, StoreKind::AddressesOnly] {
            let is_subject = |(subject, _): &(Subject, &[&str])| {
                subject.pool_type == *pool_type && subject.store == store
            };
            assert!(SUBJECTS.iter().any(is_subject), "{pool_type:?} on {store:?}");
        }
    }
}
