//! Debugging: what finds the places in a program that use memory wrongly.
//!
//! | `GENESIS_DEBUG` | at an allocation | at a free |
//! |---|---|---|
//! | any | its place and time are noted ([`ledger`]) | and those of the free |
//! | `poison` | the block is filled, on its stream ([`poison`]) | filled again, after a wait |
//! | `quarantine` | | the block is held back ([`quarantine`]) |
//! | `guard` | ends at an unmapped page (`driver::guarded`) | is unmapped |
//! | `leaks` | | (what is live at exit: [`leaks`]) |
//!
//! **Off, it costs nothing**: whether blocks age and whether frees are timed are bits of one byte
//! that every operation looks at (`heap::policy`), and debugging is one more of them.
//!
//! **A block that is freed** is counted off as always and then, if it is to be poisoned or held
//! back, is pending, as if another stream used it: one more count that is outstanding, taken
//! off when it leaves quarantine. So counters, the ladder and `validate` need know nothing of it.
//! It is as dead to the program as any: to free it again is a double free, with both places.
//!
//! **Private pools** are left alone, and so is everything on a device while one is begun: a graph
//! may write to memory that was freed in its capture whenever it is launched, and while a stream
//! captures nothing may be waited for, filled or looked at. Only places and times are noted then;
//! and under `guard`, what is freed then goes back to the driver later.
//!
//! Call sites are found with no lock held. Locks: the ledger, and one quarantine a device, are
//! leaves; they hold a few words a block, and allocate host memory, which nothing does otherwise.

mod calls;
mod kept;
mod leaks;
mod ledger;
mod poison;
mod quarantine;

pub use leaks::LiveDetail;

pub(super) use kept::Debugging;
