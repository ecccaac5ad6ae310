//! The hot path in isolation: nanoseconds for an allocation and a free together.
//!
//! Small synthetic programs, written as traces and replayed like recorded ones: pairs of one
//! size, a ping-pong of two live blocks, and a thousand live blocks of random sizes of which
//! one is replaced each time. Every allocation hits, except in the first rounds.
//!
//! `cargo bench --bench hot_path -- TEXT` runs only the cases with that text in their names.

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::{Case, measure, print};
use genesis_replay::gtr::{Action, Record, write_file};
use genesis_replay::{Error, Result};

/// Allocations in a case.
const ALLOCATIONS: u32 = 100_000;
/// Blocks live at once in the random case.
const LIVE_BLOCKS: u32 = 1000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn main() -> ExitCode {
    common::main(bench)
}

fn bench(filter: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("genesis-hot-path-{}", std::process::id()));
    let outcome = bench_in(&folder, filter);
    // A temporary folder that stays is no reason to fail.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn bench_in(folder: &Path, filter: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut cases: Vec<Case> = Vec::new();
    for (name, records) in programs().into_iter().take(common::unless_smoke(usize::MAX)) {
        if name.contains(filter) {
            let path = folder.join(format!("{}.gtr", cases.len()));
            write_file(&path, &records).map_err(failed)?;
            cases.push((name.to_owned(), path));
        }
    }
    if cases.is_empty() {
        return Err(Error::usage(format!("no case is called like {filter:?}")));
    }
    let mut rows = measure(&cases, 1, 1)?;
    // An allocation and a free are two calls.
    rows.iter_mut().flatten().for_each(|ns| *ns *= 2.0);
    print("ns per allocation and free", 1, &cases, &rows);
    Ok(())
}

fn programs() -> Vec<(&'static str, Vec<Record>)> {
    vec![
        ("pair, 512 B", rotating(1, 512)),
        ("pair, 64 KiB", rotating(1, 64 * KIB)),
        ("pair, 2 MiB", rotating(1, 2 * MIB)),
        ("pair, 64 MiB", rotating(1, 64 * MIB)),
        ("ping-pong, 4 KiB", rotating(2, 4 * KIB)),
        ("ping-pong, 20 MiB", rotating(2, 20 * MIB)),
        ("1,000 live, 512 B to 16 MiB", random()),
    ]
}

/// Keeps `live` blocks live and frees the oldest before each allocation.
fn rotating(live: u32, requested_bytes: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for id in 0..ALLOCATIONS {
        if let Some(oldest) = id.checked_sub(live) {
            records.push(record(Action::Free, oldest, 0));
        }
        records.push(record(Action::Allocate, id, requested_bytes));
    }
    records.extend((ALLOCATIONS - live..ALLOCATIONS).map(|id| record(Action::Free, id, 0)));
    records
}

/// Replaces a random live block by one of random size; each doubling is equally likely.
fn random() -> Vec<Record> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut live: Vec<u32> = (0..LIVE_BLOCKS).collect();
    let mut records = Vec::new();
    for id in 0..ALLOCATIONS {
        if id >= LIVE_BLOCKS {
            let victim = (random.next() % u64::from(LIVE_BLOCKS)) as usize;
            records.push(record(Action::Free, std::mem::replace(&mut live[victim], id), 0));
        }
        let power_bytes = 512 << (random.next() % 15);
        records.push(record(Action::Allocate, id, power_bytes + random.next() % power_bytes));
    }
    records.extend(live.into_iter().map(|id| record(Action::Free, id, 0)));
    records
}

fn record(action: Action, id: u32, requested_bytes: u64) -> Record {
    Record { action, device: 0, stream: 0, id, requested_bytes }
}

/// A xorshift generator: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
