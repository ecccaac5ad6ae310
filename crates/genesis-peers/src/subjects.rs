//! The allocators that are measured: the peers, each behind an adapter, and every strategy of
//! Genesis.
//!
//! An adapter (`benches/peers`) is a library with the functions of Genesis's C interface that a
//! replay calls. The program that replays, its loop, threads and samples, and the driver stand-in
//! are the same for all.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::install::{PYTORCH_VERSION, Packages, RMM_VERSION};
use crate::results::failed;
use crate::trace::Trace;
use steps::{Outcome, Step, root, run, target_folder};

/// Everything that was built for the measurement.
#[derive(Debug)]
pub(crate) struct Tools {
    /// The `genesis` program.
    pub(crate) genesis: PathBuf,
    /// The driver stand-in, under CUDA's own library names.
    pub(crate) driver_folder: PathBuf,
    /// The program that calls arenas, pools and managers.
    pub(crate) objects: PathBuf,
    adapters: PathBuf,
    /// Where valgrind puts what it has counted.
    pub(crate) counts: PathBuf,
    /// The price list of driver time, by its name in the stand-in's settings.
    pub(crate) prices: String,
}

/// One allocator as it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Its name on the page.
    pub(crate) name: String,
    /// The library that a replay opens.
    pub(crate) library: PathBuf,
    /// The value of `--strategy`, for Genesis.
    pub(crate) strategy: Option<String>,
    /// Environment variables of its process.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// True if it has a function like PyTorch's `record_stream`.
    pub(crate) has_record_stream: bool,
}

impl Subject {
    /// Returns true if it is one of Genesis's own.
    pub(crate) fn is_genesis(&self) -> bool {
        self.strategy.is_some()
    }

    /// Returns true if it supports every call of `trace`.
    pub(crate) fn can_replay(&self, trace: &Trace) -> bool {
        self.has_record_stream || !trace.records_streams
    }
}

/// The name of the subject that others' times are divided by.
pub(crate) const YARDSTICK: &str = "PyTorch native";
/// The peer that the cells are judged against.
pub(crate) const EXPANDABLE: &str = "PyTorch expandable";
/// The subject that the cells judge.
pub(crate) const ELASTIC: &str = "Genesis Elastic";
const RMM_POOL: &str = "RMM pool";
/// The subjects whose instructions are counted, which takes long.
pub(crate) const COUNTED: [&str; 4] = [YARDSTICK, EXPANDABLE, RMM_POOL, ELASTIC];
/// The same code with the smallest extents; only for cells, if it is asked for.
pub(crate) const FINE: &str = "Genesis Elastic, fine";
/// … and with little slack, too.
pub(crate) const TIGHT: &str = "Genesis Elastic, tight";

impl Tools {
    /// Builds Genesis, the stand-in and the adapters; files go to `folder`.
    pub(crate) fn build(folder: &Path, packages: &Packages, prices: &str) -> Result<Self, String> {
        let release = cargo_build()?;
        let tools = Self {
            genesis: release.join("genesis"),
            driver_folder: folder.join("driver"),
            objects: folder.join("objects"),
            adapters: folder.join("adapters"),
            counts: folder.join("counts"),
            prices: prices.to_owned(),
        };
        for folder in [&tools.driver_folder, &tools.adapters] {
            std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        }
        crate::driver::install(&release, &tools.driver_folder)?;
        let sources = newest(&[root().join("benches/peers"), root().join("include")])?;
        if !tools.is_compiled_since("torch", sources) {
            tools.compile_torch(packages)?;
        }
        if !tools.is_compiled_since("rmm_pool", sources) {
            tools.compile_rmm(packages)?;
        }
        if !tools.is_compiled_since("genesis", sources) {
            tools.compile_genesis(&release)?;
        }
        tools.compile_objects(packages, &release)?;
        Ok(tools)
    }

    /// True if the adapter is newer than `sources` and than this program, which knows the versions
    /// of packages and the compiler's flags.
    fn is_compiled_since(&self, name: &str, sources: SystemTime) -> bool {
        let program = std::env::current_exe().and_then(|path| changed(&path));
        let compiled = changed(&self.adapter(name));
        compiled.is_ok_and(|compiled| compiled > sources && program.is_ok_and(|own| compiled > own))
    }

    fn compile_torch(&self, packages: &Packages) -> Outcome {
        let libraries = packages.path("torch/lib");
        let mut compile = self.compiler("torch", PYTORCH_VERSION, packages);
        compile.extend(["-isystem".into(), packages.path("torch/include")]);
        compile.extend(["-L".into(), libraries.clone()]);
        compile.extend(["-lc10_cuda", "-lc10"]);
        compile.extend([format!("-Wl,-rpath,{}", libraries.display())]);
        run(&compile)
    }

    fn compile_rmm(&self, packages: &Packages) -> Outcome {
        let mut compile = self.compiler("rmm_pool", RMM_VERSION, packages);
        use_rmm(&mut compile, packages);
        run(&compile)
    }

    /// The functions of CUDA that RMM calls are the stand-in's.
    fn compile_objects(&self, packages: &Packages, release: &Path) -> Outcome {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut compile = Step::new(compiler, &["-std=c++17", "-O2", "-DNDEBUG", "-DWITH_RMM"]);
        compile.extend(["-isystem".into(), packages.path("nvidia/cu13/include")]);
        use_rmm(&mut compile, packages);
        compile.extend(["-I".into(), root().join("include"), "-o".into(), self.objects.clone()]);
        compile.extend([root().join("benches/suballocation/pairs.cpp")]);
        compile.extend(["-L".into(), release.to_owned()]);
        compile.extend(["-lgenesis", "-lsimcuda", "-ldl", "-pthread"]);
        compile.extend([format!("-Wl,-rpath,{}", release.display())]);
        run(&compile)
    }

    fn compile_genesis(&self, release: &Path) -> Outcome {
        let mut compile = self.bare_compiler("genesis");
        compile.extend(["-L".into(), release.to_owned()]);
        // The adapter uses no symbol of the library, so the linker would leave it out.
        compile.extend(["-Wl,--no-as-needed", "-lgenesis"]);
        compile.extend([format!("-Wl,-rpath,{}", release.display())]);
        run(&compile)
    }

    fn bare_compiler(&self, name: &str) -> Step {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let flags = ["-std=c++17", "-O2", "-DNDEBUG", "-Wall", "-Wextra", "-fPIC", "-shared"];
        let mut compile = Step::new(compiler, &flags);
        compile.extend(["-I".into(), root().join("include")]);
        compile.extend(["-o".into(), self.adapter(name)]);
        compile.extend([root().join("benches/peers").join(name).with_extension("cpp")]);
        compile
    }

    fn compiler(&self, name: &str, version: &str, packages: &Packages) -> Step {
        let mut compile = self.bare_compiler(name);
        compile.extend([format!("-DPEER_VERSION=\"{version}\"")]);
        compile.extend(["-isystem".into(), packages.path("nvidia/cu13/include")]);
        compile
    }

    fn adapter(&self, name: &str) -> PathBuf {
        self.adapters.join(format!("libpeer_{name}.so"))
    }

    /// All subjects, the peers first; of Genesis the `strategies` given.
    pub(crate) fn subjects(&self, strategies: &[String]) -> Vec<Subject> {
        let peer = |name: &str, adapter: &str, settings, has_record_stream| Subject {
            name: name.to_owned(),
            library: self.adapter(adapter),
            strategy: None,
            settings,
            has_record_stream,
        };
        let expandable = vec![("PYTORCH_ALLOC_CONF", "expandable_segments:True".to_owned())];
        let quiet = vec![("RMM_DEBUG_LOG_FILE", "/dev/null".to_owned())];
        let genesis = |name: String, strategy: &str, settings| Subject {
            name,
            library: self.adapter("genesis"),
            strategy: Some(strategy.to_owned()),
            settings,
            has_record_stream: true,
        };
        let plain = strategies
            .iter()
            .map(|strategy| genesis(format!("Genesis {strategy}"), strategy, Vec::new()));
        let policies = [(FINE, "fine"), (TIGHT, "tight")].map(|(name, policy)| {
            let policy = vec![("GENESIS_ELASTIC_POLICY", policy.to_owned())];
            genesis(name.to_owned(), "Elastic", policy)
        });
        [
            peer(YARDSTICK, "torch", Vec::new(), true),
            peer(EXPANDABLE, "torch", expandable, true),
            peer(RMM_POOL, "rmm_pool", quiet, false),
        ]
        .into_iter()
        .chain(plain)
        .chain(policies)
        .collect()
    }
}

/// Has `compile` find RMM, with what its headers ask for.
fn use_rmm(compile: &mut Step, packages: &Packages) {
    compile.extend([
        "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
        "-DSPDLOG_FMT_EXTERNAL",
        "-DFMT_HEADER_ONLY",
        "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP",
    ]);
    for inside in ["", "/rapids", "/rapids/libcudacxx"] {
        let folder = packages.path(&format!("librmm/include{inside}"));
        compile.extend(["-isystem".into(), folder]);
    }
}

/// When the file at `path` was last changed.
fn changed(path: &Path) -> std::io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
}

/// When a file of `folders` was last changed.
fn newest(folders: &[PathBuf]) -> Result<SystemTime, String> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for folder in folders {
        let in_folder = || -> std::io::Result<SystemTime> {
            let files = std::fs::read_dir(folder)?.map(|entry| changed(&entry?.path()));
            files
                .collect::<Result<Vec<_>, _>>()
                .map(|times| times.into_iter().fold(newest, Ord::max))
        };
        newest = in_folder().map_err(|error| failed(folder, &error))?;
    }
    Ok(newest)
}

/// Builds Genesis, its program and the stand-in in release, and returns their folder.
fn cargo_build() -> Result<PathBuf, String> {
    let packages = ["--package", "genesis", "--package", "genesis-cli", "--package", "simcuda"];
    let mut build = steps::cargo(&["build", "--release"]);
    build.extend(packages);
    run(&build)?;
    Ok(target_folder().join("release"))
}
