//! `cargo xtask install`, `uninstall`, `dist` and `test-packages`.
//!
//! Every package consists of one tree of files ([`tree`]): an installation under a prefix, an
//! archive, Debian packages, and the Python wheel, which carries the libraries and the program.
//!
//! ```text
//! build     compiles, links, and writes documents    dist   every package
//! tree      each file and its place                  debian the Debian packages
//! install   the tree for this machine                wheel  the Python wheel
//! licences  of the crates inside                     sbom   the bill of materials
//! test      installs each package into an empty place and uses it from there
//! pages     runs the commands in docs/
//! ```

mod build;
mod consumers;
mod debian;
mod dependencies;
mod dist;
mod files;
mod install;
mod licences;
mod pages;
mod parallel;
mod sbom;
mod test;
mod tools;
mod tree;
mod version;
mod wheel;

pub(crate) use build::exported;
pub(crate) use dependencies::SHIPPED;
pub(crate) use dist::dist;
pub(crate) use install::{InstallArguments, UninstallArguments, install, uninstall};
pub(crate) use test::test;
