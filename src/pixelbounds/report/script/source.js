// The data: read when an image is looked at, from the page itself or from the folder beside it, and written in their unit.
const at = (id) => document.getElementById(id);
if (!at("picture")) return;
const page = JSON.parse(at("data").textContent);
const LOOKED_AT = 4; // images that are kept unpacked
const KEPT = new Map(); // by number, the latest last
const AWAITED = new Map(); // files on their way, by name

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

// A page opened from disk may not read files, but it may run scripts: those of its folder call this with their text.
window.pixelbounds = (name, text) => { if (AWAITED.has(name)) AWAITED.get(name)(text); };

async function isAsWritten(text, digest) {
  if (!globalThis.crypto || !crypto.subtle) return true; // a page that is served without encryption
  const found = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("").startsWith(digest);
}

async function fileBeside(name) {
  const script = document.createElement("script");
  const text = await new Promise((resolve, reject) => {
    AWAITED.set(name, resolve);
    script.onerror = () => reject(new Error(`the folder “${page.folder}” is not beside this page, or its file ${name}.js is gone. Move the page together with its folder, or write the report anew.`));
    script.onload = () => reject(new Error(`the file ${name}.js in “${page.folder}” is not one of this page.`));
    script.src = `${encodeURIComponent(page.folder)}/${name}.js`;
    document.head.append(script);
  }).finally(() => { AWAITED.delete(name); script.remove(); });
  if (!await isAsWritten(text, name.split("-").pop())) throw new Error(`the file ${name}.js in “${page.folder}” was changed after it was written.`);
  return JSON.parse(text);
}

async function imageOf(index) { // with its layers unpacked
  const known = KEPT.get(index);
  if (known) { KEPT.delete(index); KEPT.set(index, known); return known; }
  const example = page.examples[index], layers = {};
  const packed = example.file ? await fileBeside(example.file) : JSON.parse(at(`example-${index}`).textContent);
  await Promise.all(Object.keys(packed).map(async (name) => { layers[name] = await unpack(packed[name]); }));
  const image = { ...example, layers, size: example.width * example.height };
  KEPT.set(index, image);
  if (KEPT.size > LOOKED_AT) KEPT.delete(KEPT.keys().next().value);
  return image;
}

// ------------------------------------------------------------ numbers in the unit of the files

// where values were seen through a window, numbers are shown as what they stand for, and its edges as what lies beyond
const measure = page.measure, unit = measure && measure.unit ? ` ${measure.unit}` : "";
const windowed = Boolean(measure && measure.low !== null);
const wide = windowed ? measure.high - measure.low : 1, least = windowed ? measure.low : 0;
const fewer = windowed ? Math.ceil(Math.log10(wide)) : 0; // digits after the point that a step of the data is worth
const inUnit = (x) => least + wide * x; // and back: (x - least) / wide

const value = (layer, i) => (layer.base + layer.code[i]) / layer.unit;
const digits = (number, decimals) => number.toFixed(Math.max(decimals, 0)).replace("-", "−");
const valueText = (x, decimals) => digits(inUnit(x), decimals - fewer);
const shown = (layer, i) => valueText(value(layer, i), layer.decimals);
const lengthText = (x, decimals) => digits(wide * x, decimals - fewer);
const seen = (layer, i) => {
  const x = value(layer, i);
  return !windowed || (x > 0 && x < 1) ? shown(layer, i) : `${x < 1 ? "≤" : "≥"} ${valueText(Math.min(Math.max(x, 0), 1), 0)}`;
};
const percent = (share) => `${(100 * share).toFixed(2)}%`;
