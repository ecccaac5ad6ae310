//! Arenas, fixed-size pools and tiers over heaps of a simulated device, with and without bytes, and
//! over host memory: what they promise, under the race detector, with threads and under faults.

mod support;

#[path = "suballocation/arenas.rs"]
mod arenas;
#[path = "suballocation/faults.rs"]
mod faults;
#[path = "suballocation/fixed_pools.rs"]
mod fixed_pools;
#[path = "suballocation/sources.rs"]
mod sources;
#[path = "suballocation/tiers.rs"]
mod tiers;

use simgpu::StoreKind;
use sources::Subject;

/// Makes each case a test of the subject of the module.
macro_rules! tests {
    ($($module:ident::$case:ident)*) => {
        $(#[test]
        fn $case() {
            super::$module::$case(SUBJECT);
        })*
    };
}

/// The cases of all memory, and those of memory with streams.
macro_rules! cases {
    (all) => {
        tests! {
            arenas::memory_is_aligned_and_disjoint
            arenas::a_program_that_repeats_itself_has_one_chunk
            arenas::a_rewind_frees_what_came_after_the_mark
            arenas::marks_end
            arenas::the_limit_is_an_error
            arenas::wrong_arguments_are_refused
            arenas::what_is_leased_outlives_a_reset
            arenas::trimming_gives_back_what_is_not_used
            arenas::random_programs_keep_their_memory
            arenas::a_use_after_a_reset_is_caught
            arenas::threads_share_an_arena
            arenas::threads_together_keep_the_limit
            fixed_pools::blocks_are_aligned_and_reused_newest_first
            fixed_pools::a_full_pool_is_an_error
            fixed_pools::a_pool_grows
            fixed_pools::wrong_frees_are_reported_and_harmless
            fixed_pools::pools_without_blocks_are_refused
            fixed_pools::random_programs_keep_their_blocks
            fixed_pools::threads_share_a_pool
            tiers::requests_go_to_the_smallest_pool_that_fits
            tiers::a_full_pool_leaves_the_rest_to_the_arena
            tiers::the_arena_is_empty_when_nothing_of_it_is_live
            tiers::wrong_frees_of_tiers_are_reported
            tiers::tiers_are_checked
            tiers::threads_share_tiers
        }
    };
    (streams) => {
        tests! {
            arenas::the_own_stream_waits_for_nobody
            arenas::another_stream_waits_for_the_own_one
            arenas::the_own_stream_waits_for_the_others_before_reuse
            arenas::what_a_rewind_frees_is_ordered
            arenas::a_lease_is_ordered_after_all_users
            arenas::new_chunks_are_ordered_for_other_streams
            fixed_pools::blocks_of_other_streams_are_ordered
            fixed_pools::blocks_that_are_the_heaps_own_are_ordered
            fixed_pools::debugging_sees_each_block
            tiers::other_streams_are_ordered
            faults::every_driver_call_of_an_arena_may_fail
            faults::every_driver_call_of_a_pool_may_fail
            faults::every_driver_call_of_tiers_may_fail
        }
    };
}

mod device_with_bytes {
    use super::*;
    const SUBJECT: Subject = Subject::Device(StoreKind::RealBytes);
    cases! { all }
    cases! { streams }
}

mod device_with_addresses {
    use super::*;
    const SUBJECT: Subject = Subject::Device(StoreKind::AddressesOnly);
    cases! { all }
    cases! { streams }
}

mod pageable_host {
    use super::*;
    const SUBJECT: Subject = Subject::Pageable;
    cases! { all }
}

mod pinned_host {
    use super::*;
    const SUBJECT: Subject = Subject::Pinned;
    cases! { all }
}
