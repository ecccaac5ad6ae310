// A series of values over time with a pyramid of minima and maxima: the range of values between any
// two points takes O(log n), so drawing a million points costs as much as its pixels.

const FAN = 16;

class Series {
  constructor(values, length) {
    this.values = values;
    this.length = length;
    this.low = [values];
    this.high = [values];
    for (let below = 0, size = length; size > FAN; below++) {
      const next = Math.ceil(size / FAN);
      const [low, high] = [new values.constructor(next), new values.constructor(next)];
      const [lowBelow, highBelow] = [this.low[below], this.high[below]];
      for (let i = 0; i < next; i++) {
        const end = Math.min(size, (i + 1) * FAN);
        let [least, most] = [lowBelow[i * FAN], highBelow[i * FAN]];
        for (let j = i * FAN + 1; j < end; j++) {
          if (lowBelow[j] < least) least = lowBelow[j];
          if (highBelow[j] > most) most = highBelow[j];
        }
        low[i] = least;
        high[i] = most;
      }
      this.low.push(low);
      this.high.push(high);
      size = next;
    }
  }

  /** The least and the most of points `from` to `to`, both included, into `out`. */
  between(from, to, out) {
    let [least, most] = [Infinity, -Infinity];
    let [a, b] = [from, to + 1];
    for (let level = 0; a < b; level++) {
      const [low, high] = [this.low[level], this.high[level]];
      const isTop = level + 1 >= this.low.length;
      while (a < b && (isTop || a % FAN !== 0)) {
        if (low[a] < least) least = low[a];
        if (high[a] > most) most = high[a];
        a++;
      }
      while (a < b && (isTop || b % FAN !== 0)) {
        b--;
        if (low[b] < least) least = low[b];
        if (high[b] > most) most = high[b];
      }
      a /= FAN;
      b /= FAN;
    }
    out[0] = least;
    out[1] = most;
  }
}

/** Everything drawn of one device over time. */
class DeviceHistory {
  constructor(profile, row, walked) {
    this.row = row;
    this.device = profile.devices[row];
    this.points = walked;
    this.levels = walked.values.map((values) => new Series(values, walked.length));
    const waste = new Float32Array(walked.length);
    const [allocated, reserved] = [walked.values[ALLOCATED], walked.values[RESERVED]];
    for (let i = 0; i < walked.length; i++) {
      waste[i] = reserved[i] > 0 ? Math.max(0, 1 - allocated[i] / reserved[i]) : 0;
    }
    this.waste = new Series(waste, walked.length);
    this.timeline = profile.timelines.find((timeline) => timeline.device === this.device.ordinal);
    const isWhole = profile.history.dropped_events === 0;
    this.begin = walked.length > 1 ? (isWhole ? 0 : walked.time[0]) : profile.duration_ns;
    this.clock = walked.time;
    this.setAxis('time');
  }

  /** Puts the points on an axis of nanoseconds, or of events, which has nothing before the history. */
  setAxis(axis) {
    const isTime = axis === 'time';
    // Before this, levels come only from the timeline of the whole run.
    this.exactFrom = isTime ? this.begin : 0;
    this.points.time = isTime ? this.clock : Float64Array.from(this.points.event, (event) => event + 1);
  }

  /** How many points lie at or before `time`; 0 where only the timeline knows. */
  pointsUntil(time) {
    return upperBound(this.points.time, this.points.length, time);
  }

  /** The four levels at `time`, or the highest of its interval where only the timeline knows. */
  levelsAt(time) {
    const until = this.pointsUntil(time);
    if (until > 0 && time >= this.exactFrom) {
      return { values: this.points.values.map((values) => values[until - 1]), isExact: true };
    }
    const { interval_ns: interval, peaks } = this.timeline || { interval_ns: 1, peaks: [] };
    const peak = peaks[Math.min(peaks.length - 1, Math.floor(time / interval))];
    return { values: LEVELS.map((name) => (peak ? peak[`${name}_bytes`] : 0)), isExact: false };
  }

  /** The highest that each level has been, by what is drawn. */
  peak() {
    const out = [0, 0];
    return LEVELS.map((name, level) => {
      this.levels[level].between(0, this.points.length - 1, out);
      let most = out[1];
      if (this.exactFrom > 0) {
        for (const peak of this.coarsePeaks()) most = Math.max(most, peak[`${name}_bytes`]);
      }
      return most;
    });
  }

  coarsePeaks() {
    if (!this.timeline) return [];
    return this.timeline.peaks.slice(0, Math.ceil(this.exactFrom / this.timeline.interval_ns));
  }

  /** The moment when `level` was highest. */
  peakTime(level) {
    const most = this.peak()[level];
    const values = this.points.values[level];
    for (let i = 0; i < this.points.length; i++) {
      if (values[i] === most) return this.points.time[i];
    }
    const index = this.coarsePeaks().findIndex((peak) => peak[`${LEVELS[level]}_bytes`] === most);
    return Math.max(0, index) * (this.timeline?.interval_ns || 0);
  }

  /**
   * The lowest and the highest of each level, and of the waste, in each of `columns` equal parts of
   * [from, to]: arrays `low` and `high` of five. Columns without data are NaN.
   */
  columns(from, to, columns) {
    const low = Array.from({ length: 5 }, () => new Float64Array(columns).fill(NaN));
    const high = Array.from({ length: 5 }, () => new Float64Array(columns).fill(NaN));
    const out = [0, 0];
    const step = (to - from) / columns;
    let before = this.pointsUntil(from);
    for (let column = 0; column < columns; column++) {
      const [start, end] = [from + column * step, from + (column + 1) * step];
      if (end <= this.exactFrom) {
        this.coarseColumn(start, end, column, low, high);
        before = this.pointsUntil(end);
        continue;
      }
      const until = this.pointsUntil(end);
      if (until === 0) continue;
      for (let level = 0; level < 5; level++) {
        const series = level < 4 ? this.levels[level] : this.waste;
        // The value at the begin of the column belongs to it.
        series.between(Math.max(0, before - 1), until - 1, out);
        low[level][column] = out[0];
        high[level][column] = out[1];
      }
      before = until;
    }
    return { low, high };
  }

  coarseColumn(start, end, column, low, high) {
    const { interval_ns: interval, peaks } = this.timeline || { interval_ns: 1, peaks: [] };
    const last = Math.min(peaks.length - 1, Math.floor(end / interval));
    for (let i = Math.max(0, Math.floor(start / interval)); i <= last; i++) {
      LEVELS.forEach((name, level) => {
        const value = peaks[i][`${name}_bytes`];
        if (!(high[level][column] >= value)) high[level][column] = value;
        if (!(low[level][column] <= value)) low[level][column] = value;
      });
    }
  }
}
