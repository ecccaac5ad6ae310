//! The rows of the option table for the simulated backends, `host` and `sim`.

use simgpu::Prices;

use super::table::{OptionSpec, assign};
use super::value::{AUTO, bytes_from, optional, show_bytes, show_optional, whole, word};
use crate::base::size::MIB;

pub(super) const DEVICES: OptionSpec = OptionSpec {
    name: "GENESIS_SIM_DEVICES",
    aliases: &[],
    values: "a number from 1 to 64",
    summary: "Simulated backends: how many devices there are.",
    help: "",
    runtime: false,
    parse: |settings, text| assign(&mut settings.sim_devices, whole(text, 1..=64)),
    show: |settings| settings.sim_devices.to_string(),
};
pub(super) const MEMORY: OptionSpec = OptionSpec {
    name: "GENESIS_SIM_MEMORY",
    aliases: &[],
    values: "a size of at least 2 MiB, or `auto`",
    summary: "Simulated backends: the memory of each device.",
    help: "auto (or 0) means 80 GiB for sim and half of the machine's memory for host.",
    runtime: false,
    parse: |settings, text| {
        let read = optional(text, AUTO, |text| bytes_from(text, 2 * MIB));
        assign(&mut settings.sim_memory_bytes, read)
    },
    show: |settings| show_optional(settings.sim_memory_bytes, AUTO, show_bytes),
};
pub(super) const PRICES: OptionSpec = OptionSpec {
    name: "GENESIS_SIM_PRICES",
    aliases: &[],
    values: "`h100`, `a100`, `rtxpro6000`, `vattention` or `b300`",
    summary: "Simulated backends: by whose measurements driver time is counted.",
    help: "Each list holds what was published for one machine; where a source lacks a call, the \
           dearest of the others stands in. Nothing takes longer by it: the time is only counted.",
    runtime: false,
    parse: |settings, text| {
        let read = word(text, "a price list", Prices::ALL, Prices::name);
        assign(&mut settings.sim_prices, read)
    },
    show: |settings| settings.sim_prices.name().to_owned(),
};
