//! The register: the file in which the processes that share a device write what each of them holds.
//!
//! ```text
//! | head                     | entry 0         | entry 1         | …   128 bytes each
//!   magic, version, device     what one process holds and may hold
//! ```
//!
//! Each process writes its own entry and no other. An entry counts while its process has a byte of
//! the file locked ([`Register`]), which the kernel ends with the process, however that ends. So
//! there is nothing to repair after a death, and nobody ever waits for a dead process.
//!
//! The file is read and written, never mapped: one that somebody cuts short costs an error, and not
//! a signal. Every entry has a checksum, because a read may see half of a write.
//!
//! `libgenesis.so` writes registers, `genesis top` reads them.

mod budgets;
mod card;
mod entry;
mod locks;
mod register;

pub use budgets::Neighbourhood;
pub use card::{Card, file_name, parse_file_name};
pub use entry::{Entry, NO_LIMIT, PROMISE_LASTS, now_ns};
pub use register::{FOLDER, MOST_ENTRIES, Refused, Register, read, remove_unused};
