//! Recorded programs on the driver: Elastic beside PyTorch's own allocator, by `genesis replay`.
//!
//! A replay makes the calls of the recorded program and no work of the device, so its time is the
//! allocator's, driver calls included. PyTorch's allocator is driven by the adapter of
//! `benches/peers`, which is compiled here, because it must fit the PyTorch that is here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use genesis_replay::report::Report;

use crate::budget::Budget;
use crate::child;
use crate::folder::{Folder, Scratch};
use crate::report::{Figures, Replay};
use crate::sections::Found;
use crate::static_runtime::{HEADERS, toolkits};

/// How a page calls the allocators.
const ALLOCATORS: [Allocator; 3] = [
    Allocator { name: "Elastic", options: None },
    Allocator { name: "PyTorch expandable segments", options: Some("expandable_segments:True") },
    Allocator { name: "PyTorch native", options: Some("expandable_segments:False") },
];
/// How programs are run: threads that each run the whole program, and the room they have, in live
/// peaks. More threads than the machine has processors are left out, and what they cannot hold.
const CIRCUMSTANCES: [(u32, Option<f64>); 4] = [(1, None), (1, Some(1.05)), (2, None), (8, None)];
/// The part of the device that the live peaks of all threads may fill.
const MOST_LIVE: f64 = 0.7;
/// Passes after the first.
const WARM: &str = "5";
/// Compiling takes seconds.
const COMPILE_TIME: Duration = Duration::from_secs(60);

/// An allocator, and PyTorch's options if it is PyTorch's.
#[derive(Clone, Copy, Debug)]
struct Allocator {
    name: &'static str,
    options: Option<&'static str>,
}

fn figures(report: &Report) -> Figures {
    let calls = report.calls as f64;
    let later_ns_per_call = report.warm_ns_per_call().unwrap_or(0.0);
    let reserved = report.passes().map(|pass| pass.reserved_peak_bytes).max();
    Figures {
        live_peak_bytes: report.live_peak_bytes,
        reserved_peak_bytes: reserved.unwrap_or(0),
        first_ns: report.cold.ns_per_call * calls,
        later_ns: later_ns_per_call * calls,
        later_ns_per_call,
        failures: report.failures(),
    }
}

/// Every recorded program under every allocator, as far as `limit` allows.
pub(crate) fn replays(
    folder: &Folder,
    python: &Path,
    memory_bytes: u64,
    limit: Duration,
) -> Found<Vec<Replay>> {
    let budget = Budget::new(Instant::now(), limit);
    let (scratch, programs) = match Scratch::make().and_then(|made| Ok((made, programs(folder)?))) {
        Ok(both) => both,
        Err(reason) => return Found::skipped(reason),
    };
    let compiled = compile(folder, python, &scratch, budget.grant(Instant::now(), COMPILE_TIME));
    let mut found = Found { result: Some(Vec::new()), notes: Vec::new() };
    if let Err(reason) = &compiled {
        found.notes.push(format!("PyTorch's allocator was not replayed: {reason}."));
    }
    if folder.simulated {
        let note = "On the simulated driver calls of the driver take no time of the host's.";
        found.notes.push(note.to_owned());
    }
    let peer = compiled.ok();
    let is_there = |allocator: &&Allocator| allocator.options.is_none() || peer.is_some();
    let allocators: Vec<Allocator> = ALLOCATORS.iter().filter(is_there).copied().collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for program in &programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let mut live_peak_bytes = None;
        for (threads, room) in CIRCUMSTANCES {
            let live_bytes = live_peak_bytes.unwrap_or(0) as f64 * f64::from(threads);
            if threads as usize > processors || live_bytes > MOST_LIVE * memory_bytes as f64 {
                continue;
            }
            for allocator in &allocators {
                let library = match (&allocator.options, &peer) {
                    (Some(_), Some(peer)) => peer.clone(),
                    _ => folder.path("lib/libgenesis.so"),
                };
                let mut command = command(folder, allocator, &library, program, threads);
                // The first run, which has no limit, says how much is live.
                let limited = room.map_or(Ok(()), |room| {
                    let live = live_peak_bytes.ok_or("how much is live is not known")?;
                    command.arg(format!("--limit={}", (room * live as f64) as u64));
                    Ok(())
                });
                // Most take a second; where memory is too short for the program, some take many.
                let granted = budget.grant(Instant::now(), limit / 4);
                let ran = limited.and_then(|()| run(command, granted));
                let figures = ran.as_ref().ok().copied();
                live_peak_bytes = live_peak_bytes.or(figures.map(|seen| seen.live_peak_bytes));
                found.result.get_or_insert_default().push(Replay {
                    program: name.trim_end_matches(TRACE_ENDING).to_owned(),
                    allocator: allocator.name.to_owned(),
                    threads,
                    room,
                    figures,
                    error: ran.err(),
                });
            }
        }
    }
    found
}

const TRACE_ENDING: &str = ".gtr.zst";

/// The recorded programs, in the order of their names.
fn programs(folder: &Folder) -> Result<Vec<PathBuf>, String> {
    let place = folder.path("traces");
    let entries = std::fs::read_dir(&place).map_err(|error| format!("traces: {error}"))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut programs: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().ends_with(TRACE_ENDING)).collect();
    programs.sort();
    Ok(programs)
}

fn command(
    folder: &Folder,
    allocator: &Allocator,
    library: &Path,
    program: &Path,
    threads: u32,
) -> Command {
    let mut command = folder.command(folder.path("bin/genesis"));
    command.arg("replay").arg(program).args(["--json", "--backend", "cuda", "--warm", WARM]);
    command.args(["--threads", &threads.to_string()]).arg("--library").arg(library);
    match allocator.options {
        Some(options) => command.env("PYTORCH_CUDA_ALLOC_CONF", options),
        None => command.env("GENESIS_POOL_TYPE", allocator.name),
    };
    if folder.simulated {
        folder.preload_simulated(&mut command);
        command.env("SIMCUDA_RACES", "off");
    }
    command
}

fn run(command: Command, time: Duration) -> Result<Figures, String> {
    let finished = child::run(command, time)?;
    let report: Report = serde_json::from_str(&finished.output).map_err(|_| finished.reason())?;
    Ok(figures(&report))
}

/// Compiles the adapter for the PyTorch that `python` has; its path.
fn compile(
    folder: &Folder,
    python: &Path,
    scratch: &Scratch,
    limit: Duration,
) -> Result<PathBuf, String> {
    const SCRIPT: &str = "import importlib.util as u; s = u.find_spec('torch'); \
                          print(s.submodule_search_locations[0] if s else '')";
    let found = Command::new(python).args(["-c", SCRIPT]).output();
    let torch = found.map_err(|error| format!("{}: {error}", python.display()))?;
    let torch = PathBuf::from(String::from_utf8_lossy(&torch.stdout).trim());
    if !torch.is_dir() {
        return Err("there is no PyTorch".to_owned());
    }
    let headers = toolkits(python).into_iter().map(|toolkit| toolkit.join("include"));
    let headers = headers
        .into_iter()
        .find(|headers| HEADERS.iter().all(|header| headers.join(header).is_file()))
        .ok_or("there are no headers of CUDA's runtime")?;
    let library = scratch.path().join("libpeer_torch.so");
    let mut compiler = folder.command(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-DPEER_VERSION=\"\""]);
    compiler.arg("-I").arg(folder.path("include"));
    compiler.arg("-isystem").arg(torch.join("include")).arg("-isystem").arg(headers);
    compiler.arg(folder.file("programs/peers/torch.cpp")?).arg("-o").arg(&library);
    compiler.arg("-L").arg(torch.join("lib")).args(["-lc10_cuda", "-lc10"]);
    compiler.arg(format!("-Wl,-rpath,{}", torch.join("lib").display()));
    let built = child::run(compiler, limit)?;
    if built.is_success() { Ok(library) } else { Err(format!("not compiled: {}", built.reason())) }
}
