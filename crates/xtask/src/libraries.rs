//! The libraries and programs that PyTorch and the other frameworks are tested with, and that
//! packages are made of.
//!
//! On every change they are those that `cargo xtask test` has built: in cargo's dev profile, which
//! has debug assertions, so that nothing is compiled twice. Every night, and in packages for users,
//! they are the release build.

use std::fs;
use std::path::PathBuf;

use steps::{Outcome, cargo, run, target_folder};

use crate::suite::Tier;

/// What the release build consists of. One list for all commands: with another one cargo would
/// compile dependencies again.
const PACKAGES: [&str; 6] =
    ["cumem-allocator", "genesis", "genesis-cli", "genesis-preload", "genesis-static", "simcuda"];
/// The same of the dev profile, built as the tests' libraries are.
const WORKSPACE: [&str; 4] = ["build", "--workspace", "--lib", "--bins"];

/// The library that vLLM is to find, as cargo names it, and by its own name, which vLLM's search
/// prescribes.
const BUILT_CUMEM: &str = "libcumem_allocator.so";
pub(crate) const CUMEM: &str = "cumem_allocator-genesis.so";

/// How they are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As the tests are.
    Dev,
    /// As users have them.
    Release,
}

impl Profile {
    /// The one that `tier` tests.
    pub(crate) fn of(tier: Tier) -> Self {
        match tier {
            Tier::EveryChange => Self::Dev,
            Tier::Nightly => Self::Release,
        }
    }

    /// Builds everything.
    pub(crate) fn build(self) -> Outcome {
        let build = match self {
            Self::Dev => cargo(&WORKSPACE),
            Self::Release => {
                let mut build = cargo(&["build", "--release"]);
                build.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
                build
            }
        };
        run(&build)?;
        self.name_cumem()
    }

    /// Where cargo puts it.
    pub(crate) fn folder(self) -> PathBuf {
        target_folder().join(match self {
            Self::Dev => "debug",
            Self::Release => "release",
        })
    }

    /// cargo's option for it.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Dev => "--profile=dev",
            Self::Release => "--release",
        }
    }

    /// Gives vLLM's library its name: another file, because a link's name is not the one that is
    /// mapped.
    pub(crate) fn name_cumem(self) -> Outcome {
        let folder = self.folder();
        let (built, named) = (folder.join(BUILT_CUMEM), folder.join(CUMEM));
        // A process that has mapped the one before keeps it.
        let _ = fs::remove_file(&named);
        fs::copy(&built, &named)
            .map(drop)
            .map_err(|error| format!("{} cannot be copied: {error}", built.display()))
    }
}
