//! What Genesis is told of streams that end and of captures, by `heap.c`, which remembers it.

mod support;

use std::ffi::OsStr;

use support::{command, compile_with, run};

#[track_caller]
fn is_told(name: &str, settings: &[(&str, &str)]) {
    let shared = ["-shared", "-fPIC"].map(OsStr::new);
    // The library is found by its file's name.
    let heap = compile_with(&format!("announced_{name}"), "heap", &shared);
    let folder = heap.with_file_name(format!("announced_{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libgenesis.so");
    std::fs::rename(heap, &library).unwrap();
    let functions = compile_with(&format!("announced_{name}"), "beyond", &shared);
    let program = compile_with(name, "announced", &[functions.as_os_str()]);
    let mut command = command(&program);
    command.arg(name).env("GENESIS_LIBRARY", library).envs(settings.iter().copied());
    assert_eq!(run(&mut command), "");
}

#[test]
fn streams_that_are_destroyed() {
    is_told("streams", &[]);
}

#[test]
fn nothing_of_how_streams_are_known_where_the_user_says_it() {
    is_told("ids", &[("GENESIS_STREAM_IDS", "on")]);
}

#[test]
fn streams_that_end_with_their_contexts() {
    is_told("contexts", &[]);
    is_told("reset", &[]);
}

#[test]
fn captures_however_they_end() {
    is_told("captures", &[]);
}

#[test]
fn captures_that_began_before_it_came() {
    is_told("opened_late", &[]);
}

#[test]
fn the_device_of_a_capture() {
    is_told("devices", &[("SIMCUDA_DEVICES", "2")]);
}
