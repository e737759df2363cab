// Run an exported model in a browser. An image becomes the pixels that Pillow computes, and a text the tokens that the
// tokenizers package computes, so that the page and the model read the same numbers.

const UNKNOWN = 1, BEGIN = 2, END = 3; // token ids; 0 is padding
const BITS = 22; // Pillow resizes in fixed-point arithmetic
const MOST_PIXELS = 50e6;

// --- images ---

function bicubic(x) {
  x = Math.abs(x);
  return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? -0.5 * (((x - 5) * x + 8) * x - 4) : 0;
}

// Resize the middle axis of 8-bit numbers [outer, size, inner] with a bicubic filter and antialiasing.
export function resize(pixels, outer, size, inner, target) {
  if (size === target) return pixels;
  const scale = size / target, stretch = Math.max(scale, 1), support = 2 * stretch;
  const result = new Uint8ClampedArray(outer * target * inner);
  for (let i = 0; i < target; i++) {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5)), last = Math.min(size, Math.trunc(centre + support + 0.5));
    const filter = Array.from({length: last - first}, (_, j) => bicubic((j + first - centre + 0.5) * (1 / stretch)));
    const total = filter.reduce((sum, weight) => sum + weight, 0);
    const weights = filter.map(weight => Math.trunc((weight / total) * 2 ** BITS + (weight < 0 ? -0.5 : 0.5)));
    for (let o = 0; o < outer; o++) {
      for (let k = 0; k < inner; k++) {
        let sum = 2 ** (BITS - 1), from = (o * size + first) * inner + k;
        for (const weight of weights) { sum += weight * pixels[from]; from += inner; }
        result[(o * target + i) * inner + k] = sum >> BITS;
      }
    }
  }
  return result;
}

function halfToEven(x) {
  const rounded = Math.round(x);
  return rounded - x === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

// Return the square that a network reads, [channels, size, size]: the short side resized, the centre cropped, normalized.
export function pixelsOf({data, width, height}, {in_channels: channels, image_size: size, mean, std}) {
  let pixels = new Uint8ClampedArray(width * height * channels);
  for (let i = 0; i < width * height; i++) {
    if (channels === 1) pixels[i] = (19595 * data[4 * i] + 38470 * data[4 * i + 1] + 7471 * data[4 * i + 2] + 0x8000) >> 16;
    else for (let c = 0; c < 3; c++) pixels[3 * i + c] = data[4 * i + c];
  }
  const scale = size / Math.min(width, height);
  const [wide, high] = [width, height].map(side => Math.max(size, halfToEven(side * scale)));
  const isTall = high < height && height - high > 2 * (width - wide); // then Pillow, from version 13, begins with the height
  if (isTall) pixels = resize(pixels, 1, height, width * channels, high);
  pixels = resize(pixels, isTall ? high : height, width, channels, wide);
  if (!isTall) pixels = resize(pixels, 1, height, wide * channels, high);
  const left = (wide - size) >> 1, top = (high - size) >> 1, result = new Float32Array(channels * size * size);
  for (let c = 0, i = 0; c < channels; c++)
    for (let y = 0; y < size; y++)
      for (let x = 0; x < size; x++, i++)
        result[i] = (pixels[((top + y) * wide + left + x) * channels + c] - 255 * mean[c]) / (255 * std[c]);
  return result;
}

async function decoded(file) {
  let image;
  try { image = await createImageBitmap(file, {colorSpaceConversion: "none", premultiplyAlpha: "none"}); }
  catch { throw new Error(`${file.name ?? "the image"} cannot be read: use a PNG, JPEG, GIF, BMP or WebP image`); }
  const {width, height} = image, canvas = Object.assign(document.createElement("canvas"), {width, height});
  if (width * height > MOST_PIXELS) throw new Error(`${width} x ${height} pixels: use up to ${MOST_PIXELS / 1e6} million`);
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, width, height);
}

// --- texts ---

// The classes of Oniguruma, which also takes the numbers of Latin-1 for letters.
const LETTERS = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}²³¹¼½¾", WORD = `[${LETTERS}]+`, END_OF_WORD = `(?![${LETTERS}])`;
const ENDINGS = `n['’]t${END_OF_WORD}|['’](?:s|m|d|ll|re|ve)${END_OF_WORD}`;
const WORDS = new RegExp(`${WORD}(?=n['’]t${END_OF_WORD})|${ENDINGS}|${WORD}|[^${LETTERS}\\p{White_Space}]`, "giu");
const SPACES = "\\p{White_Space}", OTHERS = `[^${SPACES}\\p{L}\\p{N}]+`;
const PIECES = new RegExp(`'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?${OTHERS}|${SPACES}+(?!\\P{White_Space})|${SPACES}+`, "gu");

// The letters that stand for bytes in a byte-level vocabulary: printable ones for themselves, others from 256 in their order.
const BYTES = (() => {
  const isPrintable = byte => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let next = 256;
  return Array.from({length: 256}, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
})();

function merged(piece, ranks) {
  const parts = Array.from(new TextEncoder().encode(piece), byte => BYTES[byte]);
  for (;;) {
    let best = -1, lowest = Infinity;
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
      if (rank < lowest) [best, lowest] = [i, rank];
    }
    if (best < 0) return parts;
    parts.splice(best, 2, parts[best] + parts[best + 1]);
  }
}

// Return the functions of a tokenizer.json of the zoo: from a text to token ids, and from ids to a text.
export function tokenizerOf({model, normalizer, pre_tokenizer: pre, decoder}) {
  const ids = new Map(Object.entries(model.vocab)), tokens = [];
  for (const [token, id] of ids) tokens[id] = token;
  const steps = (normalizer?.normalizers ?? []).map(step => step.type);
  const ranks = new Map((model.merges ?? []).map(([left, right], rank) => [`${left} ${right}`, rank]));
  const prefix = text => (pre.add_prefix_space && !text.startsWith(" ") ? " " + text : text);
  const split = {
    ByteLevel: text => (prefix(text).match(PIECES) ?? []).flatMap(piece => merged(piece, ranks)),
    WhitespaceSplit: text => text.split(/\p{White_Space}+/u).filter(Boolean),
    Split: text => (pre.behavior === "Isolated" ? Array.from(text) : text.match(WORDS) ?? []),
  }[pre.type];
  const hasEnd = ids.get("[EOS]") === END;
  const normalized = text => {
    if (steps.includes("NFC")) text = text.normalize("NFC");
    return steps.includes("Lowercase") ? Array.from(text, letter => letter.toLowerCase()).join("") : text; // without context
  };
  return {
    tokens,
    normalized,
    encode(text, ended = false) {
      const special = ended ? END : UNKNOWN; // tokens that a text cannot contain
      const found = split(normalized(text)).map(token => ids.get(token) ?? UNKNOWN).map(id => (id <= special ? UNKNOWN : id));
      if (!found.length) throw new Error("no words in this text");
      return ended ? [...found, END] : found;
    },
    decode(text) {
      const end = hasEnd && text.includes(END) ? text.indexOf(END) : text.length;
      const parts = text.slice(0, end).filter(id => id > (hasEnd ? END : 0)).map(id => tokens[id]);
      if (decoder === null) return parts.join(" ");
      if (decoder.type === "Fuse") return parts.join("");
      const bytes = Uint8Array.from(parts.join(""), letter => BYTES.indexOf(letter));
      const decoded = new TextDecoder("utf-8", {ignoreBOM: true}).decode(bytes);
      return pre.add_prefix_space ? decoded.replace(/^ /, "") : decoded;
    },
  };
}

// --- the model ---

function softmax(logits) {
  const most = Math.max(...logits), powers = Array.from(logits, logit => Math.exp(logit - most));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map(power => power / total);
}

function chosen(logits, temperature) {
  if (temperature === 0) return logits.indexOf(Math.max(...logits));
  const shares = softmax(Array.from(logits, logit => logit / Math.max(temperature, 1e-6)));
  let left = Math.random();
  const index = shares.findIndex(share => (left -= share) < 0);
  return index < 0 ? logits.indexOf(Math.max(...logits)) : index;
}

const paint = () => new Promise(done => setTimeout(done));

// Load the model next to this file; `facts` are those of the page.
export async function load(facts) {
  const {web} = facts, address = name => new URL(name, import.meta.url);
  const read = async name => (await fetch(address(name))).json();
  const config = await read("config.json"), names = Object.keys(config.inputs);
  const tokenizer = config.info.tokenizer ? tokenizerOf(await read(config.info.tokenizer)) : null;
  const ort = await import("./onnxruntime-web.js");
  ort.env.wasm.numThreads = 1; // more need headers that a plain web server does not send
  const session = await ort.InferenceSession.create(address(config.file).href, {executionProviders: ["wasm"]});

  const texts = rows => rows.map(ids => new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]));
  async function run(tensors) {
    const output = (await session.run(Object.fromEntries(names.map((name, i) => [name, tensors[i]]))))[config.output];
    return output.data.slice(-output.dims.at(-1)); // of a text of tokens, the logits of the next one
  }

  function encoded(text, ended) {
    const ids = tokenizer.encode(text, ended);
    if (ids.length <= (web.max_tokens ?? Infinity)) return ids;
    throw new Error(`${ids.length} tokens, the model reads at most ${web.max_tokens}: use a shorter text`);
  }

  async function logits(input) {
    if (facts.reads === "text") return run(texts(input.map(text => encoded(text, false))));
    const {in_channels: channels, image_size: size} = config.info, pixels = pixelsOf(await decoded(input), config.info);
    return run([new ort.Tensor("float32", pixels, [1, channels, size, size])]);
  }

  async function predict(input) {
    const shares = softmax(await logits(input)), best = shares.indexOf(Math.max(...shares)), {classes} = config.info;
    const probabilities = Object.fromEntries(classes.map((name, i) => [name, shares[i]]));
    return {label: classes[best], probability: shares[best], probabilities};
  }

  async function* generate({prompt, temperature = facts.temperature, length}, signal) {
    const text = prompt || web.prompt;
    const [source, ids] = facts.continues ? [null, tokenizer.encode(text)] : [encoded(text, true), [BEGIN]];
    if (facts.continues && ids.includes(UNKNOWN)) {
      const letter = Array.from(tokenizer.normalized(text)).find(one => !tokenizer.tokens.includes(one));
      throw new Error(`'${letter}' is not in the vocabulary of the model: leave it out`);
    }
    const start = ids.length, most = (web.positions ?? Infinity) - start;
    if (most < 1) throw new Error(`${start} tokens, the model continues at most ${web.positions - 1}: use a shorter text`);
    let written = "";
    for (let left = Math.min(length ?? web.length, most); left > 0 && !signal?.aborted; left--) {
      const scores = await run(texts(source ? [source, ids] : [ids]));
      scores.fill(-Infinity, 0, source ? END : BEGIN); // padding, unknown and begin
      ids.push(chosen(scores, temperature));
      const decoded = tokenizer.decode(ids.slice(start));
      if (!decoded.endsWith("\ufffd")) { yield decoded.slice(written.length); written = decoded; } // else a part of a character
      if (source && ids.at(-1) === END) return;
      await paint();
    }
    yield tokenizer.decode(ids.slice(start)).slice(written.length);
  }

  return {logits, predict, generate};
}
