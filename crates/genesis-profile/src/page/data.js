// Reads the profile and its events from the page. packed.rs describes the layout of the columns.

async function readProfile() {
  const [text, columns] = await Promise.all([inflate('profile-data'), inflate('events-data')]);
  const profile = JSON.parse(new TextDecoder().decode(text));
  const telling = JSON.parse(document.getElementById('profile-data').dataset.telling);
  profile.sites.forEach((site, i) => { site.telling = telling[i] ?? 0; });
  const length = Number(document.getElementById('events-data').dataset.count);
  return { profile, events: readEvents(columns, length, profile.devices) };
}

async function inflate(id) {
  const holder = document.getElementById(id);
  const deflated = fromBase64(holder.textContent);
  holder.textContent = '';
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const decoded = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) decoded[i] = binary.charCodeAt(i);
  return decoded;
}

/**
 * The events as one typed array for each field; `address` indexes `addresses`, `row` is the device's.
 * `clock` is the time of an event; `time` is its position on the axis, which is the same unless the
 * axis counts events instead of nanoseconds.
 */
function readEvents(buffer, length, devices) {
  let at = 0;
  const column = () => {
    const [width, entries] = new Uint32Array(buffer, at, 2);
    const table = wide(buffer, at + 8, entries);
    const start = at + 8 + 8 * entries;
    at = start + Math.ceil(width * length / 8) * 8;
    const values = {
      0: () => new Uint8Array(length),
      1: () => new Uint8Array(buffer, start, length),
      2: () => new Uint16Array(buffer, start, length),
      4: () => new Uint32Array(buffer, start, length),
      8: () => wide(buffer, start, length),
    }[width]();
    return { table, values };
  };
  const time = times(column(), length);
  const action = as(Uint8Array, plain(column(), length));
  const device = column();
  const stream = as(Uint32Array, plain(column(), length));
  const addresses = column();
  const requested = as(Float64Array, plain(column(), length));
  const block = as(Float64Array, plain(column(), length));
  const site = as(Uint32Array, plain(column(), length));
  const name = as(Uint32Array, plain(column(), length));
  const row = rows(plain(device, length), length, devices);
  return {
    length, clock: time, time, action, row, stream, requested, block, site, name,
    addresses: addresses.table, address: as(Uint32Array, addresses.values),
  };
}

/** Integers of 64 bits as doubles, exact to 2^53; differences may be negative. */
function wide(buffer, start, length) {
  const halves = new Uint32Array(buffer, start, 2 * length);
  const values = new Float64Array(length);
  for (let i = 0; i < length; i++) {
    const high = halves[2 * i + 1];
    values[i] = (high >= 0x80000000 ? high - 0x100000000 : high) * 0x100000000 + halves[2 * i];
  }
  return values;
}

function plain({ table, values }, length) {
  if (table.length === 0) return values;
  const looked = new Float64Array(length);
  for (let i = 0; i < length; i++) looked[i] = table[values[i]];
  return looked;
}

/** The values in an array of one type for any width, so that loops over them are fast. */
function as(Type, values) {
  return values instanceof Type ? values : new Type(values);
}

/** Times from differences; a time never decreases. */
function times(differences, length) {
  const values = plain(differences, length);
  const time = new Float64Array(length);
  let [now, latest] = [0, 0];
  for (let i = 0; i < length; i++) {
    now += values[i];
    if (now > latest) latest = now;
    time[i] = latest;
  }
  return time;
}

const NO_ROW = 255;

function rows(ordinals, length, devices) {
  const row = new Uint8Array(length);
  if (devices.length === 1 && devices[0].ordinal === 0 && ordinals.every((ordinal) => ordinal === 0)) {
    return row;
  }
  const of = new Map(devices.map((device, index) => [device.ordinal, index]));
  for (let i = 0; i < length; i++) row[i] = of.get(ordinals[i]) ?? NO_ROW;
  return row;
}
