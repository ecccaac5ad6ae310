// The timeline, its waste and its overview: three canvases over one range of time.

const MARGIN = { left: 74, right: 14, top: 8, bottom: 22 };
const LANE = 17;
const MOST_LANES = 6;
const NEAR = 5;

class Chart {
  constructor(app) {
    this.app = app;
    this.canvas = document.getElementById('timeline');
    this.waste = document.getElementById('waste');
    this.overview = document.getElementById('overview');
    this.drag = null;
    this.hover = null;
    for (const canvas of [this.canvas, this.waste]) this.listen(canvas);
    this.listenOverview();
  }

  get plotWidth() {
    return Math.max(50, this.canvas.clientWidth - MARGIN.left - MARGIN.right);
  }

  x(time) {
    const { from, to } = this.app.view;
    return MARGIN.left + (time - from) / (to - from) * this.plotWidth;
  }

  time(x) {
    const { from, to } = this.app.view;
    return from + (x - MARGIN.left) / this.plotWidth * (to - from);
  }

  draw() {
    const { view, device } = this.app;
    const colours = theme();
    const { context, width, height } = prepare(this.canvas);
    const columns = Math.max(1, Math.round(this.plotWidth * (window.devicePixelRatio || 1)));
    const drawn = device.columns(view.from, view.to, columns);
    const lanes = Math.min(MOST_LANES, this.app.history.notes.lanes);
    const top = MARGIN.top + (lanes ? lanes * LANE + 6 : 0);
    const bottom = height - MARGIN.bottom;
    const most = Math.max(1, ...drawn.high[RESERVED].filter((value) => !Number.isNaN(value)));
    const step = roundBytes(most, 5);
    const scale = (bottom - top) / (most * 1.06);
    const y = (value) => bottom - value * scale;
    this.drawGrid(context, colours, { top, bottom, width, most, step, y });
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, this.plotWidth, height);
    context.clip();
    this.drawCoarse(context, colours, top, bottom);
    if (this.app.stack) this.drawStack(context, colours, drawn, columns, y, bottom);
    else this.drawLevels(context, colours, drawn, columns, y, bottom);
    this.drawEvents(context, colours, y);
    this.drawMoments(context, colours, top, bottom);
    this.drawRanges(context, colours, lanes);
    this.drawPeak(context, colours, y);
    this.drawCursor(context, colours, top, bottom);
    context.restore();
    this.drawWaste(colours, drawn, columns);
    this.drawOverview(colours);
    this.drawn = { columns, top, bottom, y, most };
  }

  drawGrid(context, colours, { top, bottom, width, most, step, y }) {
    context.strokeStyle = colours.grid;
    context.fillStyle = colours.faint;
    context.lineWidth = 1;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let value = 0; value <= most * 1.06; value += step) {
      const at = Math.round(y(value)) + 0.5;
      line(context, MARGIN.left, at, width - MARGIN.right, at);
      context.fillText(value === 0 ? '0' : bytes(value, 2), MARGIN.left - 8, at);
    }
    const { usable_bytes: usable } = this.app.device.device;
    if (usable > 0 && usable <= most * 1.06) {
      context.strokeStyle = colours.danger;
      context.setLineDash([5, 4]);
      line(context, MARGIN.left, y(usable), width - MARGIN.right, y(usable));
      context.setLineDash([]);
    }
    context.textAlign = 'center';
    context.textBaseline = 'top';
    const { from, to } = this.app.view;
    const isTime = this.app.axis === 'time';
    const stepOf = Math.max(1, roundStep(to - from, this.plotWidth / 110));
    for (let time = Math.ceil(from / stepOf) * stepOf; time <= to; time += stepOf) {
      const at = Math.round(this.x(time)) + 0.5;
      context.strokeStyle = colours.grid;
      line(context, at, top, at, bottom);
      context.fillText(isTime ? axisTime(time, stepOf) : count(time), at, bottom + 6);
    }
  }

  /** Where only the timeline of the whole run is known. */
  drawCoarse(context, colours, top, bottom) {
    const end = this.x(this.app.device.exactFrom);
    if (end <= MARGIN.left || this.app.device.exactFrom === 0) return;
    context.fillStyle = colours.shade;
    context.fillRect(MARGIN.left, top, end - MARGIN.left, bottom - top);
    context.strokeStyle = colours.faint;
    context.setLineDash([2, 3]);
    line(context, Math.round(end) + 0.5, top, Math.round(end) + 0.5, bottom);
    context.setLineDash([]);
  }

  drawLevels(context, colours, { low, high }, columns, y, bottom) {
    const width = this.plotWidth / columns;
    const edge = (values) => (column) => y(values[column]);
    const fills = [[RESERVED, colours.reserved, 0.5], [ACTIVE, colours.active, 0.85], [ALLOCATED, colours.allocated, 0.85]];
    for (const [level, colour, strength] of fills) {
      // Full up to the lowest value of each column, paler up to the highest.
      context.fillStyle = colour;
      context.globalAlpha = strength * 0.55;
      area(context, columns, width, edge(high[level]), bottom);
      context.globalAlpha = strength;
      area(context, columns, width, edge(low[level]), bottom);
      context.globalAlpha = 1;
    }
    context.strokeStyle = colours.reserved;
    outline(context, columns, width, edge(high[RESERVED]), 1.5);
    context.strokeStyle = colours.requested;
    context.globalAlpha = 0.9;
    outline(context, columns, width, edge(high[REQUESTED]), 1);
    context.globalAlpha = 1;
  }

  /** The parts of the allocated memory, over what is reserved; where only the timeline is known, all of it. */
  drawStack(context, colours, { high }, columns, y, bottom) {
    const { stack, view } = this.app;
    const width = this.plotWidth / columns;
    const parts = stack.columns(view.from, view.to, columns);
    context.globalAlpha = 0.35;
    context.fillStyle = colours.reserved;
    area(context, columns, width, (column) => y(high[RESERVED][column]), bottom);
    context.globalAlpha = 0.5;
    context.fillStyle = colours.other;
    area(context, columns, width, (column) => (Number.isNaN(parts[0][column]) ? y(high[ALLOCATED][column]) : NaN), bottom);
    context.globalAlpha = 1;
    // From the top down, each filled to the axis, so that there are no seams.
    const sums = new Float64Array(columns);
    for (const part of parts) part.forEach((value, column) => { sums[column] += value; });
    for (let rank = parts.length - 1; rank >= 0; rank--) {
      context.fillStyle = stack.colour(this.app, rank, colours.other);
      area(context, columns, width, (column) => y(sums[column]), bottom);
      parts[rank].forEach((value, column) => { sums[column] -= value; });
    }
  }

  /** Once there is room each event is a dot on the level it changed. */
  drawEvents(context, colours, y) {
    const { view, history, device } = this.app;
    const { events } = history;
    const first = upperBound(events.time, events.length, view.from - 1);
    const end = upperBound(events.time, events.length, view.to);
    this.isEachEventShown = end - first <= this.plotWidth / 5;
    if (!this.isEachEventShown) return;
    const colourOf = { [ALLOCATE]: colours.allocated, [MISS]: colours.danger, [FREE]: colours.faint };
    for (let i = first; i < end; i++) {
      if (events.row[i] !== device.row || events.action[i] >= TRIM) continue;
      const level = events.action[i] >= RESERVE ? RESERVED : events.action[i] >= PENDING ? ACTIVE : ALLOCATED;
      const at = device.points.values[level][this.pointOf(i)];
      context.fillStyle = colourOf[events.action[i]] || colours.active;
      context.strokeStyle = colours.panel;
      context.beginPath();
      context.arc(this.x(events.time[i]), y(at), 3.5, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
  }

  /** The last point of the device that event `i` or one before it made. */
  pointOf(i) {
    const { event, length } = this.app.device.points;
    return Math.max(0, upperBound(event, length, i) - 1);
  }

  drawMoments(context, colours, top, bottom) {
    const seen = new Set();
    let textEnd = -Infinity;
    for (const { time, what, event } of this.app.history.notes.moments) {
      const at = Math.round(this.x(time)) + 0.5;
      const pixel = what * 65536 + at;
      if (at < MARGIN.left - 1 || at > MARGIN.left + this.plotWidth + 1 || seen.has(pixel)) continue;
      seen.add(pixel);
      if (what === ITERATION || what === TRIM || what === PAUSE || what === RESUME) {
        context.strokeStyle = what === ITERATION ? colours.faint : colours.active;
        line(context, at, bottom - 6, at, bottom);
        continue;
      }
      const isFailure = what === OUT_OF_MEMORY;
      context.strokeStyle = context.fillStyle = isFailure ? colours.danger : colours.faint;
      context.lineWidth = isFailure ? 1.5 : 1;
      context.setLineDash(isFailure ? [] : [3, 3]);
      line(context, at, top, at, bottom);
      context.setLineDash([]);
      context.lineWidth = 1;
      const text = isFailure ? 'out of memory' : this.app.name(this.app.history.events.name[event]);
      if (at > textEnd) {
        context.textAlign = 'left';
        context.textBaseline = 'top';
        context.fillText(text, at + 4, top + 2);
        textEnd = at + context.measureText(text).width + 12;
      }
    }
  }

  drawRanges(context, colours, lanes) {
    if (lanes === 0) return;
    const ends = new Float64Array(lanes).fill(-Infinity);
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    for (const range of this.app.history.notes.ranges) {
      if (range.lane >= lanes || range.to < this.app.view.from || range.from > this.app.view.to) continue;
      const left = Math.max(MARGIN.left, this.x(range.from));
      const right = Math.min(MARGIN.left + this.plotWidth, this.x(range.to));
      if (right <= ends[range.lane] + 0.5) continue;
      ends[range.lane] = Math.max(right, left + 1);
      const top = MARGIN.top + range.lane * LANE;
      context.fillStyle = PALETTE[(range.name * 5 + 4) % PALETTE.length];
      context.globalAlpha = 0.28;
      context.fillRect(left, top, Math.max(0.6, right - left - 1), LANE - 2);
      context.globalAlpha = 1;
      if (right - left > 26) {
        context.fillStyle = colours.text;
        fitText(context, this.app.name(range.name), left + 5, top + LANE / 2 - 1, right - left - 9);
      }
    }
  }

  drawPeak(context, colours, y) {
    const { device } = this.app;
    const at = this.x(this.app.peakTime);
    if (at < MARGIN.left || at > MARGIN.left + this.plotWidth) return;
    const value = this.app.peaks[ALLOCATED];
    context.fillStyle = colours.text;
    context.beginPath();
    context.arc(at, y(value), 4, 0, 2 * Math.PI);
    context.fill();
    const text = `peak ${bytes(value)}`;
    const isLeft = at > MARGIN.left + this.plotWidth - 130;
    context.textAlign = isLeft ? 'right' : 'left';
    context.textBaseline = 'bottom';
    context.lineWidth = 3;
    context.strokeStyle = colours.panel;
    context.strokeText(text, at + (isLeft ? -8 : 8), y(value) - 3);
    context.fillText(text, at + (isLeft ? -8 : 8), y(value) - 3);
    context.lineWidth = 1;
  }

  drawCursor(context, colours, top, bottom) {
    const chosen = Math.round(this.x(this.app.moment.time)) + 0.5;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    line(context, chosen, top, chosen, bottom);
    context.fillStyle = colours.accent;
    context.beginPath();
    context.moveTo(chosen - 5, bottom + 7);
    context.lineTo(chosen + 5, bottom + 7);
    context.lineTo(chosen, bottom);
    context.fill();
    context.lineWidth = 1;
    if (this.hover !== null) {
      context.strokeStyle = colours.faint;
      line(context, Math.round(this.hover) + 0.5, top, Math.round(this.hover) + 0.5, bottom);
    }
    if (this.drag?.isBrush) {
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.16;
      context.fillRect(this.drag.start, top, this.drag.now - this.drag.start, bottom - top);
      context.globalAlpha = 1;
    }
  }

  drawWaste(colours, { low, high }, columns) {
    const { context, width, height } = prepare(this.waste);
    const [top, bottom] = [6, height - 6];
    const y = (value) => bottom - value * (bottom - top);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillStyle = colours.faint;
    context.strokeStyle = colours.grid;
    for (const value of [0, 0.5, 1]) {
      const at = Math.round(y(value)) + 0.5;
      line(context, MARGIN.left, at, width - MARGIN.right, at);
      context.fillText(`${100 * value} %`, MARGIN.left - 8, at);
    }
    context.fillStyle = colours.waste;
    context.globalAlpha = 0.3;
    const step = this.plotWidth / columns;
    area(context, columns, step, (column) => y(high[4][column]), bottom);
    context.globalAlpha = 0.75;
    area(context, columns, step, (column) => y(low[4][column]), bottom);
    context.globalAlpha = 1;
    for (const [at, colour] of [[this.x(this.app.moment.time), colours.accent], [this.hover, colours.faint]]) {
      if (at === null || at < MARGIN.left || at > MARGIN.left + this.plotWidth) continue;
      context.strokeStyle = colour;
      line(context, Math.round(at) + 0.5, 0, Math.round(at) + 0.5, height);
    }
  }

  drawOverview(colours) {
    const { context, width, height } = prepare(this.overview);
    const { domain, view, device } = this.app;
    const columns = Math.max(1, Math.round(this.plotWidth));
    const { device: ofDevice, domain: ofDomain, columns: ofColumns } = this.overviewOf || {};
    if (ofDevice !== device || ofDomain !== domain || ofColumns !== columns) {
      this.overviewOf = { device, domain, columns, drawn: device.columns(0, domain, columns) };
    }
    const { high } = this.overviewOf.drawn;
    const most = Math.max(1, ...high[RESERVED].filter((value) => !Number.isNaN(value)));
    const y = (value) => height - 1 - value / most * (height - 6);
    context.fillStyle = colours.reserved;
    context.globalAlpha = 0.6;
    area(context, columns, 1, (column) => y(high[RESERVED][column]), height);
    context.fillStyle = colours.allocated;
    area(context, columns, 1, (column) => y(high[ALLOCATED][column]), height);
    const [left, right] = [view.from, view.to].map((time) => MARGIN.left + time / domain * this.plotWidth);
    context.fillStyle = colours.panel;
    context.globalAlpha = 0.72;
    context.fillRect(MARGIN.left, 0, left - MARGIN.left, height);
    context.fillRect(right, 0, width - MARGIN.right - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), height - 1);
  }

  listen(canvas) {
    const inside = (event) => clamp(event.offsetX, MARGIN.left, MARGIN.left + this.plotWidth);
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.app.pan(sideways * unit / this.plotWidth);
      } else {
        this.app.zoomAround(this.time(inside(event)), Math.exp(event.deltaY * unit * 0.0016));
      }
    }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button > 1) return;
      canvas.setPointerCapture(event.pointerId);
      const isPan = event.shiftKey || event.button === 1;
      this.drag = { start: inside(event), now: inside(event), isPan, isBrush: false };
    });
    canvas.addEventListener('pointermove', (event) => {
      const at = inside(event);
      this.hover = at;
      if (this.drag?.isPan) {
        this.app.pan((this.drag.now - at) / this.plotWidth);
        this.drag.now = at;
      } else if (this.drag) {
        this.drag.now = at;
        this.drag.isBrush ||= Math.abs(at - this.drag.start) > 3;
      }
      this.app.showReadout(this.readoutTime(at), event);
      this.app.redraw();
    });
    canvas.addEventListener('pointerup', () => {
      const drag = this.drag;
      this.drag = null;
      if (drag?.isBrush) {
        this.app.zoom(this.time(Math.min(drag.start, drag.now)), this.time(Math.max(drag.start, drag.now)));
      } else if (drag && !drag.isPan) {
        this.app.select(this.readoutTime(drag.start));
      }
      this.app.redraw();
    });
    canvas.addEventListener('pointerleave', () => {
      this.hover = null;
      this.app.hideReadout();
      this.app.redraw();
    });
    canvas.addEventListener('pointercancel', () => { this.drag = null; });
    canvas.addEventListener('dblclick', () => this.app.reset());
  }

  listenOverview() {
    const { overview } = this;
    const time = (event) => (event.offsetX - MARGIN.left) / this.plotWidth * this.app.domain;
    let grip = null;
    overview.addEventListener('pointerdown', (event) => {
      overview.setPointerCapture(event.pointerId);
      const { from, to } = this.app.view;
      const at = time(event);
      if (at < from || at > to) this.app.zoom(at - (to - from) / 2, at + (to - from) / 2);
      grip = { at, from: this.app.view.from, span: to - from };
    });
    overview.addEventListener('pointermove', (event) => {
      if (!grip) return;
      const from = grip.from + time(event) - grip.at;
      this.app.zoom(from, from + grip.span);
    });
    overview.addEventListener('pointerup', () => { grip = null; });
    overview.addEventListener('dblclick', () => this.app.reset());
  }

  /** The moment under the pointer: an event's own if one is near, else just what is there. */
  readoutTime(x) {
    const { time, length } = this.app.history.events;
    const at = this.time(x);
    const next = upperBound(time, length, at);
    const near = [next - 1, next].filter((i) => i >= 0 && i < length && Math.abs(this.x(time[i]) - x) <= NEAR);
    if (near.length === 0) return at;
    return time[near.reduce((a, b) => (Math.abs(time[a] - at) <= Math.abs(time[b] - at) ? a : b))];
  }
}

function clamp(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** Fills from `bottom` up to y(column), a bar for each column with data. */
function area(context, columns, width, y, bottom) {
  context.beginPath();
  let isOpen = false;
  for (let column = 0; column <= columns; column++) {
    const at = column < columns ? y(column) : NaN;
    const x = MARGIN.left + column * width;
    if (Number.isNaN(at)) {
      if (isOpen) context.lineTo(x, bottom);
      isOpen = false;
      continue;
    }
    if (!isOpen) context.moveTo(x, bottom);
    isOpen = true;
    context.lineTo(x, at);
    context.lineTo(x + width, at);
  }
  context.fill();
}

function outline(context, columns, width, y, thickness) {
  context.beginPath();
  let isOpen = false;
  for (let column = 0; column < columns; column++) {
    const at = y(column);
    const x = MARGIN.left + column * width;
    if (!Number.isNaN(at)) {
      if (isOpen) context.lineTo(x, at);
      else context.moveTo(x, at);
      context.lineTo(x + width, at);
    }
    isOpen = !Number.isNaN(at);
  }
  context.lineWidth = thickness;
  context.stroke();
  context.lineWidth = 1;
}

function fitText(context, text, x, y, width) {
  let shown = text.slice(0, 200);
  while (shown && context.measureText(shown).width > width) shown = shown.slice(0, -1);
  context.fillText(shown === text || shown.length < 2 ? shown : `${shown.slice(0, -1)}…`, x, y);
}

/** A moment on the axis, with as many digits as its steps need. */
function axisTime(time, step) {
  const unit = step >= 1e8 ? [1e9, 's'] : step >= 1e5 ? [1e6, 'ms'] : step >= 1e2 ? [1e3, 'µs'] : [1, 'ns'];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9));
  return `${(time / unit[0]).toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit[1]}`;
}
