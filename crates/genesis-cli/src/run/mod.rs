//! `genesis run`: the program it starts, and what is said about it afterwards.

pub(crate) mod account;
pub(crate) mod child;
mod executable;
