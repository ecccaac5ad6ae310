//! A recorded program to replay: a trace, or a profile made into one.
//!
//! A profile has no recorded streams, and may lack its first events. What is missing is said in
//! remarks, because an answer is about what was replayed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use genesis_profile::model::{self, Event, Site};
use genesis_profile::{Profile, units};
use genesis_replay::gtr::{self, Action, Record};
use genesis_replay::job::{Job, trace_name};
use genesis_replay::program::Program;
use genesis_replay::table::grouped;
use genesis_replay::{Error, Result};

use super::super::DeviceArguments;
use super::super::profile::{self, Folder};

/// A program that can be replayed.
pub(super) struct Recording {
    /// Its name.
    pub(super) name: String,
    /// Its trace.
    pub(super) trace: PathBuf,
    pub(super) program: Program,
    /// The call site of each call; empty if they are not known.
    pub(super) sites: Vec<Rc<str>>,
    /// The whole stack of each call; empty if they are not known.
    pub(super) stacks: Vec<Rc<str>>,
    /// The batch that the program has marked.
    pub(super) batch: Option<u64>,
    /// What it lacks.
    pub(super) remarks: Vec<String>,
    /// Where a trace made of a profile lies.
    _folder: Option<Folder>,
}

impl Recording {
    /// The recording in `input`.
    pub(super) fn load(input: &Path, device: &DeviceArguments) -> Result<Self> {
        let recording = match profile::read_if_profile(input)? {
            None => Self::of_trace(&device.job(input, None, &[])?, None)?,
            Some(profile) => Self::of_profile(input, &profile, device)?,
        };
        if recording.program.largest_device_peak_bytes == 0 {
            return Err(Error::usage(format!("{}: there are no requests in it", input.display())));
        }
        Ok(recording)
    }

    fn of_trace(job: &Job, folder: Option<Folder>) -> Result<Self> {
        let (program, damage) = job.prepare()?;
        let damage =
            damage.map(|damage| format!("only up to where the trace is damaged: {damage}"));
        let mut remarks: Vec<String> = damage.into_iter().collect();
        if program.unknown_records > 0 {
            let count = grouped(program.unknown_records);
            remarks.push(format!("{count} records of unknown operations skipped"));
        }
        let (name, trace) = (trace_name(&job.trace), job.trace.clone());
        let (sites, stacks) = (Vec::new(), Vec::new());
        Ok(Self { name, trace, program, sites, stacks, batch: None, remarks, _folder: folder })
    }

    fn of_profile(input: &Path, profile: &Profile, device: &DeviceArguments) -> Result<Self> {
        let mut trace = Trace::default();
        trace.add_profile(profile).ok_or_else(|| {
            let line = "more devices, streams or blocks than a trace can have";
            Error::usage(format!("{}: {line}", input.display()))
        })?;
        let failed = |error| Error::failed(format!("cannot write the profile's trace: {error}"));
        let folder = Folder::make().map_err(failed)?;
        let path = folder.0.join("profile.gtr");
        gtr::write_file(&path, &trace.records).map_err(failed)?;
        let recording = Self::of_trace(&device.job(&path, None, &[])?, Some(folder))?;
        let name = input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let sites = trace.named(profile, units::site);
        let stacks = trace.named(profile, stack);
        let (batch, remarks) = (marked_batch(profile), remarks(profile));
        Ok(Self { name, sites, stacks, batch, remarks, ..recording })
    }
}

/// All frames of a site.
fn stack(site: &Site) -> String {
    site.frames.iter().map(units::frame).collect::<Vec<_>>().join(" · ")
}

/// The batch of the mark `batch=N`, the last if there are several.
fn marked_batch(profile: &Profile) -> Option<u64> {
    let marks = profile.history.events.iter().rev();
    let names = marks.filter(|event| event.action == model::Action::Mark).map(|event| event.name);
    let batch = |name| profile.names.get(name as usize)?.strip_prefix("batch=")?.parse().ok();
    names.into_iter().find_map(batch).filter(|batch| *batch > 0)
}

fn remarks(profile: &Profile) -> Vec<String> {
    let mut remarks = Vec::new();
    if profile.streams.len() > 1 {
        remarks.push("a profile does not have on which other streams blocks were used".to_owned());
    }
    let dropped = profile.history.dropped_events;
    if dropped > 0 {
        let dropped = grouped(dropped);
        remarks.push(format!("the first {dropped} events are not in the profile, nor replayed"));
    }
    let failures = profile.devices.iter().map(|device| device.out_of_memory_events).sum();
    if failures > 0 {
        let failures = grouped(failures);
        remarks.push(format!("{failures} requests that failed in the profile are not replayed"));
    }
    remarks
}

/// A trace made of a profile.
#[derive(Default)]
struct Trace {
    records: Vec<Record>,
    /// The index of the call site of each call.
    sites: Vec<u32>,
    /// The blocks that are live, by device and address.
    live: HashMap<(u32, u64), Record>,
    next_id: u32,
}

impl Trace {
    /// `None` if a trace cannot hold it.
    fn add_profile(&mut self, profile: &Profile) -> Option<()> {
        let before = profile.history.start_live.iter().map(|block| Event {
            action: model::Action::Allocate,
            device: block.device,
            stream: block.stream,
            address: block.address,
            requested_bytes: block.requested_bytes,
            site: block.site,
            ..Event::default()
        });
        for event in before.chain(profile.history.events.iter().copied()) {
            match event.action {
                model::Action::Free => self.free(&event),
                model::Action::Iteration => self.end_iteration(&event)?,
                action if action.is_allocation() => {
                    self.free(&event);
                    self.allocate(&event, profile)?;
                }
                _ => {}
            }
        }
        Some(())
    }

    fn allocate(&mut self, event: &Event, profile: &Profile) -> Option<()> {
        // A trace's stream 0 is the default stream.
        let key = profile.streams.get(event.stream as usize).map_or(0, |stream| stream.key);
        let stream = if key == 0 { 0 } else { u16::try_from(event.stream + 1).ok()? };
        let record = Record {
            action: Action::Allocate,
            device: u8::try_from(event.device).ok()?,
            stream,
            id: self.next_id,
            requested_bytes: event.requested_bytes,
        };
        self.next_id = self.next_id.checked_add(1)?;
        self.live.insert((event.device, event.address), record);
        self.add_call(record, event.site);
        Some(())
    }

    /// Frees the block of `event`, if it is known.
    fn free(&mut self, event: &Event) {
        if let Some(record) = self.live.remove(&(event.device, event.address)) {
            let freed = Record { action: Action::Free, requested_bytes: 0, ..record };
            self.add_call(freed, event.site);
        }
    }

    fn end_iteration(&mut self, event: &Event) -> Option<()> {
        let id = u32::try_from(event.requested_bytes).ok()?;
        let action = Action::IterationEnd;
        self.records.push(Record { action, device: 0, stream: 0, id, requested_bytes: 0 });
        Some(())
    }

    fn add_call(&mut self, record: Record, site: u32) {
        self.records.push(record);
        self.sites.push(site);
    }

    /// What `name` says of the call site of each call; nothing if the profile has no call sites.
    fn named(&self, profile: &Profile, name: impl Fn(&Site) -> String) -> Vec<Rc<str>> {
        if profile.call_sites.is_empty() {
            return Vec::new();
        }
        let names: Vec<Rc<str>> = profile.sites.iter().map(|site| name(site).into()).collect();
        let unknown: Rc<str> = "unknown".into();
        let name = |site: &u32| names.get(*site as usize).unwrap_or(&unknown).clone();
        self.sites.iter().map(name).collect()
    }
}
