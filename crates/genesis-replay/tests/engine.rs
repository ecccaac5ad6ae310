//! The replay loop against a stub of the library, whose results can be computed by hand.

use std::path::{Path, PathBuf};
use std::process::Command;

use genesis_replay::gtr::{Action, Record, write_file};
use genesis_replay::job::Job;
use genesis_replay::library::Library;

/// Compiles the stub under a name of its own, because tests share a process and so its counters.
fn stub(name: &str) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}.so"));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub.c"))
        .status()
        .expect("a C compiler is installed");
    assert!(status.success());
    library
}

/// 100 rounds of two live blocks of 1,000 and 3,000 bytes, one used on a second stream; the
/// last round stays live. One request of 0 bytes, and one end of an iteration, each round.
fn trace(name: &str) -> PathBuf {
    let record = |action, stream, id, requested_bytes| Record {
        action,
        device: 0,
        stream,
        id,
        requested_bytes,
    };
    let mut records = Vec::new();
    for round in 0..100 {
        let id = round * 3;
        records.push(record(Action::Allocate, 0, id, 1000));
        records.push(record(Action::Allocate, 0, id + 1, 3000));
        records.push(record(Action::Allocate, 0, id + 2, 0));
        records.push(record(Action::RecordStream, 5, id, 0));
        records.push(record(Action::IterationEnd, 0, round, 0));
        if round < 99 {
            records.extend((0..3).map(|block| record(Action::Free, 0, id + block, 0)));
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.gtr.zst"));
    write_file(&path, &records).unwrap();
    path
}

fn job(name: &str) -> Job {
    Job {
        trace: trace(name),
        library: stub(name),
        settings: Vec::new(),
        limit_bytes: None,
        threads: 1,
        warm_passes: 2,
        sample_count: 10,
    }
}

#[test]
fn a_pass_makes_every_call_and_reads_the_peaks() {
    let job = job("single");
    let mut progress = Vec::new();
    let report = job.run(&mut |done, of| progress.push((done, of))).unwrap();
    assert_eq!(progress, [(0, 3), (1, 3), (2, 3), (3, 3)]);
    assert_eq!(
        (&*report.trace, &*report.strategy, &*report.backend, &*report.version),
        ("single", "Stub", "sim", "0.0.0-stub")
    );
    assert_eq!((report.calls, report.iterations, report.unknown_records), (697, 100, 0));
    assert_eq!((report.live_peak_bytes, report.live_peak_rounded_bytes), (4000, 4096));
    assert_eq!(report.cold.reserved_peak_bytes, 4096);
    assert!((report.reserved_over_live().unwrap() - 1.024).abs() < 1e-9);
    // The stub grows twice in its life, both times in the first round.
    let cold = report.cold;
    assert_eq!((cold.driver_calls, cold.driver_memory_calls, cold.driver_ns), (4, 2, 2000));
    assert_eq!(report.warm.len(), 2);
    for warm in &report.warm {
        assert_eq!((warm.driver_calls, warm.driver_memory_calls, warm.driver_ns), (0, 0, 0));
        assert_eq!(warm.reserved_peak_bytes, 4096);
    }
    assert_eq!(report.failures(), 0);
    // Ten equal pieces, and a cut at the live peak, after the second call.
    assert_eq!(report.samples.len(), 11);
    assert_eq!(report.samples[0].calls, 2);
    assert_eq!(report.fragmentation_ratio, Some(4096.0 / f64::from(1 << 20)));
    assert_eq!(report.samples.last().unwrap().calls, report.calls);
    for sample in &report.samples {
        assert_eq!((sample.live_bytes, sample.reserved_bytes), (4000, 4096));
    }
    assert!(report.loop_ns_per_call > 0.0 && report.warm_ns_per_call().unwrap() > 0.0);

    let stats = Library::open(&job.library).unwrap().stats(0).unwrap();
    assert_eq!((stats.allocations, stats.frees), (600, 600));
    assert_eq!(stats.retries, 0, "the stub found the replay's manners wanting");
}

#[test]
fn threads_replay_the_whole_trace_each() {
    let job = Job { threads: 3, ..job("threads") };
    let report = job.run(&mut |_, _| {}).unwrap();
    assert_eq!((report.threads, report.live_peak_bytes), (3, 12_000));
    assert!(report.samples.is_empty() && report.fragmentation_ratio.is_none());
    let stats = Library::open(&job.library).unwrap().stats(0).unwrap();
    assert_eq!((stats.allocations, stats.frees), (1800, 1800));
    assert_eq!(stats.retries, 0);
}

#[test]
fn requests_refused_are_counted_and_their_frees_skipped() {
    let job = Job { limit_bytes: Some(2048), ..job("limited") };
    let report = job.run(&mut |_, _| {}).unwrap();
    assert_eq!((report.cold.failures, report.failures()), (100, 300));
    assert_eq!(report.cold.reserved_peak_bytes, 1024);
    let stats = Library::open(&job.library).unwrap().stats(0).unwrap();
    assert_eq!((stats.allocations, stats.frees, stats.retries), (300, 300, 0));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("empty.c");
    std::fs::write(&source, "int nothing;\n").unwrap();
    let library = folder.join("libempty.so");
    let built =
        Command::new("cc").args(["-shared", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    let error = Library::open(&library).unwrap_err();
    assert!(error.message.contains("genesis_malloc"), "{error}");
    let error = genesis_replay::library::locate(Some(&folder.join("absent.so"))).unwrap_err();
    assert!(error.is_usage && error.message.contains("absent.so"), "{error}");
}
