//! The options of what is known beforehand: memory made ready, and when it will run out.

use super::option::{Alias, OptionSpec, Parse, assign};
use super::value::{NEVER, OFF, Read, bytes, optional, show_bytes, show_optional, whole};

pub(super) const PREALLOCATE: OptionSpec = OptionSpec {
    name: "GENESIS_PREALLOCATE",
    aliases: &[],
    values: "a size such as `2GB`",
    summary: "How much of each device is taken from the driver when it is first used.",
    help: "If there is not so much, there is a warning, and nothing is taken. Round, Exact and Naive \
           cannot use it.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.preallocate_bytes, bytes(text)),
    show: |settings| show_bytes(settings.preallocate_bytes),
};

pub(super) const PLAN: OptionSpec = OptionSpec {
    name: "GENESIS_PLAN",
    aliases: &[],
    values: "the path of a file, or `off`",
    summary: "Keep in this file what the run needs, and have the next run's memory made ready by it.",
    help: "Written at exit. A thread makes the memory ready when the library starts. A file of another \
           program, version, device or strategy is named in the log and left as it is. After a run \
           that was refused memory although as much was free, in pieces, the next one has \
           GENESIS_ELASTIC_POLICY=fine. %r stands for GENESIS_RANK, %p for the process's number.",
    runtime: false,
    parse: |settings, text| {
        assign(&mut settings.plan, optional(text, OFF, |path| Ok(path.to_owned())))
    },
    show: |settings| show_optional(settings.plan.clone(), OFF, |path| path),
};

pub(super) const FORECAST_STEPS: OptionSpec = OptionSpec {
    name: "GENESIS_FORECAST_STEPS",
    aliases: &[],
    values: "a number of steps, or `never`",
    summary: "Warn if memory runs out within so many steps of a program that marks them.",
    help: "0 means never. Steps are marked by genesis_trace_iteration, in Python by \
           genesis.trace.iteration.",
    runtime: true,
    parse: |settings, text| {
        let read = optional(text, NEVER, |text| whole(text, 1..=u64::MAX));
        assign(&mut settings.forecast_steps, read)
    },
    show: |settings| show_optional(settings.forecast_steps, NEVER, |steps| steps.to_string()),
};

/// The word for a program of one process.
const NONE: &str = "none";

const READ_RANK: Parse = |settings, text| assign(&mut settings.rank, rank_or_none(text));

/// 0 is a rank.
fn rank_or_none(text: &str) -> Read<Option<u64>> {
    let is_none = text.eq_ignore_ascii_case(NONE);
    if is_none { Ok(None) } else { whole(text, 0..=u64::MAX).map(Some) }
}

pub(super) const RANK: OptionSpec = OptionSpec {
    name: "GENESIS_RANK",
    aliases: &[
        Alias { name: "LOCAL_RANK", parse: READ_RANK },
        Alias { name: "OMPI_COMM_WORLD_LOCAL_RANK", parse: READ_RANK },
        Alias { name: "SLURM_LOCALID", parse: READ_RANK },
    ],
    values: "a number, or `none`",
    summary: "Which of its program's processes on the machine this one is.",
    help: "A plan is for one of them.",
    runtime: false,
    parse: READ_RANK,
    show: |settings| show_optional(settings.rank, NONE, |rank| rank.to_string()),
};

pub(super) const GLOBAL_RANK: OptionSpec = OptionSpec {
    name: "GENESIS_GLOBAL_RANK",
    aliases: &[],
    values: "a number, or `none`",
    summary: "Which of its program's processes on all machines this one is.",
    help: "Where it is not set, what torchrun (RANK), mpirun (OMPI_COMM_WORLD_RANK) or srun \
           (SLURM_PROCID) says of one of several. It is put into the names of the files that \
           GENESIS_TRACE, GENESIS_PROFILE and GENESIS_METRICS name: run.json becomes run-rank3.json, \
           unless %r in the name stands for it.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.global_rank, rank_or_none(text)),
    show: |settings| show_optional(settings.global_rank, NONE, |rank| rank.to_string()),
};
