// The pictures: one or two views of the same image, which share zoom, place and cursor, each with a map of its own.
const ABOVE = page.colours_of_misses[0], BELOW = page.colours_of_misses[1];
const MOST_ZOOM = 32;
const CHANNELS = ["red", "green", "blue"];
const LAYERS = {
  interval: "Interval", lower: "Lower", estimate: "Estimate", upper: "Upper", truth: "Truth", observation: "Observation",
  length: "Length", widening: "Widening", misses: "Misses",
};
const SCALED = ["length", "widening"]; // maps in colours; others are gray, or misses
const colours = page.colours.match(/../g).map((x) => parseInt(x, 16));
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
const state = {
  index: -1, image: null, plane: 0, row: 0, col: 0, mix: 50, misses: false, outline: page.outline, pinned: false, zoom: 1, x: 0, y: 0,
  two: false, black: 0, white: 1, tool: "read",
};
const views = ["", "-2"].map((end) => {
  const canvas = at(`picture${end}`);
  return { end, canvas, pen: canvas.getContext("2d"), tile: document.createElement("canvas"), layer: end ? "length" : "interval" };
});
const canvas = views[0].canvas;
const used = () => (state.two ? views : views.slice(0, 1));

const channels = () => (state.image.colour ? [0, 1, 2] : [state.plane]);
const entry = (channel, row = state.row, col = state.col) => channel * state.image.size + row * state.image.width + col;
const open = (i) => (state.image.layers.open ? value(state.image.layers.open, i) : 0); // 1 below, 2 above, 3 both
const side = (i) => (state.image.layers.missed ? value(state.image.layers.missed, i) : 0); // the same of the truth
function available(name) {
  const layers = state.image.layers;
  if (name === "misses") return "missed" in layers;
  return name === "interval" || name === "length" || (name === "widening" ? "band_lower" in layers : name in layers);
}

function shader(name) { // what a layer shows of one entry
  const { lower, upper, band_lower: low, band_upper: high } = state.image.layers, part = state.mix / 100;
  const length = (i) => value(upper, i) - value(lower, i);
  if (name === "interval") return (i) => value(lower, i) + length(i) * part;
  if (name === "length") return (i) => (open(i) ? Infinity : length(i));
  if (name === "widening") return (i) => Math.max(length(i) - (value(high, i) - value(low, i)), 0);
  const chosen = state.image.layers[name];
  return (i) => value(chosen, i);
}

function sides(p) { // of all values of a pixel that are shown: 1 where the truth is below, 2 above, 3 both
  let found = 0;
  if (state.image.layers.missed) for (const c of channels()) found |= side(c * state.image.size + p);
  return found;
}

let missing = [], counted = ""; // pixels [col, row, side] of what is shown, and of what
function countMisses() {
  const now = [state.index, state.plane].join();
  if (now === counted) return;
  counted = now;
  missing = [];
  const { size, width } = state.image;
  for (let p = 0; p < size; p++) {
    const found = sides(p);
    if (found) missing.push([p % width, Math.floor(p / width), found]);
  }
}

function paintView(view) {
  const { width, height, size } = state.image, list = channels(), name = view.layer, { black, white } = state;
  view.tile.width = width; view.tile.height = height;
  const picture = new ImageData(width, height), out = picture.data, colour = list.length === 3;
  if (name === "misses") {
    const shades = [[38, 42, 46], rgb(BELOW), rgb(ABOVE), [255, 255, 255]];
    for (let p = 0; p < size; p++) out.set([...shades[sides(p)], 255], 4 * p);
  } else {
    const map = SCALED.includes(name), of = shader(name);
    for (let p = 0; p < size; p++) {
      const q = 4 * p, first = of(list[0] * size + p);
      if (map) {
        const mean = colour ? (first + of(size + p) + of(2 * size + p)) / 3 : first;
        const k = 3 * Math.round(255 * Math.min(mean / page.scales[name], 1));
        out.set(mean === Infinity ? page.colour_of_open : colours.slice(k, k + 3), q);
      } else {
        for (let k = 0; k < 3; k++) out[q + k] = 255 * ((colour && k ? of(k * size + p) : first) - black) / (white - black);
      }
      out[q + 3] = 255;
    }
  }
  view.tile.getContext("2d").putImageData(picture, 0, 0);
  at(`scale${view.end}`).hidden = !SCALED.includes(name);
  if (SCALED.includes(name)) at(`scale-end${view.end}`).textContent = `${Number((wide * page.scales[name]).toPrecision(3))}${unit} and more`;
  if (at(`scale-open${view.end}`)) at(`scale-open${view.end}`).hidden = name !== "length";
  at(`misses-key${view.end}`).hidden = name !== "misses";
  for (const input of at(`layers${view.end}`).querySelectorAll("input")) input.checked = input.value === name;
  view.canvas.dataset.layer = name;
}

function paint() {
  const { layers } = state.image, list = channels();
  countMisses(); trace();
  used().forEach(paintView);
  at("mix-field").hidden = !used().some((view) => view.layer === "interval");
  at("misses-field").hidden = !layers.missed;
  at("misses").checked = state.misses;
  at("mix").value = String(state.mix);
  at("plane-value").textContent = `${state.image.planes[state.plane]} of ${state.image.depth}`;
  at("share").textContent = layers.missed ? `${percent(missedShare(list))} outside in this picture` : "";
  tellOutline();
  canvas.dataset.mix = String(state.mix);
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

function linesAround(isInside) { // lines [x1, y1, x2, y2] between pixels (x, y) of a region and others
  const { width, height } = state.image, found = [];
  const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && Boolean(isInside(x, y));
  for (let y = 0; y <= height; y++) for (let x = 0; x <= width; x++) {
    const own = inside(x, y);
    if (own !== inside(x - 1, y)) found.push([x, y, x, y + 1]);
    if (own !== inside(x, y - 1)) found.push([x, y, x + 1, y]);
  }
  return found;
}

let outline = [], traced = ""; // lines of the outlined region, and of what
function trace() {
  const k = state.image.regions.indexOf(state.outline), now = [state.index, state.plane, k].join();
  if (now === traced) return;
  traced = now;
  outline = k < 0 ? [] : linesAround((x, y) => isIn(k, y * state.image.width + x));
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
  const share = layers.missed ? `, ${percent(missed / pixels)} of it outside` : "";
  at("outlined").textContent = `${state.outline}: ${(100 * pixels / (channels().length * size)).toFixed(1)}% of this picture${share}`;
}

// ------------------------------------------------------------ on the screen

const ratio = (view = views[0]) => view.canvas.width / (view.canvas.clientWidth || 1);
const scale = (view = views[0]) => state.zoom * Math.min(view.canvas.width / state.image.width, view.canvas.height / state.image.height);

function fit() {
  if (state.zoom === 1) Object.assign(state, { x: state.image.width / 2, y: state.image.height / 2 });
  const across = canvas.width / scale() / 2, down = canvas.height / scale() / 2, { width, height } = state.image;
  state.x = across * 2 >= width ? width / 2 : Math.min(Math.max(state.x, across), width - across);
  state.y = down * 2 >= height ? height / 2 : Math.min(Math.max(state.y, down), height - down);
}

function stroke(pen, lines, s, left, top, width, colour, dashes = []) { // on a dark line, to be seen on any picture
  pen.beginPath();
  for (const [x1, y1, x2, y2] of lines) { pen.moveTo(left + x1 * s, top + y1 * s); pen.lineTo(left + x2 * s, top + y2 * s); }
  pen.lineCap = "round";
  pen.setLineDash([]);
  pen.lineWidth = 2 * width; pen.strokeStyle = "rgba(0,0,0,.65)"; pen.stroke();
  pen.setLineDash(dashes);
  pen.lineWidth = width; pen.strokeStyle = colour; pen.stroke();
  pen.setLineDash([]);
}

function drawMisses(view, s, left, top) { // frames with a thick side: on top where the truth is above, below where it is below
  const { pen, canvas: { width, height } } = view, one = ratio(view);
  const seenHere = missing.filter(([x, y]) => left + (x + 1) * s > 0 && top + (y + 1) * s > 0 && left + x * s < width && top + y * s < height);
  const thin = Math.max(one, Math.min(0.12 * s, 2 * one)), bar = Math.max(thin, Math.min(0.26 * s, 6 * one));
  const small = s < 3.5 * one; // then there is no room for a frame
  const frame = (by, thick) => {
    pen.beginPath();
    for (const [x, y] of by) {
      const size = s - 2 * thick;
      pen.rect(left + x * s, top + y * s, s, s);
      if (!small && size > 0) pen.rect(left + x * s + thick, top + y * s + thick, size, size);
    }
    pen.fill("evenodd");
  };
  if (!small && s > 8 * one) { pen.fillStyle = "rgba(0,0,0,.8)"; frame(seenHere, thin + one); }
  for (const [found, colour] of [[1, BELOW], [2, ABOVE], [3, "#ffffff"]]) {
    pen.fillStyle = colour;
    frame(seenHere.filter((miss) => miss[2] === found), thin);
  }
  if (small) return;
  for (const [bit, colour] of [[1, BELOW], [2, ABOVE]]) {
    pen.fillStyle = colour;
    for (const [x, y, found] of seenHere) if (found & bit) pen.fillRect(left + x * s, top + (bit === 2 ? y * s : (y + 1) * s - bar), s, bar);
  }
}

function drawView(view) {
  const { pen, canvas: { width, height } } = view, one = ratio(view);
  const s = scale(view), left = width / 2 - state.x * s, top = height / 2 - state.y * s;
  pen.clearRect(0, 0, width, height);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(view.tile, left, top, view.tile.width * s, view.tile.height * s);
  if (state.misses && view.layer !== "misses") drawMisses(view, s, left, top);
  if (outline.length) stroke(pen, outline, s, left, top, 1.75 * one, "#ff5cc0");
  drawRegion(view, s, left, top);
  const grow = Math.max(0, 9 * one - s) / 2; // a cursor that can be seen on small pixels too
  const box = [left + state.col * s - grow, top + state.row * s - grow, s + 2 * grow, s + 2 * grow];
  pen.lineWidth = 4 * one; pen.strokeStyle = "rgba(0,0,0,.75)"; pen.strokeRect(...box);
  pen.lineWidth = 2 * one; pen.strokeStyle = state.pinned ? "#ffd24a" : "#fff"; pen.strokeRect(...box);
  view.canvas.classList.toggle("zoomed", state.zoom > 1 || state.tool !== "read");
  Object.assign(view.canvas.dataset, { row: state.row, col: state.col, zoom: state.zoom.toFixed(2), tool: state.tool });
}

function draw() {
  if (!state.image) return;
  used().forEach(drawView);
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
    const across = canvas.width / scale() / 2 - 1, down = canvas.height / scale() / 2 - 1;
    state.x = Math.min(Math.max(state.x, state.col + 1 - across), state.col + across);
    state.y = Math.min(Math.max(state.y, state.row + 1 - down), state.row + down);
    fit();
  }
  if (region.corner) stretchRegion();
  draw(); tell(spoken);
}

function sizeViews() {
  for (const view of used()) {
    const sharp = Math.min(window.devicePixelRatio || 1, 3);
    view.canvas.width = Math.round(view.canvas.clientWidth * sharp);
    view.canvas.height = Math.round(view.canvas.clientHeight * sharp);
  }
  if (state.image) { fit(); draw(); }
}
