//! The report of `genesis run`: what was intercepted in each process, or why nothing was.
//!
//! A process that never called CUDA is counted and not named, unless it was the only one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use genesis::base::size::Bytes;
use genesis_replay::table::grouped;
use preload_report::{CallCount, Library, Process, Report};

use super::executable;

/// Further processes are only counted.
const MOST_SHOWN: usize = 16;
/// The beginning of every line.
const PREFIX: &str = "genesis run: ";

/// The report of a run of `program` that ended with `status`.
pub(crate) fn describe(report: &Report, program: &OsStr, status: ExitStatus) -> String {
    let mut lines = Vec::new();
    if let Some(signal) = status.signal() {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
        lines.push(format!("the program was ended by signal {signal} ({name})"));
    }
    let processes = report.processes();
    if processes.is_empty() {
        lines.push(format!("nothing was intercepted: {}", silence(report, program)));
    } else {
        describe_processes(&processes, &mut lines);
    }
    let mut text = String::new();
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{PREFIX}{line}");
    }
    text
}

/// Why no process has reported anything.
fn silence(report: &Report, program: &OsStr) -> String {
    if report.other_version_count() > 0 {
        return "the preload library is of another version than this command".to_owned();
    }
    executable::obstacle(program).unwrap_or_else(|| {
        format!(
            "the loader did not load the preload library, and says why on standard error, or the \
             program ran where there is no {}",
            report.path().display()
        )
    })
}

fn describe_processes(processes: &[Process], lines: &mut Vec<String>) {
    let (with_cuda, without): (Vec<_>, Vec<_>) =
        processes.iter().partition(|process| process.has_seen_cuda || !process.calls.is_empty());
    if with_cuda.is_empty() {
        lines.push(format!("nothing was intercepted: {}", idleness(&without)));
        return;
    }
    for process in with_cuda.iter().take(MOST_SHOWN) {
        describe_process(process, lines);
    }
    if with_cuda.len() > MOST_SHOWN {
        lines.push(format!("… and {} more processes", with_cuda.len() - MOST_SHOWN));
    }
    match others(&with_cuda, &without) {
        0 => {}
        1 => lines.push("one other process did not use CUDA".to_owned()),
        count => lines.push(format!("{count} other processes did not use CUDA")),
    }
}

/// Why `processes`, which reported, are not known to have called CUDA.
fn idleness(processes: &[&Process]) -> String {
    if processes.iter().all(|process| process.library == Library::Off) {
        return "GENESIS_PRELOAD is off".to_owned();
    }
    match (others(&[], processes), processes.last()) {
        (1, Some(process)) => format!("{} did not use CUDA", process.command_line),
        (count, _) => format!(
            "none of {count} processes used CUDA (programs that are statically linked or setuid \
             preload nothing and are not among them)"
        ),
    }
}

/// The number of processes that were never seen to use CUDA. One that was forked and became another
/// program is in the list twice.
fn others(with_cuda: &[&Process], without: &[&Process]) -> usize {
    let numbers: BTreeSet<u32> = without.iter().map(|process| process.process_id).collect();
    let is_other = |number: &&u32| !with_cuda.iter().any(|process| process.process_id == **number);
    numbers.iter().filter(is_other).count()
}

fn describe_process(process: &Process, lines: &mut Vec<String>) {
    lines.push(format!("{} (process {})", process.command_line, process.process_id));
    let mut say = |line: String| lines.push(format!("  {line}"));
    match process.library {
        Library::Missing => {
            say(format!("nothing was intercepted: Genesis cannot serve: {}", process.library_error))
        }
        Library::Off => say("nothing was intercepted: GENESIS_PRELOAD is off".to_owned()),
        Library::ForkedChild => {
            say("nothing was intercepted: it is a fork of a process that used CUDA".to_owned());
        }
        Library::NotAsked | Library::Open => say(served(process)),
    }
    let sums = [
        ("served by Genesis", list(process, |call| call.served)),
        ("passed to CUDA", list(process, |call| call.passed)),
        ("refused by Genesis", list(process, |call| call.refused)),
    ];
    for (what, calls) in sums {
        if !calls.is_empty() {
            say(format!("{what}: {calls}"));
        }
    }
    if process.fences > 0 {
        say(format!(
            "waits for the device before freed memory is reused: {}",
            grouped(process.fences)
        ));
    }
}

fn served(process: &Process) -> String {
    let is_allocation = |call: &&CallCount| call.name.contains("lloc");
    let count: u64 = process.calls.iter().filter(is_allocation).map(|call| call.served).sum();
    if count == 0 {
        return "nothing was intercepted: it asked for no memory that Genesis serves".to_owned();
    }
    format!(
        "{} {}: {} at the peak, {} at the end, {} in all",
        grouped(count),
        if count == 1 { "allocation" } else { "allocations" },
        Bytes(process.peak_bytes),
        Bytes(process.live_bytes),
        Bytes(process.total_bytes)
    )
}

/// The calls that `count` counts. Synchronising calls are only watched, and left out.
fn list(process: &Process, count: impl Fn(&CallCount) -> u64) -> String {
    let calls = process.calls.iter().filter(|call| !call.name.contains("Synchronize"));
    let counted = calls.filter(|call| count(call) > 0);
    let texts: Vec<String> =
        counted.map(|call| format!("{} {}", call.name, grouped(count(call)))).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(library: Library, calls: &[(&'static str, u64, u64, u64)]) -> Process {
        let count = |&(name, served, passed, refused)| CallCount { name, served, passed, refused };
        Process {
            process_id: 7,
            command_line: "./train --fast".to_owned(),
            library,
            has_seen_cuda: !calls.is_empty(),
            calls: calls.iter().map(count).collect(),
            ..Process::default()
        }
    }

    fn said(processes: &[Process]) -> Vec<String> {
        let mut lines = Vec::new();
        describe_processes(processes, &mut lines);
        lines
    }

    #[test]
    fn what_was_served_is_told() {
        let mut one = process(
            Library::Open,
            &[
                ("cudaDeviceSynchronize", 9, 0, 0),
                ("cudaFree", 1199, 1, 0),
                ("cudaIpcGetMemHandle", 0, 0, 2),
                ("cudaMalloc", 1200, 0, 0),
                ("cudaMallocHost", 0, 3, 0),
            ],
        );
        (one.peak_bytes, one.live_bytes, one.total_bytes) = (3 << 29, 512, 3 << 30);
        one.fences = 12;
        let mut other = process(Library::NotAsked, &[]);
        other.process_id = 8;
        assert_eq!(
            said(&[one, other.clone(), other]),
            [
                "./train --fast (process 7)",
                "  1,200 allocations: 1.50 GiB at the peak, 512 B at the end, 3.00 GiB in all",
                "  served by Genesis: cudaFree 1,199, cudaMalloc 1,200",
                "  passed to CUDA: cudaFree 1, cudaMallocHost 3",
                "  refused by Genesis: cudaIpcGetMemHandle 2",
                "  waits for the device before freed memory is reused: 12",
                "one other process did not use CUDA",
            ]
        );
    }

    #[test]
    fn why_nothing_was_is_told() {
        let nothing = "nothing was intercepted: ";
        let idle = process(Library::NotAsked, &[]);
        let off = process(Library::Off, &[]);
        let alone = std::slice::from_ref(&idle);
        assert_eq!(said(alone), [format!("{nothing}./train --fast did not use CUDA")]);
        assert_eq!(said(&[off]), [format!("{nothing}GENESIS_PRELOAD is off")]);
        let other = Process { process_id: 8, ..idle.clone() };
        assert!(said(&[idle, other])[0].starts_with(&format!("{nothing}none of 2 processes")));
        let mut missing = process(Library::Missing, &[("cudaMalloc", 0, 5, 0)]);
        missing.library_error = "no such file".to_owned();
        assert_eq!(
            said(&[missing])[1..],
            [
                format!("  {nothing}Genesis cannot serve: no such file"),
                "  passed to CUDA: cudaMalloc 5".to_owned()
            ]
        );
        let only_host = process(Library::NotAsked, &[("cudaMallocHost", 0, 1, 0)]);
        assert_eq!(
            said(&[only_host])[1],
            format!("  {nothing}it asked for no memory that Genesis serves")
        );
    }

    #[test]
    fn many_processes_are_counted() {
        let one = process(Library::Open, &[("cudaMalloc", 1, 0, 0)]);
        let lines = said(&vec![one; 100]);
        assert_eq!(lines.last().map(String::as_str), Some("… and 84 more processes"));
    }
}
