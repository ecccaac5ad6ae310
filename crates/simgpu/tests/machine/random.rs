//! Random calls, right and wrong, from one thread and from many; the machine must stay
//! consistent, agree with a plain model, and end empty.

use simgpu::{Census, Code, Config, Machine, Progress, StoreKind, Target, Times, Work};

const GRANULE: u64 = 2 << 20;
const CAPACITY: u64 = 24 * GRANULE;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len().max(1) as u64) as usize)
    }
}

/// What one thread holds, and the expected state of each thing.
#[derive(Default)]
struct Model {
    allocations: Vec<u64>,
    reservations: Vec<(u64, u64)>,
    /// Handle, bytes.
    handles: Vec<(u64, u64)>,
    /// Address, bytes.
    mappings: Vec<(u64, u64)>,
    events: Vec<u64>,
}

impl Model {
    fn step(&mut self, machine: &Machine, random: &mut Random) {
        match random.below(14) {
            0 | 1 => {
                let most_bytes = [600, 3 * GRANULE][random.below(2) as usize];
                let bytes = 1 + random.below(most_bytes);
                if let Ok(address) = machine.allocate(0, bytes) {
                    assert!(!self.allocations.contains(&address));
                    self.allocations.push(address);
                }
            }
            2 | 3 => {
                if let Some(&address) = random.pick(&self.allocations)
                    && machine.free(0, address).is_ok()
                {
                    self.allocations.retain(|&live| live != address);
                }
            }
            4 => {
                let bytes = (1 + random.below(8)) * GRANULE;
                if let Ok(address) = machine.reserve(0, bytes, GRANULE << random.below(3)) {
                    self.reservations.push((address, bytes));
                }
            }
            5 => {
                if let Some(&(address, bytes)) = random.pick(&self.reservations) {
                    let inside = |&(at, _): &(u64, u64)| at >= address && at < address + bytes;
                    let in_use = self.mappings.iter().any(inside);
                    let answer = machine.unreserve(0, address, bytes);
                    assert!(!(in_use && answer.is_ok()), "given back while in use");
                    if answer.is_ok() {
                        self.reservations.retain(|&(at, _)| at != address);
                    }
                }
            }
            6 => {
                let bytes = (1 + random.below(3)) * GRANULE;
                if let Ok(handle) = machine.create(0, bytes) {
                    self.handles.push((handle, bytes));
                }
            }
            7 => {
                if let Some(&(handle, _)) = random.pick(&self.handles)
                    && machine.release(0, handle).is_ok()
                {
                    self.handles.retain(|&(held, _)| held != handle);
                }
            }
            8 | 9 => self.map(machine, random),
            10 => {
                if let Some(&(address, bytes)) = random.pick(&self.mappings) {
                    assert!(machine.unmap(0, address, bytes + GRANULE / 2).is_err());
                    assert!(machine.unmap(0, address + GRANULE / 2, bytes).is_err());
                    if machine.unmap(0, address, bytes).is_ok() {
                        self.mappings.retain(|&(at, _)| at != address);
                    }
                }
            }
            11 => {
                if let Ok(event) = machine.event_create(0, false) {
                    self.events.push(event);
                }
            }
            12 => {
                if let Some(&event) = random.pick(&self.events) {
                    let stream = 8 + random.below(4) as usize;
                    let _ = machine.event_record(0, event, stream);
                    let _ = machine.stream_wait(0, 8 + random.below(4) as usize, event);
                    let _ = machine.event_query(0, event);
                }
            }
            _ => {
                if let Some(&address) = random.pick(&self.allocations) {
                    let stream = 8 + random.below(4) as usize;
                    let _ = machine.touch(0, stream, Work::read(address, 1, "random"));
                    let _ = machine.advance(0, stream, 1);
                }
            }
        }
    }

    fn map(&mut self, machine: &Machine, random: &mut Random) {
        let (Some(&(base, room)), Some(&(handle, bytes))) =
            (random.pick(&self.reservations), random.pick(&self.handles))
        else {
            return;
        };
        let address = base + random.below(room / GRANULE) * GRANULE;
        let overlap = |&(at, of): &(u64, u64)| address < at + of && at < address + bytes;
        let is_legal = address + bytes <= base + room && !self.mappings.iter().any(overlap);
        match machine.map(0, address, bytes, handle) {
            Ok(()) => {
                assert!(is_legal);
                self.mappings.push((address, bytes));
                let _ = machine.set_access(0, address, bytes, &[0]);
            }
            Err(code) => assert!(!is_legal || code == Code(999), "{code} for a legal mapping"),
        }
    }

    fn dismantle(self, machine: &Machine) {
        self.allocations.iter().for_each(|&address| machine.free(0, address).unwrap());
        self.mappings.iter().for_each(|&(at, bytes)| machine.unmap(0, at, bytes).unwrap());
        self.handles.iter().for_each(|&(handle, _)| machine.release(0, handle).unwrap());
        self.reservations.iter().for_each(|&(at, bytes)| machine.unreserve(0, at, bytes).unwrap());
        self.events.iter().for_each(|&event| machine.event_destroy(0, event).unwrap());
    }
}

fn config(store: StoreKind) -> Config {
    let mut config = Config::new(store, 1, CAPACITY);
    config.address_space_bytes = Some(64 * GRANULE);
    config.detect_races = true;
    config
}

fn finish(machine: &Machine) {
    machine.validate().unwrap();
    assert_eq!(machine.census(), Census::default());
    assert_eq!(machine.memory_info(0).unwrap().free_bytes, CAPACITY);
}

const STEPS: u64 = if cfg!(miri) { 150 } else { 4000 };

#[test]
fn one_thread_with_faults() {
    let stores: &[StoreKind] = if cfg!(miri) {
        &[StoreKind::AddressesOnly]
    } else {
        &[StoreKind::AddressesOnly, StoreKind::RealBytes]
    };
    for &store in stores {
        for seed in 0..3 {
            let mut random = Random(seed);
            let mut config = config(store);
            config.progress = [Progress::Automatic, Progress::Manual][seed as usize % 2];
            let machine = Machine::new(config).unwrap();
            let mut model = Model::default();
            for _ in 0..STEPS {
                if random.below(10) == 0 {
                    let nth = 1 + random.below(3);
                    machine.faults().fail(Target::ANY, nth, Times::Once, Code(999));
                }
                model.step(&machine, &mut random);
                machine.validate().unwrap();
                let census = machine.census();
                assert_eq!(census.allocations, model.allocations.len());
                assert_eq!(census.handles, model.handles.len());
                assert_eq!(census.reservations, model.reservations.len());
                assert_eq!(census.mappings, model.mappings.len());
                assert_eq!(census.events, model.events.len());
            }
            machine.faults().clear();
            model.dismantle(&machine);
            finish(&machine);
        }
    }
}

#[test]
fn many_threads() {
    let machine = Machine::new(config(StoreKind::AddressesOnly)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let machine = &machine;
            scope.spawn(move || {
                let mut random = Random(1000 + thread);
                let mut model = Model::default();
                (0..STEPS).for_each(|_| model.step(machine, &mut random));
                model.dismantle(machine);
            });
        }
    });
    finish(&machine);
}
