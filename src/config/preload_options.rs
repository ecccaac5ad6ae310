//! The rows of the option table that `libgenesis_preload.so` reads.
//!
//! It reads them itself, from the environment, before this library is opened; they stand here so
//! that all options are explained in one place and a misspelt one is found.

use super::table::{OptionSpec, assign};
use super::value::{OFF, optional, show_optional, show_switch, switch};

pub(super) const PRELOAD: OptionSpec = OptionSpec {
    name: "GENESIS_PRELOAD",
    aliases: &[],
    values: "`on` or `off`",
    summary: "The preload library: whether CUDA's calls for memory are served.",
    help: "off passes all of them to CUDA, as if the library were not there.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.preload, switch(text)),
    show: |settings| show_switch(settings.preload).to_owned(),
};
pub(super) const FENCE: OptionSpec = OptionSpec {
    name: "GENESIS_PRELOAD_FENCE",
    aliases: &[],
    values: "`on` or `off`",
    summary: "The preload library: whether memory given to cudaFree is used again only after the \
              device was waited for.",
    help: "CUDA's own cudaFree waits for the device, and programs may rely on it. off is for those \
           that wait for their own work before they free.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.preload_fence, switch(text)),
    show: |settings| show_switch(settings.preload_fence).to_owned(),
};
pub(super) const REPORT: OptionSpec = OptionSpec {
    name: "GENESIS_PRELOAD_REPORT",
    aliases: &[],
    values: "the path of a file, or `off`",
    summary: "The preload library: the file that `genesis run` reads its account from.",
    help: "Set by that command.",
    runtime: false,
    parse: |settings, text| {
        assign(&mut settings.preload_report, optional(text, OFF, |path| Ok(path.to_owned())))
    },
    show: |settings| show_optional(settings.preload_report.clone(), OFF, |path| path),
};
