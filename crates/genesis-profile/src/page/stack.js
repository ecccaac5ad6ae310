// The holders of allocated memory over time: the live bytes of the largest call sites (or sizes, or
// streams), stacked, in the columns of the timeline.
//
// Each column shows its moment with most live bytes, so that peaks keep their height and the parts
// are of one moment. The sums at the begin of a picture come from the lifetimes of the blocks, the
// rest from one walk over the events in view. Only one byte for each event is kept.

const STACKED = 11;

class Stack {
  constructor(app, device, by) {
    this.device = device;
    this.by = by;
    this.history = app.history;
    const { blocks, events } = this.history;
    // Parts with colours of their own.
    this.keys = [...app.colours.rank[by].keys()].slice(0, STACKED);
    const rankOf = new Map(this.keys.map((key, rank) => [key, rank]));
    this.ranks = new Uint8Array(events.length);
    this.rankOfBlock = new Uint8Array(blocks.length);
    for (let i = 0; i < blocks.length; i++) {
      const rank = rankOf.get(this.keyOf(i)) ?? this.keys.length;
      this.rankOfBlock[i] = rank;
      if (blocks.born[i] >= 0) this.ranks[blocks.born[i]] = rank;
      if (blocks.gone[i] < events.length) this.ranks[blocks.gone[i]] = rank;
    }
  }

  keyOf(block) {
    const { site, bytes: size, stream } = this.history.blocks;
    return this.by === 'site' ? site[block] : this.by === 'size' ? size[block] : stream[block];
  }

  /** For each of `columns` parts of [from, to] the bytes by rank, one array a rank; the last is the rest. */
  columns(from, to, columns) {
    const { events, blocks } = this.history;
    const { row } = this.device;
    const ranks = this.keys.length + 1;
    const made = Array.from({ length: ranks }, () => new Float64Array(columns).fill(NaN));
    const sums = new Float64Array(ranks);
    let next = upperBound(events.time, events.length, from);
    let total = 0;
    for (let i = 0; i < blocks.length; i++) {
      if (blocks.row[i] === row && blocks.born[i] < next && blocks.gone[i] >= next) {
        sums[this.rankOfBlock[i]] += blocks.bytes[i];
        total += blocks.bytes[i];
      }
    }
    const step = (to - from) / columns;
    for (let column = 0; column < columns; column++) {
      const end = from + (column + 1) * step;
      if (end <= this.device.exactFrom) continue;
      let most = total;
      for (let rank = 0; rank < ranks; rank++) made[rank][column] = sums[rank];
      let isNew = false;
      for (; next < events.length && events.time[next] <= end; next++) {
        const what = events.action[next];
        if (what > FREE || events.row[next] !== row) continue;
        // The sum rises until the next free, which ends the highest moment.
        if (what === FREE && isNew) {
          for (let rank = 0; rank < ranks; rank++) made[rank][column] = sums[rank];
          isNew = false;
        }
        const change = what === FREE ? -events.block[next] : events.block[next];
        sums[this.ranks[next]] += change;
        total += change;
        if (total > most) {
          most = total;
          isNew = true;
        }
      }
      if (isNew) for (let rank = 0; rank < ranks; rank++) made[rank][column] = sums[rank];
    }
    return made;
  }

  /** The same colours as on the map and in the tables. */
  colour(app, rank, other) {
    return rank < this.keys.length ? app.colours.of(this.by, this.keys[rank], other) : other;
  }

  /** What a rank is called. */
  label(app, rank) {
    if (rank === this.keys.length) return 'others';
    const key = this.keys[rank];
    if (this.by === 'size') return bytes(key);
    if (this.by === 'stream') return streamText(app.profile, key);
    return siteText(app.profile.sites[key]);
  }
}

function streamText(profile, index) {
  const stream = profile.streams[index];
  return stream && stream.key ? `stream 0x${stream.key.toString(16)}` : 'default stream';
}
