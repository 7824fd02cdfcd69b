// A region drawn by hand: its outline, and what is in it. Nothing is promised about it, and the words say so.
const region = { mask: null, lines: [], path: [], corner: null, of: "" };

function setRegion(mask) {
  const { width } = state.image;
  region.mask = mask;
  region.path = [];
  region.of = [state.image.width, state.image.height].join();
  region.lines = linesAround((x, y) => mask[y * width + x]);
  tellRegion();
}

function rectangle(row, col, row2, col2) { // all pixels between two corners, both of them included
  const { width, size } = state.image, mask = new Uint8Array(size);
  const [top, bottom] = [Math.min(row, row2), Math.max(row, row2)], [left, right] = [Math.min(col, col2), Math.max(col, col2)];
  for (let y = top; y <= bottom; y++) mask.fill(1, y * width + left, y * width + right + 1);
  return mask;
}

function enclosed(path) { // pixels whose centre lies within a line drawn by hand, or the first one where none does
  const { width, height, size } = state.image, mask = new Uint8Array(size);
  for (let y = 0; y < height; y++) {
    const crossings = [];
    path.forEach(([x1, y1], k) => {
      const [x2, y2] = path[(k + 1) % path.length], middle = y + 0.5;
      if ((y1 <= middle) !== (y2 <= middle)) crossings.push(x1 + (middle - y1) * (x2 - x1) / (y2 - y1));
    });
    crossings.sort((a, b) => a - b);
    for (let k = 0; k + 1 < crossings.length; k += 2) {
      for (let x = Math.max(Math.ceil(crossings[k] - 0.5), 0); x + 0.5 < crossings[k + 1] && x < width; x++) mask[y * width + x] = 1;
    }
  }
  if (!mask.includes(1)) mask[Math.floor(path[0][1]) * width + Math.floor(path[0][0])] = 1;
  return mask;
}

const within = ([x, y]) => [Math.min(Math.max(x, 0), state.image.width - 1e-6), Math.min(Math.max(y, 0), state.image.height - 1e-6)];

function beginRegion(place) { region.mask = null; region.lines = []; region.path = [within(place)]; }
function goOnRegion(place) {
  const [x, y] = within(place), [x0, y0] = region.path[0];
  if (state.tool === "freehand") region.path.push([x, y]);
  else setRegionWhile(rectangle(Math.floor(y0), Math.floor(x0), Math.floor(y), Math.floor(x)), [[x0, y0]]);
  draw();
}
function setRegionWhile(mask, path) { setRegion(mask); region.path = path; }
function endRegion() {
  if (!region.path.length) return;
  if (state.tool === "freehand") setRegion(enclosed(region.path));
  else if (!region.mask) { const [x, y] = region.path[0].map(Math.floor); setRegion(rectangle(y, x, y, x)); }
  region.path = [];
  say(regionInWords());
  draw();
}

function stretchRegion() { setRegion(rectangle(...region.corner, state.row, state.col)); }
function cornerByKey() { // the first press sets a corner, the second ends at the pixel that was moved to
  if (region.corner) {
    stretchRegion();
    region.corner = null;
    say(regionInWords());
  } else {
    region.corner = [state.row, state.col];
    stretchRegion();
    say(`A region begins at row ${state.row}, column ${state.col}. Move with the arrow keys, and press r again to end it.`);
  }
  draw();
}

function clearRegion() {
  Object.assign(region, { mask: null, lines: [], path: [], corner: null });
  tellRegion(); draw();
}

function drawRegion(view, s, left, top) {
  const one = ratio(view);
  if (region.lines.length) stroke(view.pen, region.lines, s, left, top, 1.75 * one, "#ffffff", [5 * one, 4 * one]);
  if (state.tool !== "freehand" || region.path.length < 2) return;
  const lines = region.path.slice(1).map(([x, y], k) => [...region.path[k], x, y]);
  stroke(view.pen, lines, s, left, top, 1.75 * one, "#ffffff");
}

// ------------------------------------------------------------ what is in it

function regionFacts() {
  const { layers, size } = state.image, list = channels();
  const facts = { pixels: 0, values: 0, closed: 0, length: 0, above: 0, below: 0, known: Boolean(layers.missed) };
  for (let p = 0; p < size; p++) {
    if (!region.mask[p]) continue;
    facts.pixels++;
    for (const c of list) {
      const i = c * size + p;
      facts.values++;
      facts.length += value(layers.upper, i) - value(layers.lower, i);
      if (!open(i)) facts.closed++;
      facts.below += side(i) === 1;
      facts.above += side(i) === 2;
    }
  }
  return facts;
}

function shareWithin(name) { // of the drawn region in the region of a promise, null where that is not known
  const k = state.image.regions.indexOf(name), { size } = state.image;
  if (k < 0) return null;
  let both = 0, all = 0;
  for (let p = 0; p < size; p++) if (region.mask[p]) { all++; both += isIn(k, p); }
  return both / all;
}

const NOT_PROMISED = "No promise is about this region. It was drawn by hand, on an image that is here to be seen; promises are about averages over future images, and may fail in any part of what they count.";

function countedInWords() { // which promises count pixels of the region, among many others
  const touched = [], unknown = [];
  for (const promise of page.promises) {
    const share = promise.outline === "" ? 1 : shareWithin(promise.outline);
    if (share === null) unknown.push(promise.name);
    else if (share > 0) touched.push(`${share === 1 ? "All" : `${(100 * share).toFixed(1)}%`} of it is counted, among much else, in “${promise.name}” (at most ${promise.level}: ${promise.what}).`);
  }
  if (!touched.length && !unknown.length) touched.push("None of its pixels is counted in any promise.");
  if (unknown.length) touched.push(`Whether it lies in ${unknown.map((name) => `“${name}”`).join(", ")} is not known here.`);
  return touched;
}

function regionRows() {
  const facts = regionFacts(), decimals = state.image.layers.lower.decimals;
  const rows = [["pixels", String(facts.pixels)]];
  const opened = 1 - facts.closed / facts.values;
  rows.push(["mean length", `${lengthText(facts.length / facts.values, decimals)}${unit}${opened ? `, ${percent(opened)} of them open` : ""}`]);
  if (facts.known) {
    const n = facts.values;
    rows.push(["outside", percent((facts.above + facts.below) / n)], ["▲ truth above", `${percent(facts.above / n)} (${facts.above})`, "above"], ["▼ truth below", `${percent(facts.below / n)} (${facts.below})`, "below"]);
  } else rows.push(["outside", "the truth is not known"]);
  return rows;
}
const regionInWords = () => `Region drawn by hand: ${regionRows().map(([name, text]) => `${name} ${text}`).join("; ")}. ${NOT_PROMISED}`;

function tellRegion() {
  at("region").hidden = !region.mask;
  at("region-clear").hidden = !region.mask;
  canvas.dataset.region = region.mask ? String(region.mask.reduce((sum, x) => sum + x, 0)) : "";
  if (!region.mask) return;
  at("region-values").replaceChildren(...regionRows().map(([name, text, kind]) => node("tr", {}, node("th", { scope: "row" }, kind ? node("span", { class: `key ${kind}` }, name) : name), node("td", {}, text))));
  at("region-promise").textContent = NOT_PROMISED;
  at("region-counted").replaceChildren(...countedInWords().map((text) => node("li", {}, text)));
}
