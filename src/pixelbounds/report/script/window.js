// Which values are black and white: width and level in the unit of the files, by sliders, presets or a drag.
const PRESETS = { lung: [1500, -600], "soft tissue": [400, 40], liver: [150, 30], brain: [80, 40], bone: [1800, 400] }; // HU
let preset = "whole";

const range = () => state.image.window.map(inUnit); // of the values that are there
const fine = () => Math.max(0, 2 - Math.floor(Math.log10(range()[1] - range()[0]))); // digits that a slider's step needs
const widthNow = () => wide * (state.white - state.black);
const levelNow = () => inUnit((state.white + state.black) / 2);

function listPresets() {
  const [low, high] = range(), names = [["whole", windowed ? "as calibrated" : "whole range"], ["here", "this picture, 1 to 99%"]];
  const found = names.map(([key, text]) => node("option", { value: key }, text));
  if (measure && measure.unit === "HU") for (const [key, [width, level]] of Object.entries(PRESETS)) {
    const gone = level <= low || level >= high;
    found.push(node("option", { value: key, disabled: gone }, gone ? `${key} (${width}/${level}: not in these files)` : `${key} (${width}/${level})`));
  }
  at("preset").replaceChildren(...found, node("option", { value: "own", disabled: true }, "own"));
}

function setWindow(width, level, name = "own") {
  const [low, high] = range(), all = high - low, least_ = all / 400;
  width = Math.min(Math.max(width, least_), Math.max(all, 3000) * 2);
  level = Math.min(Math.max(level, Math.min(low, -2000)), Math.max(high, 3000));
  preset = name;
  state.black = (level - width / 2 - least) / wide; state.white = (level + width / 2 - least) / wide;
  tellWindow(); paint(); draw(); drawProfile();
}

function tellWindow() {
  const [low, high] = range(), all = high - low, digits_ = fine();
  Object.assign(at("width"), { min: all / 400, max: all, step: all / 400 });
  Object.assign(at("level"), { min: low, max: high, step: all / 400 });
  for (const [id, number] of [["width", widthNow()], ["level", levelNow()]]) {
    const text = `${digits(number, digits_)}${unit}`;
    at(id).value = String(number);
    at(id).setAttribute("aria-valuetext", text);
    at(`${id}-value`).textContent = text;
  }
  at("preset").value = preset;
  canvas.dataset.window = [widthNow(), levelNow()].map((x) => Number(x.toPrecision(6))).join("/");
}

function spread1to99() { // of the estimate, or of the middle of the intervals
  const { layers, size } = state.image, of = layers.estimate ? (i) => value(layers.estimate, i) : (i) => (value(layers.lower, i) + value(layers.upper, i)) / 2;
  const found = new Float64Array(size);
  for (let p = 0; p < size; p++) found[p] = of(channels()[0] * size + p);
  found.sort();
  return [found[Math.floor(0.01 * (size - 1))], found[Math.ceil(0.99 * (size - 1))]];
}

function usePreset(name) {
  if (name in PRESETS) { setWindow(...PRESETS[name], name); return; }
  const [low, high] = (name === "here" ? spread1to99() : state.image.window).map(inUnit);
  setWindow(high - low, (low + high) / 2, name);
}

function dragWindow(from, dx, dy) { // to the right is wider, upwards is a higher level, as elsewhere in radiology
  const [low, high] = range(), step = (high - low) / 400;
  setWindow(from.width + dx * step, from.level - dy * step);
}
