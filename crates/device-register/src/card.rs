//! Which device a register is for, the head of the file that says it, and the file's name.

use crate::entry::{ENTRY_BYTES, is_sealed, seal, word_of};

/// Begins a register.
const MAGIC: u64 = u64::from_le_bytes(*b"GENSHARE");
/// The version of the layout.
pub(crate) const VERSION: u32 = 2;
/// Where in the head the device's name is.
const NAME_AT: usize = 48;

/// A device: a GPU, or an instance of one (MIG).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// The driver's number for it, which no other device has.
    pub uuid: [u8; 16],
    /// Its marketing name, as far as it fits.
    pub name: String,
}

/// What a head turns out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Of this version, for that device.
    Ours(Card),
    /// Of another version.
    Other(u32),
    /// Nothing of ours.
    Foreign,
}

impl Card {
    /// The number as people write it: `GPU-` or, for an instance, `MIG-`, and its digits.
    pub fn uuid_text(&self) -> String {
        let digits = hexadecimal(&self.uuid);
        let kind = if self.is_instance() { "MIG" } else { "GPU" };
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        format!("{kind}-{}", parts.join("-"))
    }

    /// Returns true for an instance of a GPU, whose memory is its own: the driver says it in the
    /// name alone.
    pub fn is_instance(&self) -> bool {
        self.name.split(' ').any(|word| word == "MIG")
    }

    pub(crate) fn head(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[8..16].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&(ENTRY_BYTES as u32).to_le_bytes());
        bytes[24..40].copy_from_slice(&self.uuid);
        let name = self.name.as_bytes();
        let length = name.len().min(ENTRY_BYTES - NAME_AT);
        bytes[NAME_AT..][..length].copy_from_slice(&name[..length]);
        seal(&mut bytes);
        bytes
    }
}

impl Head {
    pub(crate) fn of(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let (version, entry_bytes) = (word_of(bytes, 2) as u32, word_of(bytes, 2) >> 32);
        if word_of(bytes, 1) != MAGIC {
            return Self::Foreign;
        }
        if version != VERSION {
            return Self::Other(version);
        }
        if !is_sealed(bytes) || entry_bytes != ENTRY_BYTES as u64 {
            return Self::Foreign;
        }
        let name = bytes[NAME_AT..].split(|&byte| byte == 0).next().unwrap_or_default();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[24..40]);
        Self::Ours(Card { uuid, name: String::from_utf8_lossy(name).into_owned() })
    }
}

/// The name of the register of the processes of a user that share the device under a name.
pub fn file_name(user_id: u32, uuid: &[u8; 16], name: &str) -> String {
    format!("genesis-share-{user_id}-{}-{name}", hexadecimal(uuid))
}

/// The user and the name of a register's file; `None` for other files.
pub fn parse_file_name(file: &str) -> Option<(u32, &str)> {
    let (user_id, rest) = file.strip_prefix("genesis-share-")?.split_once('-')?;
    let (digits, name) = rest.split_once('-')?;
    let is_uuid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let user_id = user_id.parse().ok()?;
    (is_uuid && !name.is_empty()).then_some((user_id, name))
}

fn hexadecimal(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back_and_says_what_is_wrong() {
        let card = Card { uuid: *b"0123456789abcdef", name: "NVIDIA H200".to_owned() };
        let head = card.head();
        assert_eq!(Head::of(&head), Head::Ours(card));
        let changed = |index: usize| {
            let mut bytes = head;
            bytes[index] ^= 0x80;
            Head::of(&bytes)
        };
        assert_eq!(changed(16), Head::Other(VERSION ^ 0x80));
        for index in [0, 8, 20, 24, 48, 127] {
            assert_eq!(changed(index), Head::Foreign, "byte {index}");
        }
        assert_eq!(Head::of(&[0; ENTRY_BYTES]), Head::Foreign);
    }

    #[test]
    fn instances_of_a_gpu_are_named() {
        let whole = Card { uuid: [0xA7; 16], name: "NVIDIA A100-SXM4-40GB".to_owned() };
        assert_eq!(whole.uuid_text(), "GPU-a7a7a7a7-a7a7-a7a7-a7a7-a7a7a7a7a7a7");
        let instance = Card { name: format!("{} MIG 1g.5gb", whole.name), ..whole };
        assert!(instance.uuid_text().starts_with("MIG-a7a7a7a7-"));
    }

    #[test]
    fn names_lead_back() {
        let name = file_name(1000, &[7; 16], "two-jobs.1");
        assert_eq!(parse_file_name(&name), Some((1000, "two-jobs.1")));
        for other in ["genesis-share-1-07-a", "genesis-1-2.json", "genesis-share-x-y-z", ""] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
        let unnamed = file_name(1, &[7; 16], "");
        assert_eq!(parse_file_name(&unnamed), None);
    }
}
