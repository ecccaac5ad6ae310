//! A program at a batch at which it was not recorded.
//!
//! What the recording of the largest batch did is done again, with other sizes: each of its
//! requests is found in the other recordings ([`crate::alignment`]), and its size is a curve
//! through theirs ([`crate::curve`]). Requests that no curve fits, because the data decide on them,
//! are taken together by call site: their sum gets the curve, and each is scaled alike. A request
//! that no other recording has keeps its size.
//!
//! Where a loop is gone through more often the larger the batch is, what its iterations hold beyond
//! its end adds up: there are more blocks of it then ([`crate::growth`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::alignment::Keys;
use crate::curve::{Basis, Curve};
use crate::error::{Error, Result};
use crate::forecast::live_before;
use crate::growth::{Counts, Growth};
use crate::program::{Call, Kind, Program};
use crate::record::{Action, Record};

/// How many call sites are listed.
const MOST_SITES: usize = 10;
/// Recordings are of one program if so much of what is live at the peak is in both.
const LEAST_MATCHED: f64 = 0.5;

/// A recording of one batch.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// The batch.
    pub batch: u64,
    /// The program's name.
    pub name: &'a str,
    /// What it did.
    pub program: &'a Program,
    /// The name of the call site of each call; empty if they are not known.
    pub sites: &'a [Rc<str>],
    /// The whole stack of each call; empty if they are not known.
    pub stacks: &'a [Rc<str>],
}

/// How the bytes live at the peak depend on the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteCurve {
    /// The call site; `None` for all if sites are not known.
    pub site: Option<String>,
    /// Blocks at the live peak of the largest recording.
    pub blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Their bytes over the batch.
    pub terms: Vec<(Basis, f64)>,
    /// Of these bytes: those with a curve that the recordings confirm.
    pub confirmed_bytes: u64,
    /// Of these bytes: those that some other recording does not have.
    pub unmatched_bytes: u64,
}

/// A program over the batch.
#[derive(Debug)]
pub(crate) struct Prediction<'a> {
    template: Recording<'a>,
    /// The batches recorded.
    batches: Vec<u64>,
    /// The curve of each request, by the index of its call.
    curves: BTreeMap<usize, Rc<Curve>>,
    /// How many blocks there are of each that loops hold.
    growth: Growth,
    /// The requests that every other recording has.
    matched: Vec<bool>,
}

impl<'a> Prediction<'a> {
    /// What follows from `recordings`, at least two with distinct batches that rise.
    pub(crate) fn new(recordings: &[Recording<'a>]) -> Result<Self> {
        let Some((&template, others)) = recordings.split_last() else {
            return Err(Error::usage("there is no recording"));
        };
        let has_stacks = recordings.iter().all(|recording| !recording.stacks.is_empty());
        let stacks = |of: &Recording<'a>| if has_stacks { of.stacks } else { &[] };
        let is_marked = |of: &Recording<'a>| !of.program.iteration_ends.is_empty();
        let marked = recordings.iter().all(is_marked);
        let mut keys = Keys::default();
        let requests = keys.requests(template.program, stacks(&template), marked);
        let mut counts = Counts::new(template.program);
        let mut points: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
        for other in others {
            let there = keys.requests(other.program, stacks(other), marked);
            let found = requests.matched(&there);
            let calls: HashSet<usize> =
                found.iter().flat_map(|(here, _)| here.calls.iter().copied()).collect();
            check_alike(&template, other, |index| calls.contains(&index))?;
            for (here, there) in found {
                counts.add(here, there, other.batch);
                for (here, there) in here.pairs(there) {
                    let bytes = other.program.calls[there].requested_bytes;
                    points.entry(here).or_default().push((other.batch, bytes));
                }
            }
        }
        let mut matched = vec![false; template.program.calls.len()];
        points.iter().for_each(|(index, points)| matched[*index] = points.len() == others.len());
        for (index, call) in template.program.calls.iter().enumerate() {
            if call.kind == Kind::Allocate {
                points.entry(index).or_default().push((template.batch, call.requested_bytes));
            }
        }
        let curves = curves(&points);
        let growth = counts.growth(template.batch, requests.places());
        let batches = recordings.iter().map(|recording| recording.batch).collect();
        let mut prediction = Self { template, batches, curves, growth, matched };
        prediction.pool_by_site(&points, recordings.len());
        Ok(prediction)
    }

    /// The requests that are in every recording and have no confirmed curve: the sum of each site
    /// gets a curve, and each request its part.
    fn pool_by_site(&mut self, points: &BTreeMap<usize, Vec<(u64, u64)>>, recordings: usize) {
        if recordings < 3 {
            return;
        }
        let is_pooled =
            |index: &usize| points[index].len() == recordings && !self.curves[index].is_confirmed;
        let mut pools: HashMap<Option<&str>, Vec<usize>> = HashMap::new();
        for index in points.keys().filter(|index| is_pooled(index)) {
            let site = self.template.sites.get(*index).map(|site| &**site);
            pools.entry(site).or_default().push(*index);
        }
        for pool in pools.values() {
            let sum = |at: usize| pool.iter().map(|index| points[index][at].1).sum::<u64>();
            let batch = |at: usize| points[&pool[0]][at].0;
            let sums: Vec<_> = (0..recordings).map(|at| (batch(at), sum(at))).collect();
            let curve = Curve::through(&sums);
            // The curve may miss the template; what is scaled should meet it.
            let whole = curve.at(self.template.batch);
            for index in pool {
                let bytes = self.template.program.calls[*index].requested_bytes;
                if whole > 0.0 {
                    self.curves.insert(*index, Rc::new(curve.scaled(bytes as f64 / whole)));
                }
            }
        }
    }

    /// What the program does at `batch`.
    pub(crate) fn records(&self, batch: u64) -> Vec<Record> {
        let program = self.template.program;
        let mut records = Vec::with_capacity(program.calls.len());
        // The ids of the blocks in each slot: that of the slot, and those of further ones.
        let mut blocks = vec![(0, 0..0); program.slot_count];
        let mut next = program.slot_count as u32;
        for (index, call) in program.calls.iter().enumerate() {
            let (action, bytes) = match call.kind {
                Kind::Allocate => {
                    let bytes = self.curves[&index].at(batch).round() as u64;
                    let (count, bytes) = self.growth.blocks(index, batch, bytes);
                    let further = next..next + count.saturating_sub(1) as u32;
                    next = further.end;
                    blocks[call.slot as usize] = (count.min(1), further);
                    (Action::Allocate, bytes)
                }
                Kind::Free => (Action::Free, 0),
                Kind::RecordStream => (Action::RecordStream, 0),
                Kind::EmptyCache => {
                    records.push(record(Action::EmptyCache, call, call.slot, 0));
                    continue;
                }
            };
            let (own, further) = blocks[call.slot as usize].clone();
            let ids = (0..own).map(|_| call.slot).chain(further);
            records.extend(ids.map(|id| record(action, call, id, bytes)));
        }
        records
    }

    /// The most bytes live on one device at `batch`: no strategy needs less. `None` if they are
    /// more than can be counted.
    pub(crate) fn live_peak_bytes(&self, batch: u64) -> Option<u64> {
        let program = Program::prepare(&self.records(batch)).ok()?;
        Some(program.largest_device_peak_bytes)
    }

    /// What is live at the peak of the largest recording, by call site, those with most bytes
    /// first; and all of it together.
    pub(crate) fn sites(&self) -> (Vec<SiteCurve>, SiteCurve) {
        let mut sites: BTreeMap<Option<&str>, SiteCurve> = BTreeMap::new();
        let mut all = SiteCurve::none(None);
        for (index, call) in live_at_peak(self.template.program) {
            let name = self.template.sites.get(index).map(|site| &**site);
            let site = sites.entry(name).or_insert_with(|| SiteCurve::none(name));
            let curve = self.growth.curve(index, &self.curves[&index], &self.batches);
            for of in [site, &mut all] {
                of.add(call.requested_bytes, &curve, self.matched[index]);
            }
        }
        let mut sites: Vec<SiteCurve> = sites.into_values().collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.live_bytes));
        sites.truncate(MOST_SITES);
        (sites, all)
    }
}

impl SiteCurve {
    fn none(site: Option<&str>) -> Self {
        Self {
            site: site.map(str::to_owned),
            blocks: 0,
            live_bytes: 0,
            terms: Vec::new(),
            confirmed_bytes: 0,
            unmatched_bytes: 0,
        }
    }

    fn add(&mut self, bytes: u64, curve: &Curve, is_matched: bool) {
        self.blocks += 1;
        self.live_bytes += bytes;
        self.confirmed_bytes += if curve.is_confirmed { bytes } else { 0 };
        self.unmatched_bytes += if is_matched { 0 } else { bytes };
        for (basis, each) in &curve.terms {
            match self.terms.iter_mut().find(|term| term.0 == *basis) {
                Some(term) => term.1 += each,
                None => self.terms.push((*basis, *each)),
            }
        }
        self.terms.sort_by_key(|term| term.0);
    }
}

fn record(action: Action, call: &Call, id: u32, requested_bytes: u64) -> Record {
    Record { action, device: call.device, stream: call.stream, id, requested_bytes }
}

/// The curve of each request; equal points share one.
fn curves<'a>(points: &'a BTreeMap<usize, Vec<(u64, u64)>>) -> BTreeMap<usize, Rc<Curve>> {
    let mut known: HashMap<&[(u64, u64)], Rc<Curve>> = HashMap::new();
    let curve = |(index, points): (&usize, &'a Vec<(u64, u64)>)| {
        let curve = known.entry(points).or_insert_with(|| Curve::through(points).into());
        (*index, curve.clone())
    };
    points.iter().map(curve).collect()
}

/// The requests live at the live peak of `program`, with the indices of their calls.
fn live_at_peak(program: &Program) -> Vec<(usize, Call)> {
    let end = program.calls_to_live_peak;
    (0..program.device_count).flat_map(|device| live_before(program, end, device as u8)).collect()
}

/// Refuses `other` if it is of another program than `template`, by the requests that `is_in_both`.
fn check_alike(
    template: &Recording<'_>,
    other: &Recording<'_>,
    is_in_both: impl Fn(usize) -> bool,
) -> Result<()> {
    let live = live_at_peak(template.program);
    let bytes = |calls: &mut dyn Iterator<Item = &(usize, Call)>| {
        calls.map(|(_, call)| call.requested_bytes).sum::<u64>()
    };
    let all_bytes = bytes(&mut live.iter());
    let both_bytes = bytes(&mut live.iter().filter(|(index, _)| is_in_both(*index)));
    if both_bytes as f64 >= all_bytes as f64 * LEAST_MATCHED {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, u64> = BTreeMap::new();
    for (index, call) in live.iter().filter(|(index, _)| !is_in_both(*index)) {
        let site = template.sites.get(*index).map_or("unknown call sites", |site| site);
        *missing.entry(site).or_default() += call.requested_bytes;
    }
    let percent = |bytes: u64| bytes as f64 * 100.0 / all_bytes as f64;
    let most = missing.into_iter().max_by_key(|(_, bytes)| *bytes);
    let most = most.map(|(site, bytes)| format!("; {site} has {:.0} % more", percent(bytes)));
    Err(Error::usage(format!(
        "{} (batch {}) and {} (batch {}) are not of one program: only {:.0} % of the bytes live at \
         the peak are requested in both{}",
        other.name,
        other.batch,
        template.name,
        template.batch,
        percent(both_bytes),
        most.unwrap_or_default(),
    )))
}
