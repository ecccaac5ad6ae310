//! Measuring: each replay in its own process, on a device of the size it is given.
//!
//! Times are measured with one process at a time, except where two at once are what is measured.
//! All subjects take turns, round after round, so that other load on the machine falls on all.
//!
//! The *smallest device* is found by bisection between the live peak, below which nothing
//! completes, and the peak that was reserved with ample memory. Each probe makes all passes in a new
//! process, and completes if no request of any pass failed. Completing is not strictly monotonic in the size,
//! so near the threshold the result is one of several. Probes count and do not time, so they run
//! side by side.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use genesis_replay::bisection::least;
use genesis_replay::report::Report;

use crate::queue::side_by_side;
use crate::results::{Measured, Rounds, failed};
use crate::run::{AMPLE_BYTES, Run, STEP_BYTES};
use crate::subjects::{Subject, Tools};
use crate::trace::Trace;
use steps::Outcome;

/// How the names of variables begin that would change what is measured.
const SETTINGS: [&str; 5] = ["GENESIS_", "MXNET_", "PYTORCH_", "RMM_", "SIMCUDA_"];
/// The smallest device is found to this part of the live peak.
const RESOLUTION: f64 = 0.001;

/// What counts are passes that other load left alone, and there must be enough of them. Where a process
/// makes its warm passes in less time, it makes more, …
const LEAST_TIMED_NS: f64 = 150e6;
/// … by this factor at most.
const MOST_FACTOR: f64 = 8.0;

/// How long a process may run. A replay takes seconds; one that takes this long does not end.
const MOST_SECONDS: u32 = 900;
/// The exit status of `timeout`, which ends such a process and its children.
const TIMED_OUT: i32 = 124;

/// How one process replays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay {
    pub(crate) threads: usize,
    /// At least 1.
    pub(crate) passes: u16,
    pub(crate) device_bytes: u64,
}

/// Threads that are more than a small machine has cores.
const MANY_THREADS: usize = 8;

/// Replays `trace` with one thread, in one process and in two at once, and with two threads.
pub(crate) fn times(
    tools: &Tools,
    trace: &Trace,
    subject: &Subject,
    passes: u16,
) -> Result<Measured, String> {
    let with_passes = |threads, passes| ample(tools, trace, subject, threads, passes);
    let first = with_passes(1, passes)?;
    let factor = factor(&first);
    let on_threads = |threads| with_passes(threads, passes.saturating_mul(factor));
    let processes = std::thread::scope(|scope| {
        let other = scope.spawn(|| on_threads(1));
        let one = on_threads(1);
        [one, other.join().unwrap_or_else(|_| Err("a replay panicked".to_owned()))]
    });
    Ok(Measured {
        single: Rounds(vec![if factor > 1 { on_threads(1)? } else { first }]),
        double: Rounds(vec![on_threads(2)?]),
        processes: Rounds(processes.into_iter().collect::<Result<_, _>>()?),
        many: None,
        smallest_device_bytes: None,
        instructions: None,
    })
}

/// Replays each of `replays` once with eight threads, and writes the report into the measurement.
pub(crate) fn many_threads(
    tools: &Tools,
    passes: u16,
    replays: Vec<(&Trace, &Subject, &mut Measured)>,
) -> Outcome {
    let count = replays.len();
    for (number, (trace, subject, measured)) in replays.into_iter().enumerate() {
        let report = ample(tools, trace, subject, MANY_THREADS, passes)?;
        let over_live = report.reserved_over_live_in_all().unwrap_or_default();
        let (number, name) = (number + 1, &subject.name);
        eprintln!("[{number}/{count}] {}, {name}: {over_live:.3} × live", trace.name);
        measured.many = Some(Rounds(vec![report]));
    }
    Ok(())
}

/// Replays `trace` with ample memory, where every request is served.
fn ample(
    tools: &Tools,
    trace: &Trace,
    subject: &Subject,
    threads: usize,
    passes: u16,
) -> Result<Report, String> {
    let how = Replay { threads, passes, device_bytes: AMPLE_BYTES };
    let run = replay(tools, trace, subject, how)?;
    run.completed().cloned().ok_or_else(|| {
        let trouble = run.trouble().unwrap_or_default();
        format!("{} under {}, with ample memory: {trouble}", trace.name, subject.name)
    })
}

/// How many times as many passes a process is to make.
fn factor(first: &Report) -> u16 {
    let warm_ns = first.warm.iter().map(|pass| pass.ns_per_call).sum::<f64>() * first.calls as f64;
    (LEAST_TIMED_NS / warm_ns.max(1.0)).ceil().clamp(1.0, MOST_FACTOR) as u16
}

/// Finds the smallest device on which so many passes complete for each of `searches`, and writes it
/// into the measurement.
pub(crate) fn smallest_devices(
    tools: &Tools,
    passes: u16,
    searches: Vec<(&Trace, &Subject, &mut Measured)>,
) -> Outcome {
    let count = searches.len();
    let done = AtomicUsize::new(0);
    side_by_side(searches, |(trace, subject, measured)| {
        let ample = measured.single.first();
        let peak_bytes = ample.passes().map(|pass| pass.reserved_peak_bytes).max();
        let guess_bytes = peak_bytes.unwrap_or_default();
        let found = smallest_device(tools, trace, subject, Search { passes, guess_bytes })?;
        let number = done.fetch_add(1, Ordering::Relaxed) + 1;
        let name = &subject.name;
        eprintln!("[{number}/{count}] {}, {name}: {}", trace.name, completes_on(trace, found));
        measured.smallest_device_bytes = found;
        Ok(())
    })
}

/// What is known before a search for the smallest device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    pub(crate) passes: u16,
    /// A device that is probably enough.
    pub(crate) guess_bytes: u64,
}

/// The smallest device in words.
pub(crate) fn completes_on(trace: &Trace, found: Option<u64>) -> String {
    let over_live = found.map(|bytes| bytes as f64 / trace.live_peak_bytes as f64);
    over_live.map_or("completes on no device".to_owned(), |over_live| {
        format!("completes on {over_live:.3} × live")
    })
}

/// The smallest device on which all passes complete; `None` if none was found.
pub(crate) fn smallest_device(
    tools: &Tools,
    trace: &Trace,
    subject: &Subject,
    search: Search,
) -> Result<Option<u64>, String> {
    let Search { passes, guess_bytes } = search;
    let completes = |steps: u64| -> Result<bool, String> {
        let how = Replay { threads: 1, passes, device_bytes: steps * STEP_BYTES };
        Ok(replay(tools, trace, subject, how)?.completed().is_some())
    };
    let too_small = (trace.live_peak_bytes - 1) / STEP_BYTES;
    let guess = guess_bytes.div_ceil(STEP_BYTES).max(too_small + 1);
    let resolution = (trace.live_peak_bytes as f64 * RESOLUTION) as u64 / STEP_BYTES;
    let found = least(too_small, guess, resolution.max(1), completes)?;
    Ok(found.map(|steps| steps * STEP_BYTES))
}

/// The command line that replays `trace` in a process of its own, under the program `beneath` with its
/// arguments, if there is one.
pub(crate) fn command(
    tools: &Tools,
    trace: &Trace,
    subject: &Subject,
    how: Replay,
    beneath: &[&str],
) -> Command {
    let Replay { threads, passes, device_bytes } = how;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &MOST_SECONDS.to_string()]);
    command.args(beneath).arg(&tools.genesis);
    command.arg("replay").arg(&trace.path).args(["--json", "--backend", "cuda", "--library"]);
    command.arg(&subject.library);
    command.args(["--threads", &threads.to_string(), "--warm", &(passes.max(1) - 1).to_string()]);
    if let Some(strategy) = &subject.strategy {
        command.args(["--strategy", strategy]);
    }
    for (name, _) in std::env::vars_os() {
        if SETTINGS.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.envs(subject.settings.iter().map(|(name, value)| (name, value)));
    crate::driver::put_beneath(&mut command, &tools.driver_folder, device_bytes, &tools.prices);
    command
}

/// Replays `trace` in a process of its own; an error if there cannot be one.
pub(crate) fn replay(
    tools: &Tools,
    trace: &Trace,
    subject: &Subject,
    how: Replay,
) -> Result<Run, String> {
    let mut command = command(tools, trace, subject, how, &[]);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| failed(&tools.genesis, &error))?;
    // A replay with failed requests has another exit status, but still prints its report.
    let report =
        serde_json::from_slice(&output.stdout).map(|report| Run::Reported(Box::new(report)));
    Ok(report.unwrap_or_else(|_| {
        if output.status.code() == Some(TIMED_OUT) {
            return Run::Died(format!("no end in {MOST_SECONDS} s"));
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let words = errors.lines().map(str::trim).rfind(|line| !line.is_empty());
        Run::Died(format!("{}: {}", output.status, words.unwrap_or("no message")))
    }))
}
