//! Debugging: finds the places in a program that use memory wrongly.
//!
//! | `GENESIS_DEBUG` | at an allocation | at a free |
//! |---|---|---|
//! | any | its call site and time are recorded (`heap::history`) | and those of the free |
//! | `poison` | the block is filled, on its stream ([`poison`]) | filled again, after a wait |
//! | `quarantine` | | the block is held back ([`quarantine`]) |
//! | `guard` | the block ends at an unmapped page (`driver::guarded`) | is unmapped |
//! | `leaks` | | (what is live at exit: [`leaks`]) |
//!
//! **Off, it costs nothing**: debugging is one bit of a byte that every operation tests anyway,
//! together with other rare work such as ageing and timed frees (`heap::policy`).
//!
//! **A freed block** is counted as freed, as always. If it is to be poisoned or held back it is
//! then pending, as if another stream still used it: its `outstanding` is one higher until it
//! leaves quarantine. So counters, the ladder and `validate` need no special case. For the
//! program it is freed: to free it again is a double free, reported with both call sites.
//!
//! **Private pools** are exempt, and so is everything on a device while one is begun. A graph may
//! write to memory that was freed in its capture whenever it is launched, and while a stream
//! captures nothing may be waited for, filled or read. Only call sites and times are recorded then;
//! under `guard`, what is freed then is released to the driver later.
//!
//! Call sites are found with no lock held. The ledger and each device's quarantine have leaf
//! locks. They keep a few words for each block, and allocate host memory, as nothing else does.

mod calls;
mod leaks;
mod poison;
mod quarantine;

pub use leaks::LiveDetail;
