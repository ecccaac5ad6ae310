//! The section on assumptions: verdicts with their meaning, then the figures.

use std::fmt::Write;

use super::{cell, table};
use crate::assumptions::{Finding, Verdict};

const INTRODUCTION: &str = "What the design relies on, each tested on the driver by an experiment \
                            that can refute it. *Holds*: nothing seen refutes it. *Does not \
                            hold*: what was seen refutes it. *Could not be tried*: nothing is \
                            known.\n\n";

/// The section's text.
pub(super) fn render(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let mut text = INTRODUCTION.to_owned();
    let _ = writeln!(
        text,
        "{} of {} hold, {} do not, {} could not be tried.\n\n\
         | assumption | | seen | what it means |\n|---|---|---|---|",
        count(Verdict::Holds),
        findings.len(),
        count(Verdict::DoesNotHold),
        count(Verdict::NotTried)
    );
    for finding in findings {
        let [statement, seen, meaning] =
            [&finding.statement, &finding.seen, &finding.meaning].map(|value| cell(value));
        let verdict = finding.verdict.text();
        let _ = writeln!(text, "| {statement} | {verdict} | {seen} | {meaning} |");
    }
    for finding in findings {
        if let Some(figures) = &finding.table {
            let heads: Vec<&str> = figures.heads.iter().map(String::as_str).collect();
            let _ = writeln!(text, "\n### {}\n", cell(&finding.statement));
            text += &table(&heads, figures.rows.iter().cloned());
        }
    }
    text
}
