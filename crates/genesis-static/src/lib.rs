//! `libgenesis_static.a`: the library and everything it is linked with, in one archive.
//!
//! Packages are made of it (`cargo xtask install` and `dist`): their `libgenesis.a`, in which only
//! the functions of `genesis.h` are visible, and their `libgenesis.so`, whose symbols have
//! versions. rustc links a cdylib with a version script of its own, and there can be only one, so
//! the shared library of packages is linked from this archive.
//!
//! It is a crate of its own, because otherwise every build of the library would write the archive.

extern crate genesis as _;
