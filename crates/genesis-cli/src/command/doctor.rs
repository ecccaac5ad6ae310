//! `genesis doctor`: what is in force, what is wrong, and what to do about it.
//!
//! Checks one thing after the other in the order of the library's own start: settings, the library,
//! the driver, the backend, each device with a small allocation, and what each device's driver says
//! that it is and charges. Checks that depend on something wrong are left out, so the first line marked
//! `WRONG` is the one to fix first.

mod pausing;

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use device_register::Card;
use genesis::base::size::{Bytes, MIB};
use genesis::config::{BackendChoice, OPTIONS, PoolType, Settings, dmem_limit_bytes};
use genesis::driver::{Code, Device, Identity, Prices};
use genesis::heap::extent_sizes;
use genesis_replay::library::{Library, locate};
use genesis_replay::{Result, streams};

use super::Answer;
use pausing::Pausing;

/// Show what is in force, and what is wrong with it
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The library [default: $GENESIS_LIBRARY, or next to this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let mut findings = Findings::default();
    let settings = settings(&mut findings);
    let library = library(&mut findings, arguments);
    driver(&mut findings, settings.as_ref());
    if let (Some(settings), Some(library)) = (settings, library) {
        devices(&mut findings, &library);
        if findings.wrong == 0 {
            drivers(&mut findings, &settings);
        }
    }
    Ok(findings.answer())
}

/// What was found, line by line.
#[derive(Debug, Default)]
struct Findings {
    text: String,
    wrong: usize,
}

impl Findings {
    fn fine(&mut self, what: &str, value: impl std::fmt::Display) {
        self.line("ok", what, &value);
    }

    fn wrong(&mut self, what: &str, value: impl std::fmt::Display) {
        self.wrong += 1;
        self.line("WRONG", what, &value);
    }

    fn line(&mut self, mark: &str, what: &str, value: &dyn std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{mark:<6} {what:<9} {value}");
    }

    fn advice(&mut self, advice: &str) {
        self.line("", "", &advice);
    }

    fn answer(mut self) -> Answer {
        self.text += &match self.wrong {
            0 => "\nNothing is wrong.\n".to_owned(),
            1 => "\n1 thing is wrong.\n".to_owned(),
            count => format!("\n{count} things are wrong; begin with the first.\n"),
        };
        Answer { text: self.text, is_failure: self.wrong > 0 }
    }
}

fn settings(findings: &mut Findings) -> Option<Settings> {
    let (settings, warnings) = match Settings::from_environment() {
        Ok(read) => read,
        Err(error) => {
            findings.wrong("settings", error);
            findings.advice("No allocation succeeds until this is fixed in the environment.");
            return None;
        }
    };
    for warning in warnings {
        findings.wrong("settings", warning);
    }
    let changed: Vec<String> = OPTIONS
        .iter()
        .map(|option| (option, (option.show)(&settings)))
        .filter(|(option, value)| *value != option.default_value())
        .map(|(option, value)| format!("{}={value}", option.name))
        .collect();
    if changed.is_empty() {
        findings.fine("settings", "every option has its default")
    } else {
        findings.fine("settings", changed.join(" "))
    }
    Some(settings)
}

fn library(findings: &mut Findings, arguments: &Arguments) -> Option<Library> {
    let opened = locate(arguments.library.as_deref()).and_then(|path| Library::open(&path));
    let library = match opened {
        Ok(library) => library,
        Err(error) => {
            findings.wrong("library", error);
            return None;
        }
    };
    let (version, own_version) = (library.version(), env!("CARGO_PKG_VERSION"));
    let found = format!("{} {version}", library.path.display());
    if version == own_version {
        findings.fine("library", found);
    } else {
        findings.wrong("library", found);
        findings.advice(&format!("This program is {own_version}; use those of one build."));
    }
    Some(library)
}

fn driver(findings: &mut Findings, settings: Option<&Settings>) {
    let backend = settings.map_or(BackendChoice::Auto, |settings| settings.backend);
    match (streams::cuda_driver_version(), backend) {
        (Ok(version), _) => {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            findings.fine("driver", format!("CUDA {major}.{minor}"));
        }
        (Err(_), BackendChoice::Host | BackendChoice::Sim) => {
            findings.fine("driver", "no CUDA driver, and none is asked for");
        }
        (Err(error), BackendChoice::Auto | BackendChoice::Cuda) => {
            findings.wrong("driver", error);
            findings.advice(
                "Install NVIDIA's driver, which brings libcuda.so.1, or ask for a simulated \
                 device: GENESIS_BACKEND=host.",
            );
        }
    }
}

fn devices(findings: &mut Findings, library: &Library) {
    let started = library.device_count().and_then(|count| Ok((count, library.backend()?)));
    let (count, backend) = match started {
        Ok(started) => started,
        Err(error) => return findings.wrong("backend", error),
    };
    let meaning = match &*backend {
        "cuda" => "GPUs through the CUDA driver",
        "host" => "devices simulated in host memory; no GPU is used",
        _ => "devices simulated without memory; no GPU is used",
    };
    findings.fine("backend", format!("{backend}: {meaning}"));
    match library.option("GENESIS_POOL_TYPE") {
        Ok(strategy) => findings.fine("strategy", strategy),
        Err(error) => findings.wrong("strategy", error),
    }
    if count == 0 {
        findings.wrong("device", "there is none; is CUDA_VISIBLE_DEVICES empty?");
    }
    for device in 0..count {
        match try_device(library, device) {
            Ok(found) => findings.fine("device", found),
            Err(error) => findings.wrong("device", format!("{device}: {error}")),
        }
    }
}

/// What the driver itself says of each device, by calls of our own.
fn drivers(findings: &mut Findings, settings: &Settings) {
    let platform = match genesis::driver::open(settings) {
        Ok(platform) => platform,
        Err(error) => return findings.wrong("driver", error),
    };
    for device in platform.devices {
        identity(findings, &*device, settings);
        if settings.strategy.pool_type == PoolType::Elastic {
            prices(findings, &*device);
            pausing(findings, &*device);
        }
    }
}

/// Which device it is, or which instance of one, and the limits that are set for it outside.
fn identity(findings: &mut Findings, device: &dyn Device, settings: &Settings) {
    let ordinal = device.ordinal();
    let identity = device.identity();
    if let Some(Identity { uuid, pci_bus_id }) = &identity {
        let card = Card { uuid: *uuid, name: device.name() };
        let instance =
            if card.is_instance() { ", an instance whose memory is its own" } else { "" };
        findings
            .fine("identity", format!("{ordinal}: {}, {pci_bus_id}{instance}", card.uuid_text()));
    }
    let kernel = identity.and_then(|identity| dmem_limit_bytes(&identity.pci_bus_id));
    let set = settings.device_limits.of(ordinal);
    for (limit, whose) in [(set, "GENESIS_DEVICE_LIMITS"), (kernel, "dmem.max")] {
        if let Some(bytes) = limit {
            findings.fine("limit", format!("{ordinal}: {} by {whose}", Bytes(bytes)));
        }
    }
    if let Some(bytes) = settings.device_limits.of_container(ordinal) {
        let whose = match settings.share {
            Some(_) => "all processes of the container together",
            None => "each process of the container, because GENESIS_SHARE is off",
        };
        findings.fine("limit", format!("{ordinal}: {} for {whose}", Bytes(bytes)));
    }
}

/// What the driver charges for mapped memory, and what Elastic makes of it.
fn prices(findings: &mut Findings, device: &dyn Device) {
    let ordinal = device.ordinal();
    match Prices::try_out(device) {
        Ok(prices) => findings.fine("prices", format!("{ordinal}: {}", conclusion(&prices))),
        Err(error) if error.code == Code::NOT_SUPPORTED => {
            findings.fine("prices", format!("{ordinal}: no virtual memory management"));
        }
        Err(error) => findings.wrong("prices", format!("{ordinal}: {error}")),
    }
}

/// What a pause and a resume take.
fn pausing(findings: &mut Findings, device: &dyn Device) {
    let ordinal = device.ordinal();
    match Pausing::measure(device) {
        Ok(pausing) => findings.fine("pausing", format!("{ordinal}: {pausing}")),
        // Others may hold what there is.
        Err(error) if error.is_out_of_memory() => {
            findings.fine("pausing", format!("{ordinal}: not measured, memory is short"));
        }
        Err(error) => findings.wrong("pausing", format!("{ordinal}: {error}")),
    }
}

/// The prices, and the extents that follow from them.
fn conclusion(prices: &Prices) -> String {
    let dearness = prices.dearness();
    let [least, most] = extent_sizes(dearness).map(Bytes);
    let times = 1 << dearness.unsigned_abs();
    let relation = match dearness {
        0 => "as on an H100".to_owned(),
        1.. => format!("{times} times as large as on an H100, because extents are dear"),
        _ => format!("1/{times} of the size on an H100, because extents are cheap"),
    };
    format!("{prices}; extents of {least} to {most}, {relation}")
}

/// Describes `device` after an allocation and a free on it.
fn try_device(library: &Library, device: usize) -> Result<String> {
    library.try_allocation(device, MIB)?;
    let (free_bytes, total_bytes) = library.memory_info(device)?;
    let name = library.device_name(device)?;
    let (free, total) = (Bytes(free_bytes), Bytes(total_bytes));
    Ok(format!("{device}: {name}, {free} of {total} free; allocates and frees"))
}
