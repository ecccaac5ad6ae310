// The address space at a moment, line by line like a page of text. Addresses without memory are left
// out and marked by a thin gap. Positions on the map count bytes from the first mapped one.

const LABEL = 118;
const ROW = 20;
const GAP = 4;

class MemoryMap {
  constructor(app) {
    this.app = app;
    this.canvas = document.getElementById('map');
    this.window = null;
    this.hover = null;
    this.drag = null;
    this.listen();
  }

  /** Shows another moment; what is in view stays if it still can. */
  show(picture) {
    this.picture = picture;
    this.starts = new Float64Array(picture.runs.length + 1);
    picture.runs.forEach(([start, end], i) => { this.starts[i + 1] = this.starts[i] + end - start; });
    this.total = this.starts[picture.runs.length];
    if (!this.window || this.window.isWhole) this.reset();
    else this.look(this.window.from, this.window.to);
    this.hover = null;
  }

  reset() {
    this.window = { from: 0, to: Math.max(1, this.total), isWhole: true };
  }

  look(from, to) {
    const span = clamp(to - from, Math.min(this.total, 4096), this.total) || 1;
    const start = clamp(from, 0, Math.max(0, this.total - span));
    this.window = { from: start, to: start + span, isWhole: span >= this.total };
  }

  get rows() {
    return Math.max(1, Math.floor((this.canvas.clientHeight - 2) / ROW));
  }

  get rowBytes() {
    return (this.window.to - this.window.from) / this.rows;
  }

  get plotWidth() {
    return Math.max(50, this.canvas.clientWidth - LABEL - 2);
  }

  draw() {
    const colours = theme();
    const { context, height } = prepare(this.canvas);
    const { rows, rowBytes } = this;
    context.textBaseline = 'middle';
    if (this.total === 0) {
      context.fillStyle = colours.faint;
      context.fillText('No memory is held at this moment.', LABEL, height / 2);
      return;
    }
    context.font = '11px ui-monospace, Menlo, Consolas, monospace';
    context.fillStyle = colours.faint;
    for (let row = 0; row < rows; row++) {
      const position = this.window.from + row * rowBytes;
      if (position >= this.total) break;
      context.fillText(`0x${this.addressAt(position).toString(16)}`, 0, row * ROW + ROW / 2);
    }
    this.drawRuns(context, colours);
    this.drawBlocks(context, colours);
    if (this.hover) this.outline(context, colours);
  }

  /** Cached memory everywhere that something is mapped, a gap where addresses are left out. */
  drawRuns(context, colours) {
    const { runs } = this.picture;
    context.fillStyle = colours.free;
    const first = Math.max(0, upperBound(this.starts, runs.length, this.window.from) - 1);
    this.fill(context, this.starts[first], Math.min(this.total, this.window.to));
    this.isGapped = false;
    const visible = upperBound(this.starts, runs.length, this.window.to) - first;
    if (visible > this.rows * this.plotWidth / 12) return;
    context.fillStyle = colours.panel;
    for (let i = first + 1; i < runs.length && this.starts[i] < this.window.to; i++) {
      const [x, y] = this.place(this.starts[i]);
      if (this.starts[i] >= this.window.from) context.fillRect(x - GAP / 2, y, GAP / 2, ROW - 3);
    }
    this.isGapped = true;
  }

  drawBlocks(context, colours) {
    const { blocks } = this.picture;
    let run = 0;
    let filledTo = -1;
    const pixelBytes = this.rowBytes / this.plotWidth / (window.devicePixelRatio || 1);
    const edge = pixelBytes * 1.5;
    for (let i = 0; i < blocks.length; i++) {
      run = this.runOf(blocks.address[i], run);
      const from = this.starts[run] + blocks.address[i] - this.picture.runs[run][0];
      const to = from + blocks.bytes[i];
      if (to <= this.window.from || from >= this.window.to) continue;
      // Blocks narrower than a pixel are drawn with their neighbours.
      if (to < filledTo) continue;
      context.fillStyle = blocks.state[i] === WAITING ? colours.pending : this.colourOf(i, colours.other);
      // A hairline between neighbours, if there is room.
      const isRoomy = to - from > 6 * edge;
      this.fill(context, from, isRoomy ? to - edge : Math.max(to, from + pixelBytes));
      filledTo = Math.max(to, from + pixelBytes);
    }
  }

  colourOf(i, other) {
    const { blocks } = this.picture;
    const key = { site: blocks.site[i], size: blocks.bytes[i], stream: blocks.stream[i] }[this.app.colourBy];
    return this.app.colours.of(this.app.colourBy, key, other);
  }

  outline(context, colours) {
    const { from, to } = this.hover;
    context.strokeStyle = colours.text;
    context.lineWidth = 1.5;
    for (const [x, y, width] of this.pieces(from, to)) context.strokeRect(x, y + 0.5, Math.max(1, width), ROW - 4);
    context.lineWidth = 1;
  }

  fill(context, from, to) {
    for (const [x, y, width] of this.pieces(from, to)) context.fillRect(x, y, width, ROW - 3);
  }

  /** The rectangles, a row each, of what lies between two positions. */
  pieces(from, to) {
    const { rowBytes, plotWidth } = this;
    const [start, end] = [Math.max(from, this.window.from), Math.min(to, this.window.to)];
    const found = [];
    if (end <= start) return found;
    const first = Math.floor((start - this.window.from) / rowBytes);
    const last = Math.min(this.rows - 1, Math.floor((end - this.window.from) / rowBytes));
    for (let row = first; row <= last; row++) {
      const begin = this.window.from + row * rowBytes;
      const left = Math.max(0, (start - begin) / rowBytes) * plotWidth;
      const right = Math.min(1, (end - begin) / rowBytes) * plotWidth;
      if (right > left) found.push([LABEL + left, row * ROW, right - left]);
    }
    return found;
  }

  place(position) {
    const row = Math.floor((position - this.window.from) / this.rowBytes);
    const within = (position - this.window.from) / this.rowBytes - row;
    return [LABEL + within * this.plotWidth, row * ROW];
  }

  positionAt(x, y) {
    const row = clamp(Math.floor(y / ROW), 0, this.rows - 1);
    const within = clamp((x - LABEL) / this.plotWidth, 0, 0.999999);
    return this.window.from + (row + within) * this.rowBytes;
  }

  runOf(address, from) {
    const { runs } = this.picture;
    let run = from;
    while (run + 1 < runs.length && runs[run + 1][0] <= address) run++;
    return run;
  }

  addressAt(position) {
    const { runs } = this.picture;
    const run = clamp(upperBound(this.starts, runs.length, position) - 1, 0, runs.length - 1);
    return Math.floor(runs[run][0] + position - this.starts[run]);
  }

  /** What lies at a position: a block, or the free memory between two. */
  at(position) {
    const { blocks, runs } = this.picture;
    if (position >= this.total || runs.length === 0) return null;
    const run = clamp(upperBound(this.starts, runs.length, position) - 1, 0, runs.length - 1);
    const offset = this.starts[run] - runs[run][0];
    const address = position - offset;
    const index = upperBound(blocks.address, blocks.length, address) - 1;
    const end = index < 0 ? -1 : blocks.address[index] + blocks.bytes[index];
    if (end > address) {
      return { block: index, address: blocks.address[index], from: blocks.address[index] + offset, to: end + offset };
    }
    const start = Math.max(end, runs[run][0]);
    const next = index + 1 < blocks.length ? blocks.address[index + 1] : Infinity;
    return { block: null, address: start, from: start + offset, to: Math.min(next, runs[run][1]) + offset };
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const { from, to } = this.window;
      if (event.shiftKey) return this.move(event.deltaY / 400);
      const at = this.positionAt(event.offsetX, event.offsetY);
      const factor = Math.exp(event.deltaY * 0.0016);
      this.look(at - (at - from) * factor, at + (to - at) * factor);
      this.app.redraw();
    }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = { y: event.offsetY, x: event.offsetX, from: this.window.from };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (this.drag) {
        const rows = (this.drag.y - event.offsetY) / ROW + (this.drag.x - event.offsetX) / this.plotWidth;
        const from = this.drag.from + rows * this.rowBytes;
        this.look(from, from + this.window.to - this.window.from);
      }
      this.hover = event.offsetX < LABEL ? null : this.at(this.positionAt(event.offsetX, event.offsetY));
      this.app.showBlock(this.hover, event);
      this.app.redraw();
    });
    canvas.addEventListener('pointerup', () => { this.drag = null; });
    canvas.addEventListener('pointercancel', () => { this.drag = null; });
    canvas.addEventListener('pointerleave', () => {
      this.hover = null;
      this.app.hideReadout();
      this.app.redraw();
    });
    canvas.addEventListener('dblclick', () => {
      this.reset();
      this.app.redraw();
    });
    canvas.addEventListener('keydown', (event) => {
      const { from, to } = this.window;
      const middle = (from + to) / 2;
      const zoom = (factor) => this.look(middle - (middle - from) * factor, middle + (to - middle) * factor);
      const keys = {
        '+': () => zoom(0.7), '=': () => zoom(0.7), '-': () => zoom(1.4), 0: () => this.reset(),
        ArrowUp: () => this.move(-0.2), ArrowDown: () => this.move(0.2),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
      this.app.redraw();
    });
  }

  /** Moves by a part of what is in view. */
  move(part) {
    const { from, to } = this.window;
    this.look(from + part * (to - from), to + part * (to - from));
    this.app.redraw();
  }
}
