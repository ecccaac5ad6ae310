//! The page shows what the report has, and what is missing from it.

use super::*;
use crate::report::{Failed, Outcome};

fn nothing<T>(note: &str) -> Section<T> {
    Section { notes: vec![note.to_owned()], ..Section::default() }
}

fn empty_report() -> Report {
    Report {
        machine: Machine { gpu: "A GPU".to_owned(), ..Machine::default() },
        facts: Section { made: "another GPU".to_owned(), seconds: 12.3, ..nothing("no facts") },
        static_runtime: nothing("no compiler"),
        training: nothing("no PyTorch"),
        ..Report::default()
    }
}

#[test]
fn what_is_missing_has_its_reason() {
    let page = render(&empty_report());
    for text in ["A GPU", "12 s", "*no compiler*", "*no PyTorch*", "*no facts*", "*another GPU.*"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    assert!(!page.contains("simulated driver"));
}

#[test]
fn simulation_is_said_first() {
    let mut report = empty_report();
    report.machine.simulated = true;
    report.machine.prices = Some("b300".to_owned());
    let page = render(&report);
    assert!(page.contains("prices of b300"), "{page}");
    let said = page.find("simulated driver").unwrap();
    assert!(said < page.find("## ").unwrap());
}

#[test]
fn defects_are_found_and_shown() {
    let mut report = empty_report();
    assert!(!report.has_defects());
    let failed = Failed { name: "cuda::two".into(), message: "left: 801".into() };
    let suite = Suite { passed: vec!["one".into()], failed: vec![failed] };
    report.conformance.result = Some(suite);
    assert!(report.has_defects());
    let mut unfinished = empty_report();
    unfinished.heap.result = Some(Vec::new());
    assert!(unfinished.has_defects());
    let page = render(&report);
    assert!(
        page.contains("1 of 2 cases") && page.contains("**failed**: `cuda::two`: left: 801"),
        "{page}"
    );
}

#[test]
fn checks_stand_beside_each_other() {
    use crate::report::Checked;
    let mode = |title: &str, passed: &[bool]| Checked {
        title: title.into(),
        checks: (0..)
            .zip(passed)
            .map(|(number, passed)| Check {
                name: format!("check {number}"),
                passed: *passed,
                detail: "seen".into(),
            })
            .collect(),
        error: (passed.len() < 2).then(|| "ended with 1".into()),
    };
    let mut report = empty_report();
    report.pytorch_checks.result = Some(vec![mode("own", &[true, true]), mode("ours", &[false])]);
    assert!(report.has_defects());
    let page = render(&report);
    for text in [
        "| check | own | ours |",
        "| check 0 | seen | **failed**: seen |",
        "| check 1 | seen | – |",
        "*ours: ended with 1*",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
}

#[test]
fn verdicts_say_what_they_mean() {
    use crate::assumptions::{Finding, Table, Verdict};
    let mut report = empty_report();
    let table = Table { heads: vec!["call".into(), "waits".into()], rows: vec![vec!["a".into()]] };
    let finding = |verdict, is_defect| Finding {
        name: "name".into(),
        statement: "It waits".into(),
        verdict,
        seen: "it did not".into(),
        meaning: "wait oneself".into(),
        is_defect,
        table: Some(table.clone()),
    };
    report.assumptions.result = Some(vec![finding(Verdict::DoesNotHold, false)]);
    assert!(!report.has_defects());
    let page = render(&report);
    let row = "| It waits | **does not hold** | it did not | wait oneself |";
    for text in [row, "0 of 1 hold, 1 do not, 0 could", "### It waits", "| call | waits |"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    report.assumptions.result = Some(vec![finding(Verdict::DoesNotHold, true)]);
    assert!(report.has_defects());
}

#[test]
fn prices_can_be_pasted() {
    let points = vec![(0, 500), (4096, 1_018_000), (2 << 20, 36_000)];
    let price = Price { call: "Unmap".to_owned(), points, further: Vec::new() };
    let said = "&[(0, 500), (4_096, 1_018_000), (2 * MIB, 36_000)]";
    assert_eq!(table_entry(&price), format!("(Call::Unmap, Cost::by_size({said})),\n"));
    let price = Price { further: vec![(2 << 20, 6_000)], ..price };
    let more = "further: &[(2 * MIB, 6_000)], tail: None";
    let expected = format!("(Call::Unmap, Cost {{ points: {said}, {more} }}),\n");
    assert_eq!(table_entry(&price), expected);
}

#[test]
fn the_largest_batch_is_what_is_known() {
    let row = |largest_batch, smallest_too_large| {
        let outcome = Outcome { largest_batch, smallest_too_large, ..Outcome::default() };
        training(&[Training { model: "m".into(), allocator: "a".into(), outcome }])
    };
    assert!(row(Some(7), Some(8)).contains("| 7 |"));
    assert!(row(Some(7), Some(12)).contains("| 7 (not 12) |"));
    assert!(row(Some(7), None).contains("| 7 or more |"));
    assert!(row(None, None).contains("| – |"));
}

#[test]
fn cells_stay_cells() {
    let rows = vec![vec!["a|b".to_owned(), "c\nd".to_owned()]];
    assert_eq!(table(&["x", "y"], rows), "| x | y |\n|---|---:|\n| a\\|b | c d |\n");
}

#[test]
fn numbers_are_grouped_as_rust_has_them() {
    assert_eq!(grouped(0), "0");
    assert_eq!(grouped(1_234_567), "1_234_567");
}
