//! The option of managed memory.

use super::option::{OptionSpec, assign};
use super::settings::Oversubscription;
use super::value::{Read, bytes, show_bytes, show_switch, switch};

pub(super) const MANAGED: OptionSpec = OptionSpec {
    name: "GENESIS_MANAGED",
    aliases: &[],
    values: "`off`, `on`, or a size such as `64GB`",
    summary: "Managed memory: how much more than a device's memory may be reserved.",
    help: "Pages that do not fit are in the host's memory and move when they are touched. on is half \
           of the machine's memory. Elastic becomes Caching. A device that cannot have more than it \
           has (Windows, WSL, Tegra) keeps its ordinary memory, with a warning.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.managed, read(text)),
    show: |settings| match settings.managed {
        Oversubscription::Off => show_switch(false).to_owned(),
        Oversubscription::Auto => show_switch(true).to_owned(),
        Oversubscription::Most(bytes) => show_bytes(bytes),
    },
};

fn read(text: &str) -> Read<Oversubscription> {
    match switch(text) {
        Ok(false) => Ok(Oversubscription::Off),
        Ok(true) => Ok(Oversubscription::Auto),
        Err(_) => bytes(text).map(Oversubscription::Most),
    }
}
