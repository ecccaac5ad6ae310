//! What may come between any two steps: signals that interrupt system calls, and clocks that jump.
//!
//! A program of two processes (`c_tests/disturbances/program.c`) uses much of the library, and checks
//! contents and counts itself; what it wrote into files is compared here with what it writes when
//! nothing disturbs it.
//!
//! A *place* is a stack of the library's functions, from which a call is made that a signal can
//! interrupt: some 350. A preloaded library interrupts one call, at each place in turn.

#[path = "support/on_simcuda.rs"]
mod on_simcuda;
#[path = "c_interface/programs.rs"]
#[allow(dead_code)] // other tests use more of it
mod programs;
#[path = "support/tier.rs"]
mod tier;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, process, thread};

use genesis_profile::{Profile, json, model};
use genesis_replay::gtr;
use programs::Language::C99;
use programs::{command, compile, compile_by, compiler, text};

/// So many places are taken on every change.
const SOME_PLACES: usize = 5;
/// So many runs at a time.
const RUNS_AT_ONCE: usize = 2;

/// How calls are interrupted.
#[derive(Clone, Copy)]
enum Way {
    /// Before they have done anything.
    Whole,
    /// Once they have read or written half.
    Half,
}

/// A program with a library to be preloaded.
struct Scene {
    program: PathBuf,
    preloaded: PathBuf,
}

/// What a run of the scene left.
#[derive(Default)]
struct Left {
    /// What its files say, by the parts of their names that are the same in each run.
    files: BTreeMap<String, Vec<String>>,
    /// The places that it came to, and what is called there.
    places: BTreeMap<String, String>,
    /// The calls that were interrupted.
    interrupted: usize,
    /// How often the clocks were asked: in the process that did so more often.
    questions: u64,
    /// What is on standard error.
    said: String,
}

impl Scene {
    /// With the preloaded library in the file `source`.
    fn new(test: &str, source: &str) -> Self {
        let mut shared = compiler(C99);
        shared.args(["-shared", "-fPIC"]);
        let preloaded = compile_by(shared, test, source, C99, false);
        Self { program: compile(test, "disturbances/program.c", C99, true), preloaded }
    }

    /// Runs it in a folder of its own. It must end well.
    fn run(&self, change: impl FnOnce(&mut Command)) -> Result<Left, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("disturbed-{}-{}", process::id(), COUNT.fetch_add(1, Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        fs::create_dir_all(&folder).unwrap();
        let report = folder.with_extension("report");
        let mut command = command(&self.program);
        on_simcuda::put_beneath(&mut command);
        command.arg(&folder).env("LD_PRELOAD", self.preload());
        command
            .env("INTERRUPT_REPORT", &report)
            .env("JUMP_REPORT", &report)
            .env("GENESIS_SHARE", &name);
        command.env("SIMCUDA_COMMON", folder.with_extension("common"));
        for (variable, file) in [
            ("GENESIS_PROFILE", "exit-%p.json"),
            ("GENESIS_METRICS", "metrics-%p.prom"),
            ("GENESIS_PLAN", "exit-%p.plan"),
            ("GENESIS_BACKUP_FOLDER", ""),
        ] {
            command.env(variable, folder.join(file));
        }
        command.envs([
            ("GENESIS_BACKEND", "cuda"),
            ("GENESIS_POOL_TYPE", "Elastic"),
            ("GENESIS_HANDLE_TYPE", "posix"),
            ("GENESIS_METRICS_SECONDS", "0.1"),
            // Naming native code takes longer than all the rest.
            ("GENESIS_CALL_SITES", "off"),
            ("SIMCUDA_STORE", "bytes"),
            ("SIMCUDA_MEMORY", "1GiB"),
            ("SIMCUDA_ON_VIOLATION", "abort"),
        ]);
        change(&mut command);
        let output = command.output().unwrap();
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        let is_well = output.status.success()
            && ["first is done\n", "second is done\n"].iter().all(|line| printed.contains(line));
        let left = is_well.then(|| Left::read(&folder, &report, said.clone()));
        for file in ["common", "report"] {
            let _ = fs::remove_file(folder.with_extension(file));
        }
        fs::remove_dir_all(&folder).unwrap();
        left.ok_or_else(|| format!("{}\n{printed}{said}", output.status))
    }

    /// The driver, and before it what interrupts.
    fn preload(&self) -> std::ffi::OsString {
        let driver = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simcuda/libcuda.so.1");
        env::join_paths([&self.preloaded, &driver]).unwrap()
    }
}

impl Left {
    fn read(folder: &Path, report: &Path, said: String) -> Self {
        let mut left = Self { said, ..Self::default() };
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // Without the process's number; of two files that differ in it alone, both count.
            let name: String = name.chars().filter(|of| !of.is_ascii_digit()).collect();
            left.files.entry(name).or_default().push(describe(&path));
        }
        left.files.values_mut().for_each(|contents| contents.sort());
        for line in fs::read_to_string(report).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if words.len() == 1 {
                left.questions = left.questions.max(words[0].parse().unwrap());
                continue;
            }
            left.places.insert(words[0].to_owned(), words[1].to_owned());
            left.interrupted += usize::from(words[2] == "1");
        }
        left
    }
}

impl Left {
    /// The first of the files that are not the same as another run's.
    fn difference(&self, other: &Self) -> Option<String> {
        let names = self.files.keys().chain(other.files.keys());
        let of = |name: &String| (self.files.get(name), other.files.get(name));
        let mut different = names.filter(|name| of(name).0 != of(name).1);
        different.next().map(|name| format!("{name}: {:?}", of(name)))
    }
}

/// What is the same of a file in each run.
fn describe(path: &Path) -> String {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gtr") => format!("{:?}", gtr::read_file(path).unwrap()),
        Some("json") => counts(&json::read(&fs::read(path).unwrap()).unwrap()),
        // What a plan and a snapshot have depends on how two threads took turns.
        _ => (fs::metadata(path).unwrap().len() > 0).to_string(),
    }
}

/// What a profile has counted.
fn counts(profile: &Profile) -> String {
    let device = &profile.devices[0];
    let is_free = |event: &&model::Event| event.action == model::Action::Free;
    let freed = profile.history.events.iter().filter(is_free).count();
    format!("{} {} {freed}", device.allocations, device.frees)
}

/// Runs the scene once for each place, or for some, with a call there interrupted.
fn nothing_changes_at_any_place(test: &str, way: Way) {
    let scene = Scene::new(test, "disturbances/interrupting.c");
    let interrupt_at = |place: &str| {
        scene.run(|command| {
            command.env("INTERRUPT_AT", place);
            if let Way::Half = way {
                command.env("INTERRUPT_HALF", "1");
            }
        })
    };
    let alone = interrupt_at("none").unwrap();
    let places = chosen(&alone.places);
    let next = AtomicUsize::new(0);
    let interrupted = AtomicUsize::new(0);
    thread::scope(|scope| {
        let judge = || {
            while let Some((place, call)) = places.get(next.fetch_add(1, Relaxed)) {
                // On a busy machine an answer may come too late, which is no interruption's fault.
                let left = interrupt_at(place).or_else(|_| interrupt_at(place));
                let left = left.unwrap_or_else(|failure| panic!("{call} at {place}: {failure}"));
                assert_eq!(left.difference(&alone), None, "{call} at {place}");
                assert_eq!(left.said, "", "{call} at {place}");
                interrupted.fetch_add(left.interrupted.min(1), Relaxed);
            }
        };
        (0..RUNS_AT_ONCE).for_each(|_| drop(scope.spawn(judge)));
    });
    // By chance a thread need not wait in a run.
    let interrupted = interrupted.into_inner();
    assert!(2 * interrupted > places.len(), "{interrupted} of {places:?}");
}

/// All places, or some: of different calls, drawn.
fn chosen(places: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut places: Vec<_> =
        places.iter().map(|(place, call)| (place.clone(), call.clone())).collect();
    if tier::is_full() {
        return places;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let draw = u64::from(since.subsec_nanos()) | 1;
    places.sort_by_key(|(place, _)| u64::from_str_radix(place, 16).unwrap().wrapping_mul(draw));
    let mut calls = std::collections::BTreeSet::new();
    places.retain(|(_, call)| calls.insert(call.clone()));
    places.truncate(SOME_PLACES);
    places
}

#[test]
fn a_call_that_a_signal_interrupts_is_made_again() {
    nothing_changes_at_any_place("whole", Way::Whole);
}

#[test]
fn a_transfer_that_a_signal_cuts_short_goes_on() {
    nothing_changes_at_any_place("half", Way::Half);
}

#[test]
fn signals_all_the_time_change_nothing() {
    let scene = Scene::new("pest", "disturbances/interrupting.c");
    let alone = scene.run(|_| ()).unwrap();
    for _ in 0..tier::some_or_all(1, 50) {
        let left = scene.run(|command| _ = command.arg("pest")).unwrap();
        assert_eq!(left.difference(&alone), None);
        let signals: Vec<u64> = left
            .said
            .lines()
            .filter_map(|line| line.strip_suffix(" signals")?.parse().ok())
            .collect();
        assert!(signals.len() == 2 && signals.iter().all(|&count| count > 100), "{}", left.said);
    }
}

/// How far clocks jump, in seconds: the time of day, and the clock that nobody sets. A year, a
/// decade, and to before 1970.
const JUMPS: [(i64, i64); 5] =
    [(3600, 0), (-3600, 0), (315_360_000, 31_536_000), (-3_000_000_000, 0), (0, 3_153_600_000)];

/// Nothing hangs or fails, and what is counted is the same.
#[test]
fn clocks_that_jump_change_nothing() {
    let scene = Scene::new("jump", "disturbances/jumping.c");
    let jump = |at: u64, (realtime, monotonic): (i64, i64)| {
        scene.run(|command| {
            command.arg("patient").env("JUMP_AT", at.to_string());
            command.env("JUMP_REALTIME", realtime.to_string());
            command.env("JUMP_MONOTONIC", monotonic.to_string());
        })
    };
    let alone = jump(0, (0, 0)).unwrap();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for round in 0..tier::some_or_all(1, 40) {
        for (index, jumps) in (0..).zip(JUMPS) {
            let draw = u64::from(since.subsec_micros()) + 7919 * (5 * round + index);
            let at = 1 + draw % alone.questions;
            let left =
                jump(at, jumps).unwrap_or_else(|failure| panic!("{jumps:?} at {at}: {failure}"));
            assert_eq!(left.difference(&alone), None, "{jumps:?} at {at}");
            assert_eq!(left.said, "", "{jumps:?} at {at}");
        }
    }
}
