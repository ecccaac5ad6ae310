//! The command line from outside: what it prints, where, and with which exit status.
//!
//! These tests use the library built next to the program, on the simulated device.

mod support;

use std::path::Path;
use std::process::Stdio;

use genesis_replay::gtr::{self, Action};
use genesis_replay::report::Report;
use support::{built, check_refused, genesis, library, run, scratch, stderr, stdout, trace};

/// The most that diffusion_buckets has live at once, as requested.
const DIFFUSION_PEAK_BYTES: u64 = 3_682_468_948;

#[test]
fn a_replay_reports_as_a_table_and_as_json() {
    let table = run(&["replay", &trace("fsdp_streams"), "--strategy", "Caching"]);
    assert!(table.status.success(), "{}", stderr(&table));
    let text = stdout(&table);
    assert!(text.starts_with("fsdp_streams under Caching on backend sim: 24,177 calls"), "{text}");
    assert!(text.contains("\ncold ") && text.contains("\nwarm 3 "), "{text}");
    assert!(text.contains("; driver time by the prices of h100\n"), "{text}");
    assert_eq!(stderr(&table), "");

    let json = run(&[
        "replay",
        &trace("fsdp_streams"),
        "--strategy=naive",
        "--json",
        "--warm=1",
        "--samples=50",
    ]);
    let report: Report = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&*report.strategy, report.calls, report.warm.len()), ("Naive", 24_177, 1));
    assert_eq!((report.failures(), report.unknown_records), (0, 0));
    assert_eq!(report.driver_prices.as_deref(), Some("h100"));
    assert!((50..=51).contains(&report.samples.len()));
    // Straight to the driver and back: nothing is held beyond what is live.
    let ratio = report.reserved_over_live().unwrap();
    assert!((1.0..1.01).contains(&ratio), "{ratio}");
}

#[test]
fn a_cache_asks_the_driver_for_nothing_once_warm() {
    let json = run(&["replay", &trace("gpt2_train"), "--strategy=Caching", "--json"]);
    let report: Report = serde_json::from_slice(&json.stdout).unwrap();
    assert!(report.cold.driver_memory_calls > 0);
    assert_eq!(report.warm.last().unwrap().driver_memory_calls, 0);
    let ratio = report.reserved_over_live().unwrap();
    assert!((1.0..1.2).contains(&ratio), "{ratio}");
}

#[test]
fn requests_beyond_the_limit_fail_and_are_reported() {
    let output = run(&["replay", &trace("alternating"), "--strategy=Caching", "--limit=256MB"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("requests failed: out of memory"), "{text}");
    assert_eq!(stderr(&output), "");
    let fits = run(&["replay", &trace("alternating"), "--device-memory=4GiB", "--threads=2"]);
    assert!(fits.status.success(), "{}{}", stdout(&fits), stderr(&fits));
}

#[test]
fn a_comparison_has_every_strategy_and_draws_it() {
    let picture = scratch("compare.svg");
    let _ = std::fs::remove_file(&picture);
    let output = genesis()
        .args(["compare", &trace("alternating"), &trace("fsdp_streams"), "--warm=1", "--output"])
        .arg(&picture)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (text, svg) = (stdout(&output), std::fs::read_to_string(&picture).unwrap());
    for pool_type in genesis::config::PoolType::ALL {
        let rows = text.lines().filter(|line| line.starts_with(pool_type.name())).count();
        assert_eq!(rows, 2, "{text}");
        assert_eq!(svg.matches(pool_type.name()).count(), 2, "the key names every strategy");
    }
    for title in ["alternating", "fsdp_streams", "GiB", "live"] {
        assert!(svg.contains(title), "the picture lacks {title:?}");
    }
    let output = run(&["compare", &trace("alternating"), "--strategies=exact,Round", "--json"]);
    let reports: Vec<Report> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = reports.iter().map(|report| &*report.strategy).collect();
    assert_eq!(names, ["Exact", "Round"]);
}

#[test]
fn driver_time_is_by_the_prices_chosen() {
    let compared = |prices: &str| {
        let trace = trace("alternating");
        let arguments = ["compare", &trace, "--strategies=Naive,Elastic", "--warm=0"];
        let mut command = genesis();
        command.args(arguments).env("GENESIS_SIM_PRICES", prices);
        let text = stdout(&command.output().unwrap());
        assert!(text.contains(&format!("; driver time by the prices of {prices}\n")), "{text}");
        let reports = command.arg("--json").output().unwrap();
        let reports: Vec<Report> = serde_json::from_slice(&reports.stdout).unwrap();
        assert!(reports.iter().all(|report| report.driver_prices.as_deref() == Some(prices)));
        reports.iter().map(|report| report.cold.driver_ns).collect::<Vec<_>>()
    };
    let (h100, b300) = (compared("h100"), compared("b300"));
    // Plain allocations cost the same in both, virtual memory does not.
    assert_eq!(h100[0], b300[0]);
    assert_ne!(h100[1], b300[1]);
    let mut unknown = genesis();
    unknown.args(["replay", &trace("alternating")]).env("GENESIS_SIM_PRICES", "h101");
    check_refused(
        &unknown.output().unwrap(),
        2,
        "GENESIS_SIM_PRICES=h101: not a price list; valid: h100, a100, rtxpro6000, vattention, \
         b300",
    );
}

#[test]
fn what_cannot_be_done_is_one_line_and_status_2() {
    let alternating = trace("alternating");
    check_refused(&run(&["replay", "/no/such.gtr"]), 2, "/no/such.gtr: ");
    check_refused(
        &run(&["replay", &alternating, "--strategy=Cashing"]),
        2,
        "GENESIS_POOL_TYPE=Cashing: not a pool type; valid: Naive, Round, Exact, Caching",
    );
    check_refused(&run(&["compare", &alternating, "--strategies=Caching,X"]), 2, "=X: not a pool");
    check_refused(&run(&["replay", &alternating, "--library=/no.so"]), 2, "/no.so: there is no");
    check_refused(&run(&["replay", &alternating, "--backend=tpu"]), 2, "GENESIS_BACKEND=tpu");
    check_refused(
        &run(&["compare", &alternating, "--threads=2", "--output=/tmp/no.svg"]),
        2,
        "one thread only",
    );
    let damaged = scratch("damaged.gtr");
    std::fs::write(&damaged, b"GTR1\n123").unwrap();
    let damaged = damaged.to_string_lossy();
    check_refused(&run(&["replay", &damaged]), 2, "damaged.gtr: truncated at byte 5: 3 of");
    assert_eq!(run(&["replay", &alternating, "--limit=lots"]).status.code(), Some(2));
    assert_eq!(run(&["reply"]).status.code(), Some(2));
}

/// On 1.008 times the live peak the first run is refused memory although as much is free, in pieces. Its plan
/// asks for finer extents: with them the second completes, and the third takes what that one left.
#[test]
fn a_run_that_was_refused_memory_in_pieces_has_the_next_one_fit() {
    let plan = scratch("in_pieces.plan");
    let _ = std::fs::remove_file(&plan);
    let replay = || {
        let diffusion = trace("diffusion_buckets");
        let mut command = genesis();
        command.args(["replay", &diffusion, "--warm=1", "--json", "--strategy=Elastic"]);
        command.arg(format!("--device-memory={}", DIFFUSION_PEAK_BYTES / 1000 * 1008));
        let output = command.env("GENESIS_PLAN", &plan).output().unwrap();
        assert_eq!(stderr(&output), "");
        serde_json::from_slice::<Report>(&output.stdout).unwrap()
    };
    let first = replay();
    assert_eq!(first.live_peak_bytes, DIFFUSION_PEAK_BYTES);
    assert!(first.failures() > 0);
    let second = replay();
    assert_eq!(second.failures(), 0);
    let third = replay();
    let calls = third.cold.driver_memory_calls + third.warm[0].driver_memory_calls;
    assert_eq!((third.failures(), calls), (0, 0));
}

/// As a process leaves it that was killed while it wrote.
#[test]
fn a_torn_trace_is_replayed_to_where_it_is_whole() {
    let whole = std::fs::read(trace("alternating")).unwrap();
    let torn = scratch("torn.gtr.zst");
    std::fs::write(&torn, [&whole[..], &whole[..100]].concat()).unwrap();
    let output = run(&["replay", &torn.to_string_lossy()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("12,000 calls"), "{output:?}");
    assert!(text.contains("to where the trace is damaged only: "), "{text}");
}

#[test]
fn a_child_that_dies_is_reported() {
    let source = "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { abort(); }\n";
    let library = built("dies", source);
    check_refused(
        &run(&["replay", &trace("alternating"), &library]),
        1,
        "own process failed: signal: 6",
    );
}

#[test]
fn a_comparison_of_which_nothing_succeeds_says_why() {
    let library = built("nothing", "int nothing;\n");
    let picture = format!("--output={}", scratch("none.svg").display());
    let output = run(&["compare", &trace("alternating"), &library, &picture]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("failed: alternating under Naive: ") && text.contains("genesis_malloc"));
    assert_eq!(stderr(&output), "");
}

#[test]
fn options_are_those_of_the_table_with_the_values_in_force() {
    let output = genesis().arg("options").env("GENESIS_SIM_DEVICES", "3").output().unwrap();
    assert!(output.status.success());
    let text = stdout(&output);
    for option in genesis::config::OPTIONS {
        assert!(text.contains(option.name) && text.contains(option.summary), "{}", option.name);
    }
    assert!(text.contains("GENESIS_SIM_DEVICES=3"), "{text}");
    assert_eq!(stdout(&run(&["options", "--markdown"])), genesis::config::markdown_page());
    let wrong = genesis().arg("options").env("GENESIS_SIM_DEVICES", "x").output().unwrap();
    check_refused(&wrong, 2, "GENESIS_SIM_DEVICES=x");
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_simulated_device() {
    let output = genesis().arg("doctor").env("GENESIS_BACKEND", "sim").output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    for line in
        ["ok     library ", "ok     backend   sim: ", "ok     strategy ", "ok     device    0: "]
    {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
    assert!(text.ends_with("Nothing is wrong.\n") && !text.contains("WRONG"), "{text}");
}

#[test]
fn the_doctor_says_what_the_driver_charges_and_what_follows() {
    for (prices, line) in [
        ("h100", "set access 77.0 µs, unmap 36.0 µs, release 36.0 µs; extents of 8.00 MiB to"),
        (
            "b300",
            "; extents of 2.00 MiB to 8.00 MiB, 1/4 of the size on an H100, because extents are",
        ),
        ("a100", "; extents of 16.00 MiB to 64.00 MiB, 2 times as large as on an H100"),
    ] {
        let mut command = genesis();
        command.arg("doctor").env("GENESIS_BACKEND", "sim").env("GENESIS_SIM_PRICES", prices);
        let text = stdout(&command.env("GENESIS_SIM_DEVICES", "2").output().unwrap());
        for device in ["ok     prices    0: create ", "ok     prices    1: create "] {
            let found = text.lines().find(|found| found.starts_with(device));
            assert!(found.is_some_and(|found| found.contains(line)), "{line:?}:\n{text}");
        }
    }
    let mut command = genesis();
    command.arg("doctor").env("GENESIS_BACKEND", "sim").env("GENESIS_POOL_TYPE", "Caching");
    let text = stdout(&command.output().unwrap());
    assert!(!text.contains("ok     prices"), "only Elastic maps memory:\n{text}");
}

#[test]
fn the_doctor_says_what_pausing_takes() {
    let line = |memory: &str| {
        let mut command = genesis();
        command.arg("doctor").env("GENESIS_BACKEND", "sim");
        let text = stdout(&command.env("GENESIS_SIM_MEMORY", memory).output().unwrap());
        let found = text.lines().find(|line| line.starts_with("ok     pausing   0: "));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let measured = line("1GiB");
    let (pause, resume) = measured.split_once("; resuming takes ").expect(&measured);
    // By the prices of the simulated bus. New memory is locked more slowly than it is copied.
    assert_eq!(resume, "28 ms (35.5 GiB/s)", "{measured}");
    let (first, again) = pause.split_once(", into memory kept from the last pause ").unwrap();
    assert!(first.ends_with("a GiB takes 115 ms (8.7 GiB/s)"), "{measured}");
    assert_eq!(again, resume, "{measured}");
    assert!(line("128MiB").ends_with("not measured, memory is short"));
}

#[test]
fn the_doctor_names_what_is_wrong() {
    let doctor = |variables: &[(&str, &str)]| {
        let output = genesis().arg("doctor").envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        stdout(&output)
    };
    let text = doctor(&[("GENESIS_BACKEND", "sim"), ("GENESIS_POOL_TIPE", "Naive")]);
    assert!(text.contains("WRONG  settings  GENESIS_POOL_TIPE is not an option"), "{text}");
    assert!(text.contains("ok     device    0: ") && text.ends_with("\n1 thing is wrong.\n"));
    let text = doctor(&[("GENESIS_BACKEND", "sim"), ("GENESIS_POOL_TYPE", "Cashing")]);
    assert!(text.contains("WRONG  settings  GENESIS_POOL_TYPE=Cashing"), "{text}");
    let text = doctor(&[("GENESIS_BACKEND", "sim"), ("GENESIS_LIBRARY", "/no/libgenesis.so")]);
    assert!(text.contains("WRONG  library   /no/libgenesis.so: there is no such"), "{text}");
    if !Path::new("/dev/nvidiactl").exists() {
        let text = doctor(&[("GENESIS_BACKEND", "cuda")]);
        assert!(text.contains("WRONG  driver "), "{text}");
        assert!(text.contains("GENESIS_BACKEND=host"), "{text}");
    }
}

#[test]
fn the_doctor_looks_at_the_library_it_is_told() {
    let own = library();
    let doctor = |argument: &str| {
        let mut command = genesis();
        // The argument counts more than the variable.
        command.args(["doctor", argument]).env("GENESIS_BACKEND", "sim");
        command.env("GENESIS_LIBRARY", "/no/libgenesis.so").output().unwrap()
    };
    let output = doctor(&format!("--library={}", own.display()));
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    let line = format!("ok     library   {} {}\n", own.display(), env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&line) && text.contains("ok     device    0: "), "{text}");

    let output = doctor(&built("no_genesis", "int nothing;\n"));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("WRONG  library   ") && text.contains("libno_genesis.so"), "{text}");
    assert!(!text.contains("device    0"), "what depends on the library is left out:\n{text}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child =
        genesis().args(["options"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_trace_becomes_a_log_of_rmms_and_the_log_is_the_same_program() {
    let [log, again] = [scratch("convert.csv"), scratch("convert.gtr.zst")];
    let (log, again) = (log.to_str().unwrap(), again.to_str().unwrap());
    let converted = run(&["convert", &trace("fsdp_streams"), log]);
    assert!(converted.status.success(), "{}", stderr(&converted));
    assert!(stdout(&converted).starts_with(&format!("{log}: ")), "{}", stdout(&converted));
    assert!(run(&["convert", log, again]).status.success());
    let report = |trace: &str| -> Report {
        let json = run(&["replay", trace, "--strategy=Caching", "--json", "--warm=0"]);
        serde_json::from_slice(&json.stdout).unwrap()
    };
    let (original, from_log) = (report(&trace("fsdp_streams")), report(log));
    assert_eq!(from_log.live_peak_bytes, original.live_peak_bytes);
    assert_eq!(from_log.failures(), 0);
    assert_eq!(report(again).calls, from_log.calls);
    let refused = run(&["convert", log, "run.txt"]);
    check_refused(&refused, 2, "run.txt: what to write ends in .csv, .gtr or .gtr.zst");
}

#[test]
fn a_log_is_of_one_device_of_the_trace() {
    let [both, log] = [scratch("both.gtr"), scratch("second.csv")];
    let record = |action, device, id, requested_bytes| gtr::Record {
        action,
        device,
        stream: 0,
        id,
        requested_bytes,
    };
    let records = [
        record(Action::Allocate, 0, 0, 1000),
        record(Action::Allocate, 1, 1, 2000),
        record(Action::Allocate, 1, 2, 3000),
        record(Action::Free, 1, 1, 0),
    ];
    gtr::write_file(&both, &records).unwrap();
    let (both, log) = (both.to_str().unwrap(), log.to_str().unwrap());
    check_refused(&run(&["convert", both, log]), 2, "the trace of [0, 1]: choose one");
    let converted = run(&["convert", both, log, "--device=1"]);
    assert!(converted.status.success(), "{}", stderr(&converted));
    assert_eq!(stdout(&converted), format!("{log}: 2 requests\n"));
    let written = gtr::read_file(Path::new(log)).unwrap();
    let sizes: Vec<_> = written.iter().map(|one| (one.action, one.requested_bytes)).collect();
    let expected = [(Action::Allocate, 2000), (Action::Allocate, 3000), (Action::Free, 0)];
    assert_eq!(sizes, expected);
    assert_eq!(run(&["convert", both, log, "--device=256"]).status.code(), Some(2));
}
