"use strict";
// The viewer: reads the data of the page, shows one image at a time, and tells everything known of one pixel.
(() => {
  const source = document.getElementById("data");
  const at = (id) => document.getElementById(id);
  if (!at("picture")) return;
  const page = JSON.parse(source.textContent);
  const canvas = at("picture"), pen = canvas.getContext("2d");
  const ABOVE = [255, 127, 14], BELOW = [0, 178, 255];
  const MOST_ZOOM = 32;
  const CHANNELS = ["red", "green", "blue"];
  const LAYERS = { interval: "Interval", estimate: "Estimate", truth: "Truth", observation: "Observation", length: "Length", widening: "Widening" };
  const colours = page.colours.match(/../g).map((x) => parseInt(x, 16));
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const state = { index: -1, image: null, plane: 0, row: 0, col: 0, mix: 50, layer: "interval", misses: false, outline: "", pinned: false, zoom: 1, x: 0, y: 0 };
  let loading = 0, timer = 0;

  // ------------------------------------------------------------ data

  async function unpack(layer) {
    const text = atob(layer.data), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const raw = new Uint8Array(await new Response(stream).arrayBuffer());
    const code = new Uint16Array(raw.length / 2);
    for (let i = 0; i < code.length; i++) {
      const step = raw[i] | (raw[i + code.length] << 8);
      code[i] = i < layer.stride ? step : code[i - layer.stride] + step; // wraps around like the differences
    }
    return { code, base: layer.base, decimals: layer.decimals, unit: 10 ** layer.decimals };
  }

  const value = (layer, i) => (layer.base + layer.code[i]) / layer.unit;
  const digits = (number, decimals) => number.toFixed(Math.max(decimals, 0)).replace("-", "−");
  const shown = (layer, i) => told(value(layer, i), layer.decimals);

  // where values were seen through a window, numbers are shown as what they stand for, and its edges as what lies beyond
  const measure = page.measure, unit = measure && measure.unit ? ` ${measure.unit}` : "";
  const wide = measure ? measure.high - measure.low : 1, least = measure ? measure.low : 0;
  const fewer = measure ? Math.ceil(Math.log10(wide)) : 0; // digits after the point that a step of the data is worth
  const told = (x, decimals) => digits(least + wide * x, decimals - fewer);
  const seen = (layer, i) => {
    const x = value(layer, i);
    return !measure || (x > 0 && x < 1) ? shown(layer, i) : `${x < 1 ? "≤" : "≥"} ${told(Math.min(Math.max(x, 0), 1), 0)}`;
  };
  const open = (i) => (state.image.layers.open ? value(state.image.layers.open, i) : 0); // 1 below, 2 above, 3 both

  function span(i) {
    const { lower, upper } = state.image.layers;
    if (open(i) === 3) return "any value";
    if (open(i) === 1) return `≤ ${shown(upper, i)}${unit}`;
    if (open(i) === 2) return `≥ ${shown(lower, i)}${unit}`;
    return `${shown(lower, i)} to ${shown(upper, i)}${unit}`;
  }

  async function choose(index) {
    const count = page.examples.length, ticket = ++loading;
    index = (index + count) % count;
    const example = page.examples[index], layers = {};
    await Promise.all(Object.keys(example.layers).map(async (name) => { layers[name] = await unpack(example.layers[name]); }));
    if (ticket !== loading) return; // another image was chosen meanwhile
    const same = state.image && state.image.width === example.width && state.image.height === example.height;
    state.image = { ...example, layers, size: example.width * example.height };
    state.index = index;
    if (!same) Object.assign(state, { row: example.height >> 1, col: example.width >> 1, zoom: 1, plane: example.colour ? 0 : example.planes.length >> 1 });
    state.plane = Math.min(state.plane, example.planes.length - 1);
    at("choose").value = String(index);
    if (!available(state.layer)) state.layer = "interval";
    listLayers(); listRegions();
    const planes = example.colour ? 1 : example.planes.length;
    at("plane-field").hidden = planes < 2;
    Object.assign(at("plane"), { max: planes - 1, value: state.plane });
    canvas.style.aspectRatio = String(Math.min(Math.max(example.width / example.height, 0.6), 2));
    fit(); paint(); draw(); tell();
    canvas.dataset.image = String(index);
  }

  const channels = () => (state.image.colour ? [0, 1, 2] : [state.plane]);
  const entry = (channel, row = state.row, col = state.col) => channel * state.image.size + row * state.image.width + col;
  function available(name) {
    const layers = state.image.layers;
    return name === "interval" || name === "length" || (name === "widening" ? "band_lower" in layers : name in layers);
  }

  // ------------------------------------------------------------ the picture

  const tile = document.createElement("canvas");

  function shader() { // what the layer shows of one entry
    const { lower, upper, band_lower: low, band_upper: high } = state.image.layers, part = state.mix / 100;
    const length = (i) => value(upper, i) - value(lower, i);
    if (state.layer === "interval") return (i) => value(lower, i) + length(i) * part;
    if (state.layer === "length") return (i) => (open(i) ? Infinity : length(i));
    if (state.layer === "widening") return (i) => Math.max(length(i) - (value(high, i) - value(low, i)), 0);
    const chosen = state.image.layers[state.layer];
    return (i) => value(chosen, i);
  }

  function paint() {
    const { width, height, size, window: [black, white], layers } = state.image;
    const map = state.layer === "length" || state.layer === "widening", list = channels(), of = shader();
    tile.width = width; tile.height = height;
    const picture = new ImageData(width, height), out = picture.data, colour = list.length === 3;
    for (let p = 0; p < size; p++) {
      const q = 4 * p, first = of(list[0] * size + p);
      if (map) {
        const mean = colour ? (first + of(size + p) + of(2 * size + p)) / 3 : first;
        const k = 3 * Math.round(255 * Math.min(mean / page.scales[state.layer], 1));
        out[q] = colours[k]; out[q + 1] = colours[k + 1]; out[q + 2] = colours[k + 2];
      } else {
        for (let k = 0; k < 3; k++) out[q + k] = 255 * ((colour && k ? of(k * size + p) : first) - black) / (white - black);
      }
      out[q + 3] = 255;
    }
    if (state.misses && layers.missed) {
      for (const c of list) {
        for (let p = 0; p < size; p++) {
          const side = layers.missed.code[c * size + p] + layers.missed.base;
          if (side) out.set(map ? [255, 255, 255] : side === 2 ? ABOVE : BELOW, 4 * p);
        }
      }
    }
    tile.getContext("2d").putImageData(picture, 0, 0);
    at("mix-field").hidden = state.layer !== "interval";
    at("scale").hidden = !map;
    if (map) at("scale-end").textContent = `${Number((wide * page.scales[state.layer]).toPrecision(3))}${unit} and more${measure ? ", or open" : ""}`;
    at("misses-field").hidden = !layers.missed;
    at("misses").checked = state.misses;
    at("mix").value = String(state.mix);
    at("plane-value").textContent = `${state.image.planes[state.plane]} of ${state.image.depth}`;
    at("share").textContent = layers.missed ? `${(100 * missedShare(list)).toFixed(2)}% outside in this picture` : "";
    for (const input of at("layers").querySelectorAll("input")) input.checked = input.value === state.layer;
    trace(); tellOutline();
    canvas.dataset.layer = state.layer; canvas.dataset.mix = String(state.mix);
  }

  function missedShare(list) {
    const { layers: { missed }, size } = state.image;
    let count = 0;
    for (const c of list) for (let i = c * size; i < (c + 1) * size; i++) count += value(missed, i) > 0;
    return count / (list.length * size);
  }

  // ------------------------------------------------------------ regions of promises

  const PER_LAYER = 15; // masks in one layer of the data, a bit each
  const belongs = (k, i) => (value(state.image.layers[`regions_${Math.floor(k / PER_LAYER)}`], i) >> (k % PER_LAYER)) & 1;
  const isIn = (k, p) => channels().some((c) => belongs(k, c * state.image.size + p)); // at a pixel of what is shown
  const regionsHere = () => state.image.regions.filter((_, k) => {
    for (let p = 0; p < state.image.size; p++) if (isIn(k, p)) return true;
    return false;
  });

  function listRegions() {
    if (!at("outline")) return;
    const here = regionsHere();
    at("outline").replaceChildren(new Option("nothing", ""), ...page.regions.map((name) => {
      const gone = !here.includes(name);
      return node("option", { value: name, disabled: gone }, gone ? `${name} (not in this picture)` : name);
    }));
  }

  function setOutline(name) { state.outline = name; paint(); draw(); }
  function nextOutline() {
    const names = ["", ...regionsHere()];
    setOutline(names[(names.indexOf(state.outline) + 1) % names.length]);
  }

  let outline = [], traced = ""; // lines [x1, y1, x2, y2] between pixels of the region and others, and of what
  function trace() {
    const { width, height } = state.image, k = state.image.regions.indexOf(state.outline), now = [state.index, state.plane, k].join();
    if (now === traced) return;
    traced = now;
    outline = [];
    if (k < 0) return;
    const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && isIn(k, y * width + x);
    for (let y = 0; y <= height; y++) for (let x = 0; x <= width; x++) {
      const own = inside(x, y);
      if (own !== inside(x - 1, y)) outline.push([x, y, x, y + 1]);
      if (own !== inside(x, y - 1)) outline.push([x, y, x + 1, y]);
    }
  }

  function tellOutline() { // how much of the region is missed in this picture
    if (!at("outline")) return;
    const k = state.image.regions.indexOf(state.outline), { size, layers } = state.image;
    at("outline").value = outline.length ? state.outline : "";
    at("outlined").hidden = !outline.length;
    canvas.dataset.outline = outline.length ? state.outline : "";
    if (!outline.length) return;
    let pixels = 0, missed = 0;
    for (const c of channels()) for (let i = c * size; i < (c + 1) * size; i++) {
      if (belongs(k, i)) { pixels++; missed += side(i) > 0; }
    }
    const share = layers.missed ? `, ${(100 * missed / pixels).toFixed(2)}% of it outside` : "";
    at("outlined").textContent = `${state.outline}: ${(100 * pixels / (channels().length * size)).toFixed(1)}% of this picture${share}`;
  }

  function drawOutline(s, left, top) {
    pen.beginPath();
    for (const [x1, y1, x2, y2] of outline) { pen.moveTo(left + x1 * s, top + y1 * s); pen.lineTo(left + x2 * s, top + y2 * s); }
    pen.lineCap = "round";
    pen.lineWidth = 3.5 * ratio(); pen.strokeStyle = "rgba(0,0,0,.6)"; pen.stroke();
    pen.lineWidth = 1.75 * ratio(); pen.strokeStyle = "#ff5cc0"; pen.stroke();
  }

  const ratio = () => canvas.width / (canvas.clientWidth || 1);
  const scale = () => state.zoom * Math.min(canvas.width / state.image.width, canvas.height / state.image.height);

  function fit() {
    if (state.zoom === 1) Object.assign(state, { x: state.image.width / 2, y: state.image.height / 2 });
    const wide = canvas.width / scale() / 2, high = canvas.height / scale() / 2, { width, height } = state.image;
    state.x = wide * 2 >= width ? width / 2 : Math.min(Math.max(state.x, wide), width - wide);
    state.y = high * 2 >= height ? height / 2 : Math.min(Math.max(state.y, high), height - high);
  }

  function draw() {
    if (!state.image) return;
    const s = scale(), left = canvas.width / 2 - state.x * s, top = canvas.height / 2 - state.y * s;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(tile, left, top, tile.width * s, tile.height * s);
    if (outline.length) drawOutline(s, left, top);
    const grow = Math.max(0, 9 * ratio() - s) / 2; // a cursor that can be seen on small pixels too
    const box = [left + state.col * s - grow, top + state.row * s - grow, s + 2 * grow, s + 2 * grow];
    pen.lineWidth = 4 * ratio(); pen.strokeStyle = "rgba(0,0,0,.75)"; pen.strokeRect(...box);
    pen.lineWidth = 2 * ratio(); pen.strokeStyle = state.pinned ? "#ffd24a" : "#fff"; pen.strokeRect(...box);
    canvas.classList.toggle("zoomed", state.zoom > 1);
    Object.assign(canvas.dataset, { row: state.row, col: state.col, zoom: state.zoom.toFixed(2) });
    at("zoom").textContent = `${Number(state.zoom.toFixed(1))}×`;
  }

  function zoomBy(factor, x = state.col + 0.5, y = state.row + 0.5) { // keeps image point (x, y) where it is
    const before = scale();
    state.zoom = Math.min(Math.max(state.zoom * factor, 1), MOST_ZOOM);
    if (state.zoom < 1.02) state.zoom = 1;
    const k = before / scale();
    state.x = x + (state.x - x) * k; state.y = y + (state.y - y) * k;
    fit(); draw();
  }

  function moveTo(row, col, spoken = false) {
    const { width, height } = state.image;
    state.row = Math.min(Math.max(row, 0), height - 1);
    state.col = Math.min(Math.max(col, 0), width - 1);
    if (spoken) { // keep the pixel in sight
      const wide = canvas.width / scale() / 2 - 1, high = canvas.height / scale() / 2 - 1;
      state.x = Math.min(Math.max(state.x, state.col + 1 - wide), state.col + wide);
      state.y = Math.min(Math.max(state.y, state.row + 1 - high), state.row + high);
      fit();
    }
    draw(); tell(spoken);
  }

  // ------------------------------------------------------------ what is known of a pixel

  const side = (i) => (state.image.layers.missed ? value(state.image.layers.missed, i) : 0);
  const verdict = (i) => ["inside", "below its interval", "above its interval"][side(i)];
  const mark = (i) => ["●", "▼", "▲"][side(i)];

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
      parts.push(node("span", { class: ["", "below", "above"][side(i)] }, `${mark(i)} ${name} ${seen(layers.truth, i)}${unit} is ${verdict(i)}`), " ");
    });
    at("state").replaceChildren(...(parts.length ? parts : ["the truth is not known"]));
    const length = (i) => digits(wide * (value(layers.upper, i) - value(layers.lower, i)), layers.lower.decimals - fewer);
    const rows = [["length", (i) => (open(i) ? "open: beyond the window" : length(i))]];
    if (layers.estimate) rows.push(["estimate", (i) => seen(layers.estimate, i)]);
    if (layers.observation) rows.push(["observation", (i) => shown(layers.observation, i)]);
    if (layers.band_lower) rows.push(["before calibration", (i) => `${seen(layers.band_lower, i)} to ${seen(layers.band_upper, i)}`]);
    if (state.image.regions.length) rows.push(["in the regions", (i) => state.image.regions.filter((_, k) => belongs(k, i)).join(", ") || "none"]);
    if (layers.samples) rows.push(["samples inside", samplesInside]);
    at("values").replaceChildren(...rows.map(([name, of]) => node("tr", {}, node("th", { scope: "row" }, name), ...list.map((c) => node("td", {}, of(entry(c)))))));
    drawStrip(); drawProfile();
    if (spoken) {
      clearTimeout(timer);
      timer = setTimeout(() => { at("spoken").textContent = `${at("where").textContent}: ${spans.join("; ")}. ${at("state").textContent}`; }, 250);
    }
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

  function node(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, x] of Object.entries(attributes)) if (x) element.setAttribute(name, x);
    element.append(...children);
    return element;
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

  function drawStrip() { // interval, band, estimate, truth, and the samples as a dot plot
    const { layers } = state.image, list = channels(), width = 364, room = layers.samples ? 58 : 22, each = room + 34;
    const height = each * list.length + 20, parts = [];
    const found = list.flatMap((c) => Object.keys(layers).filter((n) => ["lower", "upper", "truth", "estimate", "band_lower", "band_upper"].includes(n)).map((n) => value(layers[n], entry(c))).concat(samplesOf(entry(c))));
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
        parts.push(svg("line", { class: "s-truth-line", x1: t, x2: t, y1: y - 6, y2: y + 28 }), svg("path", { class: "s-truth", d: `M${t} ${y + 3}l7 7l-7 7l-7 -7z` }));
      }
    });
    const base = height - 16;
    parts.push(svg("line", { class: "axis", x1: 4, x2: width - 4, y1: base, y2: base }));
    for (const v of ticks(least + wide * low, least + wide * high, 4)) {
      const where = x((v - least) / wide);
      parts.push(svg("line", { class: "tick", x1: where, x2: where, y1: base, y2: base + 4 }), svg("text", { x: Math.min(Math.max(where, 14), width - 14), y: base + 16, "text-anchor": "middle" }, String(v)));
    }
    at("strip").setAttribute("viewBox", `0 0 ${width} ${height + 2}`);
    at("strip").replaceChildren(...parts);
  }

  function drawProfile() {
    const { layers, width, window: [black, white], colour } = state.image, c = channels()[colour ? 1 : 0], w = 364, h = 120;
    const x = (col) => 4 + (w - 8) * (col + 0.5) / width, y = (v) => h - 6 - (h - 12) * Math.min(Math.max((v - black) / (white - black), -0.03), 1.03);
    const points = (layer, order) => order.map((col) => `${x(col).toFixed(1)},${y(value(layer, entry(c, state.row, col))).toFixed(1)}`).join(" ");
    const columns = Array.from({ length: width }, (_, k) => k), parts = [];
    parts.push(svg("polygon", { class: "s-interval", points: `${points(layers.upper, columns)} ${points(layers.lower, columns.slice().reverse())}` }));
    if (layers.truth) {
      parts.push(svg("polyline", { class: "p-truth", points: points(layers.truth, columns) }));
      for (const col of columns) {
        const i = entry(c, state.row, col);
        if (side(i)) parts.push(svg("circle", { class: "p-miss", cx: x(col), cy: y(value(layers.truth, i)), r: 2.6 }));
      }
    } else if (layers.estimate) parts.push(svg("polyline", { class: "p-estimate", points: points(layers.estimate, columns) }));
    parts.push(svg("line", { class: "p-cursor", x1: x(state.col), x2: x(state.col), y1: 0, y2: h }));
    at("profile-heading").textContent = `Along row ${state.row}${colour ? ", green" : ""}${layers.truth ? ": truth (line), misses (dots)" : ""}`;
    at("profile").setAttribute("viewBox", `0 0 ${w} ${h}`);
    at("profile").replaceChildren(...parts);
  }

  // ------------------------------------------------------------ controls

  function listLayers() {
    const { layers } = state.image, field = at("layers");
    field.replaceChildren(field.querySelector("legend"), ...Object.keys(LAYERS).filter(available).map((name) => {
      const input = node("input", { type: "radio", name: "layer", value: name });
      input.addEventListener("change", () => { state.layer = name; paint(); draw(); });
      return node("label", {}, input, node("span", {}, LAYERS[name]));
    }));
    const keys = [["k-interval", "interval"]];
    if (layers.band_lower) keys.push(["k-band", "before calibration"]);
    if (layers.estimate) keys.push(["k-estimate", "estimate"]);
    if (layers.truth) keys.push(["k-truth", "truth"]);
    if (layers.samples) keys.push(["k-sample", "samples"]);
    at("strip-legend").replaceChildren(...keys.map(([kind, name]) => node("span", { class: `key ${kind}` }, name)));
  }

  function setMix(mix) { state.mix = Math.min(Math.max(mix, 0), 100); state.layer = "interval"; paint(); draw(); }
  function setMisses(on) { state.misses = on; paint(); draw(); }

  let playing = 0;
  function play(on) {
    cancelAnimationFrame(playing); playing = 0;
    at("play").setAttribute("aria-pressed", String(on));
    at("play").textContent = on ? "Stop" : "Play";
    if (!on) return;
    const begin = performance.now();
    const turn = (now) => { setMix(Math.round(50 - 50 * Math.cos((now - begin) / (still.matches ? 2400 : 700)))); playing = requestAnimationFrame(turn); };
    playing = requestAnimationFrame(turn);
  }

  function failed(error) {
    at("trouble").hidden = false;
    at("trouble").textContent = typeof DecompressionStream === "undefined"
      ? "This browser is too old for the viewer (it needs one of 2023 or later). The pictures and tables below are complete."
      : `The viewer could not read its data: ${error.message}`;
  }
  const go = (index) => choose(index).catch(failed);

  at("choose").addEventListener("change", (e) => go(Number(e.target.value)));
  at("previous").addEventListener("click", () => go(state.index - 1));
  at("next").addEventListener("click", () => go(state.index + 1));
  at("plane").addEventListener("input", (e) => { state.plane = Number(e.target.value); listRegions(); paint(); draw(); tell(); });
  at("mix").addEventListener("input", (e) => { play(false); setMix(Number(e.target.value)); });
  at("play").addEventListener("click", () => play(!playing));
  at("misses").addEventListener("change", (e) => setMisses(e.target.checked));
  if (at("outline")) at("outline").addEventListener("change", (e) => setOutline(e.target.value));
  at("zoom-in").addEventListener("click", () => zoomBy(1.5));
  at("zoom-out").addEventListener("click", () => zoomBy(1 / 1.5));
  at("zoom-reset").addEventListener("click", () => zoomBy(0));
  for (const button of document.querySelectorAll("[data-open]")) {
    button.addEventListener("click", async () => {
      await go(Number(button.dataset.open));
      at("viewer").scrollIntoView();
      canvas.focus({ preventScroll: true });
    });
  }

  for (const button of document.querySelectorAll("button[data-outline]")) {
    button.addEventListener("click", async () => {
      const name = button.dataset.outline, from = state.index, count = page.examples.length;
      for (let k = 1; k < count && !regionsHere().includes(name); k++) await go(from + k); // the next image that has it
      setOutline(name);
      at("viewer").scrollIntoView();
      canvas.focus({ preventScroll: true });
    });
  }

  at("viewer").addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !state.image) return;
    const inControl = e.target !== canvas, far = e.shiftKey ? 10 : 1, key = e.key;
    if (inControl && (e.target.matches("select, input") || !["n", "p", "+", "=", "-", "0", "m", "l", "o", "[", "]"].includes(key))) return;
    const layers = Object.keys(LAYERS).filter(available);
    const actions = {
      ArrowLeft: () => moveTo(state.row, state.col - far, true), ArrowRight: () => moveTo(state.row, state.col + far, true),
      ArrowUp: () => moveTo(state.row - far, state.col, true), ArrowDown: () => moveTo(state.row + far, state.col, true),
      "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: () => zoomBy(0),
      n: () => go(state.index + 1), p: () => go(state.index - 1), m: () => setMisses(!state.misses), o: nextOutline,
      "[": () => setMix(state.mix - 5), "]": () => setMix(state.mix + 5), Escape: () => pin(false),
      l: () => { state.layer = layers[(layers.indexOf(state.layer) + 1) % layers.length]; paint(); draw(); },
    };
    if (!(key in actions)) return;
    e.preventDefault();
    actions[key]();
  });

  function pin(on) { state.pinned = on; draw(); tell(); }

  function point(e) { // place in the image under a pointer
    const box = canvas.getBoundingClientRect(), s = scale() / ratio();
    return [state.x + (e.clientX - box.left - box.width / 2) / s, state.y + (e.clientY - box.top - box.height / 2) / s];
  }
  const isInside = ([x, y]) => x >= 0 && y >= 0 && x < state.image.width && y < state.image.height;

  canvas.addEventListener("wheel", (e) => {
    if (!state.image || (document.activeElement !== canvas && !e.ctrlKey)) return;
    const factor = Math.exp(-e.deltaY * (e.deltaMode ? 0.06 : 0.0022));
    if (state.zoom === 1 && factor < 1 && !e.ctrlKey) return; // let the page scroll on
    e.preventDefault();
    zoomBy(factor, ...point(e));
  }, { passive: false });

  const fingers = new Map();
  let gesture = null, tapped = -Infinity;
  canvas.addEventListener("pointerdown", (e) => {
    if (!state.image) return;
    fingers.set(e.pointerId, e);
    gesture = { moved: false, x: e.clientX, y: e.clientY, from: [state.x, state.y], spread: spread() };
    if (fingers.size > 1) gesture.moved = true;
    canvas.setPointerCapture(e.pointerId);
  });
  function spread() {
    const [a, b] = [...fingers.values()];
    return b ? Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) : 0;
  }
  canvas.addEventListener("pointermove", (e) => {
    if (!state.image) return;
    if (!fingers.has(e.pointerId)) {
      const place = point(e);
      if (!state.pinned && isInside(place)) moveTo(Math.floor(place[1]), Math.floor(place[0]));
      return;
    }
    fingers.set(e.pointerId, e);
    if (fingers.size > 1) {
      const now = spread(), [a, b] = [...fingers.values()];
      if (gesture.spread > 0) zoomBy(now / gesture.spread, ...point({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 }));
      gesture.spread = now;
      return;
    }
    const dx = e.clientX - gesture.x, dy = e.clientY - gesture.y, s = scale() / ratio();
    if (Math.hypot(dx, dy) > 5) gesture.moved = true;
    if (gesture.moved && state.zoom > 1) {
      [state.x, state.y] = [gesture.from[0] - dx / s, gesture.from[1] - dy / s];
      fit(); draw();
    } else if (gesture.moved && isInside(point(e))) { const [x, y] = point(e); moveTo(Math.floor(y), Math.floor(x)); }
  });
  canvas.addEventListener("pointerup", (e) => {
    if (!state.image || !fingers.delete(e.pointerId) || !gesture || gesture.moved) return;
    const place = point(e), again = e.timeStamp - tapped < 320;
    tapped = again ? -Infinity : e.timeStamp;
    if (again) { zoomBy(state.zoom > 1 ? 0 : 3, ...place); return; }
    if (!isInside(place)) return;
    const [col, row] = place.map(Math.floor);
    const letGo = state.pinned && row === state.row && col === state.col;
    moveTo(row, col);
    pin(!letGo);
  });
  canvas.addEventListener("pointercancel", (e) => fingers.delete(e.pointerId));

  // ------------------------------------------------------------ begin

  const ramp = at("ramp").getContext("2d"), strip = ramp.createImageData(256, 1);
  for (let k = 0; k < 256; k++) strip.data.set([...colours.slice(3 * k, 3 * k + 3), 255], 4 * k);
  ramp.putImageData(strip, 0, 0);
  new ResizeObserver(() => {
    const sharp = Math.min(window.devicePixelRatio || 1, 3);
    canvas.width = Math.round(canvas.clientWidth * sharp); canvas.height = Math.round(canvas.clientHeight * sharp);
    if (state.image) { fit(); draw(); }
  }).observe(canvas);
  go(0);
})();
