//! What each driver call costs, by size: measured, and as the cost table of `simgpu` has it.
//!
//! Calls are timed alone, on one thread, with nothing pending on the device, after a few that
//! are not counted. A call and the one that undoes it are measured together. Rows for one call
//! at several sizes become its entry in the table by a weighted fit (`fit`).

mod calls;
mod fit;
mod pauses;
mod samples;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::driver::Driver;
use fit::Observation;
pub(crate) use samples::quantile;

/// The page of the cost table, in bytes.
const COST_PAGE_BYTES: u64 = 2 << 20;

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
    /// What is special about this row, if anything; such rows are not in the table.
    pub(crate) remark: Option<String>,
    /// Memory or address space concerned; 0 where that means nothing.
    pub(crate) bytes: u64,
    /// Mappings concerned.
    pub(crate) mappings: u64,
    pub(crate) samples: usize,
    pub(crate) least_ns: u64,
    pub(crate) median_ns: u64,
    pub(crate) p99_ns: u64,
}

/// An entry of the cost table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Price {
    pub(crate) call: String,
    pub(crate) base_ns: u64,
    pub(crate) per_page_ns: u64,
    pub(crate) per_mapping_ns: u64,
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
    let price = |name: &&str| {
        let of_call = in_table().filter(|row| row.call == **name);
        let observations: Vec<Observation> = of_call
            .map(|row| Observation {
                pages: row.bytes.div_ceil(COST_PAGE_BYTES) as f64,
                mappings: row.mappings as f64,
                nanoseconds: row.median_ns as f64,
            })
            .collect();
        let [base, per_page, per_mapping] = fit::fit(&observations);
        let whole = |value: f64| value.round() as u64;
        Price {
            call: (**name).to_owned(),
            base_ns: whole(base),
            per_page_ns: whole(per_page),
            per_mapping_ns: whole(per_mapping),
        }
    };
    names.iter().map(price).collect()
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
        let page = COST_PAGE_BYTES;
        let mut special = row("EventQuery", 0, 0, 9_000);
        special.remark = Some("from 8 threads".to_owned());
        let unmap = |pages: u64, mappings: u64| {
            row("Unmap", pages * page, mappings, 2_000 + 50 * pages + 18_000 * mappings)
        };
        let rows =
            [row("EventQuery", 0, 0, 500), special, unmap(1, 1), unmap(64, 1), unmap(64, 64)];
        let prices = prices(&rows);
        let price = |call: &str, base_ns, per_page_ns, per_mapping_ns| Price {
            call: call.to_owned(),
            base_ns,
            per_page_ns,
            per_mapping_ns,
        };
        assert_eq!(prices, [price("EventQuery", 500, 0, 0), price("Unmap", 2_000, 50, 18_000)]);
    }
}
