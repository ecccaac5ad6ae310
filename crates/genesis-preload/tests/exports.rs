//! The library exports what the table says, and nothing else.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

/// Exported beside the rows: they find CUDA's functions and are none of them.
const LOOKUPS: [&str; 2] = ["dlsym", "dlvsym"];
/// A row that only Genesis gets: programs call CUDA's own.
const FOR_GENESIS: &str = "cuStreamWaitEvent";

#[test]
fn every_row_is_exported_and_every_export_has_a_row() {
    let source = include_str!("../src/table.rs");
    let (_, rows) = source.split_once("rows! {\n").expect("the table");
    let (rows, _) = rows.split_once("\n}").expect("its end");
    let names = rows.lines().map(|row| {
        let (_, name) = row.split_once("::").expect("a module and a name");
        name.split([' ', ';']).next().expect("a name").to_owned()
    });
    let mut expected: BTreeSet<String> = names.filter(|name| name != FOR_GENESIS).collect();
    expected.extend(LOOKUPS.map(str::to_owned));

    let library = support::beside("libgenesis_preload.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert_eq!(exported, expected);
}
