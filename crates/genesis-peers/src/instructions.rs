//! The instructions of a call, counted by valgrind's callgrind: they differ little between machines
//! and not at all with their other load.
//!
//! Only the functions of the C interface count, with all that they call. Two replays differ by one
//! warm pass; what one has more than the other is that pass's. It is a late one ([`counted_pass`]), in which
//! little is learned any more.

use std::process::Stdio;

use crate::measure::{Replay, command};
use crate::queue::side_by_side;
use crate::results::{Measured, failed};
use crate::run::AMPLE_BYTES;
use crate::subjects::{COUNTED, Subject, Tools};
use crate::trace::Trace;
use steps::Outcome;

/// The program before the replay's own.
const CALLGRIND: [&str; 7] = [
    "valgrind",
    "--tool=callgrind",
    // A replay runs in a child.
    "--trace-children=yes",
    "--callgrind-out-file=/dev/null",
    "--toggle-collect=genesis_malloc",
    "--toggle-collect=genesis_free",
    "--toggle-collect=genesis_block_record_stream",
];
/// What a process says at its end, before the number of instructions.
const COLLECTED: &str = "Collected :";
/// The pass that is counted is one of these: …
const COUNTED_PASSES: [u64; 2] = [3, 12];
/// … the later, the shorter the program, because valgrind is slow. So many calls come before its end.
const CALLS_BEFORE: u64 = 300_000;

/// Counts for each of `measurements` whose subject is one of [`COUNTED`], and writes it down there.
pub(crate) fn count_all(
    tools: &Tools,
    mut measurements: Vec<(&Trace, &Subject, &mut Measured)>,
) -> Outcome {
    measurements.retain(|(_, subject, _)| COUNTED.contains(&subject.name.as_str()));
    side_by_side(measurements, |(trace, subject, measured)| {
        let counted = counted_pass(trace.calls);
        let [before, with] =
            [counted - 1, counted].map(|passes| collected(tools, trace, subject, passes));
        let instructions = with?.checked_sub(before?).ok_or_else(|| {
            format!("{} under {}: one more pass has fewer instructions", trace.name, subject.name)
        })?;
        let calls = measured.single.first().calls;
        let per_call = instructions as f64 / calls.max(1) as f64;
        eprintln!("  {}, {}: {per_call:.0} instructions a call", trace.name, subject.name);
        measured.instructions_per_call = Some(per_call);
        Ok(())
    })
}

/// Which pass is counted of a program of so many calls.
fn counted_pass(calls: u64) -> u16 {
    let [earliest, latest] = COUNTED_PASSES;
    (CALLS_BEFORE / calls.max(1)).clamp(earliest, latest) as u16
}

/// The instructions of all calls in a replay of so many passes; an error unless it completes.
fn collected(tools: &Tools, trace: &Trace, subject: &Subject, passes: u16) -> Result<u64, String> {
    let how = Replay { threads: 1, passes, device_bytes: AMPLE_BYTES };
    let mut command = command(tools, trace, subject, how, &CALLGRIND);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&tools.genesis, &error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = sum(&said).filter(|&sum| sum > 0 && output.status.success());
    counted.ok_or_else(|| {
        let (trace, subject, status) = (&trace.name, &subject.name, output.status);
        format!("{trace} under {subject}, counted by callgrind: {status}: {said}")
    })
}

/// The sum of what the processes counted; `None` if none has.
fn sum(said: &str) -> Option<u64> {
    let counts = said.lines().filter_map(|line| line.split_once(COLLECTED)?.1.trim().parse().ok());
    counts.reduce(|sum: u64, count| sum + count)
}

#[cfg(test)]
mod tests {
    use super::{counted_pass, sum};

    #[test]
    fn short_programs_are_counted_in_a_later_pass() {
        assert_eq!([0, 20_000, 60_000, 500_000].map(counted_pass), [12, 12, 5, 3]);
    }

    #[test]
    fn what_all_processes_counted_is_added_up() {
        let said = "==7== Events    : Ir\n==7== Collected : 1200\n==6== Collected : 0\nCollected\n";
        assert_eq!((sum(said), sum("valgrind: no such tool")), (Some(1200), None));
    }
}
