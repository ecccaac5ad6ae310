//! What a replay found, as plain data: what `--json` prints.
//!
//! Sizes are in bytes, times in nanoseconds. A *call* is a request, a free, a recorded stream
//! or an emptied cache. Times per call are over all of them, and include the replay's own loop,
//! whose cost has a field of its own.

use serde::{Deserialize, Serialize};

/// What one replay of one trace under one strategy found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The trace's name.
    pub trace: String,
    /// The strategy in force: `GENESIS_POOL_TYPE`.
    pub strategy: String,
    /// The backend in force.
    pub backend: String,
    /// The library's version.
    pub version: String,
    /// The price list of virtual driver time, a name of `GENESIS_SIM_PRICES`; `None` if driver time
    /// was measured.
    #[serde(default)]
    pub driver_prices: Option<String>,
    /// How many threads replayed the whole trace at once, each on streams of its own.
    pub threads: usize,
    /// Calls in one pass of one thread.
    pub calls: u64,
    /// Iterations of the recorded program.
    pub iterations: u64,
    /// Records left out because their operation is newer than this program.
    pub unknown_records: u64,
    /// The damage of a damaged trace, of which only the records before were replayed.
    pub damage: Option<String>,
    /// The most bytes live at once, as requested, times the threads.
    pub live_peak_bytes: u64,
    /// The same with every request rounded up to a multiple of 512 bytes.
    pub live_peak_rounded_bytes: u64,
    /// What a call costs when the library does nothing.
    pub loop_ns_per_call: f64,
    /// The first pass, with nothing cached before it.
    pub cold: Pass,
    /// Later passes, each after the blocks left live by the one before were freed.
    pub warm: Vec<Pass>,
    /// The library's fragmentation ratio at the live peak; `None` with several threads.
    pub fragmentation_ratio: Option<f64>,
    /// The course of the first pass; empty unless asked for.
    pub samples: Vec<Sample>,
}

/// One pass over the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Time per call; the mean over the threads.
    pub ns_per_call: f64,
    /// The most physical memory held at once up to the end of the pass.
    pub reserved_peak_bytes: u64,
    /// Calls of the driver.
    pub driver_calls: u64,
    /// Those among them that allocate, map or release memory.
    pub driver_memory_calls: u64,
    /// Those that only concern events; `None` if nothing counts them, which only the libraries of
    /// `benches/peers` do.
    #[serde(default)]
    pub driver_event_calls: Option<u64>,
    /// Calls in which the host waits for a device: synchronising ones and `cuMemFree`; `None` as
    /// above.
    #[serde(default)]
    pub host_waits: Option<u64>,
    /// Time in the driver: virtual on a simulated device, and part of the time per call on a
    /// real one.
    pub driver_ns: u64,
    /// Requests refused because memory was short.
    pub failures: u64,
}

/// The highest of both quantities since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Calls made so far.
    pub calls: u64,
    /// Bytes that the program has live, as requested.
    pub live_bytes: u64,
    /// Physical memory held by the library.
    pub reserved_bytes: u64,
}

impl Report {
    /// Reserved peak / live peak of the first pass; `None` if nothing was ever live.
    pub fn reserved_over_live(&self) -> Option<f64> {
        let (reserved, live) = (self.cold.reserved_peak_bytes, self.live_peak_bytes);
        (live > 0).then(|| reserved as f64 / live as f64)
    }

    /// All passes, the first included.
    pub fn passes(&self) -> impl Iterator<Item = &Pass> {
        std::iter::once(&self.cold).chain(&self.warm)
    }

    /// Reserved peak of all passes / live peak; `None` if nothing was ever live.
    pub fn reserved_over_live_in_all(&self) -> Option<f64> {
        let reserved = self.passes().map(|pass| pass.reserved_peak_bytes).max()?;
        let live = self.live_peak_bytes;
        (live > 0).then(|| reserved as f64 / live as f64)
    }

    /// The mean driver time of the passes after the first; `None` if there are none.
    pub fn warm_driver_ns(&self) -> Option<f64> {
        let all: u64 = self.warm.iter().map(|pass| pass.driver_ns).sum();
        (!self.warm.is_empty()).then(|| all as f64 / self.warm.len() as f64)
    }

    /// The most driver time of a pass after the first.
    pub fn worst_warm_driver_ns(&self) -> Option<u64> {
        self.warm.iter().map(|pass| pass.driver_ns).max()
    }

    /// Waits of the host in all passes together; `None` if nothing counts them.
    pub fn host_waits(&self) -> Option<u64> {
        self.passes().map(|pass| pass.host_waits).sum()
    }

    /// The source of driver time, for people.
    pub fn driver_time_source(&self) -> String {
        match &self.driver_prices {
            Some(prices) => format!("driver time by the prices of {prices}"),
            None => "driver time as measured".to_owned(),
        }
    }

    /// The median time per call of the warm passes.
    pub fn warm_ns_per_call(&self) -> Option<f64> {
        median(self.warm.iter().map(|pass| pass.ns_per_call).collect())
    }

    /// Requests refused in all passes together.
    pub fn failures(&self) -> u64 {
        self.passes().map(|pass| pass.failures).sum()
    }
}

/// The middle of `values`; the mean of the two middle ones if their number is even.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{Pass, Report, median};

    #[test]
    fn figures_of_all_passes_include_the_first() {
        let pass = |reserved_peak_bytes, driver_ns, host_waits| Pass {
            reserved_peak_bytes,
            driver_ns,
            host_waits,
            failures: 1,
            ..Pass::default()
        };
        let report: Report = serde_json::from_value(serde_json::json!({
            "trace": "t", "strategy": "Elastic", "backend": "cuda", "version": "", "threads": 1,
            "calls": 1, "iterations": 1, "unknown_records": 0, "damage": null,
            "live_peak_bytes": 100, "live_peak_rounded_bytes": 512, "loop_ns_per_call": 1.0,
            "cold": pass(110, 50, Some(1)),
            "warm": [pass(120, 10, Some(2)), pass(115, 30, Some(0))],
            "fragmentation_ratio": null, "samples": [],
        }))
        .unwrap();
        assert_eq!(report.reserved_over_live(), Some(1.1));
        assert_eq!(report.reserved_over_live_in_all(), Some(1.2));
        assert_eq!(
            (report.warm_driver_ns(), report.worst_warm_driver_ns()),
            (Some(20.0), Some(30))
        );
        assert_eq!((report.host_waits(), report.failures()), (Some(3), 3));
        let uncounted = Report { cold: pass(110, 50, None), warm: vec![], ..report };
        assert_eq!((uncounted.host_waits(), uncounted.warm_driver_ns()), (None, None));
    }

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![7.0]), Some(7.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }
}
