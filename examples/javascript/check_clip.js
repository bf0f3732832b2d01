// optax.clip_by_global_norm in JavaScript, against the suite's vectors: node check_clip.js VECTORS.json
"use strict";
const fs = require("node:fs");

// ---- the function under test ------------------------------------------------------------------------------------------

const claims = new Set(["float32", "several", "none", "empty", "scalar", "extreme", "subnormal", "functional"]);

function clipByGlobalNorm(gradients, { max_norm: limit }) {
  if (!(limit >= 0)) throw new RangeError(`max_norm must not be negative: ${limit}`);
  const squares = gradients.flatMap((gradient) => gradient ?? []).map((value) => value * value);
  const norm = Math.sqrt(squares.reduce((a, b) => a + b, 0)); // Math.hypot is infinite for (NaN, Infinity)
  if (limit === Infinity || norm <= limit) return gradients;
  return gradients.map((gradient) => gradient && gradient.map((value) => Math.fround(value * (limit / norm))));
}

// ---- reading a vector ---------------------------------------------------------------------------------------------------

function number(text) { // "-0x1.8p+1", "inf", "-inf" or "nan"
  const [, sign, word, whole, fraction = "", exponent] = /^(-?)(?:(inf|nan)|0x(\d)\.?([0-9a-f]*)p([+-]\d+))$/.exec(text);
  if (word) return word === "nan" ? NaN : sign ? -Infinity : Infinity;
  const digits = [whole, ...fraction].reduceRight((sum, digit) => (sum / 16) + parseInt(digit, 16), 0);
  const half = Math.trunc(Number(exponent) / 2); // in two steps: digits * 2 ** -1074 would not be exact
  return (sign ? -1 : 1) * digits * 2 ** half * 2 ** (Number(exponent) - half);
}

function array(json) {
  if (json === null) return null;
  if (json.fill !== undefined) return Array(json.shape.reduce((a, b) => a * b, 1)).fill(number(json.fill));
  return json.values.map(number);
}

const value = (json) => (json?.float === undefined ? json?.int ?? null : number(json.float)); // an argument

// ---- comparing in units in the last place of float32 ----------------------------------------------------------------------

function spacing(x) { // from x to the next number of float32
  const bits = new DataView(new ArrayBuffer(4));
  bits.setFloat32(0, x);
  return 2 ** (Math.max((bits.getUint32(0) >> 23) & 255, 1) - 150);
}

function close(got, expected, ulp) {
  if (ulp === 0 || !Number.isFinite(expected)) return Object.is(got, expected);
  return Math.abs(got - expected) <= ulp * spacing(expected);
}

function agrees(got, outcome, ulp) {
  if (outcome.error !== undefined || got instanceof Error) return outcome.error !== undefined && got instanceof Error;
  const expected = outcome.gradients.map(array);
  return got.length === expected.length && got.every((gradient, i) => gradient === null || expected[i] === null
    ? gradient === expected[i]
    : gradient.length === expected[i].length && gradient.every((x, j) => close(x, expected[i][j], ulp)));
}

// ---- the run ------------------------------------------------------------------------------------------------------------

function outcome(vector) {
  const read = Object.fromEntries(Object.entries(vector.arguments).map(([name, json]) => [name, value(json)]));
  try {
    return clipByGlobalNorm(vector.gradients.map(array), read);
  } catch (error) {
    return error;
  }
}

const file = JSON.parse(fs.readFileSync(process.argv[2], "utf-8"));
const claimed = file.vectors.filter((vector) => vector.needs.every((feature) => claims.has(feature)));
const failed = claimed.filter((vector) => !vector.expected.some((expected) => agrees(outcome(vector), expected, vector.ulp)));
for (const vector of failed) console.log(`FAIL ${vector.id}: ${vector.comment}`);
console.log(`${file.operation}, vectors ${file.version}: ${claimed.length - failed.length} pass, ${failed.length} fail, ` +
  `${file.vectors.length - claimed.length} unclaimed`);
process.exitCode = failed.length > 0 ? 1 : 0;
