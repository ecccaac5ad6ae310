//! The instructions of a call, counted by valgrind's callgrind: they differ little between machines
//! and not at all with their other load.
//!
//! Only the functions of the C interface count, with all that they call. Two replays differ by one
//! warm pass; what one has more than the other is that pass's. It is a late one ([`counted_pass`]), in which
//! little is learned any more.
//!
//! What of them is the stand-in's own is told apart, so that nobody is judged by what the stand-in takes
//! for a call that a driver answers at once.

use std::ops::AddAssign;
use std::path::Path;
use std::process::Stdio;

use crate::measure::{Replay, command};
use crate::queue::side_by_side;
use crate::results::{Instructions, Measured, failed};
use crate::run::AMPLE_BYTES;
use crate::subjects::{COUNTED, Subject, Tools};
use crate::trace::Trace;
use steps::Outcome;

/// The program before the replay's own.
const CALLGRIND: [&str; 6] = [
    "valgrind",
    "--tool=callgrind",
    // A replay runs in a child.
    "--trace-children=yes",
    "--toggle-collect=genesis_malloc",
    "--toggle-collect=genesis_free",
    "--toggle-collect=genesis_block_record_stream",
];
/// The stand-in's file.
const STAND_IN: &str = "libsimcuda.so";
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
        let instructions = with?.without(before?).ok_or_else(|| {
            format!("{} under {}: one more pass has fewer instructions", trace.name, subject.name)
        })?;
        let calls = measured.single.first().calls.max(1) as f64;
        let [all, stand_in] =
            [instructions.all, instructions.stand_in].map(|count| count as f64 / calls);
        eprintln!(
            "  {}, {}: {all:.0} instructions a call, {stand_in:.0} the stand-in's",
            trace.name, subject.name
        );
        measured.instructions = Some(Instructions { all, stand_in });
        Ok(())
    })
}

/// Which pass is counted of a program of so many calls.
fn counted_pass(calls: u64) -> u16 {
    let [earliest, latest] = COUNTED_PASSES;
    (CALLS_BEFORE / calls.max(1)).clamp(earliest, latest) as u16
}

/// The instructions of all calls in a replay of so many passes; an error unless it completes.
fn collected(
    tools: &Tools,
    trace: &Trace,
    subject: &Subject,
    passes: u16,
) -> Result<Count, String> {
    let how = Replay { threads: 1, passes, device_bytes: AMPLE_BYTES };
    let folder = tools.counts.join(format!("{}, {}, {passes}", trace.name, subject.name));
    // A run that was stopped may have left some.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    // One for each process.
    let files = format!("--callgrind-out-file={}", folder.join("%p").display());
    let before: Vec<&str> = CALLGRIND.into_iter().chain([&*files]).collect();
    let output = command(tools, trace, subject, how, &before).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&tools.genesis, &error))?;
    let counted = count_in(&folder);
    std::fs::remove_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    let counted = counted.map_err(|error| failed(&folder, &error))?;
    // Each allocator calls the driver in its first pass: without a count, its file was not told apart.
    if output.status.success() && counted.stand_in > 0 {
        return Ok(counted);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let (trace, subject, status) = (&trace.name, &subject.name, output.status);
    Err(format!("{trace} under {subject}, callgrind counted {counted:?}: {status}: {said}"))
}

/// Instructions of the calls of some processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    all: u64,
    /// Of the stand-in's file.
    stand_in: u64,
}

impl Count {
    fn without(self, other: Self) -> Option<Self> {
        let all = self.all.checked_sub(other.all)?;
        Some(Self { all, stand_in: self.stand_in.checked_sub(other.stand_in)? })
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.stand_in += other.stand_in;
    }
}

/// What the files in `folder` have counted, one of each process.
fn count_in(folder: &Path) -> std::io::Result<Count> {
    let mut sum = Count::default();
    for file in std::fs::read_dir(folder)? {
        sum += count(&std::fs::read_to_string(file?.path())?);
    }
    Ok(sum)
}

/// What a file of callgrind's has counted ("Callgrind Format Specification", in valgrind's manual). A
/// line that begins with a position has the cost of the present function in the present object, but
/// the line after `calls=` has that of another function, which stands there, too.
fn count(profile: &str) -> Count {
    let mut count = Count::default();
    let (mut stand_ins_number, mut is_stand_in, mut is_callee) = (None, false, false);
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            // A name is told once, with its number.
            let number = object.split_once(' ').map_or(object, |(number, _)| number);
            if object.ends_with(STAND_IN) {
                stand_ins_number = Some(number);
            }
            if line.starts_with("ob=") {
                is_stand_in = stand_ins_number == Some(number);
            }
        } else if line.starts_with("calls=") {
            is_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut is_callee)
        {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
            count.all += cost;
            count.stand_in += if is_stand_in { cost } else { 0 };
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{Count, count, counted_pass};

    #[test]
    fn short_programs_are_counted_in_a_later_pass() {
        assert_eq!([0, 20_000, 60_000, 500_000].map(counted_pass), [12, 12, 5, 3]);
    }

    #[test]
    fn the_stand_ins_own_instructions_are_told_apart() {
        let profile = "events: Ir\n\nob=(1) /a/genesis\nfl=(1) replay.rs\nfn=(1) free\n12 100\n+3 20\n\
                       cob=(2) /a/libsimcuda.so\ncfn=(2) cuEventRecord\ncalls=4 0\n* 4000\n-1 3\n\n\
                       ob=(2)\nfn=(2)\n7 4000\n\nob=(1)\nfn=(3) other\n8 1\n\ntotals: 4124\n";
        assert_eq!(count(profile), Count { all: 4124, stand_in: 4000 });
        assert_eq!(count("events: Ir\ntotals: 0\n"), Count::default());
        let one = Count { all: 5, stand_in: 1 };
        assert_eq!(one.without(Count { all: 2, stand_in: 1 }), Some(Count { all: 3, stand_in: 0 }));
        assert_eq!(one.without(Count { all: 2, stand_in: 2 }), None);
    }
}
