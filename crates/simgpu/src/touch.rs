//! Touches: what work does to memory. They are judged by `calls::judge`.

use std::fmt;

/// What a touch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes, or reads and writes.
    Write,
}

/// Which device's access a touch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// That of the stream's device.
    Own,
    /// That of any device: peer copies go through the owner.
    Peer,
}

/// Work about to be enqueued that touches `[address, address + bytes)`.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    pub(crate) rights: Rights,
    pub(crate) label: &'a str,
}

impl<'a> Work<'a> {
    /// Work called `label` in reports.
    pub const fn new(address: u64, bytes: u64, access: Access, label: &'a str) -> Self {
        Self { address, bytes, access, rights: Rights::Own, label }
    }

    /// Work that reads.
    pub const fn read(address: u64, bytes: u64, label: &'a str) -> Self {
        Self::new(address, bytes, Access::Read, label)
    }

    /// Work that writes, or reads and writes.
    pub const fn write(address: u64, bytes: u64, label: &'a str) -> Self {
        Self::new(address, bytes, Access::Write, label)
    }
}

/// One access by a stream to a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The device of the stream.
    pub device: u32,
    /// The stream's handle; `None` for the host.
    pub stream: Option<usize>,
    /// Which operation of the stream it is, counted from 1.
    pub sequence: u64,
    /// Where it starts.
    pub address: u64,
    /// How far it goes, in bytes.
    pub bytes: u64,
    /// Reads or writes.
    pub access: Access,
    /// What the test called it.
    pub label: String,
    /// The stream, as the clocks count them.
    pub(crate) slot: u32,
}

impl fmt::Display for Touch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let (label, address, end) = (&self.label, self.address, self.address + self.bytes);
        write!(formatter, "{verb} {label:?} of [{address:#x}, {end:#x}) by ")?;
        match self.stream {
            None => formatter.write_str("the host"),
            Some(stream) => write!(
                formatter,
                "stream {stream:#x} of device {} (operation {})",
                self.device, self.sequence
            ),
        }
    }
}
