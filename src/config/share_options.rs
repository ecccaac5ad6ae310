//! The rows of devices that several processes share, and of limits that others set.

use super::device_limits;
use super::option::{OptionSpec, assign};
use super::value::{OFF, Read, bytes, optional, show_bytes, show_optional, whole};

/// The longest name of those who share a device.
const LONGEST_NAME: usize = 64;

/// With whom devices are shared.
pub(super) const SHARE: OptionSpec = OptionSpec {
    name: "GENESIS_SHARE",
    aliases: &[],
    values: "a name of letters, digits, `-`, `_` and `.`, or `off`",
    summary: "Share devices with the user's other processes that have the same name here.",
    help: "They see what each holds, keep each other's guarantees, and give back what they have \
           cached to one that is short.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.share, optional(text, OFF, name)),
    show: |settings| show_optional(settings.share.clone(), OFF, |name| name),
};

/// What the others leave.
pub(super) const GUARANTEE: OptionSpec = OptionSpec {
    name: "GENESIS_SHARE_GUARANTEE",
    aliases: &[],
    values: "a size such as `20GB`",
    summary: "The memory of each shared device that the other processes leave to this one.",
    help: "It stays free of them also while it is not used.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.share_guarantee_bytes, bytes(text)),
    show: |settings| show_bytes(settings.share_guarantee_bytes),
};

/// The part of the rest.
pub(super) const WEIGHT: OptionSpec = OptionSpec {
    name: "GENESIS_SHARE_WEIGHT",
    aliases: &[],
    values: "a whole number from 0 to 1000",
    summary: "This process's part of what is not guaranteed, in proportion to the others'.",
    help: "Memory is given back first by processes that hold more than their part. One that holds \
           more gets only what others hold above theirs. 0: no part, so all that is cached is \
           given back.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.share_weight, whole(text, 0..=1000)),
    show: |settings| settings.share_weight.to_string(),
};

/// How large devices seem to be.
pub(super) const DEVICE_LIMITS: OptionSpec = OptionSpec {
    name: "GENESIS_DEVICE_LIMITS",
    aliases: &[],
    values: "a size such as `10GB`, or sizes of devices such as `0=10GB,1=20GB`, or `unlimited`",
    summary: "How much memory each device seems to have.",
    help: "If it is not set, HAMi's CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_MEMORY_LIMIT_0 and so \
           on and MPS's CUDA_MPS_PINNED_DEVICE_MEM_LIMIT count; the lower one applies. The kernel's \
           dmem.max always counts.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.device_limits, device_limits::parse(text)),
    show: |settings| device_limits::show(&settings.device_limits),
};

/// A name that is a part of a file's.
fn name(text: &str) -> Read<String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.len() <= LONGEST_NAME && text.bytes().all(is_fine) {
        Ok(text.to_owned())
    } else {
        Err(format!("not a name of at most {LONGEST_NAME} letters, digits, -, _ and ."))
    }
}
