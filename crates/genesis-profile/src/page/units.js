// Bytes, times and counts as readable text, and helpers of the whole page.

const LEVELS = ['requested', 'allocated', 'active', 'reserved'];
const [REQUESTED, ALLOCATED, ACTIVE, RESERVED] = [0, 1, 2, 3];

/** `1.50 GiB`: at least `digits` significant digits. */
function bytes(value, digits = 3) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1000 && unit < units.length - 1) {
    scaled /= 1024;
    unit++;
  }
  if (unit === 0) return `${value} B`;
  const whole = Math.max(1, Math.floor(Math.log10(Math.abs(scaled) || 1)) + 1);
  return `${scaled.toFixed(Math.max(0, digits - whole))} ${units[unit]}`;
}

/** `1,234,567 B`. */
function exactBytes(value) {
  return `${count(value)} B`;
}

function count(value) {
  return value.toLocaleString('en-US');
}

function percent(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : '–';
}

/** A length of time. */
function duration(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${trimmed(ns / 1e3)} µs`;
  if (ns < 1e9) return `${trimmed(ns / 1e6)} ms`;
  if (ns < 120e9) return `${trimmed(ns / 1e9)} s`;
  if (ns < 7200e9) return `${Math.floor(ns / 60e9)} min ${Math.round(ns / 1e9) % 60} s`;
  return `${Math.floor(ns / 3600e9)} h ${Math.round(ns / 60e9) % 60} min`;
}

function trimmed(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A moment to the nanosecond, in seconds: `12.345 678 901 s`. */
function moment(ns) {
  const whole = Math.round(ns);
  const part = String(whole % 1e9).padStart(9, '0');
  return `${count(Math.floor(whole / 1e9))}.${part.slice(0, 3)} ${part.slice(3, 6)} ${part.slice(6)} s`;
}

/** The round step, from 1, 2, 5 times a power of ten, that divides `span` into about `parts`. */
function roundStep(span, parts) {
  const rough = span / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough) || power;
}

/** The same in bytes: a power of two. */
function roundBytes(span, parts) {
  return 2 ** Math.ceil(Math.log2(Math.max(1, span / parts)));
}

/** The number of `times[0..length)`, sorted, that are at most `time`. */
function upperBound(times, length, time) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** An element with text, a class, children. Text is never set as markup. */
function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  const { text, className, ...attributes } = options;
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function swatch(colour, isLine = false) {
  const made = element('span', { className: isLine ? 'swatch line' : 'swatch' });
  made.style.background = colour;
  return made;
}

/** A frame: its file without folders, line, function. */
function frameText(frame) {
  const file = frame.file.split(/[/\\]/).pop();
  const place = file && frame.line ? `${file}:${frame.line}` : file;
  return [place, frame.function].filter(Boolean).join(' ') || '(not known)';
}

/** A call site in a line: its most telling frame, and the innermost if that is another one. */
function siteText(site) {
  if (!site?.frames.length) return '(not known)';
  const innermost = frameText(site.frames[0]);
  return site.telling ? `${frameText(site.frames[site.telling])} · ${innermost}` : innermost;
}

/** Sizes a canvas to its display and returns its context, in CSS pixels. */
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, "Segoe UI", "Helvetica Neue", sans-serif';
  return { context, width, height };
}

/** The page's present colours in the style sheet. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const colours = {};
  for (const name of ['back', 'panel', 'edge', 'text', 'faint', 'grid', 'accent', 'danger', 'reserved',
    'active', 'allocated', 'requested', 'waste', 'free', 'pending', 'other', 'shade']) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  return colours;
}
