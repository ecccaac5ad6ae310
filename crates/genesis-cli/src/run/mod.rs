//! `genesis run`: the program that it starts, and the report afterwards.

pub(crate) mod account;
pub(crate) mod child;
mod executable;
