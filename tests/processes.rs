//! The library and the process it lives in: fork, exit, loading, and the environment.
//!
//! Each case is a C program of `c_tests/processes`, compiled here and run as a process of its
//! own with an environment of its own.

#[path = "c_interface/programs.rs"]
mod programs;
#[path = "support/tier.rs"]
mod tier;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use genesis::base::Status;
use genesis::config::PoolType;
use genesis_profile::json;
use genesis_profile::model::{Action, Event};
use programs::Language::C99;
use programs::{command, compile, compiler, library_folder, run, run_silently, sources, text};

/// How many blocks each thread of `crowd.c` has, one after the other; on every change, and nightly.
const CROWD_ROUNDS: &str = "3";
const ALL_CROWD_ROUNDS: &str = "10";

/// A program of `c_tests/processes`, compiled for one test alone.
fn program(test: &str, source: &str) -> PathBuf {
    compile(test, &format!("processes/{source}"), C99, source != "loading.c")
}

/// The names of the library's functions.
fn functions() -> BTreeSet<&'static str> {
    let header = include_str!("../include/genesis.h");
    let words = header.split(|of: char| !of.is_ascii_alphanumeric() && of != '_');
    let is_called = |word: &&str| header.contains(&format!("{word}("));
    let names: BTreeSet<&str> =
        words.filter(|word| word.starts_with("genesis_")).filter(is_called).collect();
    assert!(names.contains("genesis_malloc") && names.len() > 100, "{names:?}");
    names
}

/// Runs a case of a program under every strategy: it must end well and say nothing.
fn ends_well(test: &str, source: &str, case: &str) {
    case_ends_well(&program(test, source), case);
}

/// The same for a program that is compiled.
fn case_ends_well(program: &Path, case: &str) {
    for pool_type in PoolType::ALL {
        let mut command = command(program);
        command.arg(case).env("GENESIS_POOL_TYPE", pool_type.name());
        assert_eq!(run_silently(&mut command), "");
    }
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    ends_well("after_use", "fork.c", "after_use");
}

#[test]
fn a_child_forked_before_the_first_use_works() {
    ends_well("before_use", "fork.c", "before_use");
}

#[test]
fn a_fork_while_threads_allocate_does_not_hang() {
    ends_well("hammered", "fork.c", "hammered");
}

#[test]
fn a_fork_during_the_first_use_does_not_hang() {
    ends_well("during_first_use", "fork.c", "during_first_use");
}

/// Also those that ask for nothing of a device, and those that are called at odd moments.
#[test]
fn every_function_returns_in_a_forked_child() {
    let mut command = command(program("forked_calls", "forked_calls.c"));
    assert_eq!(run_silently(command.args(functions())), "");
}

/// What a thread does that is stopped anywhere while its process forks (`forked_anywhere.c`).
const STATES: [&str; 14] = [
    "options",
    "annotations",
    "callbacks",
    "first_use",
    "first_host",
    "first_error",
    "first_profile",
    "misses",
    "host",
    "profile",
    "trace",
    "pause",
    "errors",
    "publish",
];

/// Whatever a thread of the parent holds then, also before the library is used.
#[test]
fn every_function_returns_in_a_child_forked_at_any_moment() {
    let program = program("forked_anywhere", "forked_anywhere.c");
    let all = [PoolType::Elastic, PoolType::Caching, PoolType::Arena];
    for pool_type in tier::some_or_all(&all[..1], &all[..]) {
        for state in STATES {
            let mut command = command(&program);
            command.args([state, tier::some_or_all("7", "60")]).args(functions());
            // Errors are logged, as one of the things that are done meanwhile.
            run(command.env("GENESIS_POOL_TYPE", pool_type.name()));
        }
    }
}

/// CuPy calls with Python's global lock held, which work on the device may want for a function on
/// the host.
#[test]
fn a_wait_on_cupys_behalf_is_without_the_global_lock() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("global_lock");
    let library = library_folder();
    let library = library.to_str().unwrap();
    let mut build = compiler(C99);
    build.arg(sources().join("processes/global_lock.c")).arg("-o").arg(&program);
    // The program is the interpreter, whose functions the library finds by their names.
    build.args(["-rdynamic", "-L", library, "-lgenesis", "-pthread"]);
    build.arg(format!("-Wl,--disable-new-dtags,-rpath,{library}"));
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for pool_type in [PoolType::Round, PoolType::Caching, PoolType::Elastic] {
        let mut command = command(&program);
        command.env("GENESIS_POOL_TYPE", pool_type.name()).env("GENESIS_SIM_MEMORY", "64MiB");
        assert_eq!(run_silently(&mut command), "");
    }
}

#[test]
fn a_process_may_end_at_any_time() {
    let program = program("ending", "ending.c");
    for case in [
        "with_live_blocks",
        "with_paused_blocks",
        "from_thread",
        "main_thread_first",
        "in_thread_destructors",
        "at_once",
        "at_exit",
        "while_others_work",
    ] {
        case_ends_well(&program, case);
    }
}

#[test]
fn loading_alone_does_nothing() {
    let mut command = command(program("alone", "loading.c"));
    command.arg("alone").arg(library_folder().join("libgenesis.so"));
    // Nothing in the environment is looked at before the first use.
    command.env("GENESIS_POOL_TYPE", "Rund").env("GENESIS_NONSENSE", "1");
    run_silently(&mut command);
}

#[test]
fn the_library_may_be_closed() {
    let program = program("closing", "loading.c");
    for pool_type in PoolType::ALL {
        let mut command = command(&program);
        command.arg("use").arg(library_folder().join("libgenesis.so"));
        run_silently(command.env("GENESIS_POOL_TYPE", pool_type.name()));
    }
}

#[test]
fn a_thousand_threads_have_a_stream_each() {
    let program = program("crowd", "crowd.c");
    for pool_type in tier::some_or_all(&[PoolType::Caching, PoolType::Elastic][..], PoolType::ALL) {
        let mut command = command(&program);
        command.arg(tier::some_or_all(CROWD_ROUNDS, ALL_CROWD_ROUNDS));
        run_silently(command.env("GENESIS_POOL_TYPE", pool_type.name()));
    }
}

/// The calls that `plan.c` counts, and what is on standard error.
fn planned_under(
    program: &Path,
    pool_type: PoolType,
    steps: &str,
    plan: &Path,
) -> (Vec<u64>, String) {
    let mut command = command(program);
    command.arg(steps).env("GENESIS_PLAN", plan).env("GENESIS_POOL_TYPE", pool_type.name());
    let output = run(&mut command);
    let printed = text(&output.stdout);
    let counts = printed.split_whitespace().map(|word| word.parse().unwrap()).collect();
    (counts, text(&output.stderr).to_owned())
}

#[test]
fn a_plan_is_made_ready_by_the_next_run_of_the_program_and_of_no_other() {
    let program = program("planned", "plan.c");
    for pool_type in PoolType::ALL.iter().filter(|pool_type| **pool_type != PoolType::Naive) {
        let name = format!("{}.plan", pool_type.name());
        let plan = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_file(&plan);
        let run = |steps: &str| planned_under(&program, *pool_type, steps, &plan);
        let (cold, said) = run("3");
        assert!(cold[1] > 0 && said.is_empty(), "{cold:?} {said}");
        let (warm, said) = run("3");
        assert!(warm[0] > 0 && said.is_empty(), "{warm:?} {said}");
        assert_eq!(&warm[1..], [0, 0], "{pool_type:?}: {cold:?}");
        // Another command line, another strategy, and a file that is no plan: one line, and the file
        // stays.
        let written = std::fs::read(&plan).unwrap();
        let (other, said) = run("2");
        assert!(other[1] > 0 && said.lines().count() == 1, "{said}");
        assert!(said.contains("is not used, and left as it is: it is of program"), "{said}");
        assert_eq!(std::fs::read(&plan).unwrap(), written);
        let another = if *pool_type == PoolType::Exact { PoolType::Round } else { PoolType::Exact };
        let (_, said) = planned_under(&program, another, "3", &plan);
        assert!(said.lines().count() == 1 && said.contains("it is for"), "{said}");
        assert_eq!(std::fs::read(&plan).unwrap(), written);
        std::fs::write(&plan, [0xFF; 5000]).unwrap();
        let (_, said) = run("3");
        assert!(said.lines().count() == 1 && said.contains("left as it is"), "{said}");
        assert_eq!(std::fs::read(&plan).unwrap(), [0xFF; 5000]);
    }
}

/// What `probe.c` says in an environment, with sizes to allocate; and what is on standard error.
fn probe(program: &Path, variables: &[(&str, &str)], sizes: &[u64]) -> (Vec<String>, Vec<String>) {
    let mut command = command(program);
    command.envs(variables.iter().copied()).args(sizes.iter().map(u64::to_string));
    let output = run(&mut command);
    let lines = |bytes| text(bytes).lines().map(str::to_owned).collect();
    (lines(&output.stdout), lines(&output.stderr))
}

/// What blocks of `sizes` take in an environment that has nothing wrong in it.
fn allocated(program: &Path, variables: &[(&str, &str)], sizes: &[u64]) -> Vec<u64> {
    // Addresses only: sizes may be those of a large device.
    let mut all = vec![("GENESIS_BACKEND", "sim"), ("GENESIS_SIM_MEMORY", "512GB")];
    all.extend(variables);
    let (said, warnings) = probe(program, &all, sizes);
    assert_eq!(warnings, [""; 0], "{variables:?}");
    assert_eq!(said[0], "backend=sim");
    let bytes = |line: &String| line.split(": ").nth(1).and_then(|bytes| bytes.parse().ok());
    said[1..].iter().map(|line| bytes(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// Every size is refused with `status`, and standard error has one line, which is `message`.
fn is_refused(program: &Path, variables: &[(&str, &str)], status: Status, message: &str) {
    let (said, errors) = probe(program, variables, &[1, 4096, 1 << 40]);
    assert_eq!(errors, [format!("genesis: {message}")]);
    let refusal = |size| format!("{size}: status={} {message}", status as i32);
    let expected = ["1", "4096", "1099511627776"].map(refusal);
    assert_eq!(said, [&["backend=none".to_owned()], &expected[..]].concat());
}

#[test]
fn a_wrong_setting_is_one_error_and_no_allocation_succeeds() {
    let names: Vec<&str> = PoolType::ALL.iter().map(|pool_type| pool_type.name()).collect();
    let program = program("wrong", "probe.c");
    let valid = names.join(", ");
    is_refused(
        &program,
        &[("GENESIS_POOL_TYPE", "Rund")],
        Status::InvalidConfiguration,
        &format!("GENESIS_POOL_TYPE=Rund: not a pool type; valid: {valid} (did you mean Round?)"),
    );
    is_refused(
        &program,
        &[("MXNET_GPU_MEM_POOL_TYPE", "Caching")],
        Status::InvalidConfiguration,
        "MXNET_GPU_MEM_POOL_TYPE=Caching: not a pool type of MXNet's; valid: Naive, Round, \
         Unpooled",
    );
    is_refused(
        &program,
        &[("GENESIS_MEMORY_FRACTION", "2"), ("GENESIS_BACKEND", "opencl")],
        Status::InvalidConfiguration,
        "2 settings are wrong: (1) GENESIS_BACKEND=opencl: not a backend; valid: auto, cuda, \
         host, sim (2) GENESIS_MEMORY_FRACTION=2: not a number above 0 and at most 1",
    );
}

#[test]
fn an_unknown_variable_is_one_warning() {
    let program = program("unknown", "probe.c");
    let (said, warnings) = probe(&program, &[("GENESIS_POOL_TIPE", "Round")], &[1, 1]);
    assert_eq!(said.len(), 3);
    assert_eq!(said[0], "backend=host");
    assert_eq!(
        warnings,
        ["genesis: GENESIS_POOL_TIPE is not an option; did you mean GENESIS_POOL_TYPE?"]
    );
    let quiet = [("GENESIS_POOL_TIPE", "Round"), ("GENESIS_LOG", "error")];
    assert_eq!(probe(&program, &quiet, &[1]).1, [""; 0]);
}

/// Sizes that tell MXNet's strategies and ours apart, and what MXNet makes of them.
const SIZES: [u64; 8] =
    [1, 4_097, 1_048_577, 2_097_153, 10_485_760, 16_777_217, 34_603_008, 17_179_869_185];
const MXNET_NAIVE: [u64; 8] =
    [4_096, 8_192, 1_052_672, 4_194_304, 10_485_760, 18_874_368, 35_651_584, 17_181_966_336];
const MXNET_ROUND: [u64; 8] =
    [4_096, 8_192, 2_097_152, 4_194_304, 16_777_216, 33_554_432, 50_331_648, 17_196_646_400];

#[test]
fn mxnet_names_have_mxnet_meanings() {
    let program = program("mxnet", "probe.c");
    let under = |variables: &[_]| allocated(&program, variables, &SIZES);
    let mxnet = "MXNET_GPU_MEM_POOL_TYPE";
    assert_eq!(under(&[(mxnet, "Naive")]), MXNET_NAIVE);
    assert_eq!(under(&[(mxnet, "Round")]), MXNET_ROUND);
    assert_eq!(under(&[(mxnet, "Unpooled")]), SIZES);
    // Our own variable wins, and has our own meanings.
    assert_eq!(under(&[("GENESIS_POOL_TYPE", "Exact")]), MXNET_NAIVE);
    assert_eq!(under(&[("GENESIS_POOL_TYPE", "Round"), (mxnet, "Naive")]), MXNET_ROUND);
    assert_eq!(under(&[("GENESIS_POOL_TYPE", "Naive"), (mxnet, "Naive")]), SIZES);
}

#[test]
fn mxnet_sizes_are_honoured_under_every_spelling() {
    let program = program("mxnet_sizes", "probe.c");
    let documented = ("MXNET_GPU_MEM_POOL_PAGE_SIZE", "8192");
    let in_code = ("MXNET_GPU_POOL_PAGE_SIZE", "16384");
    let naive = ("MXNET_GPU_MEM_POOL_TYPE", "Naive");
    let round = ("MXNET_GPU_MEM_POOL_TYPE", "Round");
    for pool_type in [naive, round] {
        assert_eq!(allocated(&program, &[pool_type, documented], &[1, 8193]), [8192, 16384]);
        assert_eq!(allocated(&program, &[pool_type, in_code], &[1, 16385]), [16384, 32768]);
        let ours = ("GENESIS_PAGE_SIZE", "512");
        assert_eq!(allocated(&program, &[pool_type, documented, in_code, ours], &[1]), [512]);
    }
    let (said, warnings) = probe(&program, &[naive, documented, in_code], &[1]);
    assert_eq!(said[1], "1: 8192");
    let both = "MXNET_GPU_MEM_POOL_PAGE_SIZE=8192 wins over MXNET_GPU_POOL_PAGE_SIZE=16384";
    assert_eq!(warnings, [format!("genesis: {both}")]);

    let cutoff = ("MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF", "20");
    let sizes = [1_000_000, 1_048_577, 2_097_153];
    assert_eq!(allocated(&program, &[round, cutoff], &sizes), [1 << 20, 2 << 20, 3 << 20]);
    let large = ("MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE", "1048576");
    assert_eq!(allocated(&program, &[naive, large], &sizes), [1_003_520, 2 << 20, 3 << 20]);
}

/// Whether this machine has a CUDA driver's library.
fn has_driver() -> bool {
    let paths = Command::new("ldconfig").arg("-p").output();
    paths.is_ok_and(|paths| text(&paths.stdout).contains("libcuda.so.1"))
}

#[test]
fn without_a_driver_auto_warns_once_and_takes_the_host() {
    let program = program("auto", "probe.c");
    let (said, warnings) = probe(&program, &[("GENESIS_BACKEND", "auto")], &[1, 1, 1]);
    if has_driver() {
        assert_ne!(said[0], "backend=host", "a driver that is there is never passed over");
        return;
    }
    assert_eq!(said[0], "backend=host");
    assert!(said[1..].iter().all(|line| !line.contains("status")), "{said:?}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("genesis: no CUDA driver ("), "{warnings:?}");
    assert!(warnings[0].contains("GENESIS_BACKEND=host"), "{warnings:?}");
}

#[test]
fn without_a_driver_cuda_is_an_error() {
    let program = program("cuda", "probe.c");
    let (said, errors) = probe(&program, &[("GENESIS_BACKEND", "cuda")], &[1, 4096]);
    if has_driver() && said[0] == "backend=cuda" {
        return;
    }
    assert_eq!(said[0], "backend=none");
    let status = format!("status={}", Status::DriverUnavailable as i32);
    assert!(said[1..].iter().all(|line| line.contains(&status)), "{said:?}");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("genesis: libcuda.so.1"), "{errors:?}");
}

/// What the environment asks for begins with the first allocation.
#[test]
fn what_is_annotated_before_the_first_allocation_is_in_the_profile() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_call.json");
    let mut command = command(program("first_call", "first_call.c"));
    run_silently(command.env("GENESIS_BACKEND", "sim").env("GENESIS_PROFILE", &path));
    let profile = json::read(&std::fs::read(&path).unwrap()).unwrap();
    let is_annotation = |event: &&Event| {
        matches!(event.action, Action::RangePush | Action::RangePop | Action::Mark)
    };
    let said = profile.history.events.iter().filter(is_annotation);
    let said: Vec<(Action, &str)> =
        said.map(|event| (event.action, profile.names[event.name as usize].as_str())).collect();
    let [setup, begin] = [(Action::RangePush, "setup"), (Action::Mark, "begin")];
    assert_eq!(said[..2], [setup, begin]);
    assert_eq!((said.len(), said[2].0, said[3]), (4, Action::RangePop, (Action::Mark, "end")));
}

/// What a process says of a pause that takes longer than a second: on a terminal, or not.
fn said_of_a_pause(variables: &[(&str, &str)], is_terminal: bool) -> String {
    let name = format!("progress-{}-{is_terminal}", variables.len());
    let mut command = command(program(&name, "progress.c"));
    command.env("GENESIS_BACKEND", "sim").envs(variables.iter().copied());
    if !is_terminal {
        return text(&run(&mut command).stderr).to_string();
    }
    let (mut main, mut side) = (0, 0);
    // SAFETY: both are written; the name and the settings may be null.
    let opened = unsafe {
        libc::openpty(&raw mut main, &raw mut side, ptr::null_mut(), ptr::null(), ptr::null())
    };
    assert_eq!(opened, 0);
    // SAFETY: both are new, and nobody else's.
    let (mut main, side) = unsafe { (File::from_raw_fd(main), OwnedFd::from_raw_fd(side)) };
    let mut child = command.stderr(side).spawn().unwrap();
    // Its copy of the terminal goes with it, and so the read ends.
    drop(command);
    let mut said = Vec::new();
    // The end of a terminal is an error.
    let _ = main.read_to_end(&mut said);
    assert!(child.wait().unwrap().success());
    text(&said).to_string()
}

#[test]
fn a_terminal_shows_how_far_a_long_pause_is() {
    let shown = [("GENESIS_PROGRESS", "on")];
    let said = said_of_a_pause(&shown, true);
    assert!(said.contains("\rgenesis: pausing: 64.00 MiB of 70.00 MiB, "), "{said:?}");
    assert!(said.ends_with("\r\x1b[K") && !said.contains("resuming"), "{said:?}");
    assert_eq!(said_of_a_pause(&[], true), "", "only if it is wanted");
    assert_eq!(said_of_a_pause(&shown, false), "", "only on a terminal");
}
