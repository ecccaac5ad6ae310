//! `genesis plan` from outside: whether programs fit, checked by replays that it did not make.
//!
//! These tests use the library built next to the program, on the simulated device.

#[path = "../../../tests/support/tier.rs"]
mod tier;

mod support;

use std::path::PathBuf;

use genesis::config::PoolType;
use genesis_profile::model::{self, Event, Frame, Site, SiteSummary};
use genesis_replay::batch::Batches;
use genesis_replay::forecast::{Forecast, PAGE_BYTES, Plan};
use genesis_replay::gtr::{self, Action, Record};
use genesis_replay::report::Report;
use support::{check_refused, genesis, run, scratch, stderr, stdout, trace};

const MIB: u64 = 1 << 20;
/// The recorded programs, the quickest to replay first.
const TRACES: [&str; 8] = [
    "alternating",
    "fsdp_streams",
    "diffusion_buckets",
    "gpt2_train",
    "bert_large_var",
    "llama1b_full_var",
    "opt13_recompute_var",
    "llama7b_lora_ckpt",
];
/// So many of them are replayed on every change; nightly all are.
const SHORT_TRACES: usize = 4;

fn planned(arguments: &[&str]) -> Plan {
    let output = genesis().arg("plan").args(arguments).arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// What `genesis replay` says of a device of a device of `device_bytes`.
fn replayed(trace: &str, strategy: &str, warm: &str, device_bytes: u64) -> Report {
    let memory = device_bytes.to_string();
    let arguments = ["replay", trace, "--json", "--strategy", strategy, "--warm", warm];
    let output = genesis().args(arguments).args(["--device-memory", &memory]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Holds what is said of `trace` against replays on both sides of it.
fn check(trace: &str, forecast: &Forecast, warm: &str, plan: &Plan) {
    let Forecast { strategy, smallest_device_bytes, failing_device_bytes, .. } = forecast;
    let smallest_bytes = smallest_device_bytes.unwrap();
    let what = format!("{trace} under {strategy}: {smallest_bytes}");
    assert_eq!(smallest_bytes % PAGE_BYTES, 0, "{what}");
    assert_eq!(*failing_device_bytes, Some(smallest_bytes - PAGE_BYTES), "{what}");
    assert!(smallest_bytes >= plan.lower_bound_bytes, "{what}");
    let failures = |bytes| replayed(trace, strategy, warm, bytes).failures();
    let enough = replayed(trace, strategy, warm, smallest_bytes);
    assert_eq!(enough.failures(), 0, "{what}");
    assert_eq!(enough.live_peak_rounded_bytes, plan.lower_bound_bytes, "{what}");
    assert!(failures(smallest_bytes - PAGE_BYTES) > 0, "{what}");
    assert_eq!(forecast.fits, failures(plan.device_bytes) == 0, "{what}");
    let margin_bytes = plan.device_bytes as i64 - smallest_bytes as i64;
    assert_eq!(forecast.margin_bytes, Some(margin_bytes), "{what}");
}

#[test]
fn verdicts_agree_with_replays_on_both_sides() {
    let all: Vec<&str> = PoolType::ALL.iter().map(|pool_type| pool_type.name()).collect();
    let some = (&TRACES[..SHORT_TRACES], "0", "Caching,Elastic".to_owned());
    let (traces, warm, strategies) = tier::some_or_all(some, (&TRACES, "2", all.join(",")));
    for &name in traces {
        let trace = trace(name);
        // Where the larger programs fail, and the smaller ones fit.
        let device_bytes = 8192 * MIB;
        let arguments = [&trace, "--device-memory=8GiB", "--warm", warm, "--strategy", &strategies];
        let plan = planned(&arguments);
        assert_eq!((&*plan.trace, plan.device_bytes), (name, device_bytes));
        assert_eq!(plan.strategies.len(), strategies.split(',').count());
        plan.strategies.iter().for_each(|forecast| check(&trace, forecast, warm, &plan));
    }
}

#[test]
fn a_plan_says_where_memory_ends_and_who_holds_it() {
    let trace = trace("fsdp_streams");
    let arguments = [&trace, "--device-memory=3GiB", "--strategy=elastic", "--warm=0"];
    let plan = planned(&arguments);
    let failure = plan.strategies[0].failure.as_ref().unwrap();
    assert_eq!((failure.pass, failure.device), (1, 0));
    assert!(failure.live_bytes + failure.requested_bytes > 3000 * MIB, "{failure:?}");
    let held: u64 = failure.holders.iter().map(|holder| holder.live_bytes).sum();
    assert_eq!(held + failure.other_bytes, failure.live_bytes);
    let picture = scratch("plan.svg");
    let drawn = format!("--picture={}", picture.display());
    let output = genesis().arg("plan").args(arguments).arg(&drawn).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "it does not fit");
    let text = stdout(&output);
    let line =
        format!("Elastic fails in pass 1, iteration {} at call ", failure.iteration.unwrap());
    assert!(text.contains(&line) && text.contains("no allocator can do with less than"), "{text}");
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.contains("fsdp_streams") && svg.contains("Elastic"), "{svg}");
    assert!(svg.contains("does not fit; smallest 3.9"), "{svg}");
}

#[test]
fn a_profile_is_planned_like_its_trace() {
    let kept = scratch("plan-profile.json");
    let written = genesis().args(["timeline", &trace("alternating"), "-o"]).arg(&kept).output();
    assert!(written.unwrap().status.success());
    let how = ["--device-memory=1GiB", "--strategy=Elastic", "--warm=0"];
    let of = |input: &str| planned(&[&[input], &how[..]].concat());
    let (profile, trace) = (of(&kept.to_string_lossy()), of(&trace("alternating")));
    assert_eq!(profile.strategies, trace.strategies);
    assert_eq!(profile.lower_bound_bytes, trace.lower_bound_bytes);
    assert_eq!((&*profile.trace, profile.iterations), ("plan-profile", trace.iterations));
}

fn allocate(id: u32, requested_bytes: u64) -> Record {
    Record { action: Action::Allocate, device: 0, stream: 0, id, requested_bytes }
}

fn written(name: &str, records: &[Record]) -> String {
    let path: PathBuf = scratch(name);
    gtr::write_file(&path, records).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn what_never_fits_has_no_smallest_device() {
    let endless = written("endless.gtr", &[allocate(0, MIB), allocate(1, 1 << 60)]);
    let plan = planned(&[&endless, "--device-memory=80GiB", "--strategy=Caching,Elastic"]);
    for forecast in &plan.strategies {
        assert!(!forecast.fits && forecast.smallest_device_bytes.is_none(), "{forecast:?}");
        assert_eq!(forecast.failure.as_ref().unwrap().requested_bytes, 1 << 60);
    }
    let text = stdout(&run(&["plan", &endless, "--device-memory=80GiB", "--strategy=Caching"]));
    assert!(text.contains(" none ") && text.contains("1.00 MiB live on device 0"), "{text}");
}

#[test]
fn what_cannot_be_planned_is_one_line_and_status_2() {
    let alternating = trace("alternating");
    let plan = |arguments: &[&str]| genesis().arg("plan").args(arguments).output().unwrap();
    check_refused(&plan(&["/no/such.gtr", "--device-memory=1GiB"]), 2, "/no/such.gtr: ");
    check_refused(&plan(&[&alternating]), 2, "--device-memory=BYTES or --tiers");
    for size in ["0", "1MiB", "lots", "129TiB"] {
        let memory = format!("--device-memory={size}");
        check_refused(&plan(&[&alternating, &memory]), 2, "not a size from 2MiB to 128TiB");
    }
    let memory = "--device-memory=1GiB";
    check_refused(&plan(&[&alternating, memory, "--strategy=X"]), 2, "=X: not a pool type");
    check_refused(&plan(&[&alternating, memory, "--backend=host"]), 2, "only devices of sim");
    check_refused(&plan(&[&alternating, memory, "--limit=1GiB"]), 2, "--limit goes with --tiers");
    let empty = written("empty.gtr", &[]);
    check_refused(&plan(&[&empty, memory]), 2, "there are no requests in it");
    let batch = format!("--batch=8={alternating}");
    check_refused(&plan(&[&batch, memory]), 2, "a recording of each of two batches");
    check_refused(&plan(&[&batch, &batch, memory]), 2, "a recording of each of two batches");
    let unmarked = format!("--batch={alternating}");
    check_refused(&plan(&[&batch, &unmarked, memory]), 2, "no mark batch=N in it");
    let other = format!("--batch=16={}", trace("gpt2_train"));
    check_refused(&plan(&[&batch, &other, memory]), 2, "are not of one program: only ");
    for wrong in [
        &[&*alternating, &*batch, memory][..],
        &[&alternating, "--tiers", "--json"],
        &[&batch, "--tiers"],
        &["--batch=0=a.gtr", memory],
        &[memory],
    ] {
        let output = plan(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", stderr(&output));
    }
}

/// Weights of 512 MiB, and 40 blocks that grow with the batch, in three iterations.
fn training(batch: u64) -> String {
    let mut records = vec![allocate(0, 512 * MIB)];
    for iteration in 0..3 {
        let blocks = iteration * 40 + 1..iteration * 40 + 41;
        records.extend(blocks.clone().map(|id| allocate(id, batch * MIB / 4)));
        let free = |id| Record { action: Action::Free, ..allocate(id, 0) };
        records.extend(blocks.rev().map(free));
        records.push(Record { action: Action::IterationEnd, ..allocate(iteration, 0) });
    }
    written(&format!("batch-{batch}.gtr"), &records)
}

#[test]
fn the_largest_batch_is_predicted_and_fits() {
    let batch = |size: u64| format!("--batch={size}={}", training(size));
    let how = ["--device-memory=2GiB", "--strategy=Elastic,Caching"];
    let picture = scratch("batches.svg");
    let drawn = format!("--picture={}", picture.display());
    let two = [batch(8), batch(16)];
    let output = genesis().arg("plan").args(&two).args(how).arg(drawn).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success() && text.contains("the error is not known"), "{text}");
    assert!(text.contains("lies beyond all recordings"), "{text}");
    assert!(text.contains("live peak: 512.0 MiB, +10.0 MiB × batch"), "{text}");
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.contains("fits up to 153") && svg.contains("largest batch 1"), "{svg}");

    let planned = |batches: &[String]| -> Batches {
        let output = genesis().arg("plan").args(batches).args(how).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    let batches = planned(&[batch(8), batch(16), batch(32)]);
    let errors: Vec<_> = batches.held_out.iter().map(|one| (one.batch, one.error_ratio)).collect();
    assert_eq!(errors.len(), 3 * 3, "live, and two strategies");
    assert!(errors.iter().all(|error| error.1.abs() < 1e-3), "the program is a line: {errors:?}");
    assert_eq!(batches.bound, Some(153));
    let failures =
        |batch, strategy| replayed(&training(batch), strategy, "2", 2048 * MIB).failures();
    for largest in &batches.largest {
        let predicted = largest.predicted.unwrap();
        assert_eq!((largest.replayed, largest.failed), (Some(32), None));
        assert_eq!(failures(predicted, &largest.strategy), 0, "{largest:?}");
        // Held-out errors of rounding are kept free: a batch or two.
        let tight = (1..=3).any(|more| failures(predicted + more, &largest.strategy) > 0);
        assert!(tight, "{largest:?}");
    }
    // The largest is recorded, and fails.
    for largest in planned(&[batch(16), batch(160)]).largest {
        assert_eq!((largest.replayed, largest.failed), (Some(16), Some(160)));
        assert!(largest.predicted.unwrap() < 160, "{largest:?}");
    }
}

/// Weights, and three iterations over the samples one by one: each takes scratch memory, of which
/// its result is kept to the end of the iteration.
fn sample_by_sample(batch: u64) -> String {
    let mut records = vec![allocate(0, 256 * MIB)];
    let free = |id| Record { action: Action::Free, ..allocate(id, 0) };
    let mut next = 0;
    for iteration in 0..3 {
        let first = next + 1;
        records.push(allocate(first, batch * MIB));
        let results: Vec<u32> = (0..batch as u32).map(|sample| first + 1 + 2 * sample).collect();
        for &result in &results {
            records.extend([allocate(result + 1, 32 * MIB), allocate(result, 3 * MIB)]);
            records.push(free(result + 1));
        }
        records.extend(results.into_iter().chain([first]).map(free));
        next = first + 2 * batch as u32;
        records.push(Record { action: Action::IterationEnd, ..allocate(iteration, 0) });
    }
    written(&format!("samples-{batch}.gtr"), &records)
}

#[test]
fn requests_that_grow_in_number_are_predicted() {
    let recorded = [8, 16, 32, 80].map(|size| format!("--batch={size}={}", sample_by_sample(size)));
    let how = ["--device-memory=2GiB", "--strategy=Elastic", "--warm=0", "--json"];
    let output = genesis().arg("plan").args(recorded).args(how).output().unwrap();
    let batches: Batches =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!(batches.held_out.len(), 2 * 4, "live, and one strategy");
    for held_out in &batches.held_out {
        assert!(held_out.error_ratio.abs() < 1e-3, "{held_out:?}");
    }
    assert_eq!(batches.live.confirmed_bytes, batches.live.live_bytes, "{:?}", batches.live);
    let bound = batches.bound.unwrap();
    assert_eq!(bound, (2048 - 256 - 32) / 4, "1 MiB and 3 MiB of each sample, and scratch memory");
    let predicted = batches.largest[0].predicted.unwrap();
    let failures =
        |batch| replayed(&sample_by_sample(batch), "Elastic", "0", 2048 * MIB).failures();
    assert!(failures(predicted) == 0 && predicted > 80, "{predicted}");
    assert!((1..=4).any(|more| failures(predicted + more) > 0), "{predicted}");
}

#[test]
fn profiles_say_their_batch_and_their_call_sites() {
    // Profiles of the same program, with sites and marks written into them.
    let profile = |batch: u64| {
        let path = scratch(&format!("batch-{batch}.json"));
        let written = genesis().args(["timeline", &training(batch), "-o"]).arg(&path).output();
        assert!(written.unwrap().status.success());
        let mut profile = genesis_profile::json::read(&std::fs::read(&path).unwrap()).unwrap();
        let site = |function: &str| Site {
            frames: vec![Frame { function: function.into(), file: "train.py".into(), line: 7 }],
        };
        profile.sites = vec![Site::default(), site("weights"), site("forward")];
        profile.call_sites = vec![SiteSummary { site: 1, ..SiteSummary::default() }];
        for event in &mut profile.history.events {
            event.site = if event.requested_bytes == 512 * MIB { 1 } else { 2 };
        }
        profile.names.push(format!("batch={batch}"));
        let mark = Event {
            action: model::Action::Mark,
            name: profile.names.len() as u32 - 1,
            ..profile.history.events[0]
        };
        profile.history.events.insert(0, mark);
        let mut file = std::fs::File::create(&path).unwrap();
        genesis_profile::json::write(&profile, &mut file).unwrap();
        format!("--batch={}", path.display())
    };
    let all = [profile(8), profile(16), profile(32)];
    let how = ["--device-memory=2GiB", "--strategy=Elastic", "--warm=0"];
    let text = stdout(&genesis().arg("plan").args(&all).args(how).output().unwrap());
    assert!(text.contains("from recordings of 8, 16, 32"), "{text}");
    assert!(text.contains("train.py:7 weights\n              512.0 MiB\n"), "{text}");
    assert!(text.contains("train.py:7 forward\n              10.0 MiB × batch\n"), "{text}");
    assert!(text.contains("100.0 % of the live bytes lie on curves"), "{text}");
}
