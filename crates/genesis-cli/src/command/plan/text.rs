//! Forecasts for people.

use std::fmt::Write as _;

use genesis::base::size::Bytes;
use genesis_profile::units::signed_bytes;
use genesis_replay::forecast::{Failure, Forecast, Holder, Plan};
use genesis_replay::table::{Table, grouped};

/// What each strategy needs, and where it fails.
pub(super) fn of_plan(plan: &Plan) -> String {
    let device = Bytes(plan.device_bytes);
    let (calls, iterations) = (grouped(plan.calls), grouped(plan.iterations));
    let mut text = format!(
        "{} on {device}: {calls} calls, {iterations} iterations, {} passes\n\n",
        plan.trace, plan.passes
    );
    text += &strategies(plan).to_string();
    let lower_bound = Bytes(plan.lower_bound_bytes);
    let _ = writeln!(
        text,
        "\nno allocator can do with less than {lower_bound}: the live peak, requests rounded to 512 B"
    );
    if plan.strategies.iter().any(|forecast| forecast.smallest_device_bytes.is_some()) {
        text += "each smallest device completed every pass, and with 2 MiB less it did not\n";
    }
    for forecast in &plan.strategies {
        if let Some(failure) = &forecast.failure {
            push_failure(&mut text, &forecast.strategy, failure);
        }
    }
    for remark in &plan.remarks {
        let _ = writeln!(text, "{}: {remark}", plan.trace);
    }
    text
}

fn strategies(plan: &Plan) -> Table {
    let headings =
        ["strategy", "fits", "smallest device", "over the bound", "margin", "", "replays"];
    let mut table = Table::new(&headings);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    for forecast in &plan.strategies {
        let Forecast { smallest_device_bytes, margin_bytes, margin_ratio, .. } = forecast;
        let over = |bytes: u64| format!("{:.3}", bytes as f64 / plan.lower_bound_bytes as f64);
        table.add(vec![
            forecast.strategy.clone(),
            if forecast.fits { "yes" } else { "no" }.to_owned(),
            smallest_device_bytes.map_or("none".to_owned(), |bytes| Bytes(bytes).to_string()),
            or_dash(smallest_device_bytes.map(over)),
            or_dash(margin_bytes.map(|bytes| signed_bytes(bytes.into()))),
            or_dash(margin_ratio.map(|ratio| signed_percent(ratio, 1))),
            grouped(forecast.replays),
        ]);
    }
    table
}

/// `+1.5 %`, with `digits` after the point.
pub(super) fn signed_percent(ratio: f64, digits: usize) -> String {
    let sign = if ratio < 0.0 { '−' } else { '+' };
    format!("{sign}{:.digits$} %", ratio.abs() * 100.0)
}

fn push_failure(text: &mut String, strategy: &str, failure: &Failure) {
    let iteration =
        failure.iteration.map(|iteration| format!(", iteration {}", grouped(iteration)));
    let _ = writeln!(
        text,
        "\n{strategy} fails in pass {}{} at call {}: {} asked for, {} live on device {}",
        failure.pass,
        iteration.unwrap_or_default(),
        grouped(failure.call),
        Bytes(failure.requested_bytes),
        Bytes(failure.live_bytes),
        failure.device,
    );
    for Holder { site, requested_bytes, blocks, live_bytes } in &failure.holders {
        let live = Bytes(*live_bytes).to_string();
        let blocks = match blocks {
            1 => "1 block".to_owned(),
            blocks => format!("{} blocks", grouped(*blocks)),
        };
        let of = requested_bytes.map(|bytes| format!(" of {}", Bytes(bytes)));
        let site = site.as_ref().map(|site| format!("  {site}"));
        let (of, site) = (of.unwrap_or_default(), site.unwrap_or_default());
        let _ = writeln!(text, "  {live:>10} in {blocks}{of}{site}");
    }
    if failure.other_bytes > 0 {
        let _ = writeln!(text, "  {:>10} in others", Bytes(failure.other_bytes).to_string());
    }
}
