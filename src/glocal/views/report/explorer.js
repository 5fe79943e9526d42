// glocal explorer: draws one payload (see views/figures/payload.py) into one element. Text is only ever set as text, and nothing is
// computed here but colours, orders and the rest of a list.
//
// mount(root, data, { address }) returns a function that takes everything back. `view` holds the indices of what is chosen; every part
// returns an element and gives `draw` a function that brings it up to date.

export async function mount(root, data, { address = false } = {}) {
  const gone = new AbortController();
  const draws = [];
  const page = {
    data, root, signal: gone.signal, styles: new Map(), maps: await unpackAll(data.maps), errors: await unpackAll(data.errors),
    view: { layer: 0, head: 0, target: 0, source: null, by: 0, held: false, stretched: false },
    draw: (each) => draws.push(each),
    update(change, keep = true) {
      if (Object.entries(change).every(([key, value]) => page.view[key] === value)) return;
      Object.assign(page.view, change);
      for (const each of draws) each(page.view);
      if (keep && address) remember(page);
    },
  };
  choose(page);
  if (address) restore(page);
  const shown = data.faces.length > 0;
  root.replaceChildren(...[
    data.statistics.length && overview(page), shown && onTheText(page), shown && matrices(page), shown && details(page),
  ].filter(Boolean));
  const redraw = () => draws.forEach((each) => each(page.view));
  redraw();
  listen(page, redraw, address);
  root.dataset.ready = "true";
  return () => { gone.abort(); root.replaceChildren(); };
}

function listen(page, redraw, address) {
  const { signal, root } = page;
  const options = { signal };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") page.update({ held: false, source: null }); }, options);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { page.styles.clear(); redraw(); }, options);
  if (address) window.addEventListener("hashchange", () => { restore(page); redraw(); }, options);
  let width = root.clientWidth;
  const resized = new ResizeObserver(() => { if (root.clientWidth !== width) { width = root.clientWidth; redraw(); } });
  resized.observe(root);
  signal.addEventListener("abort", () => resized.disconnect());
}

// ---- data ------------------------------------------------------------------------------------------------------------

async function unpackAll(packed) {
  const made = {};
  for (const [name, each] of Object.entries(packed)) made[name] = await unpack(each);
  return made;
}

async function unpack({ data, bits, top, scale, shape }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const buffer = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const values = bits === 16 ? new Uint16Array(buffer) : new Uint8Array(buffer);
  const [, heads, targets, sources] = shape;
  // A map without heads has the same rows for all of them.
  const start = (layer, head) => (layer * heads + Math.min(head, heads - 1)) * targets * sources;
  const read = (value) => (value > top ? NaN : scale * (value / top) ** 2);
  return {
    at: (layer, head, target, source) => read(values[start(layer, head) + target * sources + source]),
    most(layer, head) {
      let most = 0;
      for (let i = start(layer, head), end = i + targets * sources; i < end; i++) if (values[i] <= top && values[i] > most) most = values[i];
      return read(most) || 1;
    },
  };
}

const share = (page, face, source) => page.maps[face].at(page.view.layer, page.view.head, page.view.target, source);
const ownSource = (page) => page.data.targets[page.view.target];

function ranking(statistic) {
  const cells = statistic.grid.flatMap((row, layer) => row.map((value, head) => [layer, head, value]));
  return cells.filter((cell) => cell[2] !== null).sort((a, b) => b[2] - a[2]);
}

// The page opens on the head and the target that differ most.
function choose({ data, view }) {
  const first = data.statistics[0];
  if (!first) return;
  const order = ranking(first);
  if (first.note.includes("alike")) order.reverse();
  if (order.length) [view.layer, view.head] = order[0];
  const row = data.rows[first.name]?.[view.layer][view.head].map((value) => (value === null ? -Infinity : first.note.includes("alike") ? -value : value));
  if (row) view.target = row.indexOf(Math.max(...row));
}

// ---- the address -----------------------------------------------------------------------------------------------------

function remember(page) {
  const { data, view } = page;
  const parts = { layer: data.layers[view.layer], target: data.targets[view.target], by: data.statistics[view.by]?.name ?? "" };
  if (data.heads.length) parts.head = data.heads[view.head];
  const write = () => { page.written = Date.now(); history.replaceState(null, "", "#" + new URLSearchParams(parts)); };
  clearTimeout(page.waiting);
  // Browsers refuse too many changes in a row, as a held arrow key makes them.
  if (Date.now() - (page.written ?? 0) > 200) write();
  else page.waiting = setTimeout(write, 200);
}

function restore({ data, view }) {
  const asked = new URLSearchParams(location.hash.slice(1));
  const found = {
    layer: data.layers.indexOf(Number(asked.get("layer") ?? NaN)), head: data.heads.indexOf(Number(asked.get("head") ?? NaN)),
    target: data.targets.indexOf(Number(asked.get("target") ?? NaN)), by: data.statistics.findIndex((each) => each.name === asked.get("by")),
  };
  for (const [key, index] of Object.entries(found)) if (index >= 0) view[key] = index;
}

// ---- elements and texts ----------------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function drawing(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const percent = (value) => (Number.isNaN(value) ? "undefined" : `${(100 * value).toFixed(value < 0.0995 && value > 0 ? 1 : 0)}%`);
const fixed = (value, digits = 3) => (value === null || value === undefined ? "undefined" : value.toFixed(digits));
const measured = (value, unit) => (value === null || value === undefined ? "undefined" : unit === "share" ? percent(value) : `${fixed(value)} ${unit}`.trim());
const clamp = (value, top) => Math.max(0, Math.min(top, value));
const titled = (statistic) => (statistic.unit && statistic.unit !== "share" ? `${statistic.label} (${statistic.unit})` : statistic.label);
const word = (page, source) => make("b", {}, make("bdi", {}, page.data.tokens[source].shown));
const swatch = (face) => make("span", { class: `swatch ${face.name}`, "aria-hidden": "true" });
const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function place(data, layer, head, width = data.heads.length) {
  return `layer ${data.layers[layer]}` + (width && width === data.heads.length ? ` head ${data.heads[head]}` : "");
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// ---- colours ---------------------------------------------------------------------------------------------------------

// Cividis: readable with every kind of colour sight, and rising in lightness.
const CIVIDIS = [[0, 34, 78], [42, 63, 109], [86, 92, 108], [123, 123, 120], [166, 157, 117], [211, 193, 100], [254, 232, 56]];

function blend(ramp, fraction) {
  const at = clamp(fraction, 1) * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
  return ramp[low].map((value, i) => Math.round(value + (at - low) * (ramp[low + 1][i] - value)));
}

// White or black, whichever contrasts more (relative luminance of WCAG).
function inkOn(colour) {
  const [r, g, b] = colour.map((value) => { const part = value / 255; return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#0d1117" : "#ffffff";
}

// Styles are asked for once per colour scheme: every token needs them at every move of the pointer.
function kept(page, name, read) {
  if (!page.styles.has(name)) page.styles.set(name, read(getComputedStyle(page.root).getPropertyValue(name).trim()));
  return page.styles.get(name);
}

const style = (page, name) => kept(page, name, (text) => text);
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const ramp = (page, face) => kept(page, `--${face}-ramp`, (text) => text.split(/\s+/).map(rgb));
const css = (colour) => `rgb(${colour.join(" ")})`;

// Shades grow with the square root of the share, so that small ones can be told apart.
const scaleOf = (page, face) => (page.view.stretched ? page.maps[face].most(page.view.layer, page.view.head) : 1);

function scaleBar(page, face) {
  const bar = make("span", { class: "ramp", "aria-hidden": "true" }), ticks = make("span", { class: "ticks" });
  page.draw(() => {
    const most = scaleOf(page, face.name);
    bar.style.background = `linear-gradient(to right, ${ramp(page, face.name).map(css).join(", ")})`;
    ticks.replaceChildren(...[0, 0.1, 0.4, 1].map((part) => {
      const tick = make("span", {}, percent(part * most));
      tick.style.left = `${100 * Math.sqrt(part)}%`;
      return tick;
    }));
  });
  return make("span", { class: "scale-bar" }, bar, ticks);
}

// ---- every head at a glance ------------------------------------------------------------------------------------------

function overview(page) {
  const { data, view } = page;
  const options = data.statistics.map((each) => make("option", {}, titled(each)));
  const choice = make("select", { onchange: () => page.update({ by: choice.selectedIndex }) }, ...options);
  page.draw(() => { choice.selectedIndex = view.by; });
  return make("section", { "aria-label": "every head at a glance" },
    make("div", { class: "head" }, make("h2", {}, "Every head at a glance"), make("label", {}, "Coloured by ", choice)),
    make("p", { class: "hint" }, "Means over targets. Choose a head by click, or with the arrow keys."),
    make("div", { class: "overview" }, make("div", { class: "grid-side" }, grid(page), gridScale(page), extremes(page)), chosen(page)));
}

function grid(page) {
  const scroll = make("div", { class: "scroll" });
  let shown = null, cells = [];
  page.draw((view) => {
    const statistic = page.data.statistics[view.by];
    if (shown !== statistic) {
      shown = statistic;
      cells = statistic.grid.map((row, layer) => row.map((value, head) => gridCell(page, statistic, layer, head, value)));
      scroll.replaceChildren(gridTable(page, statistic, cells));
    }
    cells.forEach((row, layer) => row.forEach((cell, head) => {
      const on = layer === view.layer && head === Math.min(view.head, row.length - 1);
      cell.setAttribute("aria-selected", on);
      cell.tabIndex = on ? 0 : -1;
    }));
  });
  return scroll;
}

function gridCell(page, statistic, layer, head, value) {
  const name = `${place(page.data, layer, head, statistic.grid[0].length)}: ${statistic.label} ${measured(value, statistic.unit)}`;
  const choose = () => page.update({ layer, head: statistic.grid[0].length === page.data.heads.length ? head : page.view.head });
  const cell = make("button", { class: "cell", type: "button", role: "gridcell", tabindex: "-1", "aria-label": name, title: name, onclick: choose });
  if (value === null) {
    cell.append("–");
    cell.classList.add("undefined");
    return cell;
  }
  const colour = blend(CIVIDIS, (value - statistic.low) / (statistic.high - statistic.low));
  cell.append(value.toFixed(2).replace(/^(-?)0\./, "$1."));
  cell.style.background = css(colour);
  cell.style.color = inkOn(colour);
  return cell;
}

function gridTable(page, statistic, cells) {
  const { data, view } = page, width = statistic.grid[0].length;
  const keys = (event) => {
    const move = steps[event.key] ?? { Home: [0, -width], End: [0, width] }[event.key];
    if (!move) return;
    event.preventDefault();
    page.update({ layer: clamp(view.layer + move[0], data.layers.length - 1), ...(width > 1 ? { head: clamp(view.head + move[1], width - 1) } : {}) });
    cells[view.layer][Math.min(view.head, width - 1)].focus();
  };
  const names = width === data.heads.length ? data.heads.map(String) : ["all"];
  const corner = make("th", { role: "columnheader", class: "corner" }, make("span", { "aria-hidden": "true" }, "layer ╲ head"));
  const top = make("tr", { role: "row" }, corner, ...names.map((name) => make("th", { role: "columnheader", scope: "col" }, name)));
  const rows = cells.map((row, layer) => make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row" }, String(data.layers[layer])), ...row.map((cell) => make("td", { role: "presentation" }, cell))));
  const table = make("table", { role: "grid", "aria-label": `layers by heads, ${statistic.label}`, onkeydown: keys },
    make("thead", { role: "rowgroup" }, top), make("tbody", { role: "rowgroup" }, ...rows));
  table.style.maxWidth = `${46 * width + 90}px`;
  return table;
}

function gridScale(page) {
  const bar = make("span", { class: "ramp", "aria-hidden": "true" }), low = make("span"), high = make("span"), note = make("span", { class: "note" });
  bar.style.background = `linear-gradient(to right, ${CIVIDIS.map(css).join(", ")})`;
  page.draw((view) => {
    const statistic = page.data.statistics[view.by];
    low.textContent = statistic.unit === "share" ? percent(statistic.low) : fixed(statistic.low, 2);
    high.textContent = measured(statistic.high, statistic.unit);
    note.textContent = statistic.note;
  });
  return make("p", { class: "grid-scale" }, low, bar, high, note);
}

// The chosen head in numbers: the coloured one large, then measures, then what both faces have.
function chosen(page) {
  const box = make("div", { class: "chosen", "aria-live": "polite" });
  page.draw((view) => {
    const { data } = page, statistic = data.statistics[view.by];
    const value = (each) => each.grid[view.layer][Math.min(view.head, each.grid[0].length - 1)];
    const amount = (each) => measured(value(each), each.unit);
    const others = data.statistics.filter((each) => each.measure && each !== statistic);
    const kinds = [...new Set(data.statistics.filter((each) => each.kind).map((each) => each.kind))];
    const cell = (kind, face) => { const found = data.statistics.find((each) => each.kind === kind && each.face === face.name); return make("td", {}, found ? amount(found) : ""); };
    box.replaceChildren(
      make("h3", {}, capital(place(data, view.layer, view.head))),
      make("p", { class: "big" }, make("b", {}, amount(statistic)), ` ${statistic.label}`),
      ...others.map((each) => make("p", { class: "small" }, make("b", {}, amount(each)), ` ${each.label}`)),
      make("table", { class: "both" },
        make("thead", {}, make("tr", {}, make("td"), ...data.faces.map((face) => make("th", { scope: "col" }, swatch(face), face.heads ? face.name : `${face.name} of the layer`)))),
        make("tbody", {}, ...kinds.map((kind) => make("tr", {}, make("th", { scope: "row" }, kind), ...data.faces.map((face) => cell(kind, face)))))));
  });
  return box;
}

function extremes(page) {
  const box = make("div", { class: "extremes" });
  let shown = null;
  page.draw((view) => {
    const statistic = page.data.statistics[view.by];
    if (statistic === shown) return;
    shown = statistic;
    const order = ranking(statistic), few = Math.min(5, Math.max(1, Math.floor(order.length / 2))), width = statistic.grid[0].length;
    const chip = ([layer, head, value]) => make("button", {
      type: "button", "aria-label": `${place(page.data, layer, head, width)}, ${measured(value, statistic.unit)}`,
      onclick: () => page.update({ layer, head: width > 1 ? head : page.view.head }),
    }, make("b", {}, width === page.data.heads.length ? `L${page.data.layers[layer]} H${page.data.heads[head]}` : `L${page.data.layers[layer]}`), ` ${statistic.unit === "share" ? percent(value) : fixed(value)}`);
    const line = (label, part) => make("p", {}, make("span", {}, label), ...part.map(chip));
    box.replaceChildren(...(order.length > 1 ? [line("largest", order.slice(0, few)), line("smallest", order.slice(-few).reverse())] : []));
  });
  return box;
}

// ---- both faces on the text ------------------------------------------------------------------------------------------

function onTheText(page) {
  const { data } = page;
  const heading = make("h2");
  page.draw((view) => {
    const reads = data.faces.length === 1 ? "" : ` — what “${data.tokens[ownSource(page)].shown}” reads and ${data.faces.every((face) => face.heads) ? "depends on" : "what the layer there depends on"}`;
    heading.textContent = capital(place(data, view.layer, view.head)) + reads;
  });
  const lines = data.faces.length === 1 ? [""] : ["upper line, ", "lower line, "];
  const legend = data.faces.map((face, i) => make("li", {}, swatch(face), make("span", {}, make("b", {}, face.title), ` (${lines[i]}${face.kind}): ${face.what}`), scaleBar(page, face)));
  return make("section", { "aria-label": "both faces on the text" },
    make("div", { class: "head" }, heading, stretch(page)),
    make("p", { class: "hint" }, "Point at a token, or use the arrow keys, to see where its row goes. Click or Enter holds it, Escape lets go. Numbers are percent."),
    make("ul", { class: "legend" }, ...legend), flow(page), readout(page, true));
}

function stretch(page) {
  const box = make("input", { type: "checkbox", onchange: () => page.update({ stretched: box.checked }, false) });
  return make("label", {}, box, " stretch shades to the largest share of each map");
}

function flow(page) {
  const { data, view } = page;
  const position = new Map(data.targets.map((value, index) => [value, index]));
  const box = make("div", { class: "flow", role: "group", "aria-label": "the text, token by token", dir: data.right_to_left ? "rtl" : "ltr" });
  const look = (source) => page.update(view.held || !position.has(source) ? { source } : { target: position.get(source), source: null }, false);
  const hold = (source) => {
    if (position.has(source)) page.update({ target: position.get(source), source: null, held: !(view.held && source === ownSource(page)) });
  };
  const keys = (event, source) => {
    const move = steps[event.key], ends = { Home: 0, End: tokens.length - 1 }[event.key];
    if (!move && ends === undefined) return;
    event.preventDefault();
    const towards = move && (move[1] ? move[1] * (data.right_to_left ? -1 : 1) : move[0]);
    tokens[ends ?? clamp(source + towards, tokens.length - 1)].focus();
  };
  const tokens = data.tokens.map((token, source) => make("button", {
    class: kindOf(data, source), type: "button", "data-source": source, tabindex: "-1",
    onclick: () => hold(source), onmouseenter: () => look(source), onfocus: () => look(source), onkeydown: (event) => keys(event, source),
  }));
  const lanes = data.faces.map((face) => ({ face, texts: data.tokens.map((token) => make("bdi", { class: face.name }, token.shown)), shares: data.tokens.map(() => make("small")) }));
  // Numbers are outside: above the upper line and below the lower one.
  tokens.forEach((token, source) => lanes.forEach(({ texts, shares }, i) => token.append(...(i ? [texts[source], shares[source]] : [shares[source], texts[source]]))));
  box.append(...tokens);
  page.draw(() => {
    const said = lanes.map((each) => shade(page, each));
    tokens.forEach((token, source) => state(page, token, source, said.map((each) => each[source])));
  });
  return box;
}

function kindOf(data, source) {
  const { category, word } = data.tokens[source];
  const joined = (other) => word >= 0 && word === data.tokens[other]?.word;
  return ["token", joined(source - 1) && "piece", joined(source + 1) && "open", !["word", "punctuation"].includes(category) && "special"].filter(Boolean).join(" ");
}

// Colours one line and returns what its shares are called.
function shade(page, { face: { name }, texts, shares }) {
  const colours = ramp(page, name), most = scaleOf(page, name);
  return texts.map((text, source) => {
    const value = share(page, name, source), colour = blend(colours, Math.sqrt((value || 0) / most));
    text.style.background = css(colour);
    text.style.color = inkOn(colour);
    shares[source].textContent = Number.isNaN(value) ? "?" : value >= 0.005 ? (100 * value).toFixed(0) : "\u00a0";
    return `${name} ${percent(value)}`;
  });
}

function state(page, token, source, said) {
  const { data, view } = page, isTarget = source === ownSource(page);
  token.classList.toggle("target", isTarget);
  token.classList.toggle("source", source === view.source);
  token.tabIndex = isTarget ? 0 : -1;
  token.setAttribute("aria-pressed", String(view.held && isTarget));
  token.setAttribute("aria-label", `${data.tokens[source].shown}, ${said.join(", ")}`);
}

// One line that says what is pointed at.
function readout(page, live = false) {
  const line = make("p", live ? { class: "readout", "aria-live": "polite" } : { class: "readout", "aria-hidden": "true" });
  page.draw((view) => {
    const { data } = page, target = ownSource(page), source = view.source ?? target, by = data.statistics[view.by];
    const rowsOf = by && data.rows[by.name] ? by : data.statistics.find((each) => data.rows[each.name]);
    const values = data.faces.flatMap((face) => {
      const error = page.errors[face.name]?.at(view.layer, view.head, view.target, source);
      return [swatch(face), `${face.name} ${percent(share(page, face.name, source))}${error >= 0 ? ` ± ${percent(error)}` : ""}  `];
    });
    const row = rowsOf ? [`· whole row: ${rowsOf.label} ${measured(data.rows[rowsOf.name][view.layer][view.head][view.target], rowsOf.unit)}`] : [];
    const other = source === target ? [" from itself: "] : [" from ", word(page, source), ` (${source}): `];
    line.replaceChildren(view.held ? make("span", { class: "held" }, "held") : "", word(page, target), ` (${target})`, ...other, ...values, ...row);
  });
  return line;
}

// ---- matrices --------------------------------------------------------------------------------------------------------

function matrices(page) {
  const columns = make("div", { class: "columns" }, ...page.data.faces.map((face) => matrix(page, face)));
  return make("section", { "aria-label": "the whole head" }, make("h2", {}, page.data.faces.every((face) => face.heads) ? "The whole head" : "All rows"),
    make("p", { class: "hint" }, "Rows are targets, columns are sources. The frames follow the token you point at, here and on the text."), columns, readout(page));
}

function matrix(page, face) {
  const { data, view } = page, rows = data.targets.length, columns = data.tokens.length;
  const canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "matrix" });
  const holder = make("div", { class: `matrix ${face.name}` }, make("h3", {}, swatch(face), `${face.title} `, make("span", { class: "kind" }, face.kind)), canvas);
  const picture = make("canvas", { width: columns, height: rows });
  let painted = "", shape = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect(), { left, top, cell, tall } = shape;
    return { target: clamp(Math.floor((event.clientY - box.top - top) / tall), rows - 1), source: clamp(Math.floor((event.clientX - box.left - left) / cell), columns - 1) };
  };
  canvas.addEventListener("mousemove", (event) => page.update(view.held ? { source: at(event).source } : at(event), false));
  canvas.addEventListener("mouseleave", () => page.update({ source: null }, false));
  canvas.addEventListener("click", (event) => {
    const found = at(event);
    page.update({ ...found, held: !(view.held && found.target === view.target) });
  });
  canvas.addEventListener("keydown", (event) => {
    const move = steps[event.key];
    if (event.key === "Enter") page.update({ held: !view.held });
    if (!move) return;
    event.preventDefault();
    page.update({ target: clamp(view.target + move[0], rows - 1), source: clamp((view.source ?? ownSource(page)) + move[1], columns - 1) });
  });
  page.draw(() => {
    shape = geometry(page, holder.clientWidth || 400);
    const key = [view.layer, view.head, view.stretched, style(page, "--paper")].join(" ");
    if (key !== painted) paint(page, face.name, picture, rows, columns);
    painted = key;
    compose(page, canvas, picture, shape);
    const source = view.source ?? ownSource(page);
    canvas.setAttribute("aria-label", `${face.title}, targets by sources; ${data.tokens[ownSource(page)].shown} from ${data.tokens[source].shown}: ${percent(share(page, face.name, source))}`);
  });
  return holder;
}

// Tokens are written along both axes where they can be read.
function geometry({ data }, available) {
  const columns = data.tokens.length, width = Math.min(available, 540);
  const gutter = Math.min(92, Math.round(0.22 * width)), labelled = (width - gutter) / columns >= 11;
  const left = labelled ? gutter : 0, cell = Math.min((width - left) / columns, 64);
  const tall = data.targets.length * 4 < columns ? Math.max(cell, 16) : cell;
  return { left, top: left, cell, tall, labelled, width: left + cell * columns, height: left + tall * data.targets.length };
}

function paint(page, face, picture, rows, columns) {
  const { view } = page, colours = ramp(page, face), most = scaleOf(page, face), image = new ImageData(columns, rows);
  for (let target = 0, i = 0; target < rows; target++) for (let source = 0; source < columns; source++, i += 4) {
    const value = page.maps[face].at(view.layer, view.head, target, source);
    image.data.set(Number.isNaN(value) ? [128, 128, 128, 255] : [...blend(colours, Math.sqrt(value / most)), 255], i);
  }
  picture.getContext("2d").putImageData(image, 0, 0);
}

function compose(page, canvas, picture, { left, top, cell, tall, labelled, width, height }) {
  const { data, view } = page, ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.imageSmoothingEnabled = cell * ratio < 1;
  pen.drawImage(picture, left, top, width - left, height - top);
  if (labelled) axes(page, pen, { left, top, cell, tall });
  pen.strokeStyle = style(page, "--line");
  pen.strokeRect(left + 0.5, top + 0.5, width - left - 1, height - top - 1);
  pen.strokeStyle = style(page, "--ink");
  pen.lineWidth = cell > 8 ? 2 : 1;
  pen.strokeRect(left + 1, top + view.target * tall, width - left - 2, tall);
  if (view.source !== null) pen.strokeRect(left + view.source * cell, top + 1, cell, height - top - 2);
}

function axes(page, pen, { left, top, cell, tall }) {
  const { data, view } = page, size = Math.min(13, Math.max(9, cell * 0.72)), source = view.source ?? ownSource(page);
  const write = (text, strong, room) => {
    pen.font = `${strong ? 700 : 400} ${size}px ${style(page, "--sans")}`;
    pen.fillStyle = style(page, strong ? "--ink" : "--soft");
    pen.fillText(fitted(pen, text, room), 0, 0);
  };
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  data.targets.forEach((target, row) => {
    pen.save();
    pen.translate(left - 6, top + (row + 0.5) * tall);
    write(data.tokens[target].shown, row === view.target, left - 8);
    pen.restore();
  });
  pen.textAlign = "left";
  data.tokens.forEach((token, column) => {
    pen.save();
    pen.translate(left + (column + 0.5) * cell, top - 6);
    pen.rotate(-Math.PI / 2);
    write(token.shown, column === source, top - 8);
    pen.restore();
  });
}

function fitted(pen, text, room) {
  const letters = [...text];
  while (letters.length > 1 && pen.measureText(letters.join("") + "…").width > room) letters.pop();
  return letters.length === [...text].length || pen.measureText(text).width <= room ? text : letters.join("") + "…";
}

// ---- largest sources and the ladder ----------------------------------------------------------------------------------

function details(page) {
  const parts = [sources(page), ...(page.data.ladders.length ? [ladder(page)] : [])];
  return make("div", { class: parts.length > 1 ? "columns sections" : "sections" }, ...parts);
}

function sources(page) {
  const { data } = page, table = make("table", { class: "sources" }), heading = make("h2");
  page.draw(() => {
    const target = ownSource(page);
    const rows = data.tokens.map((_, source) => ({ source, shares: data.faces.map((face) => share(page, face.name, source)) }));
    const most = ({ shares }) => Math.max(...shares.map((value) => value || 0));
    rows.sort((a, b) => most(b) - most(a) || a.source - b.source);
    const shown = rows.slice(0, 8), rest = rows.slice(8), widest = most(rows[0]) || 1;
    const cells = (shares) => shares.map((value, i) => make("td", {}, meter(data.faces[i].name, value / widest), percent(value)));
    const lines = shown.map(({ source, shares }) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, data.tokens[source].shown), make("small", {}, ` ${source}`)), ...cells(shares)));
    if (rest.length) {
      const sums = data.faces.map((_, i) => rest.reduce((sum, { shares }) => sum + shares[i], 0));
      lines.push(make("tr", { class: "rest" }, make("th", { scope: "row" }, `${rest.length} ${rest.length === 1 ? "other" : "others"}`), ...cells(sums)));
    }
    heading.replaceChildren("Largest sources of ", make("bdi", {}, `“${data.tokens[target].shown}”`));
    table.replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...data.faces.map((face) => make("th", { scope: "col" }, swatch(face), face.name)))), make("tbody", {}, ...lines));
  });
  return make("section", { "aria-label": "largest sources" }, heading, table);
}

function meter(face, fraction) {
  const bar = make("span", { class: `bar ${face}`, "aria-hidden": "true" });
  bar.style.width = `${Math.min(100, 100 * (fraction || 0))}%`;
  return make("span", { class: "track" }, bar);
}

function ladder(page) {
  const { data } = page, holder = make("div"), hint = make("p", { class: "hint" });
  page.draw((view) => {
    const measure = data.statistics[view.by]?.measure, found = data.ladders.find((each) => each.name === measure) ?? data.ladders[0];
    hint.textContent = `${capital(found.label)}${found.unit ? ` (${found.unit})` : ""} between the attention of ${place(data, view.layer, view.head)} and its attribution to the input of each layer below, averaged over targets; thin lines are the layer's other heads.`;
    holder.replaceChildren(ladderPicture(found, view));
  });
  return make("section", { "aria-label": "ladder" }, make("h2", {}, "Where the discrepancy arises"), hint, holder);
}

function ladderPicture({ grid, unit }, view) {
  const heads = grid[view.layer], known = heads[view.head].map((_, index) => index).filter((index) => heads.some((row) => row[index] !== null)).reverse();
  const values = grid.flat(2).filter((value) => value !== null), top = Math.max(...values, 0) || 1, bottom = Math.min(0, ...values);
  const x = (i) => 50 + (known.length > 1 ? i / (known.length - 1) : 0.5) * 380, y = (value) => 172 - ((value - bottom) / (top - bottom)) * 142;
  const points = (row) => known.map((index, i) => [x(i), row[index], index]).filter(([, value]) => value !== null);
  const line = (row, name) => drawing("polyline", { class: name, points: points(row).map(([at, value]) => `${at.toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
  const mine = points(heads[view.head]), few = mine.length <= 7;
  const svg = drawing("svg", { class: "ladder", viewBox: "0 0 470 220", role: "img", "aria-label": mine.map(([, value, index]) => `input of layer ${index + 1}: ${measured(value, unit)}`).join("; ") });
  for (const value of [bottom, (top + bottom) / 2, top]) svg.append(drawing("line", { class: "axis", x1: 46, x2: 436, y1: y(value), y2: y(value) }), caption(40, y(value) + 4, fixed(value, 2), "end"));
  heads.forEach((row, head) => { if (head !== view.head) svg.append(line(row, "other")); });
  svg.append(line(heads[view.head], "line"));
  mine.forEach(([at, value], i) => {
    svg.append(drawing("circle", { class: "dot", cx: at, cy: y(value), r: 4 }));
    if (few || i === 0 || i === mine.length - 1) svg.append(caption(at, y(value) - 10, fixed(value), "middle", "value"));
  });
  known.forEach((index, i) => svg.append(caption(x(i), 192, index === 0 ? "embeddings" : String(index + 1), index === 0 && known.length > 8 ? "end" : "middle")));
  svg.append(caption(50, 212, "attribution to the input of layer … (left: the head's own input)", "start"));
  return svg;
}

function caption(x, y, text, anchor, name = "") {
  const element = drawing("text", { x, y, "text-anchor": anchor, class: name });
  element.textContent = text;
  return element;
}

// ---- a page of its own -----------------------------------------------------------------------------------------------

const embedded = typeof document === "undefined" ? null : document.getElementById("glocal-data");
if (embedded) {
  const root = document.getElementById("explorer");
  mount(root, JSON.parse(embedded.textContent), { address: true }).catch((problem) => {
    root.replaceChildren(make("p", { class: "notes", role: "alert" }, `This browser cannot draw the explorer (${problem.message}); the words above hold all the same.`));
    root.dataset.ready = "failed";
    throw problem;
  });
}
