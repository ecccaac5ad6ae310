// Tables: the biggest holders at a moment, and the allocations of the whole run.

const SHOWN_ROWS = 100;

/** A cell for a call site: its most telling frame, with all frames folded away. */
function placeCell(profile, site, colour) {
  const { frames } = profile.sites[site] || { frames: [] };
  const label = element('span', { className: 'place', text: siteText(profile.sites[site]) });
  const cell = element('td', { className: 'wide' });
  const head = element('span', { className: 'swatched' }, swatch(colour), label);
  if (frames.length < 2) {
    cell.append(head);
    return cell;
  }
  const list = element('ol', {}, ...frames.map((frame) => element('li', {
    text: `${frame.file}${frame.line ? `:${frame.line}` : ''} ${frame.function}`,
  })));
  cell.append(element('details', {}, element('summary', {}, head), list));
  return cell;
}

function sizeCell(value, colour) {
  return element('td', {}, element('span', { className: 'swatched' }, swatch(colour),
    element('span', { text: bytes(value), title: exactBytes(value) })));
}

function bytesCell(value) {
  return element('td', { text: bytes(value), title: exactBytes(value) });
}

/** Fills the table of holders at a moment. */
function showHolders(app, table, holders, by) {
  const other = theme().other;
  const total = holders.reduce((sum, holder) => sum + holder.bytes, 0);
  const head = [by === 'site' ? 'Call site' : 'Block size', 'Bytes', 'Blocks', 'Share'];
  const rows = holders.slice(0, SHOWN_ROWS).map((holder) => {
    const colour = app.colours.of(by, holder.key, other);
    const share = element('td', { className: 'share', text: percent(holder.bytes, total) });
    const bar = element('i');
    bar.style.background = colour;
    bar.style.width = `calc(${(100 * holder.bytes / holders[0].bytes).toFixed(2)}% - 20px)`;
    share.append(bar);
    const first = by === 'site' ? placeCell(app.profile, holder.key, colour) : sizeCell(holder.key, colour);
    return element('tr', {}, first, bytesCell(holder.bytes), element('td', { text: count(holder.count) }), share);
  });
  const rest = holders.slice(SHOWN_ROWS);
  const restBytes = rest.reduce((sum, holder) => sum + holder.bytes, 0);
  const foot = rest.length
    ? [element('tr', {}, element('td', { text: `${count(rest.length)} more` }), bytesCell(restBytes),
      element('td', { text: count(rest.reduce((sum, holder) => sum + holder.count, 0)) }),
      element('td', { text: percent(restBytes, total) }))]
    : [];
  if (holders.length === 0) rows.push(element('tr', {}, element('td', { text: 'Nothing is live.', colspan: '4' })));
  table.replaceChildren(
    element('thead', {}, element('tr', {}, ...head.map((text) => element('th', { text, scope: 'col' })))),
    element('tbody', {}, ...rows), element('tfoot', {}, ...foot),
  );
}

/** The whole run by call site or by size; a click on a column's head sorts by it. */
class Summary {
  constructor(app) {
    this.app = app;
    this.table = document.getElementById('summary');
    this.sorted = { column: 'peak', isDescending: true };
    this.isAll = false;
    const { profile } = app;
    this.by = profile.call_sites.length > 0 ? 'site' : 'size';
    const columns = (row) => ({
      allocations: row.counts.allocations,
      requested: row.counts.requested_bytes,
      live: row.counts.live_bytes,
      peak: row.counts.peak_bytes,
      lifetime: row.counts.frees ? row.counts.lifetime_ns / row.counts.frees : NaN,
      hits: row.counts.allocations ? row.counts.hits / row.counts.allocations : NaN,
    });
    this.rows = {
      site: profile.call_sites.map((row) => ({ key: row.site, ...columns(row) })),
      size: profile.sizes.map((row) => ({ key: row.block_bytes, ...columns(row) })),
    };
    for (const [by, id] of [['site', 'tab-sites'], ['size', 'tab-sizes']]) {
      const tab = document.getElementById(id);
      tab.hidden = by === 'site' && profile.call_sites.length === 0;
      tab.addEventListener('click', () => {
        this.by = by;
        this.isAll = false;
        this.draw();
      });
    }
    this.draw();
  }

  draw() {
    document.getElementById('tab-sites').setAttribute('aria-selected', String(this.by === 'site'));
    document.getElementById('tab-sizes').setAttribute('aria-selected', String(this.by === 'size'));
    const heads = [['key', this.by === 'site' ? 'Call site' : 'Block size'], ['allocations', 'Allocations'],
      ['requested', 'Requested in all'], ['live', 'Live at the end'], ['peak', 'Peak'],
      ['lifetime', 'Mean lifetime'], ['hits', 'Hit rate']];
    const rows = this.rows[this.by].slice().sort((a, b) => this.compare(a, b));
    const shown = this.isAll ? rows : rows.slice(0, SHOWN_ROWS);
    const other = theme().other;
    const made = shown.map((row) => {
      const colour = this.app.colours.of(this.by, row.key, other);
      return element('tr', {},
        this.by === 'site' ? placeCell(this.app.profile, row.key, colour) : sizeCell(row.key, colour),
        element('td', { text: count(row.allocations) }), bytesCell(row.requested), bytesCell(row.live), bytesCell(row.peak),
        element('td', { text: Number.isNaN(row.lifetime) ? '–' : duration(row.lifetime) }),
        element('td', { text: Number.isNaN(row.hits) ? '–' : percent(row.hits, 1) }));
    });
    const foot = [];
    if (shown.length < rows.length) {
      const more = element('button', { type: 'button', text: `Show all ${count(rows.length)}` });
      more.addEventListener('click', () => {
        this.isAll = true;
        this.draw();
      });
      foot.push(element('tr', {}, element('td', { colspan: '7' }, more)));
    }
    this.table.replaceChildren(
      element('thead', {}, element('tr', {}, ...heads.map(([column, text]) => this.head(column, text)))),
      element('tbody', {}, ...made), element('tfoot', {}, ...foot),
    );
  }

  head(column, text) {
    const { sorted } = this;
    const isSorted = sorted.column === column;
    const button = element('button', { type: 'button', text: isSorted ? `${text} ${sorted.isDescending ? '↓' : '↑'}` : text });
    button.addEventListener('click', () => {
      this.sorted = { column, isDescending: isSorted ? !sorted.isDescending : true };
      this.draw();
      this.table.querySelector(`[data-column="${column}"] button`).focus();
    });
    const made = element('th', { scope: 'col', 'data-column': column }, button);
    if (isSorted) made.setAttribute('aria-sort', sorted.isDescending ? 'descending' : 'ascending');
    return made;
  }

  compare(a, b) {
    const { column, isDescending } = this.sorted;
    const of = (row) => (column === 'key' && this.by === 'site' ? this.label(row.key) : row[column]);
    const [x, y] = [of(a), of(b)];
    // Rows without a value come last in either order.
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    const order = typeof x === 'string' ? x.localeCompare(y) : x - y;
    return isDescending ? -order : order;
  }

  label(site) {
    return siteText(this.app.profile.sites[site]);
  }
}
