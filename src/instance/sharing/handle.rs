//! What names a block in another process: 64 bytes, which may travel any way.
//!
//! ```text
//!   0   4        8             24        32          40       48        52       56         64
//!   │"GNSB"│ version │ service │ share   │ bytes     │ token  │ process │ device │ checksum │
//! ```
//!
//! The first 40 bytes are the same for all handles of one share; the token tells them apart. The
//! service is a random number, so a handle of a process that ended names nothing, and nobody finds
//! a service without a handle. The checksum finds bytes that were cut or mixed up; it is no secret.

use crate::base::{Error, Result};
use crate::heap::ShareId;

/// The size of a handle.
pub(crate) const HANDLE_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"GNSB";
const VERSION: u32 = 1;
const CHECKED_BYTES: usize = 56;

/// The random number of an exporting process.
pub(crate) type ServiceId = [u8; 16];

/// A handle, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    /// The process that exported it.
    pub(crate) service: ServiceId,
    /// The share of the block.
    pub(crate) share: ShareId,
    /// The block's size, in bytes.
    pub(crate) bytes: u64,
    /// Tells handles of one share apart.
    pub(crate) token: u64,
    /// The exporter's process, for messages.
    pub(crate) process: u32,
    /// The exporter's ordinal of the device.
    pub(crate) device: u32,
}

impl BlockHandle {
    pub(crate) fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.service);
        bytes[24..32].copy_from_slice(&self.share.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.token.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.process.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.device.to_le_bytes());
        let checksum = checksum(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `InvalidArgument` for bytes that no version of this library made.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let wrong =
            |what: &str| Error::invalid_argument(format!("this is no block's handle: {what}"));
        let bytes: &[u8; HANDLE_BYTES] =
            bytes.try_into().map_err(|_| wrong("it does not have 64 bytes"))?;
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let short = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        if bytes[..4] != MAGIC {
            return Err(wrong("it does not begin as one"));
        }
        if short(4) != VERSION {
            return Err(wrong("another version of the library made it"));
        }
        if long(CHECKED_BYTES) != checksum(&bytes[..CHECKED_BYTES]) {
            return Err(wrong("its bytes were changed"));
        }
        let mut service = ServiceId::default();
        service.copy_from_slice(&bytes[8..24]);
        Ok(Self {
            service,
            share: long(24),
            bytes: long(32),
            token: long(40),
            process: short(48),
            device: short(52),
        })
    }

    /// The name of the exporter's door.
    pub(crate) fn door(&self) -> String {
        door(&self.service)
    }

    /// The block that the handle names is no longer there.
    pub(crate) fn gone(&self) -> Error {
        let message = format!(
            "the block of process {} that this handle names is gone: the process has ended, or \
             every use of the block has",
            self.process
        );
        Error::invalid_argument(message)
    }
}

/// The name of the door of `service`.
pub(super) fn door(service: &ServiceId) -> String {
    let digits: String = service.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("genesis-{digits}")
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: BlockHandle =
        BlockHandle { service: [7; 16], share: 3, bytes: 4096, token: 9, process: 1234, device: 1 };

    #[test]
    fn a_handle_is_read_back_and_the_token_comes_after_what_names_the_share() {
        let bytes = HANDLE.encode();
        assert_eq!(BlockHandle::decode(&bytes), Ok(HANDLE));
        let other = BlockHandle { token: 10, ..HANDLE }.encode();
        assert_eq!(bytes[..40], other[..40]);
        assert_ne!(bytes, other);
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let bytes = HANDLE.encode();
        for index in 0..HANDLE_BYTES {
            for bit in 0..8 {
                let mut changed = bytes;
                changed[index] ^= 1 << bit;
                assert!(BlockHandle::decode(&changed).is_err(), "byte {index}, bit {bit}");
            }
        }
        for length in 0..HANDLE_BYTES {
            assert!(BlockHandle::decode(&bytes[..length]).is_err());
        }
        assert!(BlockHandle::decode(&[0; HANDLE_BYTES + 1]).is_err());
    }
}
