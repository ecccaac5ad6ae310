//! Genesis: a GPU memory allocator in a shared library.
#![deny(unsafe_code)]

pub mod base;
pub mod config;
pub mod driver;
