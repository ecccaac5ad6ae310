//! `cargo xtask`: the project's commands, each written once.
//!
//! Continuous integration, the README and people all call these. A command is a list of steps;
//! a step is another program's command line, echoed before it runs, in the root of the
//! repository. Nothing is interpreted here but exit statuses.

mod campaign;
mod environments;
mod frameworks;
mod generated;
mod gpu;
mod libraries;
mod long_runs;
mod packages;
mod prerequisites;
mod suite;
mod torch;

use std::process::ExitCode;
use std::thread;

use clap::{Parser, Subcommand};

use steps::{Outcome, Step, cargo, root, run};

/// The trace that the demonstration replays.
const DEMO_TRACE: &str = "llama7b_lora_ckpt";

/// Genesis's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build in release, then replay a recorded training run under every strategy and draw it
    Demo,
    /// What continuous integration runs: all that must hold of a change
    Ci,
    /// Build and test everything, large matrices in part
    Test {
        /// Passed on to `cargo test`, which is then run instead
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build and test everything, each matrix in full, then run the campaign
    Nightly {
        /// How long the campaign's parts take that have no end of their own, in minutes
        #[arg(long, default_value_t = campaign::HOUR_MINUTES)]
        minutes: u64,
    },
    Campaign(campaign::CampaignArguments),
    Mutants(campaign::MutantsArguments),
    Interfaces(campaign::InterfacesArguments),
    /// Install PyTorch, and run its tests on a simulated GPU
    TestTorch {
        /// With the newest release of PyTorch, instead of the one the tests are written for
        #[arg(long)]
        newest: bool,
        /// With this release of PyTorch, such as 2.13.0
        #[arg(long, conflicts_with = "newest")]
        release: Option<String>,
        /// Passed on to pytest
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run PyTorch's own tests of memory, with its allocator and with Genesis, on a simulated GPU
    #[command(disable_help_flag = true)]
    TestPytorchSuite {
        /// With the newest release of PyTorch
        #[arg(long)]
        newest: bool,
        /// The file test/test_cuda.py of PyTorch's sources, and what else
        /// tests/torch/suite/run.py takes, `--help` included
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install CuPy, RMM, Numba, ONNX Runtime and MXNet, and run their tests on a simulated GPU
    TestFrameworks {
        /// Passed on to pytest
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install a browser, and look at a profile's page in it
    TestPage {
        /// Passed on to tests/page/test_page.py
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build, and install the libraries, the headers and the command
    Install(packages::InstallArguments),
    /// Remove what was installed
    Uninstall(packages::UninstallArguments),
    /// Make every package, into target/dist
    Dist,
    /// Make every package, install each into an empty place and use it, and run the pages of docs/
    TestPackages {
        /// Run only these pages, such as docs/installing.md
        pages: Vec<std::path::PathBuf>,
    },
    /// Check what must hold beside the tests: format, lints, and that generated files are current
    Lint,
    /// Generate include/genesis.h and docs/options.md
    Generate,
    /// Run the benchmarks
    Bench {
        /// Run one case of each once, to see that they work
        #[arg(long)]
        smoke: bool,
    },
    /// Compare Genesis with PyTorch's own allocator and RMM's pool on the recorded programs
    #[command(disable_help_flag = true)]
    Peers {
        /// Passed on to `genesis-peers`, `--help` included
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compare Genesis with PyTorch's own allocator on long runs of programs under PyTorch
    #[command(disable_help_flag = true)]
    LongRuns {
        /// Passed on to benches/long_runs/measure.py, `--help` included
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    Gpu(gpu::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo => demo(),
        Command::Ci => ci(),
        Command::Test { arguments } => suite::test(&arguments),
        Command::Nightly { minutes } => nightly(minutes),
        Command::Campaign(arguments) => campaign::run_all(&arguments),
        Command::Mutants(arguments) => campaign::mutants(&arguments),
        Command::Interfaces(arguments) => campaign::interfaces(&arguments),
        Command::TestTorch { newest, release, arguments } => {
            let version = release.map_or(version(newest), torch::Version::Release);
            torch::test(&version, &arguments)
        }
        Command::TestPytorchSuite { newest, arguments } => {
            torch::test_suite(&version(newest), &arguments)
        }
        Command::TestFrameworks { arguments } => frameworks::test(&arguments),
        Command::TestPage { arguments } => test_page(&arguments),
        Command::Install(arguments) => packages::install(&arguments),
        Command::Uninstall(arguments) => packages::uninstall(&arguments),
        Command::Dist => packages::dist(),
        Command::TestPackages { pages } => packages::test(&pages, suite::Tier::Nightly),
        Command::Lint => lint(),
        Command::Generate => generated::write(),
        Command::Peers { arguments } => peers(&arguments),
        Command::LongRuns { arguments } => long_runs::measure(&arguments),
        Command::Gpu(arguments) => gpu::gpu(&arguments),
        Command::Bench { smoke } => bench(smoke),
    };
    steps::report();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Every check, the quickest first; the first that fails ends it, once the downloads beside it have
/// ended.
fn ci() -> Outcome {
    environments::lint()?;
    prerequisites::install(prerequisites::OF_THE_LIBRARY)?;
    thread::scope(|scope| {
        // Gigabytes come over the network while the compiler has the processors.
        let programs = scope.spawn(prerequisites::install_all);
        let frameworks = scope.spawn(frameworks::install_all);
        lint_rust()?;
        suite::test(&[])?;
        programs.join().map_err(|_| "the programs that tests run are not installed")??;
        test_page(&[])?;
        frameworks.join().map_err(|_| "the frameworks are not installed")??;
        torch::test(&torch::Version::Usual, &[])?;
        frameworks::test(&[])?;
        packages::test(&[], suite::Tier::EveryChange)
    })
}

/// Every matrix in full and the campaign: all parts, also after one that failed, for there is one
/// round a night.
fn nightly(minutes: u64) -> Outcome {
    let parts: [&dyn Fn() -> Outcome; 7] = [
        &environments::tidy,
        &suite::nightly,
        &torch::nightly,
        &frameworks::nightly,
        &|| packages::test(&[], suite::Tier::Nightly),
        &smoke,
        &|| campaign::run_all(&campaign::CampaignArguments::of(minutes)),
    ];
    let failures: Vec<String> = parts.into_iter().filter_map(|part| part().err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn version(is_newest: bool) -> torch::Version {
    if is_newest { torch::Version::Newest } else { torch::Version::Usual }
}

/// What else people run, in a short form each, so that it goes on working.
fn smoke() -> Outcome {
    demo()?;
    bench(true)?;
    peers(&["--smoke".to_owned()])?;
    long_runs::measure(&["--smoke".to_owned()])
}

fn bench(is_smoke: bool) -> Outcome {
    let mut bench = cargo(&["bench", "--bench", "hot_path", "--bench", "replay"]);
    bench.extend(["--bench", "interposition"]);
    if is_smoke {
        bench.extend(["--bench", "recording", "--bench", "mxnet", "--", "--smoke"]);
    }
    run(&bench)
}

fn test_page(arguments: &[String]) -> Outcome {
    prerequisites::install(prerequisites::OF_THE_PAGE)?;
    run(&suite::build_examples())?;
    let built = steps::target_folder().join("debug");
    let mut test = Step::new("python3", &["tests/page/test_page.py"]);
    test.extend([built.join("examples/sample_page"), built.join("genesis")]);
    test.extend(arguments);
    run(&test)
}

fn lint() -> Outcome {
    environments::lint()?;
    lint_rust()
}

/// Also that generated files are current, which is to build the library.
fn lint_rust() -> Outcome {
    run(&cargo(&["fmt", "--all", "--check"]))?;
    // With the features that only benches have; all other builds are without them.
    let features = ["--features", "genesis/ablations"];
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets"]);
    clippy.extend(features);
    clippy.extend(["--", "--deny", "warnings"]);
    run(&clippy)?;
    // Run by the campaign only, so nothing else would tell that they no longer compile.
    let mut models = cargo(&["check", "--package", "genesis", "--lib", "--profile", "test"]);
    models.extend(["--features", "shuttle"]);
    run(&models)?;
    generated::write()?;
    run(&Step::new("git", &["diff", "--exit-code", "--", generated::HEADER, generated::OPTIONS]))
}

/// A program of its own, so that building this one takes no time for charts and replays.
fn peers(arguments: &[String]) -> Outcome {
    prerequisites::install(prerequisites::OF_THE_PEERS)?;
    let mut peers = cargo(&["run", "--quiet", "--package", "genesis-peers", "--"]);
    peers.extend(arguments);
    run(&peers)
}

fn demo() -> Outcome {
    run(&cargo(&["build", "--release", "--package", "genesis", "--package", "genesis-cli"]))?;
    let target = steps::target_folder();
    let picture = target.join("demo").join(DEMO_TRACE).with_extension("svg");
    std::fs::create_dir_all(target.join("demo"))
        .map_err(|error| format!("{}: {error}", target.display()))?;
    let mut compare = Step::new(target.join("release/genesis"), &["compare"]);
    compare.extend([root().join("traces").join(DEMO_TRACE).with_extension("gtr.zst")]);
    compare.extend(["--output".into(), picture.clone()]);
    run(&compare)?;
    println!("\nThe picture is in {}", picture.display());
    Ok(())
}
