//! Unmodified programs get Genesis's memory, in whichever way they find CUDA.

mod support;

use support::{command, compile, run};

/// Runs `ways.c` for one way.
#[track_caller]
fn leads_to_genesis(way: &str) {
    assert_eq!(run(command(&compile(way, "ways")).arg(way)), "");
}

#[test]
fn the_runtime_linked_dynamically() {
    leads_to_genesis("linked");
}

#[test]
fn the_driver_by_dlopen_and_dlsym() {
    leads_to_genesis("dlsym");
}

#[test]
fn the_driver_where_the_loader_has_it() {
    leads_to_genesis("default");
}

#[test]
fn the_driver_by_its_own_search() {
    leads_to_genesis("proc_address");
    leads_to_genesis("old_proc_address");
    leads_to_genesis("proc_address_of_itself");
}

#[test]
fn the_driver_by_the_runtimes_search() {
    leads_to_genesis("entry_point");
}

#[test]
fn the_runtime_by_dlsym() {
    leads_to_genesis("runtime_dlsym");
}
