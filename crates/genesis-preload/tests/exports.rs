//! The library exports the symbols of its list, and nothing else.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

/// Also exported: they find CUDA's functions and are none of them.
const LOOKUPS: [&str; 2] = ["dlsym", "dlvsym"];
/// Only Genesis gets its replacement: programs call CUDA's own.
const FOR_GENESIS: [&str; 2] = ["cuStreamWaitEvent", "cuMemsetD8Async"];

#[test]
fn every_symbol_is_exported_and_every_export_is_a_symbol() {
    let source = include_str!("../src/symbols.rs");
    let (_, list) = source.split_once("\nsymbols! {\n").expect("the list");
    let (list, _) = list.split_once("\n}").expect("its end");
    let names =
        list.lines().map(|row| row.trim().split([' ', ';']).next().expect("a name").to_owned());
    let mut expected: BTreeSet<String> =
        names.filter(|name| !FOR_GENESIS.contains(&name.as_str())).collect();
    expected.extend(LOOKUPS.map(str::to_owned));

    let library = support::beside("libgenesis_preload.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert_eq!(exported, expected);
}
