// The blocks in memory at a moment, and the call sites that hold most.
//
// The last moment comes from the profile's segments. Earlier ones are computed from lifetimes: the
// blocks live then, over the ranges mapped then. A range without events was mapped all the time.

const [LIVE, WAITING, PAUSED] = [0, 1, 2];
const STATES = { live: LIVE, pending: WAITING, paused: PAUSED };

class Moments {
  constructor(profile, history) {
    this.profile = profile;
    this.history = history;
    this.last = history.events.length;
    this.alwaysMapped = profile.devices.map((_, row) => this.rangesWithoutEvents(row));
  }

  /** What lies on device `row` after `until` events; the profile's own account if `isFinal`. */
  at(row, until, time, isFinal) {
    const segments = this.profile.segments.filter((s) => s.device === this.profile.devices[row].ordinal);
    const picture = isFinal && segments.length > 0 ? this.ofSegments(segments) : this.ofLifetimes(row, until);
    return { ...picture, row, until, time, isFinal };
  }

  ofSegments(segments) {
    const parts = [];
    const runs = [];
    let away = 0;
    for (const segment of segments) {
      for (const block of segment.blocks) {
        if (block.state === 'paused') away += block.bytes;
        if (block.state === 'paused' || block.state === 'unmapped') continue;
        runs.push([block.address, block.address + block.bytes]);
        if (block.state !== 'free') parts.push({ block, stream: segment.stream });
      }
    }
    parts.sort((a, b) => a.block.address - b.block.address);
    const blocks = emptyBlocks(parts.length);
    const bornOf = new Map(this.profile.live.map((block) => [block.address, block]));
    parts.forEach(({ block, stream }, i) => {
      blocks.address[i] = block.address;
      blocks.bytes[i] = block.bytes;
      blocks.requested[i] = block.requested_bytes;
      blocks.site[i] = block.site;
      blocks.stream[i] = stream;
      blocks.state[i] = STATES[block.state];
      const age = bornOf.get(block.address)?.age_ns;
      blocks.born[i] = age === null || age === undefined ? NaN : this.profile.duration_ns - age;
    });
    return { blocks, runs: merged(runs), away };
  }

  ofLifetimes(row, until) {
    const all = this.history.blocks;
    const { born, ready, row: rowOf } = all;
    // `born` is below `until` if the event has happened; event numbers count from 0.
    let found = 0;
    for (let i = 0; i < all.length; i++) {
      if (born[i] < until && ready[i] >= until && rowOf[i] === row) found++;
    }
    const chosen = new Uint32Array(found);
    found = 0;
    for (let i = 0; i < all.length; i++) {
      if (born[i] < until && ready[i] >= until && rowOf[i] === row) chosen[found++] = i;
    }
    chosen.sort((a, b) => all.address[a] - all.address[b]);
    const blocks = emptyBlocks(found);
    const runs = this.rangesAt(row, until);
    for (let i = 0; i < found; i++) {
      const at = chosen[i];
      blocks.address[i] = all.address[at];
      blocks.bytes[i] = all.bytes[at];
      blocks.requested[i] = all.requested[at];
      blocks.site[i] = all.site[at];
      blocks.stream[i] = all.stream[at];
      blocks.state[i] = all.gone[at] >= until ? LIVE : WAITING;
      blocks.born[i] = born[at] < 0 ? NaN : this.history.events.clock[born[at]];
      runs.push([all.address[at], all.address[at] + all.bytes[at]]);
    }
    return { blocks, runs: merged(runs), away: 0 };
  }

  rangesAt(row, until) {
    const { ranges } = this.history;
    const found = this.alwaysMapped ? this.alwaysMapped[row].slice() : [];
    for (let i = 0; i < ranges.length; i++) {
      if (ranges.row[i] === row && ranges.born[i] < until && ranges.gone[i] >= until) {
        found.push([ranges.address[i], ranges.address[i] + ranges.bytes[i]]);
      }
    }
    return found;
  }

  /** What is mapped at the end and was by no event. */
  rangesWithoutEvents(row) {
    const told = merged(this.rangesAt(row, this.last));
    const segments = this.profile.segments.filter((s) => s.device === this.profile.devices[row].ordinal);
    const left = [];
    let next = 0;
    for (const [start, end] of this.ofSegments(segments).runs) {
      let from = start;
      while (next < told.length && told[next][1] <= from) next++;
      for (let i = next; i < told.length && told[i][0] < end; i++) {
        if (told[i][0] > from) left.push([from, told[i][0]]);
        from = Math.max(from, told[i][1]);
      }
      if (from < end) left.push([from, end]);
    }
    return left;
  }

  /** The blocks of a picture summed by `keyOf` (site or size), largest first. */
  holders({ blocks }, by) {
    const sums = new Map();
    for (let i = 0; i < blocks.length; i++) {
      if (blocks.state[i] !== LIVE) continue;
      const key = by === 'site' ? blocks.site[i] : blocks.bytes[i];
      const sum = sums.get(key);
      if (sum) {
        sum.bytes += blocks.bytes[i];
        sum.requested += blocks.requested[i];
        sum.count++;
      } else {
        sums.set(key, { key, bytes: blocks.bytes[i], requested: blocks.requested[i], count: 1 });
      }
    }
    return [...sums.values()].sort((a, b) => b.bytes - a.bytes);
  }
}

/** Blocks in order of address, one typed array for each field. */
function emptyBlocks(length) {
  return {
    length,
    address: new Float64Array(length),
    bytes: new Float64Array(length),
    requested: new Float64Array(length),
    site: new Uint32Array(length),
    stream: new Uint32Array(length),
    state: new Uint8Array(length),
    born: new Float64Array(length),
  };
}

/** Joins ranges that touch or overlap; in order. */
function merged(ranges) {
  ranges.sort((a, b) => a[0] - b[0]);
  const result = [];
  for (const [start, end] of ranges) {
    const last = result[result.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else if (end > start) result.push([start, end]);
  }
  return result;
}

/**
 * A colour for each call site, size, or stream. There are fewer colours than sizes: those that hold
 * most at a peak and those that hold most over time get colours of their own, alternately.
 */
class Colours {
  constructor(profile, moments, pictures) {
    const overTime = ({ counts }) => counts.live_bytes * profile.duration_ns
      + counts.lifetime_ns * counts.requested_bytes / Math.max(1, counts.allocations);
    const longest = (rows) => rows.slice().sort((a, b) => overTime(b) - overTime(a));
    const atPeaks = (by) => pictures.flatMap((picture) => moments.holders(picture, by))
      .sort((a, b) => b.bytes - a.bytes).map((holder) => holder.key);
    const sites = inTurns(atPeaks('site'), longest(profile.call_sites).map((row) => row.site));
    this.rank = {
      site: ranked(sites.filter((site) => site !== 0)),
      size: ranked(inTurns(atPeaks('size'), longest(profile.sizes).map((row) => row.block_bytes))),
      stream: ranked(profile.streams.map((_, index) => index)),
    };
  }

  of(by, key, other) {
    const rank = this.rank[by].get(key);
    return rank === undefined || rank >= PALETTE.length ? other : PALETTE[rank];
  }
}

/** Alternately one of the first and one of the second, each once. */
function inTurns(first, second) {
  const mixed = new Set();
  for (let i = 0; i < Math.max(first.length, second.length); i++) {
    if (i < first.length) mixed.add(first[i]);
    if (i < second.length) mixed.add(second[i]);
  }
  return [...mixed];
}

function ranked(keys) {
  return new Map(keys.map((key, index) => [key, index]));
}

// Distinct on light and dark; neighbours differ strongly.
const PALETTE = ['#3f7fe0', '#e8863a', '#2fa58a', '#c9539c', '#8a6ee0', '#c8a92c', '#4fb0d8', '#d65a55',
  '#6fae45', '#a0764f', '#5c86a8', '#b56ec9', '#3d9c5f', '#d98aa5', '#7d8f2f', '#5a62c4'];
