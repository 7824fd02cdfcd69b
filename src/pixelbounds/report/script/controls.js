// Controls, keys and pointers, and the beginning.
const still = matchMedia("(prefers-reduced-motion: reduce)");
let loading = 0;

async function choose(index) {
  const count = page.examples.length, ticket = ++loading;
  index = (index + count) % count;
  const image = await imageOf(index);
  if (ticket !== loading) return; // another image was chosen meanwhile
  const same = state.image && state.image.width === image.width && state.image.height === image.height;
  state.image = image;
  state.index = index;
  if (!same) Object.assign(state, { row: image.height >> 1, col: image.width >> 1, zoom: 1, plane: image.colour ? 0 : image.planes.length >> 1 });
  if (!same && region.mask) clearRegion();
  state.plane = Math.min(state.plane, image.planes.length - 1);
  at("choose").value = String(index);
  for (const view of views) if (!available(view.layer)) view.layer = "interval";
  used().forEach(listLayers);
  listKeys(); listRegions(); listPresets();
  const planes = image.colour ? 1 : image.planes.length;
  at("plane-field").hidden = planes < 2;
  Object.assign(at("plane"), { max: planes - 1, value: state.plane });
  for (const view of views) view.canvas.style.aspectRatio = String(Math.min(Math.max(image.width / image.height, 0.6), 2));
  if (preset === "own") setWindow(widthNow(), levelNow()); else usePreset(preset);
  fit(); draw(); tell(); tellRegion();
  at("trouble").hidden = true;
  canvas.dataset.image = String(index);
}

function listLayers(view) {
  const field = at(`layers${view.end}`);
  field.replaceChildren(field.querySelector("legend"), ...Object.keys(LAYERS).filter(available).map((name) => {
    const input = node("input", { type: "radio", name: `layer${view.end}`, value: name });
    input.addEventListener("change", () => setLayer(view, name));
    return node("label", {}, input, node("span", {}, LAYERS[name]));
  }));
}
function setLayer(view, name) { view.layer = name; paint(); draw(); }

function listKeys() {
  const { layers } = state.image, keys = [["k-interval", "interval"]];
  if (layers.band_lower) keys.push(["k-band", "before calibration"]);
  if (layers.estimate) keys.push(["k-estimate", "estimate"]);
  if (layers.truth) keys.push(["k-truth", "truth"], ["above", "▲ above"], ["below", "▼ below"]);
  if (layers.samples) keys.push(["k-sample", "samples"]);
  at("strip-legend").replaceChildren(...keys.map(([kind_, name]) => node("span", { class: `key ${kind_}` }, name)));
}

function setMix(mix) {
  state.mix = Math.min(Math.max(mix, 0), 100);
  if (!used().some((view) => view.layer === "interval")) views[0].layer = "interval";
  paint(); draw();
}
function setMisses(on) { state.misses = on; paint(); draw(); }
function setTwo(on) {
  state.two = on;
  at("two").setAttribute("aria-pressed", String(on));
  at("desk").dataset.views = on ? "2" : "1";
  at("view-2").hidden = !on;
  if (!state.image) return;
  used().forEach(listLayers);
  sizeViews(); paint(); draw();
}
function setTool(name) {
  state.tool = name;
  for (const input of at("tools").querySelectorAll("input")) input.checked = input.value === name;
  draw();
}

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
    : `This image cannot be shown: ${error.message}`;
}
const go = (index) => choose(index).catch(failed);
function toViewer() { at("viewer").scrollIntoView(); canvas.focus({ preventScroll: true }); }

at("choose").addEventListener("change", (e) => go(Number(e.target.value)));
at("previous").addEventListener("click", () => go(state.index - 1));
at("next").addEventListener("click", () => go(state.index + 1));
at("plane").addEventListener("input", (e) => { state.plane = Number(e.target.value); listRegions(); paint(); draw(); tell(); tellRegion(); });
at("mix").addEventListener("input", (e) => { play(false); setMix(Number(e.target.value)); });
at("play").addEventListener("click", () => play(!playing));
at("misses").addEventListener("change", (e) => setMisses(e.target.checked));
at("two").addEventListener("click", () => setTwo(!state.two));
at("width").addEventListener("input", (e) => setWindow(Number(e.target.value), levelNow()));
at("level").addEventListener("input", (e) => setWindow(widthNow(), Number(e.target.value)));
at("preset").addEventListener("change", (e) => usePreset(e.target.value));
at("region-clear").addEventListener("click", () => { clearRegion(); canvas.focus({ preventScroll: true }); });
for (const input of at("tools").querySelectorAll("input")) input.addEventListener("change", () => setTool(input.value));
if (at("outline")) at("outline").addEventListener("change", (e) => setOutline(e.target.value));
at("zoom-in").addEventListener("click", () => zoomBy(1.5));
at("zoom-out").addEventListener("click", () => zoomBy(1 / 1.5));
at("zoom-reset").addEventListener("click", () => zoomBy(0));
for (const button of document.querySelectorAll("[data-open]")) {
  button.addEventListener("click", async () => {
    await go(Number(button.dataset.open));
    if ("misses" in button.dataset) setMisses(true);
    toViewer();
  });
}
for (const button of document.querySelectorAll("button[data-outline]")) {
  button.addEventListener("click", async () => {
    const name = button.dataset.outline, count = page.examples.length, from = Math.max(state.index, 0);
    const order = Array.from({ length: count }, (_, k) => (from + k) % count); // this image, or the next that has it
    const found = order.find((index) => page.examples[index].holds.includes(name));
    if (found !== undefined && found !== state.index) await go(found);
    if (state.image) setOutline(name);
    toViewer();
  });
}

at("viewer").addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !state.image) return;
  const view = views.find((x) => x.canvas === e.target), far = e.shiftKey ? 10 : 1, key = e.key;
  const anywhere = ["n", "p", "+", "=", "-", "0", "m", "l", "o", "[", "]", "v", "w"];
  if (!view && (e.target.matches("select, input") || !anywhere.includes(key))) return;
  const layers = Object.keys(LAYERS).filter(available), mine = view || views[0];
  const actions = {
    ArrowLeft: () => moveTo(state.row, state.col - far, true), ArrowRight: () => moveTo(state.row, state.col + far, true),
    ArrowUp: () => moveTo(state.row - far, state.col, true), ArrowDown: () => moveTo(state.row + far, state.col, true),
    "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: () => zoomBy(0),
    n: () => go(state.index + 1), p: () => go(state.index - 1), m: () => setMisses(!state.misses), o: nextOutline,
    "[": () => setMix(state.mix - 5), "]": () => setMix(state.mix + 5), v: () => setTwo(!state.two),
    w: () => setTool(state.tool === "window" ? "read" : "window"), r: cornerByKey, Delete: clearRegion, Backspace: clearRegion,
    Escape: () => { if (region.corner) clearRegion(); else pin(false); },
    l: () => setLayer(mine, layers[(layers.indexOf(mine.layer) + 1) % layers.length]),
  };
  if (!(key in actions)) return;
  e.preventDefault();
  actions[key]();
});

function pin(on) { state.pinned = on; draw(); tell(); }

function point(e, view) { // place in the image under a pointer
  const box = view.canvas.getBoundingClientRect(), s = scale(view) / ratio(view);
  return [state.x + (e.clientX - box.left - box.width / 2) / s, state.y + (e.clientY - box.top - box.height / 2) / s];
}
const isInside = ([x, y]) => x >= 0 && y >= 0 && x < state.image.width && y < state.image.height;

const fingers = new Map();
let gesture = null, tapped = -Infinity;
function spread() {
  const [a, b] = [...fingers.values()];
  return b ? Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) : 0;
}

function press(e, view) {
  if (!state.image) return;
  fingers.set(e.pointerId, e);
  gesture = { moved: false, tool: e.button === 2 ? "window" : state.tool, x: e.clientX, y: e.clientY, from: [state.x, state.y], spread: spread(), window: { width: widthNow(), level: levelNow() } };
  if (fingers.size > 1) gesture.moved = true;
  else if (["rectangle", "freehand"].includes(gesture.tool) && isInside(point(e, view))) beginRegion(point(e, view));
  view.canvas.setPointerCapture(e.pointerId);
}

function drag(e, view) {
  if (!state.image) return;
  const place = point(e, view);
  if (!fingers.has(e.pointerId)) {
    if (!state.pinned && !region.corner && isInside(place)) moveTo(Math.floor(place[1]), Math.floor(place[0]));
    return;
  }
  fingers.set(e.pointerId, e);
  if (fingers.size > 1) {
    const now = spread(), [a, b] = [...fingers.values()];
    if (gesture.spread > 0) zoomBy(now / gesture.spread, ...point({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 }, view));
    gesture.spread = now;
    region.path = [];
    return;
  }
  const dx = e.clientX - gesture.x, dy = e.clientY - gesture.y, s = scale(view) / ratio(view);
  if (Math.hypot(dx, dy) > 5) gesture.moved = true;
  if (!gesture.moved) return;
  if (gesture.tool === "window") dragWindow(gesture.window, dx, dy);
  else if (region.path.length) goOnRegion(place);
  else if (state.zoom > 1) {
    [state.x, state.y] = [gesture.from[0] - dx / s, gesture.from[1] - dy / s];
    fit(); draw();
  } else if (isInside(place)) moveTo(Math.floor(place[1]), Math.floor(place[0]));
}

function release(e, view) {
  if (!state.image || !fingers.delete(e.pointerId) || !gesture) return;
  if (region.path.length) { if (gesture.moved) endRegion(); else region.path = []; }
  if (gesture.moved || gesture.tool !== "read") return;
  const place = point(e, view), again = e.timeStamp - tapped < 320;
  tapped = again ? -Infinity : e.timeStamp;
  if (again) { zoomBy(state.zoom > 1 ? 0 : 3, ...place); return; }
  if (!isInside(place)) return;
  const [col, row] = place.map(Math.floor);
  const letGo = state.pinned && row === state.row && col === state.col;
  moveTo(row, col);
  pin(!letGo);
}

for (const view of views) {
  view.canvas.addEventListener("wheel", (e) => {
    if (!state.image || (document.activeElement !== view.canvas && !e.ctrlKey)) return;
    const factor = Math.exp(-e.deltaY * (e.deltaMode ? 0.06 : 0.0022));
    if (state.zoom === 1 && factor < 1 && !e.ctrlKey) return; // let the page scroll on
    e.preventDefault();
    zoomBy(factor, ...point(e, view));
  }, { passive: false });
  view.canvas.addEventListener("pointerdown", (e) => press(e, view));
  view.canvas.addEventListener("pointermove", (e) => drag(e, view));
  view.canvas.addEventListener("pointerup", (e) => release(e, view));
  view.canvas.addEventListener("pointercancel", (e) => { fingers.delete(e.pointerId); region.path = []; });
  view.canvas.addEventListener("contextmenu", (e) => e.preventDefault()); // the right button drags the window
  const ramp = at(`ramp${view.end}`).getContext("2d"), strip = ramp.createImageData(256, 1);
  for (let k = 0; k < 256; k++) strip.data.set([...colours.slice(3 * k, 3 * k + 3), 255], 4 * k);
  ramp.putImageData(strip, 0, 0);
  new ResizeObserver(sizeViews).observe(view.canvas);
}

// small pictures that lie beside the page come when they are scrolled to
const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    const name = target.dataset.pictures;
    delete target.dataset.pictures;
    fileBeside(name).then((pictures) => {
      target.replaceChildren(...pictures.map(([what, uri, about]) => node("div", {}, node("img", { src: uri, width: "128", alt: about }), node("span", {}, what))));
    }, (error) => { target.textContent = `These pictures cannot be shown: ${error.message}`; });
  }
}, { rootMargin: "400px" });
for (const strip of document.querySelectorAll("[data-pictures]")) near.observe(strip);

go(0);
if (matchMedia("(max-width: 560px)").matches) at("toolbox").open = false; // the picture is what one came for
