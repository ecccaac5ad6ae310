// One walk over the events: levels of each device, lifetimes of blocks and of mapped ranges, notes.
//
// A lifetime is a pair of event numbers: a block born in event `b` that dies in event `d` exists after
// the events b … d−1. So the state at any moment is one scan of two integer arrays, without an index
// and without a replay. −1 means "before the history"; the number of events means "still live".

const ACTIONS = [null, 'allocated', 'allocated, a miss', 'freed', 'pending', 'ready', 'reserved', 'released',
  'mapped', 'unmapped', 'trim', 'out of memory', 'paused', 'resumed', 'range begins', 'range ends', 'mark',
  'iteration ends'];
const [ALLOCATE, MISS, FREE, PENDING, READY, RESERVE, RELEASE, MAP, UNMAP, TRIM, OUT_OF_MEMORY, PAUSE, RESUME,
  RANGE_PUSH, RANGE_POP, MARK, ITERATION] = ACTIONS.slice(1).map((_, index) => index + 1);

const NONE = -1;

function buildHistory(profile, events) {
  const { length, action, row, address } = events;
  const counts = new Uint32Array(18);
  for (let i = 0; i < length; i++) counts[action[i]]++;
  const started = profile.history.start_live;
  const blocks = makeLifetimes(started.length + counts[ALLOCATE] + counts[MISS], length);
  const ranges = makeLifetimes(counts[RESERVE] + counts[RELEASE] + counts[MAP] + counts[UNMAP], length);
  const levels = profile.devices.map((device, index) => new LevelWalk(profile, events, index));
  const notes = new Notes(profile, events);
  // By index of address: the live block, the last freed block, the mapped range.
  const live = new Int32Array(events.addresses.length).fill(NONE);
  const freed = new Int32Array(events.addresses.length).fill(NONE);
  const mapped = new Int32Array(events.addresses.length).fill(NONE);
  addStartBlocks(profile, events, blocks, live);
  let justFreed = NONE;
  for (let i = 0; i < length; i++) {
    const what = action[i];
    if (what >= TRIM) {
      notes.add(i, what);
      justFreed = NONE;
      continue;
    }
    if (row[i] === NO_ROW) continue;
    const at = address[i];
    const walk = levels[row[i]];
    const size = events.block[i];
    if (what <= MISS) {
      live[at] = blocks.add(i, events.addresses[at], size, events.requested[i], events.site[i], events.stream[i], row[i]);
      walk.requested += events.requested[i];
      walk.allocated += size;
      walk.active += size;
      walk.push(i);
      justFreed = NONE;
      continue;
    }
    switch (what) {
      case FREE: {
        const isPendingNext = i + 1 < length && action[i + 1] === PENDING && address[i + 1] === at;
        if (live[at] !== NONE) blocks.gone[live[at]] = blocks.ready[live[at]] = i;
        freed[at] = live[at];
        live[at] = NONE;
        walk.requested -= events.requested[i];
        walk.allocated -= size;
        if (!isPendingNext) walk.active -= size;
        walk.push(i);
        justFreed = at;
        continue;
      }
      case PENDING:
        if (freed[at] !== NONE) blocks.ready[freed[at]] = length;
        if (justFreed !== at) {
          walk.active += size;
          walk.push(i);
        }
        break;
      case READY:
        if (freed[at] !== NONE) blocks.ready[freed[at]] = i;
        walk.active -= size;
        walk.push(i);
        break;
      case RESERVE:
        walk.reserved += size;
        walk.push(i);
        openRange(i);
        break;
      case RELEASE:
        walk.reserved -= size;
        walk.push(i);
        closeRange(i);
        break;
      case MAP:
        openRange(i);
        break;
      case UNMAP:
        closeRange(i);
        break;
    }
    justFreed = NONE;
  }

  function openRange(i) {
    const at = address[i];
    if (events.addresses[at] === 0) return;
    if (mapped[at] !== NONE) ranges.gone[mapped[at]] = i;
    mapped[at] = ranges.add(i, events.addresses[at], events.block[i], 0, 0, events.stream[i], row[i]);
  }

  function closeRange(i) {
    const at = address[i];
    if (events.addresses[at] === 0) return;
    if (mapped[at] === NONE) {
      mapped[at] = ranges.add(NONE, events.addresses[at], events.block[i], 0, 0, events.stream[i], row[i]);
    }
    ranges.gone[mapped[at]] = i;
    mapped[at] = NONE;
  }

  notes.finish();
  return { events, blocks, ranges, notes, levels: levels.map((walk) => walk.finish()) };
}

/** Blocks or ranges with their lifetimes, one typed array for each field. */
function makeLifetimes(capacity, events) {
  const made = {
    length: 0,
    born: new Int32Array(capacity),
    gone: new Int32Array(capacity).fill(events),
    ready: new Int32Array(capacity).fill(events),
    address: new Float64Array(capacity),
    bytes: new Float64Array(capacity),
    requested: new Float64Array(capacity),
    site: new Uint32Array(capacity),
    stream: new Uint32Array(capacity),
    row: new Uint8Array(capacity),
    add(born, address, bytes, requested, site, stream, row) {
      const index = made.length++;
      made.born[index] = born;
      made.address[index] = address;
      made.bytes[index] = bytes;
      made.requested[index] = requested;
      made.site[index] = site;
      made.stream[index] = stream;
      made.row[index] = row;
      return index;
    },
  };
  return made;
}

function addStartBlocks(profile, events, blocks, live) {
  const started = profile.history.start_live;
  if (started.length === 0) return;
  const indexOf = new Map();
  for (let i = 0; i < events.addresses.length; i++) indexOf.set(events.addresses[i], i);
  for (const block of started) {
    const row = profile.devices.findIndex((device) => device.ordinal === block.device);
    const index = blocks.add(NONE, block.address, block.block_bytes, block.requested_bytes, block.site,
      block.stream, row < 0 ? NO_ROW : row);
    const at = indexOf.get(block.address);
    if (at !== undefined) live[at] = index;
  }
}

/** The levels of one device after each event that changes them; entry 0 has the first levels. */
class LevelWalk {
  constructor(profile, events, row) {
    let capacity = 1;
    for (let i = 0; i < events.length; i++) {
      if (events.row[i] === row && events.action[i] <= RELEASE) capacity++;
    }
    const start = profile.history.start[row] || {};
    this.events = events;
    this.length = 0;
    this.time = new Float64Array(capacity);
    this.event = new Int32Array(capacity);
    this.values = LEVELS.map(() => new Float64Array(capacity));
    [this.requestedAt, this.allocatedAt, this.activeAt, this.reservedAt] = this.values;
    [this.requested, this.allocated, this.active, this.reserved] = LEVELS.map((name) => start[`${name}_bytes`] || 0);
    this.pushAt(NONE, profile.history.dropped_events > 0 && events.length > 0 ? events.time[0] : 0);
  }

  push(event) {
    this.pushAt(event, this.events.time[event]);
  }

  pushAt(event, time) {
    const index = this.length++;
    this.time[index] = time;
    this.event[index] = event;
    this.requestedAt[index] = this.requested;
    this.allocatedAt[index] = this.allocated;
    this.activeAt[index] = this.active;
    this.reservedAt[index] = this.reserved;
  }

  finish() {
    const { length, time, event, values } = this;
    return { length, time, event, values };
  }
}

/** Annotations and failures: ranges with names, and moments. */
class Notes {
  constructor(profile, events) {
    this.profile = profile;
    this.events = events;
    this.ranges = [];
    this.moments = [];
    this.threads = new Map();
  }

  add(i, what) {
    const { events } = this;
    const thread = events.address[i];
    if (what === RANGE_PUSH) {
      if (!this.threads.has(thread)) this.threads.set(thread, { open: [], deepest: 0 });
      const { open } = this.threads.get(thread);
      const range = { first: i, last: NONE, name: events.name[i], thread, depth: open.length };
      open.push(range);
      this.threads.get(thread).deepest = Math.max(this.threads.get(thread).deepest, open.length);
      this.ranges.push(range);
    } else if (what === RANGE_POP) {
      const range = this.threads.get(thread)?.open.pop();
      if (range) range.last = i;
    } else {
      this.moments.push({ what, event: i });
    }
  }

  /** Each thread gets lanes of its own. */
  finish() {
    let lanes = 0;
    for (const thread of this.threads.values()) {
      thread.lane = lanes;
      lanes += thread.deepest;
    }
    for (const range of this.ranges) {
      range.lane = this.threads.get(range.thread).lane + range.depth;
    }
    this.lanes = lanes;
  }

  /** Puts everything where its events stand on the axis; ranges still open end at `end`. */
  place(end) {
    const { time } = this.events;
    for (const range of this.ranges) {
      range.from = time[range.first];
      range.to = range.last === NONE ? end : time[range.last];
    }
    for (const note of this.moments) note.time = time[note.event];
  }
}
