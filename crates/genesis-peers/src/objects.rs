//! Arenas, fixed-size pools and memory managers beside what promises the same: nanoseconds of a call
//! through the C interface. The program is `benches/suballocation/pairs.cpp`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use crate::driver;
use crate::results::{Row, failed};
use crate::subjects::Tools;

/// What the resources of RMM allocate from the stand-in, which is next to nothing.
const DEVICE_BYTES: u64 = 1 << 30;

/// The row in `line`: `pair       64 B  an object of some kind      8.03 ns`.
fn read(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [what, bytes, "B", who @ .., nanoseconds, "ns"] = &words[..] else { return None };
    Some(Row {
        what: (*what).to_owned(),
        bytes: bytes.parse().ok()?,
        who: who.join(" "),
        nanoseconds: nanoseconds.parse().ok()?,
    })
}

/// Measures all of them in one process.
pub(crate) fn measure(tools: &Tools, is_smoke: bool) -> Result<Vec<Row>, String> {
    eprintln!("\nArenas, pools and managers:");
    let mut command = Command::new(&tools.objects);
    driver::put_beneath(&mut command, &tools.driver_folder, DEVICE_BYTES, &tools.prices);
    command.env("GENESIS_BACKEND", "host").env("RMM_DEBUG_LOG_FILE", "/dev/null");
    command.args(is_smoke.then_some("--smoke"));
    let output = command.output().map_err(|error| failed(&tools.objects, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(failed(&tools.objects, &String::from_utf8_lossy(&output.stderr)));
    }
    eprint!("{text}");
    Ok(text.lines().filter_map(read).collect())
}

/// The size of a request, and what is done with it.
type Column<'a> = (u64, &'a str);

/// The part of the page.
pub(crate) fn section(rows: &[Row]) -> String {
    let call_ns = rows.iter().find(|row| row.what == "call").map(|row| row.nanoseconds);
    let mut columns: Vec<Column<'_>> = Vec::new();
    let mut table: Vec<(&str, BTreeMap<Column<'_>, f64>)> = Vec::new();
    for row in rows.iter().filter(|row| row.what != "call") {
        let column = (row.bytes, &*row.what);
        if !columns.contains(&column) {
            columns.push(column);
        }
        match table.iter_mut().find(|(who, _)| *who == row.who) {
            Some((_, cells)) => drop(cells.insert(column, row.nanoseconds)),
            None => table.push((&row.who, BTreeMap::from([(column, row.nanoseconds)]))),
        }
    }
    columns.sort_unstable();
    let mut text = format!("\n## Arenas, pools and managers\n\n{EXPLANATION}");
    if let Some(call_ns) = call_ns {
        let _ = write!(text, " A call that does nothing takes {call_ns:.1} ns here.");
    }
    text += "\n\n| |";
    columns.iter().for_each(|(bytes, what)| text += &format!(" {what}, {bytes} B |"));
    text += &format!("\n|---|{}\n", "---:|".repeat(columns.len()));
    for (who, cells) in &table {
        let _ = write!(text, "| {who} |");
        for column in &columns {
            let cell = cells.get(column).map_or("–".to_owned(), |ns| format!("{ns:.1}"));
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

const EXPLANATION: &str = "\
Nanoseconds, the least of many repetitions in one process. bump: one of 1000 requests that are freed \
all at once. pair: a block is taken and put back. many: 1000 blocks are live, and one at random is \
replaced. mixed: the same, and the new one has the size or half of it, at random. Genesis's objects \
are called through the C interface of the shared library, and report double frees and foreign pointers. `std::pmr`'s are compiled into the program; `called` is the same \
behind a function that is not inlined, as a C interface is. `unsynchronized` and Genesis's objects \
without `any thread` are for one thread. mimalloc serves any size and any thread, and checks \
nothing. \
RMM's resources, over memory of the process, are for any thread and record an event at each free, \
which the stand-in answers.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_shown_by_object() {
        let lines = [
            "call        0 B  an empty function     2.44 ns",
            "bump       64 B  genesis_arena, any thread        3.81 ns",
            "pair       64 B  mimalloc: not found (MIMALLOC_LIBRARY names it)",
            "pair     1024 B  mimalloc             10.46 ns",
            "pair       64 B  mimalloc              8.03 ns",
        ];
        let rows: Vec<Row> = lines.iter().filter_map(|line| read(line)).collect();
        assert_eq!(rows.len(), 4);
        let section = section(&rows);
        for part in [
            "takes 2.4 ns here",
            "| | bump, 64 B | pair, 64 B | pair, 1024 B |",
            "| genesis_arena, any thread | 3.8 | – | – |",
            "| mimalloc | – | 8.0 | 10.5 |",
        ] {
            assert!(section.contains(part), "{part} is not in\n{section}");
        }
    }
}
