//! The judgement of a cell: Genesis against PyTorch's expandable segments, on the same trace and
//! device.
//!
//! ```text
//! won   Genesis completes, and expandable does not, or all of:
//!         peak of all passes      <= expandable's + 0.003 × live
//!         cold driver time        <= 1.1 × expandable's + 5 ms (live peak under 5 GiB: + 40 ms)
//!         mean warm driver time   <= expandable's + 5 ms a pass
//! draw  neither completes: the device is too small for both
//! lost  all else
//! ```

use std::fmt;

use genesis_replay::report::Report;

use crate::run::Run;

/// By how much of the live peak Genesis may hold more.
const PEAK_ALLOWANCE: f64 = 0.003;
/// What the arithmetic of peaks may be off by.
const ROUNDING: f64 = 1e-7;
const COLD_FACTOR: f64 = 1.1;
const COLD_ALLOWANCE_MS: f64 = 5.0;
/// The same for a small program, whose first pass makes few driver calls under any allocator.
const SMALL_COLD_ALLOWANCE_MS: f64 = 40.0;
const SMALL_LIVE_BYTES: u64 = 5 << 30;
const WARM_ALLOWANCE_MS: f64 = 5.0;

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Won,
    Draw,
    /// Why, a few words for each reason.
    Lost(Vec<String>),
}

/// How many cells were judged how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) won: usize,
    pub(crate) drawn: usize,
    pub(crate) lost: usize,
}

/// Judges `genesis` against `expandable`.
pub(crate) fn judge(genesis: &Run, expandable: &Run) -> Verdict {
    match (genesis.completed(), expandable.completed()) {
        (Some(genesis), Some(expandable)) => {
            let reasons = reasons(genesis, expandable);
            if reasons.is_empty() { Verdict::Won } else { Verdict::Lost(reasons) }
        }
        (Some(_), None) => Verdict::Won,
        (None, None) => Verdict::Draw,
        (None, Some(_)) => Verdict::Lost(genesis.trouble().into_iter().collect()),
    }
}

/// Where Genesis is worse by more than is allowed.
fn reasons(genesis: &Report, expandable: &Report) -> Vec<String> {
    let mut reasons = Vec::new();
    let peak = |report: &Report| report.reserved_over_live_in_all().unwrap_or_default();
    let most = peak(expandable) + PEAK_ALLOWANCE;
    if peak(genesis) > most + ROUNDING {
        reasons.push(format!("peak {:.4} > {most:.4}", peak(genesis)));
    }
    let is_small = genesis.live_peak_bytes < SMALL_LIVE_BYTES;
    let allowance_ms = if is_small { SMALL_COLD_ALLOWANCE_MS } else { COLD_ALLOWANCE_MS };
    let most_cold_ms = COLD_FACTOR * cold_ms(expandable) + allowance_ms;
    if cold_ms(genesis) > most_cold_ms {
        reasons.push(format!("cold {:.0} > {most_cold_ms:.0} ms", cold_ms(genesis)));
    }
    let most_warm_ms = warm_ms(expandable) + WARM_ALLOWANCE_MS;
    if warm_ms(genesis) > most_warm_ms {
        reasons.push(format!("warm {:.0} > {most_warm_ms:.0} ms", warm_ms(genesis)));
    }
    reasons
}

/// Driver time of the first pass, in milliseconds.
pub(crate) fn cold_ms(report: &Report) -> f64 {
    report.cold.driver_ns as f64 / 1e6
}

/// Mean driver time of the later passes, in milliseconds; 0 if there are none.
pub(crate) fn warm_ms(report: &Report) -> f64 {
    report.warm_driver_ns().unwrap_or_default() / 1e6
}

impl Tally {
    /// Counts `verdicts`.
    pub(crate) fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            *match verdict {
                Verdict::Won => &mut tally.won,
                Verdict::Draw => &mut tally.drawn,
                Verdict::Lost(_) => &mut tally.lost,
            } += 1;
        }
        tally
    }

    fn all(self) -> usize {
        self.won + self.drawn + self.lost
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Won => write!(formatter, "WON"),
            Self::Draw => write!(formatter, "DRAW neither completes"),
            Self::Lost(reasons) => write!(formatter, "LOST {}", reasons.join(", ")),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { won, drawn, lost } = self;
        write!(formatter, "won {won} of {}", self.all())?;
        if *drawn > 0 {
            write!(formatter, ", {drawn} drawn (neither completes)")?;
        }
        write!(formatter, ", {lost} lost")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run;

    fn reasons_of(genesis: &Run, expandable: &Run) -> Vec<String> {
        match judge(genesis, expandable) {
            Verdict::Won => Vec::new(),
            Verdict::Draw => vec!["draw".to_owned()],
            Verdict::Lost(reasons) => reasons,
        }
    }

    #[test]
    fn each_figure_has_its_allowance() {
        let expandable = run(1.050, &[100.0, 2.0, 2.0], 0);
        let within = run(1.053, &[115.0, 14.0, 0.0], 0);
        assert_eq!(reasons_of(&within, &expandable), Vec::<String>::new());
        let beyond = run(1.054, &[116.0, 15.0, 0.0], 0);
        let reasons = reasons_of(&beyond, &expandable);
        assert_eq!(reasons, ["peak 1.0540 > 1.0530", "cold 116 > 115 ms", "warm 8 > 7 ms"]);
    }

    #[test]
    fn a_small_program_may_start_slower() {
        let small = |ms: f64| match run(1.0, &[ms, 0.0], 0) {
            Run::Reported(mut report) => {
                report.live_peak_bytes = SMALL_LIVE_BYTES - 1;
                Run::Reported(report)
            }
            died => died,
        };
        assert_eq!(judge(&small(51.0), &small(10.0)), Verdict::Won);
        assert_eq!(reasons_of(&small(52.0), &small(10.0)), ["cold 52 > 51 ms"]);
        let large = |ms| run(1.0, &[ms, 0.0], 0);
        assert_eq!(reasons_of(&large(17.0), &large(10.0)), ["cold 17 > 16 ms"]);
    }

    #[test]
    fn what_completes_beats_what_does_not() {
        let (short, dear) = (run(1.0, &[1.0, 0.0], 1), run(3.0, &[900.0, 900.0], 0));
        assert_eq!(judge(&dear, &short), Verdict::Won);
        assert_eq!(reasons_of(&short, &dear), ["2 requests fail, from pass 1"]);
        assert_eq!(judge(&short, &short), Verdict::Draw);
        let died = Run::Died("signal 6".to_owned());
        assert_eq!(reasons_of(&died, &dear), ["died: signal 6"]);
        assert_eq!(judge(&dear, &died), Verdict::Won);
    }

    #[test]
    fn cells_are_counted_by_verdict() {
        let verdicts = [Verdict::Won, Verdict::Draw, Verdict::Lost(vec![]), Verdict::Won];
        let tally = Tally::of(&verdicts);
        assert_eq!(tally, Tally { won: 2, drawn: 1, lost: 1 });
        let text = "won 2 of 4, 1 drawn (neither completes), 1 lost";
        assert_eq!(tally.to_string(), text);
    }
}
