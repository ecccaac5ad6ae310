//! One run: a subject replays a trace some number of times on a device of some size, in a process
//! of its own.
//!
//! A run *completes* if no request of any pass failed. A run whose requests failed has a report
//! like any other; a process that died has none, and does not complete either.

use std::fmt;
use std::str::FromStr;

use genesis_replay::report::Report;
use serde::{Deserialize, Serialize};

/// A device on which no subject runs short, even with two threads: 1 TiB.
pub(crate) const AMPLE_BYTES: u64 = 1 << 40;
/// The sizes of devices tried are multiples of this.
pub(crate) const STEP_BYTES: u64 = 64 << 10;

/// How much memory the device has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Room {
    /// So many times the live peak.
    OverLive(f64),
    /// More than any subject needs.
    Ample,
}

/// What became of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Run {
    Reported(Box<Report>),
    /// The process ended without a report: its exit status and the last line of its errors.
    Died(String),
}

impl Room {
    /// Those that are measured by default.
    pub(crate) const ALL: [Self; 4] =
        [Self::OverLive(1.02), Self::OverLive(1.05), Self::OverLive(1.1), Self::Ample];

    /// The device's memory for a program of that live peak.
    pub(crate) fn device_bytes(self, live_peak_bytes: u64) -> u64 {
        match self {
            Self::OverLive(ratio) => {
                (live_peak_bytes as f64 * ratio).ceil() as u64 / STEP_BYTES * STEP_BYTES
            }
            Self::Ample => AMPLE_BYTES,
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverLive(ratio) => formatter.pad(&format!("{ratio:.2}")),
            Self::Ample => formatter.pad("ample"),
        }
    }
}

impl FromStr for Room {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "ample" {
            return Ok(Self::Ample);
        }
        let ratio = text.parse().ok().filter(|ratio| (1.0..1000.0).contains(ratio));
        ratio.map(Self::OverLive).ok_or_else(|| "not `ample` or a ratio such as 1.05".to_owned())
    }
}

impl Run {
    /// The report of a run that completed.
    pub(crate) fn completed(&self) -> Option<&Report> {
        self.report().filter(|report| report.failures() == 0)
    }

    /// The report, also of a run whose requests failed.
    pub(crate) fn report(&self) -> Option<&Report> {
        match self {
            Self::Reported(report) => Some(report),
            Self::Died(_) => None,
        }
    }

    /// Why it did not complete; `None` if it did.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Died(words) => Some(format!("died: {words}")),
            Self::Reported(report) => {
                let first = report.passes().position(|pass| pass.failures > 0)? + 1;
                let requests = match report.failures() {
                    1 => "1 request fails".to_owned(),
                    count => format!("{count} requests fail"),
                };
                Some(format!("{requests}, from pass {first}"))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run that holds `over_live` × live and has that much driver time in each pass, in ms.
    pub(crate) fn run(over_live: f64, driver_ms: &[f64], failures: u64) -> Run {
        let live_peak_bytes = 10_u64 << 30;
        let reserved_peak_bytes = (over_live * live_peak_bytes as f64).round() as u64;
        let pass = |ms: &f64| {
            serde_json::json!({
                "ns_per_call": 50.0, "reserved_peak_bytes": reserved_peak_bytes,
                "driver_calls": 10, "driver_memory_calls": 5, "driver_event_calls": 1,
                "host_waits": 0, "driver_ns": (ms * 1e6) as u64, "failures": failures,
            })
        };
        let passes: Vec<_> = driver_ms.iter().map(pass).collect();
        let report = serde_json::from_value(serde_json::json!({
            "trace": "t", "strategy": "Elastic", "backend": "cuda", "version": "", "threads": 1,
            "calls": 1000, "iterations": 1, "unknown_records": 0, "damage": null,
            "live_peak_bytes": live_peak_bytes, "live_peak_rounded_bytes": live_peak_bytes,
            "loop_ns_per_call": 1.0, "cold": passes[0], "warm": passes[1..],
            "fragmentation_ratio": null, "samples": [],
        }));
        Run::Reported(Box::new(report.unwrap()))
    }

    #[test]
    fn rooms_are_read_as_they_are_shown() {
        for room in Room::ALL {
            assert_eq!(room.to_string().parse(), Ok(room));
        }
        assert!("0.9".parse::<Room>().is_err() && "much".parse::<Room>().is_err());
        let (live, step) = (1000 * STEP_BYTES, STEP_BYTES);
        assert_eq!(Room::OverLive(1.05).device_bytes(live), 1050 * step);
        assert_eq!(Room::Ample.device_bytes(live), AMPLE_BYTES);
    }

    #[test]
    fn a_run_completes_if_no_request_fails() {
        assert!(run(1.0, &[1.0, 0.0], 0).completed().is_some());
        let short = run(1.0, &[1.0, 0.0], 3);
        assert!(short.completed().is_none() && short.report().is_some());
        assert_eq!(short.trouble().unwrap(), "6 requests fail, from pass 1");
        assert_eq!(Run::Died("no".to_owned()).trouble().unwrap(), "died: no");
    }
}
