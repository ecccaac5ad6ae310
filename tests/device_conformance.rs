//! One suite for every implementation of the device contract.
//!
//! The cases use [`genesis::driver::Device`] alone and check each sentence of its contract. A
//! [`subject::Subject`] tells what a case may assume beyond it: whether the host can dereference
//! addresses, and which peer there is. A new implementation is a function that returns a subject,
//! and one line below.
//!
//! The cases on a real CUDA device are ignored unless asked for: `cargo xtask gpu` runs them.
//!
//! Not here: destroyed handles and other misuse, on which a real driver may crash. The simulated
//! driver's answers to those are tested with it.

#[path = "device_conformance/copies.rs"]
mod copies;
#[path = "device_conformance/events.rs"]
mod events;
#[path = "device_conformance/managed.rs"]
mod managed;
#[path = "device_conformance/memory.rs"]
mod memory;
#[path = "device_conformance/simcuda.rs"]
mod simcuda;
#[path = "device_conformance/subject.rs"]
mod subject;
#[path = "device_conformance/threads.rs"]
mod threads;
#[path = "device_conformance/virtual_memory.rs"]
mod virtual_memory;

/// Instantiates every case for the subject that `$open` returns.
macro_rules! conformance {
    ($($(#[$attribute:meta])* $name:ident: $open:expr;)*) => {
        $(mod $name {
            conformance! { @cases ($(#[$attribute])*) $open;
                memory::describes_itself
                memory::allocations_are_aligned_and_disjoint
                memory::allocations_hold_bytes
                memory::shortage_is_reported_and_harmless
                memory::only_exact_addresses_are_freed
                memory::calls_are_counted
                memory::pinned_host_memory
                copies::bytes_go_to_a_device_and_back
                copies::contents_survive_a_change_of_memory
                copies::copies_are_counted_and_wait
                copies::fills_are_work_on_their_stream
                virtual_memory::granularity_is_a_power_of_two
                virtual_memory::reservations_are_aligned_and_disjoint
                virtual_memory::wrong_reservations_are_refused
                virtual_memory::handles_take_memory_until_released
                virtual_memory::wrong_handle_sizes_are_refused
                virtual_memory::options_are_given_or_refused
                virtual_memory::wishes_that_cannot_be_granted_cost_nothing_else
                virtual_memory::wrong_mappings_are_refused
                virtual_memory::aliases_show_the_same_memory
                virtual_memory::mapped_memory_outlives_its_handle
                virtual_memory::memory_moves_with_its_handle
                virtual_memory::access_and_unmapping_concern_whole_mappings
                virtual_memory::reservations_in_use_stay
                virtual_memory::peers_are_given_access
                virtual_memory::prices_are_measured
                managed::managed_memory_may_be_more_than_there_is
                managed::managed_memory_holds_bytes_wherever_it_is
                managed::managed_calls_refuse_other_memory
                events::an_event_never_recorded_is_complete
                events::a_recorded_event_completes
                events::waits_survive_their_event
                events::events_may_be_recorded_again
                events::default_streams_are_not_capturing
                threads::memory_from_many_threads
                threads::events_from_many_threads
            }
        })*
    };
    (@cases $attributes:tt $open:expr; $($module:ident::$case:ident)*) => {
        $(conformance! { @case $attributes $open; $module::$case })*
    };
    (@case ($($attribute:tt)*) $open:expr; $module:ident::$case:ident) => {
        #[test]
        $($attribute)*
        fn $case() {
            crate::subject::hold($open, crate::$module::$case);
        }
    };
}

conformance! {
    simulated_real_bytes: crate::subject::simulated(simgpu::StoreKind::RealBytes);
    simulated_addresses_only: crate::subject::simulated(simgpu::StoreKind::AddressesOnly);
    #[ignore = "needs a CUDA device"]
    cuda: crate::subject::cuda();
    cuda_on_simcuda: crate::simcuda::subject();
}
