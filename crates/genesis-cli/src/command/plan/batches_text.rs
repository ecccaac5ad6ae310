//! The largest batch, for people.

use std::fmt::Write as _;

use genesis::base::size::Bytes;
use genesis_profile::units::{bytes, percent, signed_bytes};
use genesis_replay::batch::{Batches, HeldOut, Largest};
use genesis_replay::curve::Basis;
use genesis_replay::prediction::SiteCurve;
use genesis_replay::table::{Table, grouped};

use super::text::signed_percent;

/// The largest batch of each strategy, and how certain it is.
pub(super) fn of_batches(batches: &Batches) -> String {
    let device = Bytes(batches.device_bytes);
    let recorded: Vec<_> = batches.recorded.iter().map(|one| grouped(one.batch)).collect();
    let mut text =
        format!("The largest batch on {device}, from recordings of {}\n\n", recorded.join(", "));
    text += &largest(&batches.largest).to_string();
    text.push('\n');
    match batches.bound {
        None => text += "the live peak does not grow with the batch: nothing can be predicted\n",
        Some(bound) => {
            let bound = grouped(bound);
            let _ = writeln!(text, "no allocator can do with more than {bound}: the live peak");
        }
    }
    let _ = writeln!(text, "live peak: {}", terms(&batches.live));
    let most = batches.largest_recorded();
    if batches.largest.iter().any(|one| one.predicted > Some(most)) {
        let most = grouped(most);
        let _ = writeln!(text, "a batch above {most} lies beyond all recordings: replay it");
    }
    push_errors(&mut text, batches);
    push_sites(&mut text, batches);
    for remark in &batches.remarks {
        let _ = writeln!(text, "{remark}");
    }
    text
}

fn largest(all: &[Largest]) -> Table {
    let headings = ["strategy", "largest", "reserved there", "error", "fits", "fails", "replays"];
    let mut table = Table::new(&headings);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    for one in all {
        table.add(vec![
            one.strategy.clone(),
            or_dash(one.predicted.map(grouped)),
            or_dash(one.reserved_peak_bytes.map(|bytes| Bytes(bytes).to_string())),
            or_dash(one.error_ratio.map(|ratio| format!("{:.2} %", ratio * 100.0))),
            or_dash(one.replayed.map(grouped)),
            or_dash(one.failed.map(grouped)),
            grouped(one.replays),
        ]);
    }
    table
}

fn push_errors(text: &mut String, batches: &Batches) {
    if batches.held_out.is_empty() {
        *text += "the error is not known: that takes a third recording\n";
        return;
    }
    *text += "\nEach recording predicted from the others; the largest error is kept free\n\n";
    let mut table = Table::new(&["peak", "batch", "predicted", "recorded", "error"]);
    for HeldOut { batch, strategy, predicted_bytes, recorded_bytes, error_ratio } in
        &batches.held_out
    {
        table.add(vec![
            strategy.as_ref().map_or("live".to_owned(), |name| format!("{name}, reserved")),
            grouped(*batch),
            Bytes(*predicted_bytes).to_string(),
            Bytes(*recorded_bytes).to_string(),
            signed_percent(*error_ratio, 2),
        ]);
    }
    *text += &table.to_string();
}

fn push_sites(text: &mut String, batches: &Batches) {
    let all_bytes = batches.live.live_bytes;
    if batches.sites.iter().any(|one| one.site.is_some()) {
        let most = grouped(batches.largest_recorded());
        let _ = writeln!(text, "\nLive at the peak of batch {most}\n");
        for one in &batches.sites {
            let site = one.site.as_deref().unwrap_or("unknown");
            let live = Bytes(one.live_bytes).to_string();
            let _ = writeln!(text, "  {live:>10}  {site}\n              {}", terms(one));
        }
    }
    let SiteCurve { confirmed_bytes, unmatched_bytes, .. } = batches.live;
    let _ = writeln!(
        text,
        "\n{} of the live bytes lie on curves that the recordings confirm",
        percent(confirmed_bytes, all_bytes)
    );
    if unmatched_bytes > 0 {
        let part = percent(unmatched_bytes, all_bytes);
        let _ = writeln!(
            text,
            "{part} are not in every recording, so more may be needed than is told:"
        );
        for one in batches.sites.iter().filter(|one| one.unmatched_bytes > 0) {
            let (site, part) =
                (one.site.as_deref().unwrap_or("unknown"), percent(one.unmatched_bytes, all_bytes));
            let _ = writeln!(text, "  {part}  {site}");
        }
    }
}

/// `1.5 GiB + 20.0 MiB × batch`.
fn terms(site: &SiteCurve) -> String {
    let term = |(basis, each): &(Basis, f64)| {
        let each = signed_bytes(each.round() as i128);
        match basis {
            Basis::One => each,
            Basis::Batch => format!("{each} × batch"),
            Basis::Square => format!("{each} × batch²"),
            Basis::Multiple(of) => format!("{each} × batch rounded up to a multiple of {of}"),
            Basis::PowerOfTwo => format!("{each} × batch rounded up to a power of two"),
        }
    };
    let terms: Vec<String> = site.terms.iter().filter(|term| term.1 != 0.0).map(term).collect();
    let text = terms.join(", ");
    if text.is_empty() { bytes(0) } else { text.trim_start_matches('+').to_owned() }
}
