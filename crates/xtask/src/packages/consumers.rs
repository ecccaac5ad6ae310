//! A user's programs, `c_tests/consumer`, built against an installed tree: in C and in C++, with
//! pkg-config and with CMake, linked with the shared and with the static library.

use std::path::{Path, PathBuf};

use steps::{Outcome, Step, output, root, run};

use super::files::create;
use super::version::SOVERSION;

/// A tree to build against.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) prefix: PathBuf,
    /// Below the prefix.
    pub(super) library_folder: String,
}

/// What is linked with: the name of the pkg-config file, and of the target in CMake.
const FLAVOURS: [&str; 2] = ["genesis", "genesis-static"];
const LANGUAGES: [&str; 2] = ["c", "cpp"];

impl Installed {
    pub(super) fn libraries(&self) -> PathBuf {
        self.prefix.join(&self.library_folder)
    }

    /// Checks the libraries' symbols, then builds every program in `scratch` and runs it.
    pub(super) fn check(&self, scratch: &Path) -> Outcome {
        create(scratch)?;
        self.check_symbols()?;
        self.with_pkg_config(scratch)?;
        self.run_programs(scratch)?;
        let built = scratch.join("cmake");
        self.with_cmake(&built)?;
        self.run_programs(&built)
    }

    /// Fails unless both libraries have the same visible functions, each with a version in the
    /// shared one.
    pub(super) fn check_symbols(&self) -> Outcome {
        let library = self.libraries().join(format!("libgenesis.so.{SOVERSION}"));
        let mut listing = Step::new("nm", &["--dynamic", "--defined-only", "--format=posix"]);
        listing.extend([&library]);
        let symbols = output(&listing)?;
        // Some linkers also list the versions themselves.
        let names = symbols.lines().filter_map(|line| line.split(' ').next());
        let names: Vec<&str> = names.filter(|name| !name.starts_with("GENESIS_")).collect();
        if let Some(name) = names.iter().find(|name| !name.contains("@@GENESIS_")) {
            return Err(format!("{}: {name} has no version", library.display()));
        }
        let mut listing = Step::new("nm", &["--extern-only", "--defined-only", "--format=posix"]);
        listing.extend([self.libraries().join("libgenesis.a")]);
        let symbols = output(&listing)?;
        let archived = symbols.lines().filter(|line| line.contains(' ')).count();
        if names.len() == archived && archived > 20 {
            Ok(())
        } else {
            Err(format!("{} shared symbols, {archived} in the archive", names.len()))
        }
    }

    fn with_pkg_config(&self, scratch: &Path) -> Outcome {
        // Debian's files name the prefix /usr; in a test they lie elsewhere.
        let prefix = self.prefix.display();
        let pkg_config = format!("PKG_CONFIG=pkg-config --define-variable=prefix={prefix}");
        for flavour in FLAVOURS {
            let mut make = Step::new("make", &["--always-make", "--directory=c_tests/consumer"]);
            make.extend([&pkg_config, &format!("FLAVOUR={flavour}")]);
            make.extend([format!("OUTPUT={}", scratch.display())]);
            run(&make.set("PKG_CONFIG_LIBDIR", self.libraries().join("pkgconfig")))?;
        }
        Ok(())
    }

    fn with_cmake(&self, scratch: &Path) -> Outcome {
        let mut configure = Step::new("cmake", &["-DCMAKE_BUILD_TYPE=Release", "-S"]);
        configure.extend([root().join("c_tests/consumer"), "-B".into(), scratch.to_owned()]);
        configure.extend([format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display())]);
        let mut build = Step::new("cmake", &["--build"]);
        build.extend([scratch]);
        run(&configure).and_then(|()| run(&build))
    }

    fn run_programs(&self, folder: &Path) -> Outcome {
        for (flavour, language) in
            FLAVOURS.into_iter().flat_map(|flavour| LANGUAGES.map(|language| (flavour, language)))
        {
            let program = folder.join(format!("{flavour}-{language}"));
            let mut needed = Step::new("readelf", &["--dynamic"]);
            needed.extend([&program]);
            let is_shared = output(&needed)?.contains(&format!("[libgenesis.so.{SOVERSION}]"));
            if is_shared != (flavour == "genesis") {
                return Err(format!("{}: linked with the wrong library", program.display()));
            }
            let mut program = Step::new(program, &[]).set("GENESIS_BACKEND", "host");
            if is_shared {
                program = program.set("LD_LIBRARY_PATH", self.libraries());
            }
            run(&program)?;
        }
        Ok(())
    }
}
