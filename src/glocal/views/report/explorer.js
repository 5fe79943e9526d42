// glocal explorer: draws one payload (see views/figures/payload.py) into one element. Text is only ever set as text.

const FACES = [
  { name: "attention", title: "Attention", what: "local: what this head reads from its own layer's input" },
  { name: "attribution", title: "Attribution", what: "global: what this head's output depends on among the input tokens" },
];
// Cividis: readable with every kind of colour sight, and rising in lightness.
const SCALE = [[0, 34, 78], [42, 63, 109], [86, 92, 108], [123, 123, 120], [166, 157, 117], [211, 193, 100], [254, 232, 56]];

export async function mount(root, data) {
  const maps = {};
  for (const [name, packed] of Object.entries(data.maps)) maps[name] = await unpack(packed);
  const view = { layer: 0, head: 0, target: 0, source: null, by: 0, locked: false };
  const draws = [];
  const update = (change, keep = true) => {
    Object.assign(view, change);
    for (const draw of draws) draw();
    if (keep) remember(data, view);
  };
  header(root, data);
  if (data.statistics.length) root.append(overview(data, view, update, draws));
  if (Object.keys(maps).length) root.append(faces(data, maps, view, update, draws), matrices(data, maps, view, update, draws));
  if (Object.keys(data.ladders).length) root.append(ladder(data, view, draws));
  root.append(facts(data));
  start(data, view);
  update({}, false);
  window.addEventListener("hashchange", () => { if (restore(data, view)) update({}, false); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && view.locked) update({ locked: false }); });
  root.dataset.ready = "true";
}

// ---- data ------------------------------------------------------------------------------------------------------------

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const values = packed.bits === 16 ? new Uint16Array(buffer) : new Uint8Array(buffer);
  const top = packed.bits === 16 ? 65534 : 254;
  const [, heads, targets, sources] = packed.shape;
  const share = (layer, head, target, source) => {
    const value = values[((layer * heads + Math.min(head, heads - 1)) * targets + target) * sources + source];
    if (value > top) return NaN;
    return packed.bits === 16 ? value / top : (value / top) ** 2;
  };
  return { share, error: packed.error };
}

function start(data, view) {
  const first = data.statistics[0];
  if (first) [view.layer, view.head] = ranking(first)[0]?.slice(0, 2) ?? [0, 0];
  const rows = data.targetwise[Object.keys(data.targetwise)[0]]?.values[view.layer]?.[view.head];
  view.target = rows ? Math.max(0, rows.indexOf(Math.max(...rows.filter((value) => value !== null)))) : 0;
  restore(data, view);
}

function remember(data, view) {
  const parts = { layer: data.layers[view.layer], head: data.heads[view.head] ?? "", target: data.targets[view.target], by: data.statistics[view.by]?.name ?? "" };
  const hash = "#" + new URLSearchParams(parts);
  if (hash !== location.hash) history.replaceState(null, "", hash);
}

function restore(data, view) {
  const asked = new URLSearchParams(location.hash.slice(1));
  const found = {
    layer: data.layers.indexOf(Number(asked.get("layer"))), head: data.heads.indexOf(Number(asked.get("head"))),
    target: asked.has("target") ? data.targets.indexOf(Number(asked.get("target"))) : -1,
    by: data.statistics.findIndex((each) => each.name === asked.get("by")),
  };
  let any = false;
  for (const [key, index] of Object.entries(found)) if (index >= 0) { view[key] = index; any = true; }
  return any;
}

function ranking(statistic) {
  const cells = statistic.grid.flatMap((row, layer) => row.map((value, head) => [layer, head, value]));
  return cells.filter((cell) => cell[2] !== null).sort((a, b) => b[2] - a[2]);
}

// ---- small things ----------------------------------------------------------------------------------------------------

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

const percent = (share) => (Number.isNaN(share) ? "undefined" : (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %");
const number = (value) => (value === null || value === undefined ? "undefined" : value.toFixed(3));
const clamp = (value, top) => Math.max(0, Math.min(top, value));
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function colour(fraction) {
  const place = clamp(fraction, 1) * (SCALE.length - 1), low = Math.min(Math.floor(place), SCALE.length - 2), part = place - low;
  return SCALE[low].map((value, i) => Math.round(value + part * (SCALE[low + 1][i] - value)));
}

function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// ---- header and facts ------------------------------------------------------------------------------------------------

function header(root, data) {
  const title = root.querySelector("#text");
  title.append(data.text || "ids");
  if (data.pair) title.append(make("span", { class: "second" }, " | " + data.pair));
  const notes = root.querySelector("#notes");
  for (const note of data.notes) notes.append(make("p", {}, note));
  notes.hidden = !data.notes.length;
}

function facts(data) {
  const list = make("dl");
  for (const [label, value] of data.facts) list.append(make("dt", {}, label), make("dd", {}, value));
  const errors = Object.entries(data.maps).map(([name, packed]) => `${name} within ${(100 * packed.error).toPrecision(1)} percentage points`);
  list.append(make("dt", {}, "precision here"), make("dd", {}, errors.join(", ") + "; the Story holds exact values"));
  return make("section", {}, make("details", {}, make("summary", {}, "Plan, settings and versions"), list));
}

// ---- overview --------------------------------------------------------------------------------------------------------

function overview(data, view, update, draws) {
  const choice = make("select", { "aria-label": "colour by", onchange: () => update({ by: choice.selectedIndex }) });
  for (const each of data.statistics) choice.append(make("option", {}, each.unit ? `${each.label} (${each.unit})` : each.label));
  const scroll = make("div", { class: "grid-scroll" });
  const ranks = make("ul", { class: "ranks" });
  const chosen = make("div");
  const scale = make("canvas", { width: 160, height: 1, "aria-hidden": "true" });
  const low = make("span"), high = make("span");
  for (let x = 0; x < 160; x++) { const pen = scale.getContext("2d"); pen.fillStyle = `rgb(${colour(x / 159)})`; pen.fillRect(x, 0, 1, 1); }
  let shown = null, cells = [];

  const build = (statistic) => {
    const width = statistic.grid[0].length;
    cells = statistic.grid.map((row, layer) => row.map((value, head) => {
      const [where, text] = [place(data, layer, head, width), number(value)];
      const cell = make("button", { class: "cell", role: "gridcell", tabindex: "-1", "aria-label": `${where}: ${statistic.label} ${text} ${statistic.unit}`, title: `${where}: ${text} ${statistic.unit}`, onclick: () => update({ layer, head }) });
      cell.append(value === null ? "–" : value.toFixed(2).replace(/^0/, ""));
      if (value === null) cell.classList.add("undefined");
      else {
        const tone = colour((value - statistic.low) / (statistic.high - statistic.low));
        cell.style.background = `rgb(${tone})`;
        cell.style.color = tone[0] * 0.3 + tone[1] * 0.59 + tone[2] * 0.11 > 120 ? "#101318" : "#ffffff";
      }
      return cell;
    }));
    const head = make("tr", { role: "row" }, make("th", { role: "columnheader" }, make("span", { "aria-hidden": "true" }, "layer \\ head")));
    for (let i = 0; i < width; i++) head.append(make("th", { role: "columnheader", scope: "col" }, width === data.heads.length ? String(data.heads[i]) : "all"));
    const body = make("tbody", { role: "rowgroup" });
    cells.forEach((row, layer) => {
      const line = make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, String(data.layers[layer])));
      for (const cell of row) line.append(make("td", { role: "presentation" }, cell));
      body.append(line);
    });
    const table = make("table", { role: "grid", "aria-label": `layers by heads, ${statistic.label}`, onkeydown: (event) => {
      const move = step[event.key];
      if (!move) return;
      event.preventDefault();
      update({ layer: clamp(view.layer + move[0], data.layers.length - 1), head: clamp(view.head + move[1], width - 1) });
      cells[view.layer][view.head].focus();
    } }, make("thead", { role: "rowgroup" }, head), body);
    scroll.replaceChildren(table);
    low.textContent = number(statistic.low);
    high.textContent = `${number(statistic.high)} ${statistic.unit}`;
    const order = ranking(statistic), few = Math.min(5, order.length);
    const list = (label, part) => [make("li", { class: "label" }, label), ...part.map(([layer, head, value]) => make("li", {}, make("button", { onclick: () => update({ layer, head }), "aria-label": `${place(data, layer, head, width)}, ${number(value)}` }, `${data.layers[layer]}-${data.heads[head] ?? "all"}  ${number(value)}`)))];
    ranks.replaceChildren(...list("largest", order.slice(0, few)), ...list("smallest", order.slice(-few).reverse()));
  };

  draws.push(() => {
    const statistic = data.statistics[view.by];
    choice.selectedIndex = view.by;
    if (shown !== statistic) build((shown = statistic));
    cells.forEach((row, layer) => row.forEach((cell, head) => {
      const on = layer === view.layer && head === Math.min(view.head, row.length - 1);
      cell.setAttribute("aria-selected", on);
      cell.tabIndex = on ? 0 : -1;
    }));
    chosen.replaceChildren(make("h2", {}, place(data, view.layer, view.head, data.heads.length)));
    const list = make("dl");
    for (const each of data.statistics) {
      const row = each.grid[view.layer];
      list.append(make("dt", {}, each.label), make("dd", {}, `${number(row[Math.min(view.head, row.length - 1)])} ${each.unit}`));
    }
    chosen.append(list);
  });
  const left = make("div", {}, scroll, make("div", { class: "scale" }, low, scale, high));
  return make("section", { "aria-label": "overview" },
    make("h2", {}, "Every head at a glance"),
    make("p", { class: "hint" }, "Rows are layers, columns are heads; values are means over targets. Choose a head by click or with the arrow keys."),
    make("p", { class: "hint" }, choice),
    make("div", { class: "overview" }, left, make("div", {}, chosen)), ranks);
}

function place(data, layer, head, width) {
  return `Layer ${data.layers[layer]}` + (width === data.heads.length && data.heads.length ? ` · head ${data.heads[head]}` : " · all heads");
}

// ---- both faces on the text ------------------------------------------------------------------------------------------

function faces(data, maps, view, update, draws) {
  const section = make("section", { "aria-label": "both faces on the text" }, make("h2"), make("p", { class: "hint" },
    "Point at a token, or move with the arrow keys, to see where its row goes; click or press Enter to hold it, Escape to let go. Shades grow with the square root of the share; numbers are percent."));
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const position = new Map(data.targets.map((value, index) => [value, index]));
  const lanes = [];
  for (const face of FACES.filter((each) => maps[each.name])) {
    const flow = make("div", { class: "flow", dir: "auto", role: "group", "aria-label": `${face.title} on the text`, tabindex: "-1" });
    const tokens = data.tokens.map((token, source) => {
      const value = make("small", { "aria-hidden": "true" });
      const piece = source > 0 && token.word >= 0 && token.word === data.tokens[source - 1].word;
      const kind = ["token", piece && "piece", token.category !== "word" && token.category !== "punctuation" && "special"].filter(Boolean).join(" ");
      const button = make("button", { class: kind, tabindex: "-1", "data-source": source, onclick: () => hold(source), onmouseenter: () => look(source), onfocus: () => look(source), onkeydown: (event) => keys(event, source, tokens) }, make("bdi", {}, token.shown), value);
      flow.append(button);
      return button;
    });
    lanes.push({ face, tokens });
    section.append(make("div", { class: `face ${face.name}` }, make("h3", {}, make("span", { class: "swatch", "aria-hidden": "true" }), `${face.title} · ${face.what}`), flow));
  }
  const look = (source) => update(view.locked || !position.has(source) ? { source } : { target: position.get(source), source: null }, false);
  const hold = (source) => { if (position.has(source)) update({ target: position.get(source), source: null, locked: !(view.locked && view.target === position.get(source)) }); };
  const keys = (event, source, tokens) => {
    const move = step[event.key];
    if (!move) return;
    event.preventDefault();
    tokens[clamp(source + (move[1] || move[0]), tokens.length - 1)].focus();
  };
  section.append(readout);
  draws.push(() => {
    section.querySelector("h2").textContent = `${place(data, view.layer, view.head, data.heads.length)}: what “${data.tokens[data.targets[view.target]].shown}” reads and depends on`;
    for (const { face, tokens } of lanes) tokens.forEach((token, source) => {
      const share = maps[face.name].share(view.layer, view.head, view.target, source);
      const depth = Number.isNaN(share) ? 0 : Math.round(100 * Math.sqrt(share));
      token.style.background = depth ? `color-mix(in srgb, var(--${face.name}) ${depth}%, transparent)` : "none";
      token.classList.toggle("strong", depth > 55);
      token.style.setProperty("--on", matchMedia("(prefers-color-scheme: dark)").matches ? "#10131a" : "#ffffff");
      token.classList.toggle("target", source === data.targets[view.target]);
      token.tabIndex = source === data.targets[view.target] ? 0 : -1;
      token.querySelector("small").textContent = share >= 0.005 ? (100 * share).toFixed(0) : "\u00a0";
      token.setAttribute("aria-label", `${data.tokens[source].shown}, ${face.title.toLowerCase()} ${percent(share)}`);
      token.setAttribute("aria-pressed", String(view.locked && source === data.targets[view.target]));
    });
    readout.replaceChildren(...said(data, maps, view));
  });
  return section;
}

function said(data, maps, view) {
  const target = data.targets[view.target], source = view.source ?? target;
  const shares = FACES.filter((face) => maps[face.name]).map((face) => `${face.title.toLowerCase()} ${percent(maps[face.name].share(view.layer, view.head, view.target, source))}`);
  return [view.locked ? "Held: " : "", make("b", {}, make("bdi", {}, data.tokens[target].shown)), ` (position ${target}) from `, make("b", {}, make("bdi", {}, data.tokens[source].shown)), ` (position ${source}): ${shares.join(", ")}`];
}

// ---- matrices and the largest sources --------------------------------------------------------------------------------

function matrices(data, maps, view, update, draws) {
  const columns = make("div", { class: "columns" });
  for (const face of FACES.filter((each) => maps[each.name])) columns.append(matrix(data, maps[face.name], face, view, update, draws));
  const table = make("table", { class: "sources" });
  draws.push(() => {
    const here = FACES.filter((face) => maps[face.name]);
    const rows = data.tokens.map((token, source) => ({ token, source, shares: here.map((face) => maps[face.name].share(view.layer, view.head, view.target, source)) }));
    rows.sort((a, b) => Math.max(...b.shares.map((x) => x || 0)) - Math.max(...a.shares.map((x) => x || 0)));
    const head = make("tr", {}, make("th", { scope: "col" }, "source"), ...here.map((face) => make("th", { scope: "col" }, face.title.toLowerCase())));
    table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows.slice(0, 8).map(({ token, source, shares }) => make("tr", {}, make("td", {}, make("bdi", {}, token.shown), ` ${source}`), ...shares.map((share, i) => {
      const bar = make("span", { class: `bar ${here[i].name}`, "aria-hidden": "true" });
      bar.style.width = `${Math.round(90 * (share || 0))}px`;
      return make("td", {}, bar, percent(share));
    })))));
  });
  return make("section", { "aria-label": "matrices" }, make("h2", {}, "The whole head"),
    make("p", { class: "hint" }, "Rows are targets, columns are sources. The lines follow the token you point at, in both matrices and on the text."),
    columns, make("h3", {}, "Largest sources of the chosen target"), table);
}

function matrix(data, map, face, view, update, draws) {
  const [rows, columns] = [data.targets.length, data.tokens.length];
  const cell = Math.max(1, Math.floor(480 / Math.max(rows, columns)));
  const canvas = make("canvas", { width: columns * cell, height: rows * cell, tabindex: "0", role: "img" });
  canvas.style.aspectRatio = `${columns} / ${rows}`;
  const picture = make("canvas", { width: columns, height: rows });
  let drawn = "";
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { target: clamp(Math.floor((event.clientY - box.top) / box.height * rows), rows - 1), source: clamp(Math.floor((event.clientX - box.left) / box.width * columns), columns - 1) };
  };
  canvas.addEventListener("mousemove", (event) => update(view.locked ? { source: at(event).source } : at(event), false));
  canvas.addEventListener("click", (event) => update({ ...at(event), locked: true }));
  canvas.addEventListener("keydown", (event) => {
    const move = step[event.key];
    if (!move) return;
    event.preventDefault();
    update({ target: clamp(view.target + move[0], rows - 1), source: clamp((view.source ?? data.targets[view.target]) + move[1], columns - 1) });
  });
  draws.push(() => {
    const key = `${view.layer} ${view.head} ${css("--paper")}`;
    if (key !== drawn) { paint(picture, map, view, rows, columns, face.name); drawn = key; }
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    pen.strokeStyle = css("--ink");
    pen.lineWidth = Math.max(1, cell / 16);
    pen.strokeRect(0.5, view.target * cell + 0.5, canvas.width - 1, cell - 1 || 1);
    if (view.source !== null) pen.strokeRect(view.source * cell + 0.5, 0.5, cell - 1 || 1, canvas.height - 1);
    const source = view.source ?? data.targets[view.target];
    canvas.setAttribute("aria-label", `${face.title}, targets by sources; ${data.tokens[data.targets[view.target]].shown} from ${data.tokens[source].shown}: ${percent(map.share(view.layer, view.head, view.target, source))}`);
  });
  return make("div", { class: `matrix face ${face.name}` }, make("h3", {}, make("span", { class: "swatch", "aria-hidden": "true" }), face.title), canvas);
}

function paint(picture, map, view, rows, columns, face) {
  const image = new ImageData(columns, rows), back = rgb(css("--panel")), front = rgb(css(`--${face}`));
  for (let target = 0; target < rows; target++) for (let source = 0; source < columns; source++) {
    const share = map.share(view.layer, view.head, target, source), depth = Number.isNaN(share) ? 0 : Math.sqrt(share), i = 4 * (target * columns + source);
    for (let c = 0; c < 3; c++) image.data[i + c] = Number.isNaN(share) ? 128 : back[c] + depth * (front[c] - back[c]);
    image.data[i + 3] = 255;
  }
  picture.getContext("2d").putImageData(image, 0, 0);
}

// ---- ladder ----------------------------------------------------------------------------------------------------------

function ladder(data, view, draws) {
  const [name, values] = Object.entries(data.ladders)[0];
  const holder = make("div"), text = make("p", { class: "readout" });
  draws.push(() => {
    const row = values[view.layer][Math.min(view.head, values[view.layer].length - 1)];
    const points = row.map((value, index) => [index, value]).filter(([, value]) => value !== null).reverse();
    const top = Math.max(...values.flat(2).filter((value) => value !== null), 1e-9);
    const x = (i) => 62 + (points.length > 1 ? i / (points.length - 1) : 0.5) * 370, y = (value) => 150 - (value / top) * 130;
    const svg = drawing("svg", { class: "ladder", viewBox: "0 0 460 190", role: "img", "aria-label": points.map(([index, value]) => `input of layer ${index + 1}: ${number(value)}`).join("; ") });
    svg.append(drawing("line", { class: "axis", x1: 46, x2: 446, y1: 150, y2: 150 }), label(40, 154, "0", "end"), label(40, 24, number(top), "end"));
    svg.append(drawing("polyline", { class: "line", points: points.map(([, value], i) => `${x(i)},${y(value)}`).join(" ") }));
    points.forEach(([index, value], i) => svg.append(drawing("circle", { class: "dot", cx: x(i), cy: y(value), r: 4 }), label(x(i), y(value) - 9, number(value), "middle"), label(x(i), 168, index === 0 ? "embeddings" : `input of ${index + 1}`, i && i === points.length - 1 ? "end" : "middle")));
    holder.replaceChildren(svg);
    text.textContent = `${place(data, view.layer, view.head, data.heads.length)}: from its own input on the left down to the embeddings on the right.`;
  });
  return make("section", { "aria-label": "ladder" }, make("h2", {}, "Where the discrepancy arises"),
    make("p", { class: "hint" }, `Mean ${name} between the head's attention and its attribution to the input of every layer below: each step down adds one layer of mixing.`), holder, text);
}

function label(x, y, text, anchor) {
  const element = drawing("text", { x, y, "text-anchor": anchor });
  element.textContent = text;
  return element;
}

if (typeof document !== "undefined" && document.getElementById("glocal-data")) {
  mount(document.getElementById("glocal"), JSON.parse(document.getElementById("glocal-data").textContent));
}
