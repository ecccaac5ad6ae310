//! `genesis plan --tiers`: the pools of a memory manager that would have served a recorded run.

use std::fmt::Write as _;
use std::path::Path;

use genesis::base::size::{Bytes, MIB};
use genesis_profile::tiers::{TierOptions, TierPlan, plan};
use genesis_replay::table::{Table, grouped};
use genesis_replay::{Error, Result};

use super::super::{Answer, ProfileArguments, profile};

/// The tiers for the program in `input`.
pub(super) fn run(
    input: &Path,
    options: TierOptions,
    arguments: &ProfileArguments,
) -> Result<Answer> {
    let plan = plan(&profile::load(input, arguments)?, options);
    if plan.tiers.is_empty() && plan.other_requests == 0 {
        let line = format!("there are no requests on device {} in it", options.device);
        return Err(Error::usage(format!("{}: {line}", input.display())));
    }
    Ok(text(&plan).into())
}

fn text(plan: &TierPlan) -> String {
    let mut table = Table::new(&["block", "count", "reserved", "requests"]);
    for tier in &plan.tiers {
        let reserved = Bytes(tier.block_bytes.saturating_mul(tier.count));
        let row = [
            Bytes(tier.block_bytes).to_string(),
            grouped(tier.count),
            reserved.to_string(),
            grouped(tier.requests),
        ];
        table.add(row.into());
    }
    let (who, reserved) = match plan.arena_bytes {
        0 => ("heap", String::new()),
        bytes => ("arena", Bytes(bytes).to_string()),
    };
    table.add(vec![who.to_owned(), String::new(), reserved, grouped(plan.other_requests)]);
    let mut text = table.to_string();
    let (reserved, live) = (Bytes(plan.reserved_bytes()), Bytes(plan.peak_requested_bytes));
    let _ = writeln!(text, "\n{reserved} reserved for a peak of {live} requested");
    if plan.other_requests > 0 && plan.arena_bytes == 0 {
        text += "an arena would rarely be empty: larger requests are left to the heap\n";
    }
    let tiers = plan.tiers.iter().map(|tier| format!("{}: {}", tier.block_bytes, tier.count));
    let tiers = tiers.collect::<Vec<_>>().join(", ");
    // What the arena is asked for is rounded up to a mebibyte.
    let arena_mebibytes = plan.arena_bytes.div_ceil(MIB);
    let arena =
        if arena_mebibytes == 0 { "0".to_owned() } else { format!("\"{arena_mebibytes}MB\"") };
    let _ = writeln!(text, "\ngenesis.MemoryManager({{{tiers}}}, arena_size={arena})");
    text
}
