//! `libgenesis_static.a`: the library and everything it is linked with, in one archive.
//!
//! Packages are made of it (`cargo xtask install` and `dist`): their `libgenesis.a`, in which only
//! the functions of `genesis.h` are visible, and their `libgenesis.so`, whose symbols carry
//! versions. rustc gives a cdylib a version script of its own, which admits no second one, so the
//! shared library of packages is linked from this archive.
//!
//! A crate of its own, since every build of the library would else write the archive, too.

extern crate genesis as _;
