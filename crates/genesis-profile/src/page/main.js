// The page itself: state, header, readout, keys, and `window.genesis` for tests and the console.

class App {
  constructor({ profile, events }) {
    this.profile = profile;
    this.history = buildHistory(profile, events);
    this.histories = profile.devices.map((_, row) => new DeviceHistory(profile, row, this.history.levels[row]));
    this.moments = new Moments(profile, this.history);
    this.colourBy = profile.call_sites.length > 0 ? 'site' : 'size';
    this.holdersBy = this.colourBy;
    this.shown = 'levels';
    this.setAxis('time');
    this.colours = new Colours(profile, this.moments, this.histories.map((device) => this.pictureOf(device)));
    this.choose(0);
    this.chart = new Chart(this);
    this.map = new MemoryMap(this);
    this.readout = document.getElementById('readout');
    this.showHeader();
    this.showControls();
    this.summary = new Summary(this);
    this.showMoment();
  }

  /** Counts along the timeline nanoseconds ('time') or, where pauses say little, 'events'. */
  setAxis(axis) {
    const { events, notes } = this.history;
    const { clock, length } = events;
    this.axis = axis;
    this.end = Math.max(1, this.profile.duration_ns, length ? clock[length - 1] : 0);
    events.time = axis === 'time' ? clock : Float64Array.from(clock, (_, event) => event + 1);
    this.domain = axis === 'time' ? this.end : length + 1;
    this.leastSpan = axis === 'time' ? 20 : Math.min(4, this.domain);
    notes.place(this.domain);
    for (const device of this.histories) device.setAxis(axis);
    this.view = { from: 0, to: this.domain };
  }

  /** When it was that the axis has at `position`. */
  clockAt(position) {
    if (this.axis === 'time') return position;
    const { clock, length } = this.history.events;
    const last = Math.min(Math.floor(position), length);
    return position >= this.domain ? this.end : last > 0 ? clock[last - 1] : 0;
  }

  /** A place on the axis in words. */
  placeText(position) {
    const when = moment(this.clockAt(position));
    return this.axis === 'time' ? when : `event ${count(Math.floor(position))} (${when})`;
  }

  /** Makes device `row` the one shown. */
  choose(row) {
    this.device = this.histories[row];
    this.peaks = this.device.peak();
    this.peakTime = this.device.peakTime(ALLOCATED);
    this.moment = this.pictureAt(this.domain);
    this.stackBy(this.shown);
  }

  /** What the timeline shows: 'levels', or the allocated bytes by 'site', 'size' or 'stream'. */
  stackBy(shown) {
    this.shown = shown;
    document.getElementById('show').value = shown;
    document.getElementById('level-legend').classList.toggle('own-line', shown !== 'levels');
    this.stack = shown === 'levels' ? null : new Stack(this, this.device, shown);
    const legend = this.stack
      ? [...this.stack.keys, null].map((_, rank) => [this.stack.colour(this, rank, 'var(--other)'), this.stack.label(this, rank), false])
        .concat([['var(--reserved)', 'reserved', false]])
      : LEVELS.slice().reverse().map((name) => [`var(--${name})`, name, name === 'requested']);
    document.getElementById('level-legend').replaceChildren(
      ...legend.map(([colour, text, isLine]) => element('li', {}, swatch(colour, isLine), element('span', { text, title: text }))));
  }

  name(index) {
    return this.profile.names[index] || '';
  }

  /** What lay where on a device when it held most. */
  pictureOf(device) {
    const time = device.peakTime(ALLOCATED);
    const { time: places, length } = this.history.events;
    return this.moments.at(device.row, upperBound(places, length, time), time, false);
  }

  /** What lies where after everything up to and at `time`. */
  pictureAt(time) {
    const { time: places, length } = this.history.events;
    const until = upperBound(places, length, time);
    return this.moments.at(this.device.row, until, time, until === length);
  }

  redraw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      this.draw();
    });
  }

  draw() {
    this.chart.draw();
    this.map.draw();
    document.getElementById('map-reset').hidden = this.map.window.isWhole;
  }

  zoom(from, to) {
    const span = clamp(to - from, this.leastSpan, this.domain);
    const start = clamp(from + (to - from - span) / 2, 0, this.domain - span);
    this.view = { from: start, to: start + span };
    this.redraw();
  }

  zoomAround(time, factor) {
    const { from, to } = this.view;
    const span = clamp((to - from) * factor, this.leastSpan, this.domain);
    const part = (time - from) / (to - from);
    this.zoom(time - part * span, time + (1 - part) * span);
  }

  /** Moves by a part of what is in view. */
  pan(part) {
    const { from, to } = this.view;
    const shift = clamp(part * (to - from), -from, this.domain - to);
    this.zoom(from + shift, to + shift);
  }

  reset() {
    this.zoom(0, this.domain);
  }

  /** Chooses the moment that map and holders show. */
  select(time) {
    this.moment = this.pictureAt(clamp(time, 0, this.domain));
    this.showMoment();
    this.redraw();
  }

  /** The same, and makes sure that the timeline shows it. */
  visit(time) {
    const { from, to } = this.view;
    if (time < from || time > to) this.zoom(time - (to - from) / 2, time + (to - from) / 2);
    this.select(time);
  }

  /** Goes `steps` events on, of those that happened on this device. */
  step(steps) {
    const { event, time, length } = this.device.points;
    const now = upperBound(event, length, this.moment.until - 1) - 1;
    const next = clamp(now + steps, 0, length - 1);
    if (event[next] >= 0) this.visit(time[next]);
  }

  showMoment() {
    const { moment: picture, device } = this;
    this.map.show(picture);
    const { values, isExact } = device.levelsAt(picture.time);
    const where = document.getElementById('moment-line');
    const when = picture.isFinal && picture.time >= this.domain ? 'When the profile was written' : `At ${this.placeText(picture.time)}`;
    const said = [`${count(picture.blocks.length)} blocks`, ...LEVELS.map((name, level) => `${bytes(values[level], 4)} ${name}`)];
    where.replaceChildren(element('b', { text: when }), ` · ${isExact ? said.join(' · ') : 'before the history begins: which blocks were live is not known'}`);
    const waste = values[RESERVED] ? percent(values[RESERVED] - values[ALLOCATED], values[RESERVED]) : '–';
    document.getElementById('waste-now').textContent = `${waste} of the reserved memory at this moment`;
    showHolders(this, document.getElementById('holders'), this.moments.holders(picture, this.holdersBy), this.holdersBy);
    this.showMapLegend(picture);
  }

  showMapLegend(picture) {
    const colours = theme();
    let [live, waiting] = [0, 0];
    for (let i = 0; i < picture.blocks.length; i++) {
      if (picture.blocks.state[i] === WAITING) waiting += picture.blocks.bytes[i];
      else live += picture.blocks.bytes[i];
    }
    const mapped = picture.runs.reduce((sum, [start, end]) => sum + end - start, 0);
    const entries = [[`linear-gradient(90deg, ${PALETTE.slice(0, 3).map((colour, i) => `${colour} ${33 * i}% ${33 * i + 34}%`).join(', ')})`, `live ${bytes(live)}`], [colours.pending, `pending ${bytes(waiting)}`],
      [colours.free, `cached ${bytes(Math.max(0, mapped - live - waiting))}`]];
    document.getElementById('map-legend').replaceChildren(
      ...entries.map(([colour, text]) => element('li', {}, swatch(colour), text)));
    const notes = ['Addresses without memory are left out; a gap shows where.'];
    if (picture.away > 0) notes.push(`${bytes(picture.away)} of paused blocks have no memory and are not here.`);
    document.getElementById('map-note').textContent = notes.join(' ');
  }

  showHeader() {
    const { profile } = this;
    const program = profile.program || 'A program';
    document.title = `${program} – Genesis memory profile`;
    document.getElementById('program').textContent = program;
    const started = new Date(profile.started_unix_ns / 1e6);
    const facts = [`process ${profile.process_id}`, Number.isNaN(started.getTime()) ? '' : started.toLocaleString(),
      duration(profile.duration_ns), profile.strategy, `backend ${profile.backend}`,
      `${count(this.history.events.length)} events`, `Genesis ${profile.genesis_version}`];
    document.getElementById('about').textContent = facts.filter(Boolean).join(' · ');
    document.getElementById('devices').replaceChildren(...profile.devices.map((device, row) => this.deviceCard(device, row)));
    const note = document.getElementById('history-note');
    const { dropped_events: dropped } = profile.history;
    note.hidden = dropped === 0;
    note.textContent = `The history has the latest ${count(this.history.events.length)} events; of the ${count(dropped)} `
      + 'before them (shaded) the highest level of each interval is shown.';
  }

  deviceCard(device, row) {
    const colours = ['requested', 'allocated', 'active', 'reserved'];
    const levels = colours.map((name) => element('dl', { className: 'level' },
      element('dt', {}, swatch(`var(--${name})`), name),
      element('dd', { className: 'peak', text: bytes(device.peak[`${name}_bytes`]), title: exactBytes(device.peak[`${name}_bytes`]) }),
      element('dd', { className: 'now', text: `peak · now ${bytes(device.now[`${name}_bytes`])}`, title: exactBytes(device.now[`${name}_bytes`]) })));
    const gauge = element('div', { className: 'gauge', title: 'peaks as parts of what may be used' });
    for (const name of ['reserved', 'allocated']) {
      const bar = element('i');
      bar.style.background = `var(--${name})`;
      bar.style.width = `${clamp(100 * device.peak[`${name}_bytes`] / (device.usable_bytes || 1), 0, 100)}%`;
      gauge.append(bar);
    }
    const facts = [`${bytes(device.usable_bytes)} usable`, `${percent(device.hits, device.allocations)} hits`];
    const beyond = device.peak.reserved_bytes - device.total_bytes;
    if (beyond > 0) facts.push(`${bytes(beyond)} beyond the device`);
    if (device.out_of_memory_events > 0) facts.push(`${count(device.out_of_memory_events)} × out of memory`);
    const card = element('button', { type: 'button', role: 'tab', className: 'device', 'aria-selected': String(row === this.device.row) },
      element('div', { className: 'name' }, element('span', { text: `Device ${device.ordinal} · ${device.name}` }),
        element('span', { text: facts.join(' · ') })),
      element('div', { className: 'levels' }, ...levels), gauge);
    card.addEventListener('click', () => this.showDevice(row));
    return card;
  }

  showAxis(axis) {
    const { until, isFinal } = this.moment;
    this.setAxis(axis);
    document.getElementById('axis').value = axis;
    this.peaks = this.device.peak();
    this.peakTime = this.device.peakTime(ALLOCATED);
    const { time } = this.history.events;
    this.moment = this.pictureAt(isFinal ? this.domain : until > 0 ? time[until - 1] : 0);
    this.showMoment();
    this.redraw();
  }

  showDevice(row) {
    this.choose(row);
    document.querySelectorAll('.device').forEach((card, i) => card.setAttribute('aria-selected', String(i === row)));
    this.map.window = null;
    this.showMoment();
    this.redraw();
  }

  showControls() {
    const on = (id, act) => document.getElementById(id).addEventListener('click', act);
    on('to-peak', () => this.visit(this.peakTime));
    on('to-end', () => this.visit(this.domain));
    on('zoom-in', () => this.zoomAround((this.view.from + this.view.to) / 2, 0.5));
    on('zoom-out', () => this.zoomAround((this.view.from + this.view.to) / 2, 2));
    on('reset', () => this.reset());
    on('map-reset', () => { this.map.reset(); this.redraw(); });
    const choices = this.profile.call_sites.length > 0 ? [['site', 'call site'], ['size', 'block size']] : [['size', 'block size']];
    this.offer('show', [['levels', 'levels'], ...choices.map(([by, text]) => [by, `by ${text}`]), ['stream', 'by stream']],
      (shown) => { this.stackBy(shown); this.redraw(); });
    this.offer('axis', [['time', 'time'], ['events', 'events']], (axis) => this.showAxis(axis));
    this.offer('colour-by', [...choices, ['stream', 'stream']], (by) => { this.colourBy = by; this.redraw(); });
    this.offer('holders-by', choices, (by) => { this.holdersBy = by; this.showMoment(); });
    document.getElementById('timeline').addEventListener('keydown', (event) => this.key(event));
    window.addEventListener('resize', () => this.redraw());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.showMoment(); this.redraw(); });
  }

  offer(id, choices, act) {
    const select = document.getElementById(id);
    select.replaceChildren(...choices.map(([value, text]) => element('option', { value, text })));
    select.addEventListener('change', () => act(select.value));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { time } = this.moment;
    const { from, to } = this.view;
    const centre = time >= from && time <= to ? time : (from + to) / 2;
    const keys = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
      '+': () => this.zoomAround(centre, 0.6), '=': () => this.zoomAround(centre, 0.6), '-': () => this.zoomAround(centre, 1.6),
      ',': () => this.step(-1), '.': () => this.step(1), '<': () => this.step(-100), '>': () => this.step(100),
      Home: () => this.visit(0), End: () => this.visit(this.domain), p: () => this.visit(this.peakTime),
      0: () => this.reset(), Escape: () => this.reset(),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  showReadout(time, event) {
    const { values, isExact } = this.device.levelsAt(time);
    const rows = LEVELS.map((name, level) => [
      element('dt', {}, swatch(`var(--${name})`), isExact ? name : `${name}, at most`),
      element('dd', { text: `${exactBytes(values[level])} (${bytes(values[level])})` })]);
    rows.push([element('dt', {}, swatch('var(--waste)'), 'waste'),
      element('dd', { text: percent(values[RESERVED] - values[ALLOCATED], values[RESERVED]) })]);
    rows.unshift(rows.pop());
    this.place(event, element('div', { className: 'when', text: this.placeText(time) }),
      element('dl', {}, ...rows.reverse().flat()),
      ...this.happenings(time).map((text) => element('p', { text })));
  }

  /** What happened exactly at a moment, and the ranges it is in. */
  happenings(time) {
    const { events, notes } = this.history;
    const said = [];
    const first = upperBound(events.time, events.length, time - 0.5);
    for (let i = first; i < events.length && events.time[i] <= time && said.length < 6; i++) {
      if (events.row[i] === this.device.row || events.action[i] > UNMAP) said.push(this.describe(i));
    }
    // Marks can be hit from a few pixels away.
    const reach = (this.view.to - this.view.from) / this.chart.plotWidth * NEAR;
    for (const note of notes.moments) {
      if (said.length < 6 && Math.abs(note.time - time) <= reach && note.event < first) said.push(this.describe(note.event));
    }
    const inside = notes.ranges.filter((range) => range.from <= time && range.to >= time).slice(0, 6);
    if (inside.length) said.push(`in ${inside.map((range) => this.name(range.name)).join(' › ')}`);
    return said;
  }

  describe(i) {
    const { events } = this.history;
    const what = ACTIONS[events.action[i]];
    if (events.action[i] === ITERATION) return `${what}: ${count(events.requested[i])}`;
    if (events.action[i] === OUT_OF_MEMORY) return `${what}: ${bytes(events.requested[i])} requested`;
    if (events.action[i] > OUT_OF_MEMORY) return `${what}: ${this.name(events.name[i])}`;
    if (events.action[i] === TRIM) return what;
    const site = this.profile.sites[events.site[i]];
    const size = events.block[i] ? ` ${bytes(events.block[i])}` : '';
    return `${what}${size} at 0x${events.addresses[events.address[i]].toString(16)}${site?.frames.length ? `, ${siteText(site)}` : ''}`;
  }

  /** Tells of a block on the map, or of free memory. */
  showBlock(found, event) {
    if (!found) return this.hideReadout();
    const { blocks } = this.moment;
    const size = found.to - found.from;
    const facts = [['address', `0x${found.address.toString(16)}`], ['bytes', `${exactBytes(size)} (${bytes(size)})`]];
    let title = 'free, cached';
    let frames = [];
    if (found.block !== null) {
      const i = found.block;
      title = blocks.state[i] === WAITING ? 'pending: freed, still in use by another stream' : 'live';
      facts.push(['requested', exactBytes(blocks.requested[i])]);
      facts.push(['on', streamText(this.profile, blocks.stream[i])]);
      const age = this.clockAt(this.moment.time) - blocks.born[i];
      facts.push(['age', Number.isNaN(age) ? 'older than the profile' : duration(Math.max(0, age))]);
      frames = (this.profile.sites[blocks.site[i]] || { frames: [] }).frames;
    }
    this.place(event, element('div', { className: 'when', text: title }),
      element('dl', {}, ...facts.flatMap(([name, text]) => [element('dt', { text: name }), element('dd', { text })])),
      ...frames.slice(0, 12).map((frame) => element('p', { className: 'place', text: frameText(frame) })));
  }

  place(event, ...content) {
    const { readout } = this;
    readout.replaceChildren(...content);
    readout.hidden = false;
    const isLeft = event.clientX + readout.offsetWidth + 28 > window.innerWidth;
    const x = isLeft ? event.clientX - readout.offsetWidth - 16 : event.clientX + 16;
    const y = Math.min(event.clientY + 14, window.innerHeight - readout.offsetHeight - 8);
    readout.style.left = `${Math.max(4, x)}px`;
    readout.style.top = `${Math.max(4, y)}px`;
  }

  hideReadout() {
    this.readout.hidden = true;
  }
}

const named = (values) => Object.fromEntries(LEVELS.map((name, level) => [`${name}_bytes`, values[level]]));

/**
 * For tests and the console.
 *   ready            a promise: resolved when the page has been drawn, rejected with an error
 *   milliseconds     from the start of navigation until scripts ran, data was read, indexed, drawn
 *   profile, events  the document; how many events the history has
 *   peak(row)        the highest of each level, by what is drawn of device `row`
 *   view()           the view of the timeline: from, to, columns, and whether it draws each event
 *   zoom(from, to), reset(), select(time), device(row)
 *   axis(unit)       'time': all times here are nanoseconds; 'events': they are numbers of events
 *   moment()         the time chosen
 *   show(by)         'levels', or the parts of the allocated bytes by 'site', 'size' or 'stream'
 *   stacked()        those parts in each column: their labels and bytes
 *   drawn(level)     the lowest and the highest in each column of the timeline, in bytes
 *   at(time)         levels, blocks, mapped bytes and holders at a moment
 *   screen(time)     where the timeline draws a moment, in pixels from its left edge
 */
function expose(app) {
  const levelsOf = (time) => named(app.device.levelsAt(time).values);
  return {
    profile: app.profile,
    events: app.history.events.length,
    peak: (row = app.device.row) => named(app.histories[row].peak()),
    view: () => ({ ...app.view, columns: app.chart.drawn.columns, isEachEventShown: app.chart.isEachEventShown }),
    zoom(from, to) { app.zoom(from, to); app.draw(); },
    reset() { app.reset(); app.draw(); },
    select(time) { app.select(time); app.draw(); },
    device(row) { app.showDevice(row); app.draw(); },
    axis(unit) { app.showAxis(unit); app.draw(); },
    show(by) { app.stackBy(by); app.draw(); },
    stacked() {
      const parts = app.stack.columns(app.view.from, app.view.to, app.chart.drawn.columns);
      return parts.map((part, rank) => ({ label: app.stack.label(app, rank), bytes: [...part] }));
    },
    drawn(level) {
      const { low, high } = app.device.columns(app.view.from, app.view.to, app.chart.drawn.columns);
      const index = LEVELS.indexOf(level);
      return { low: [...low[index]], high: [...high[index]] };
    },
    at(time) {
      const picture = app.pictureAt(time);
      const sum = (state) => picture.blocks.bytes.reduce((all, size, i) => all + (picture.blocks.state[i] === state ? size : 0), 0);
      return {
        time,
        levels: levelsOf(time),
        blocks: picture.blocks.length,
        live_bytes: sum(LIVE),
        pending_bytes: sum(WAITING),
        mapped_bytes: picture.runs.reduce((all, [start, end]) => all + end - start, 0),
        holders: app.moments.holders(picture, app.holdersBy),
      };
    },
    moment: () => app.moment.time,
    screen: (time) => app.chart.x(time),
  };
}

window.genesis = {};
window.genesis.ready = (async () => {
  try {
    const milliseconds = { toStart: performance.now() };
    const data = await readProfile();
    milliseconds.toRead = performance.now();
    const app = new App(data);
    milliseconds.toIndexed = performance.now();
    document.querySelector('main').hidden = false;
    app.draw();
    milliseconds.toReady = performance.now();
    Object.assign(window.genesis, expose(app), { milliseconds });
  } catch (error) {
    const failure = document.getElementById('failure');
    failure.textContent = `This page cannot show its profile: ${error}`;
    failure.hidden = false;
    throw error;
  }
})();
