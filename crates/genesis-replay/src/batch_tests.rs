//! Tests of the largest batch, with devices that hold what is live.

use std::rc::Rc;

use super::*;
use crate::curve::Basis;
use crate::program::Program;
use crate::record::Action;
use crate::trial::FailedCall;

const MIB: u64 = 1 << 20;

/// A program, and the site of each of its calls.
struct Recorded {
    batch: u64,
    program: Program,
    sites: Vec<Rc<str>>,
}

/// What a program requests at a batch: site and bytes, all live at the end.
type Requests = fn(u64) -> Vec<(&'static str, u64)>;

fn recorded(batch: u64, requests: Requests) -> Recorded {
    let requests = requests(batch);
    let record = |(id, (_, requested_bytes)): (usize, &(&str, u64))| Record {
        action: Action::Allocate,
        device: 0,
        stream: 0,
        id: id as u32,
        requested_bytes: *requested_bytes,
    };
    let records: Vec<Record> = requests.iter().enumerate().map(record).collect();
    let sites = requests.iter().map(|(site, _)| (*site).into()).collect();
    Recorded { batch, program: Program::prepare(&records).unwrap(), sites }
}

/// The largest batch of a device of `device_bytes` that holds `over` times what is live.
fn found(all: &[Recorded], device_bytes: u64, over: f64) -> Result<Batches> {
    found_where(all, device_bytes, over, |_| false)
}

/// The same where recordings fail whose batch `fails`.
fn found_where(
    all: &[Recorded],
    device_bytes: u64,
    over: f64,
    fails: fn(u64) -> bool,
) -> Result<Batches> {
    let recordings = all.iter().map(|one| Recording {
        batch: one.batch,
        name: "t",
        program: &one.program,
        sites: &one.sites,
        stacks: &one.sites,
    });
    let mut try_on = |subject: Subject<'_>, _, bytes| {
        let live_bytes = match subject {
            Subject::Recorded(batch) => {
                let one = all.iter().find(|one| one.batch == batch).unwrap();
                one.program.largest_device_peak_bytes
            }
            Subject::Predicted(records) => {
                Program::prepare(records).unwrap().largest_device_peak_bytes
            }
        };
        let reserved_peak_bytes = (live_bytes as f64 * over) as u64;
        let is_failing = matches!(subject, Subject::Recorded(batch) if fails(batch));
        let failed = is_failing || reserved_peak_bytes > bytes;
        let failed = failed.then_some(FailedCall { pass: 1, call: 0 });
        Ok(Trial { strategy: "S".to_owned(), failed, reserved_peak_bytes })
    };
    Batches::new(recordings.collect(), device_bytes, 1, &mut try_on)
}

/// Weights, activations that grow with the batch, and scores that grow with its square.
fn model(batch: u64) -> Vec<(&'static str, u64)> {
    let layer = [("weights", 10 * MIB), ("forward", batch * MIB), ("scores", batch * batch * 4096)];
    layer.repeat(4)
}

#[test]
fn each_site_grows_by_its_own_curve() {
    let all = [4, 8, 16].map(|batch| recorded(batch, model));
    let batches = found(&all, 4096 * MIB, 1.25).unwrap();
    assert_eq!(batches.held_out.len(), 6, "live and reserved of each");
    assert!(batches.held_out.iter().all(|one| one.error_ratio.abs() < 1e-6), "{batches:?}");
    let live = |batch: u64| model(batch).iter().map(|request| request.1).sum::<u64>();
    let largest = batches.largest[0].predicted.unwrap();
    let fits = |batch| live(batch) as f64 * 1.25 <= 4096.0 * MIB as f64;
    assert!(fits(largest) && !fits(largest + 1), "{largest}");
    let bound = batches.bound.unwrap();
    assert!(live(bound) <= 4096 * MIB && live(bound + 1) > 4096 * MIB, "{bound}");
    let terms = |site: &str| {
        let of = |one: &&SiteCurve| one.site.as_deref() == Some(site);
        batches.sites.iter().find(of).unwrap().terms.clone()
    };
    assert_eq!(terms("weights"), [(Basis::One, 40.0 * MIB as f64)]);
    assert_eq!(terms("forward"), [(Basis::Batch, 4.0 * MIB as f64)]);
    assert_eq!(terms("scores"), [(Basis::Square, 4.0 * 4096.0)]);
    assert_eq!(batches.live.confirmed_bytes, batches.live.live_bytes);
    let replayed = (batches.largest[0].replayed, batches.largest[0].failed);
    assert_eq!(replayed, (Some(16), None));
}

#[test]
fn the_error_of_what_is_held_out_is_kept_free() {
    // The largest has a third more than a line through the others says.
    let bent: Requests =
        |batch| vec![("data", 100 * MIB + batch * MIB * if batch > 8 { 4 } else { 1 })];
    let all = [4, 8, 16].map(|batch| recorded(batch, bent));
    let batches = found(&all, 1000 * MIB, 1.0).unwrap();
    let largest = &batches.largest[0];
    let error_ratio = largest.error_ratio.unwrap();
    assert!(error_ratio > 0.2, "{batches:?}");
    let reserved_bytes = largest.reserved_peak_bytes.unwrap() as f64;
    assert!(reserved_bytes * (1.0 + error_ratio) <= 1000.0 * MIB as f64);
    assert_eq!(batches.live.confirmed_bytes, 0);
    assert!(largest.predicted < batches.bound);
    let two = found(&all[..2], 1000 * MIB, 1.0).unwrap();
    assert_eq!((two.held_out.len(), two.largest[0].error_ratio), (0, None));
}

#[test]
fn what_was_replayed_counts_more_than_what_is_predicted() {
    let line: Requests = |batch| vec![("data", batch * MIB)];
    let all = [10, 60, 90].map(|batch| recorded(batch, line));
    let batches = found(&all, 100 * MIB, 1.5).unwrap();
    let Largest { predicted, replayed, failed, .. } = batches.largest[0];
    assert_eq!(
        (predicted, replayed, failed, batches.bound),
        (Some(66), Some(60), Some(90), Some(100))
    );
    let batches = found_where(&all, 1000 * MIB, 1.0, |batch| batch == 60).unwrap();
    let Largest { predicted, replayed, failed, .. } = batches.largest[0];
    assert_eq!((predicted, replayed, failed), (Some(90), Some(90), Some(60)), "one between failed");
    let batches = found_where(&all, 1000 * MIB, 1.0, |batch| batch >= 60).unwrap();
    assert_eq!(batches.largest[0].predicted, Some(59), "the prediction alone would promise 1000");
    let flat: Requests = |_| vec![("data", MIB)];
    let batches = found(&[10, 60].map(|batch| recorded(batch, flat)), 100 * MIB, 1.0).unwrap();
    assert_eq!((batches.largest[0].predicted, batches.bound), (None, None), "it does not grow");
}

#[test]
fn data_that_vary_are_predicted_by_the_sum_of_their_site() {
    // Lengths that differ from request to request, and a mean that grows.
    let varying: Requests = |batch| {
        let length = |number: u64| 200 + (number * 7919 + batch * 31) % 100;
        (0..64).map(|number| ("data", batch * length(number) * 1000)).collect()
    };
    let all = [8, 16, 32].map(|batch| recorded(batch, varying));
    let batches = found(&all, 4096 * MIB, 1.0).unwrap();
    assert!(batches.live.confirmed_bytes < batches.live.live_bytes / 2, "{batches:?}");
    assert!(batches.held_out.iter().all(|one| one.error_ratio.abs() < 0.03), "{batches:?}");
    let live = |batch: u64| varying(batch).iter().map(|request| request.1).sum::<u64>();
    let largest = batches.largest[0].predicted.unwrap();
    let room = 4096.0 * MIB as f64 / live(largest) as f64;
    assert!((0.98..1.06).contains(&room), "{room} at {largest}");
}

#[test]
fn sizes_that_change_places_are_a_part_of_their_sum() {
    // The sum of four is a line, and each of them goes up and down: some would fall for ever.
    let turning: Requests = |batch| {
        let parts = match batch {
            8 => [1, 2, 3, 4],
            16 => [3, 4, 1, 2],
            _ => [2, 1, 4, 3],
        };
        parts.map(|part| ("data", part * 10 * MIB + batch * MIB / 4)).to_vec()
    };
    let all = [8, 16, 32].map(|batch| recorded(batch, turning));
    let batches = found(&all, 4096 * MIB, 1.0).unwrap();
    let bound = batches.bound.unwrap();
    assert!((3995..=3996).contains(&bound), "{bound}: 100 MiB, and one for each of the batch");
    assert_eq!(batches.live.confirmed_bytes, 0);
}

#[test]
fn recordings_of_two_programs_are_refused() {
    let other: Requests = |batch| vec![("a", 4 * MIB), ("b", batch * MIB), ("elsewhere", 99 * MIB)];
    let error = found(&[recorded(8, other), recorded(16, model)], 1000 * MIB, 1.0).unwrap_err();
    assert!(error.message.contains("are not of one program: only "), "{error}");
    let one = [recorded(8, model), recorded(8, model)];
    assert!(found(&one, 1000 * MIB, 1.0).unwrap_err().message.contains("two batches"));
    assert!(found(&one[..1], 1000 * MIB, 1.0).unwrap_err().message.contains("two batches"));
}

#[test]
fn what_only_one_recording_has_keeps_its_size_and_is_told() {
    let more: Requests = |batch| {
        let extra = (batch == 16).then_some(("workspace", 8 * MIB));
        model(batch).into_iter().chain(extra).collect()
    };
    let all = [4, 8, 16].map(|batch| recorded(batch, more));
    let batches = found(&all, 4096 * MIB, 1.0).unwrap();
    assert_eq!(batches.live.unmatched_bytes, 8 * MIB);
    let workspace = batches.sites.iter().find(|site| site.unmatched_bytes > 0).unwrap();
    assert_eq!(workspace.site.as_deref(), Some("workspace"));
    assert_eq!(workspace.terms, [(Basis::One, 8.0 * MIB as f64)]);
}
