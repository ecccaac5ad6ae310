//! What each driver call costs, by size: measured, and in the form of `simgpu`'s cost table.
//!
//! Calls are timed alone, on one thread, with nothing pending on the device, after a few that
//! are not counted. A call and the one that undoes it are measured together. The medians of one
//! call at several sizes are the points of its entry in the table, of two at one size the dearer.
//! Calls that cover several mappings show what each mapping after the first adds.

mod calls;
mod samples;
mod virtual_memory;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::driver::Driver;
pub(crate) use samples::quantile;

/// A call's name in `simgpu` (its row in the table), and in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    driver_name: &'static str,
}

/// One call at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Its name in the cost table.
    pub(crate) call: String,
    pub(crate) driver_call: String,
    /// What is special about this row, if anything; rows with a remark are not in the table.
    pub(crate) remark: Option<String>,
    /// Size of the memory or address space; 0 for calls without one.
    pub(crate) bytes: u64,
    /// Mappings that the call covers.
    pub(crate) mappings: u64,
    pub(crate) samples: usize,
    pub(crate) least_ns: u64,
    pub(crate) median_ns: u64,
    pub(crate) p99_ns: u64,
}

/// An entry of the cost table: sizes in bytes with nanoseconds, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Price {
    pub(crate) call: String,
    /// The cost of a call of that size, with one mapping if with any.
    pub(crate) points: Vec<(u64, u64)>,
    /// What each mapping after the first adds, by its size; empty if none was measured.
    pub(crate) further: Vec<(u64, u64)>,
}

/// Everything measured about costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub(crate) rows: Vec<Row>,
    pub(crate) prices: Vec<Price>,
    /// What was left out, and why.
    pub(crate) left_out: Vec<String>,
}

/// Measures every call within `limit`.
pub(crate) fn measure(limit: Duration) -> Result<Costs, String> {
    let driver = Driver::open()?;
    let mut bench = samples::Bench::new(&driver, Instant::now() + limit);
    let mut left_out = Vec::new();
    for (name, group) in calls::GROUPS {
        if bench.is_over() {
            left_out.push(format!("{name}: out of time"));
        } else if let Err(failure) = group(&mut bench) {
            left_out.push(format!("{name}: {failure}"));
        }
    }
    let rows = bench.into_rows();
    let prices = prices(&rows);
    Ok(Costs { rows, prices, left_out })
}

/// The table that the rows make, in their order.
fn prices(rows: &[Row]) -> Vec<Price> {
    let in_table = || rows.iter().filter(|row| row.remark.is_none());
    let mut names: Vec<&str> = Vec::new();
    for row in in_table() {
        if !names.contains(&row.call.as_str()) {
            names.push(&row.call);
        }
    }
    names.iter().map(|name| price(name, in_table().filter(|row| row.call == **name))).collect()
}

/// The entry that the rows of one call make.
fn price<'a>(call: &str, rows: impl Iterator<Item = &'a Row>) -> Price {
    let (several, single): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.mappings > 1);
    let mut points = BTreeMap::<u64, u64>::new();
    for row in single {
        let point = points.entry(row.bytes).or_default();
        *point = row.median_ns.max(*point);
    }
    let mut further = BTreeMap::<u64, Vec<u64>>::new();
    for row in several {
        let bytes = row.bytes / row.mappings;
        // Of the dearer end where one mapping of that size was not measured alone.
        let first_ns = points.range(bytes..).next().or(points.last_key_value());
        let added_ns = row.median_ns.saturating_sub(first_ns.map_or(0, |(_, &ns)| ns));
        further.entry(bytes).or_default().push(added_ns / (row.mappings - 1));
    }
    let dearest = |(bytes, all): (u64, Vec<u64>)| (bytes, all.into_iter().max().unwrap_or(0));
    Price {
        call: call.to_owned(),
        points: points.into_iter().collect(),
        further: further.into_iter().map(dearest).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(call: &str, bytes: u64, mappings: u64, median_ns: u64) -> Row {
        Row {
            call: call.to_owned(),
            driver_call: call.to_owned(),
            remark: None,
            bytes,
            mappings,
            samples: 1,
            least_ns: median_ns,
            median_ns,
            p99_ns: median_ns,
        }
    }

    #[test]
    fn rows_make_a_table() {
        const MIB: u64 = 1 << 20;
        let mut special = row("EventQuery", 0, 0, 9_000);
        special.remark = Some("from 8 threads".to_owned());
        let rows = [
            row("EventQuery", 0, 0, 500),
            special,
            row("Unmap", 8 * MIB, 1, 40_000),
            row("Unmap", 2 * MIB, 1, 35_000),
            row("Unmap", 2 * MIB, 1, 36_000),
            row("Unmap", 32 * MIB, 16, 36_000 + 15 * 6_000),
            row("Unmap", 256 * MIB, 128, 36_000 + 127 * 7_000),
        ];
        let price = |call: &str, points: &[(u64, u64)], further: &[(u64, u64)]| Price {
            call: call.to_owned(),
            points: points.to_vec(),
            further: further.to_vec(),
        };
        let unmap = [(2 * MIB, 36_000), (8 * MIB, 40_000)];
        let expected =
            [price("EventQuery", &[(0, 500)], &[]), price("Unmap", &unmap, &[(2 * MIB, 7_000)])];
        assert_eq!(prices(&rows), expected);
    }
}
