// What is known of one pixel: in words, as a strip with samples, and along its row.
let timer = 0;
function say(text) { // for those who do not see the screen, once keys rest
  clearTimeout(timer);
  timer = setTimeout(() => { at("spoken").textContent = text; }, 250);
}

function span(i) {
  const { lower, upper } = state.image.layers;
  if (open(i) === 3) return "any value";
  if (open(i) === 1) return `≤ ${shown(upper, i)}${unit}`;
  if (open(i) === 2) return `≥ ${shown(lower, i)}${unit}`;
  return `${shown(lower, i)} to ${shown(upper, i)}${unit}`;
}
const verdict = (i) => ["inside", "below its interval", "above its interval"][side(i)];
const mark = (i) => ["●", "▼", "▲"][side(i)];
const kind = (i) => ["", "below", "above"][side(i)];

function tell(spoken = false) {
  const { layers, planes, colour } = state.image, list = channels();
  const plane = !colour && planes.length > 1 ? `plane ${planes[state.plane]}, ` : "";
  at("where").textContent = `${plane}row ${state.row}, column ${state.col}`;
  at("pinned").hidden = !state.pinned;
  const spans = list.map((c) => span(entry(c)));
  at("interval").replaceChildren(...spans.map((text, k) => (colour ? node("small", {}, `${CHANNELS[k]} ${text}`) : text)));
  const parts = [];
  if (layers.truth) list.forEach((c, k) => {
    const i = entry(c), name = colour ? CHANNELS[k] : "truth";
    parts.push(node("span", { class: `key ${kind(i)}` }, `${mark(i)} ${name} ${seen(layers.truth, i)}${unit} is ${verdict(i)}`), " ");
  });
  at("state").replaceChildren(...(parts.length ? parts : ["the truth is not known"]));
  const length = (i) => `${lengthText(value(layers.upper, i) - value(layers.lower, i), layers.lower.decimals)}${unit}`;
  const rows = [["length", (i) => (open(i) ? "open: beyond the window" : length(i))]];
  if (layers.estimate) rows.push(["estimate", (i) => `${seen(layers.estimate, i)}${unit}`]);
  if (layers.observation) rows.push(["observation", (i) => `${shown(layers.observation, i)}${unit}`]);
  if (layers.band_lower) rows.push(["before calibration", (i) => `${seen(layers.band_lower, i)} to ${seen(layers.band_upper, i)}${unit}`]);
  if (state.image.regions.length) rows.push(["in the regions", (i) => state.image.regions.filter((_, k) => belongs(k, i)).join(", ") || "none"]);
  if (layers.samples) rows.push(["samples inside", samplesInside]);
  at("values").replaceChildren(...rows.map(([name, of]) => node("tr", {}, node("th", { scope: "row" }, name), ...list.map((c) => node("td", {}, of(entry(c)))))));
  drawStrip(); drawProfile();
  if (spoken && !region.corner) say(`${at("where").textContent}: ${spans.join("; ")}. ${at("state").textContent}`);
}

function samplesOf(i) {
  const { samples: layer } = state.image.layers, count = state.image.samples, step = layer ? layer.code.length / count : 0;
  return layer ? Array.from({ length: count }, (_, k) => value(layer, k * step + i)) : [];
}

function samplesInside(i) {
  const { lower, upper, samples } = state.image.layers, half = 0.5 / samples.unit;
  const inside = samplesOf(i).filter((x) => x >= value(lower, i) - half && x <= value(upper, i) + half).length;
  return `${inside} of ${state.image.samples}${state.image.drawn > state.image.samples ? ` (of ${state.image.drawn} drawn)` : ""}`;
}

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, x] of Object.entries(attributes)) element.setAttribute(name, x);
  if (text !== undefined) element.textContent = text;
  return element;
}

function ticks(low, high, count) {
  const size = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = [1, 2, 5, 10].map((k) => k * size).find((s) => (high - low) / s <= count);
  const out = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) out.push(Number((k * step).toPrecision(10)));
  return out;
}
const tickText = (number) => String(number).replace("-", "−");

function drawStrip() { // interval, band, estimate, truth, and the samples as a dot plot
  const { layers } = state.image, list = channels(), width = 364, room = layers.samples ? 58 : 22, each = room + 34;
  const height = each * list.length + 20, parts = [];
  const names = ["lower", "upper", "truth", "estimate", "band_lower", "band_upper"].filter((n) => n in layers);
  const found = list.flatMap((c) => names.map((n) => value(layers[n], entry(c))).concat(samplesOf(entry(c))));
  let low = Math.min(...found), high = Math.max(...found);
  const pad = Math.max(0.06 * (high - low), 3 / layers.lower.unit);
  low -= pad; high += pad;
  const x = (v) => 4 + (width - 8) * (v - low) / (high - low);
  list.forEach((c, k) => {
    const i = entry(c), y = k * each + room, ends = open(i); // an open end goes on to the edge, as an arrow
    const a = ends & 1 ? 4 : x(value(layers.lower, i)), b = ends & 2 ? width - 4 : x(value(layers.upper, i));
    parts.push(svg("rect", { class: "s-interval", x: a, y, width: Math.max(b - a, 1), height: 20 }));
    for (const [end, gone, way] of [[a, ends & 1, -4], [b, ends & 2, 4]]) {
      if (gone) parts.push(svg("path", { class: "s-end", fill: "none", d: `M${end - way} ${y - 1}l${way} 11l${-way} 11` }));
      else parts.push(svg("line", { class: "s-end", x1: end, x2: end, y1: y - 3, y2: y + 23 }));
    }
    if (layers.band_lower) {
      const from = x(value(layers.band_lower, i)), to = x(value(layers.band_upper, i));
      parts.push(svg("rect", { class: "s-band", x: from, y: y + 8, width: Math.max(to - from, 1), height: 4 }));
    }
    const stacks = new Map();
    for (const v of samplesOf(i)) {
      const bin = Math.round(x(v) / 7), above = stacks.get(bin) || 0;
      stacks.set(bin, above + 1);
      parts.push(svg("circle", { class: "s-sample", cx: bin * 7, cy: y - 8 - 6.4 * Math.min(above, 7), r: 2.9 }));
    }
    if (layers.estimate) {
      const e = x(value(layers.estimate, i));
      parts.push(svg("line", { class: "s-estimate", x1: e, x2: e, y1: y, y2: y + 20 }));
    }
    if (layers.truth) {
      const t = x(value(layers.truth, i));
      parts.push(svg("line", { class: `s-truth-line ${kind(i)}`, x1: t, x2: t, y1: y - 6, y2: y + 28 }), svg("path", { class: `s-truth ${kind(i)}`, d: `M${t} ${y + 3}l7 7l-7 7l-7 -7z` }));
    }
  });
  const base = height - 16;
  parts.push(svg("line", { class: "axis", x1: 4, x2: width - 4, y1: base, y2: base }));
  const marks = ticks(inUnit(low), inUnit(high), 4);
  marks.forEach((v, k) => {
    const where = x((v - least) / wide), last = k === marks.length - 1 ? unit : "";
    parts.push(svg("line", { class: "tick", x1: where, x2: where, y1: base, y2: base + 4 }), svg("text", { x: Math.min(Math.max(where, 14), width - 14 - 3 * last.length), y: base + 16, "text-anchor": "middle" }, tickText(v) + last));
  });
  at("strip").setAttribute("viewBox", `0 0 ${width} ${height + 2}`);
  at("strip").replaceChildren(...parts);
}

function drawProfile() { // between black and white of the window, in the unit of the files
  const { layers, width, colour } = state.image, { black, white } = state, c = channels()[colour ? 1 : 0], w = 364, h = 132, edge = 44;
  const x = (col) => edge + (w - edge - 4) * (col + 0.5) / width, y = (v) => h - 6 - (h - 12) * Math.min(Math.max((v - black) / (white - black), -0.03), 1.03);
  const points = (layer, order) => order.map((col) => `${x(col).toFixed(1)},${y(value(layer, entry(c, state.row, col))).toFixed(1)}`).join(" ");
  const columns = Array.from({ length: width }, (_, k) => k), parts = [];
  for (const v of ticks(inUnit(black), inUnit(white), 4)) {
    const where = y((v - least) / wide);
    parts.push(svg("line", { class: "grid", x1: edge, x2: w - 4, y1: where, y2: where }), svg("text", { x: edge - 5, y: where + 4, "text-anchor": "end" }, tickText(v)));
  }
  parts.push(svg("polygon", { class: "s-interval", points: `${points(layers.upper, columns)} ${points(layers.lower, columns.slice().reverse())}` }));
  if (layers.truth) {
    parts.push(svg("polyline", { class: "p-truth", points: points(layers.truth, columns) }));
    for (const col of columns) {
      const i = entry(c, state.row, col), t = y(value(layers.truth, i));
      if (side(i)) parts.push(svg("path", { class: `p-miss ${kind(i)}`, d: side(i) === 2 ? `M${x(col)} ${t - 5}l4 7h-8z` : `M${x(col)} ${t + 5}l4 -7h-8z` }));
    }
  } else if (layers.estimate) parts.push(svg("polyline", { class: "p-estimate", points: points(layers.estimate, columns) }));
  parts.push(svg("line", { class: "p-cursor", x1: x(state.col), x2: x(state.col), y1: 0, y2: h }));
  const what = layers.truth ? ": truth (line), ▲ above, ▼ below" : layers.estimate ? ": estimate (line)" : "";
  at("profile-heading").textContent = `Along row ${state.row}${colour ? ", green" : ""}${what}${unit && `, in${unit}`}`;
  at("profile").setAttribute("viewBox", `0 0 ${w} ${h}`);
  at("profile").replaceChildren(...parts);
}
