// The playable page: it asks the worker, in which gradclip runs, and shows the answer. The address contains the question.
// It is no module, because a browser runs no module from a file, and this script must tell the reader so.

const WORDS = {
  en: {
    python: "Loading Python (13 MB, once) …", gradclip: "Loading gradclip …", rule: "Rule", more: "Arguments",
    gradients: "Gradients", params: "Parameters", add: "Add a gradient", remove: "Remove", norm: "Norm", coefficient: "Coefficient",
    result: "Result", gradient: "Gradient", formula: "Formula", none: "none: by value", words: "The same call in every framework's words",
    exact: "exact", "within rounding": "within rounding", nearest: "nearest", exactly: "exactly", "no native equivalent": "no native: use gradclip", "this call": "this call",
    where: "with", disk: "A browser runs no Python from a file. Serve the site's folder: python -m http.server",
    failed: "Python could not be loaded.", before: "Gray: before the clip.", both: "Gray: before the clip. Blue: after it.",
  },
  zh: {
    python: "正在加载 Python（13 MB，只需一次）…", gradclip: "正在加载 gradclip …", rule: "规则", more: "参数",
    gradients: "梯度", params: "模型参数", add: "添加梯度", remove: "删除", norm: "范数", coefficient: "裁剪系数",
    result: "结果", gradient: "梯度", formula: "公式", none: "无：按值裁剪", words: "同一个调用在各框架里的写法",
    exact: "完全相同", "within rounding": "只差舍入", nearest: "最接近", exactly: "完全一致的写法", "no native equivalent": "没有对应的原生函数：用 gradclip", "this call": "就是这个调用",
    where: "其中", disk: "浏览器不能从本地文件运行 Python，请用服务器打开站点的文件夹：python -m http.server",
    failed: "Python 加载失败。", before: "灰色：裁剪前。", both: "灰色：裁剪前；蓝色：裁剪后。",
  },
};
const words = WORDS[document.documentElement.lang.startsWith("zh") ? "zh" : "en"];
const FRAMEWORKS = { gradclip: "gradclip", torch: "PyTorch", tensorflow: "TensorFlow", keras: "Keras", paddle: "Paddle", jax: "JAX" };
const MOST = 8; // gradients
const WAIT = 120; // milliseconds after the last key
const here = document.currentScript.src;
const page = document.getElementById("play");
const state = { rule: "torch.clip_grad_norm", arguments: {}, gradients: ["[3, 4]", "[0.6, 0.8]"], params: [] };
let rules = {}, asked = 0, timer = 0;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter(child => child !== null));
  return made;
}

// code that may wrap after "." and "("
const code = text => element("code", {}, ...text.split(/(?<=[.(])/).flatMap(part => [part, element("wbr")]));

// text in which ``x`` is code
const prose = text => text.split("``").map((part, i) => (i % 2 ? element("code", {}, part) : part));

// ---- the question, and the address that contains it --------------------------------------------------------------------

function read() {
  const query = new URLSearchParams(location.search);
  if (query.has("rule")) state.rule = query.get("rule");
  if (query.has("g")) state.gradients = query.getAll("g").slice(0, MOST);
  state.params = query.getAll("w").slice(0, MOST);
  state.arguments = Object.fromEntries([...query].filter(([name]) => !["rule", "g", "w"].includes(name)));
}

function write() {
  const given = Object.entries(state.arguments).filter(([, text]) => text.trim());
  const query = new URLSearchParams([["rule", state.rule], ...given, ...state.gradients.map(text => ["g", text])]);
  if (rules[state.rule]?.relative) state.params.forEach(text => query.append("w", text));
  history.replaceState(null, "", `?${query}${location.hash}`);
}

function choose(name) {
  const limit = Object.keys(rules[state.rule]?.first ?? {}).at(-1);
  const kept = state.arguments[limit];
  state.rule = name;
  state.arguments = { ...rules[name].first };
  if (kept) state.arguments[Object.keys(rules[name].first).at(-1)] = kept;
}

function ask(rule = state.rule) {
  page.dataset.state = "asked";
  clearTimeout(timer);
  timer = setTimeout(() => worker.postMessage({ number: ++asked, question: { ...state, rule } }), WAIT);
  write();
}

// ---- the input ---------------------------------------------------------------------------------------------------------

const given = element("form", { className: "play-given", onsubmit: event => event.preventDefault() });
const got = element("div", { className: "play-got" });
const same = element("div", { className: "play-same" });

function field(label, control) {
  return element("label", { className: "play-field" }, element("span", {}, label), control);
}

function argument({ name, default: usual }) {
  const value = state.arguments[name] ?? "";
  const set = event => { state.arguments[name] = event.target.value; ask(); };
  if (usual !== "True" && usual !== "False")
    return field(name, element("input", { name, value, placeholder: usual ?? "", oninput: set, spellcheck: false, autocomplete: "off" }));
  const options = ["False", "True"].map(text => element("option", { value: text, selected: text === (value || usual) }, text));
  return field(name, element("select", { name, oninput: set }, ...options));
}

function tensors(list, letter) {
  return list.map((value, i) => {
    const input = element("input", {
      name: `${letter}${i + 1}`, value, spellcheck: false, autocomplete: "off",
      oninput: event => { list[i] = event.target.value; ask(); },
    });
    const remove = () => { state.gradients.splice(i, 1); state.params.splice(i, 1); form(); ask(); };
    const button = element("button", { type: "button", onclick: remove, title: words.remove, ariaLabel: `${words.remove} g${i + 1}` }, "×");
    const removable = letter === "g" && list.length > 1;
    return element("div", { className: "play-tensor" }, field(`${letter}${i + 1}`, input), removable ? button : null);
  });
}

function add() {
  state.gradients.push("[1, 1]");
  form();
  ask();
}

function form() {
  const rule = rules[state.rule];
  if (rule.relative) state.params = state.gradients.map((_, i) => state.params[i] ?? "[1, 1]");
  const groups = Object.entries(Object.groupBy(Object.values(rules), one => one.dialect)).map(([dialect, all]) =>
    element("optgroup", { label: dialect }, ...all.map(one => element("option", { value: one.name, selected: one === rule }, one.name))));
  const change = event => { choose(event.target.value); form(); ask(); };
  given.replaceChildren(
    field(words.rule, element("select", { name: "rule", oninput: change }, ...groups)),
    element("p", { className: "play-about" }, ...prose(rule.about)),
    element("fieldset", { className: "play-arguments" }, element("legend", {}, words.more), ...rule.parameters.map(argument)),
    element("fieldset", {}, element("legend", {}, words.gradients), ...tensors(state.gradients, "g"),
      state.gradients.length < MOST ? element("button", { type: "button", className: "play-add", onclick: add }, `+ ${words.add}`) : null),
    rule.relative ? element("fieldset", {}, element("legend", {}, words.params), ...tensors(state.params, "w")) : "",
  );
}

// ---- the picture -------------------------------------------------------------------------------------------------------

const WIDE = 320, HIGH = 180, EDGE = 16, BARS = 64;

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// the numbers of a gradient, or null: it cannot be read yet, or one of them is not finite
function numbers(text) {
  try {
    const all = [JSON.parse(text)].flat(Infinity);
    return all.length && all.every(Number.isFinite) ? all : null;
  } catch { return null; }
}

// pairs of numbers as arrows from one point, others as bars
function picture(before, after = []) {
  const kinds = { "play-before": before.map(numbers), "play-after": after.map(numbers) };
  const all = Object.values(kinds).flat();
  if (all.includes(null)) return null;
  const draw = all.every(one => one.length === 2) ? arrows : all.flat().length <= 2 * BARS ? bars : () => [];
  const shapes = draw(kinds, all);
  const label = after.length ? words.both : words.before;
  return shapes.length === 0 ? null : element("figure", { className: "play-picture" },
    drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label }, ...shapes), element("figcaption", {}, label));
}

function arrows(kinds, all) {
  const ends = [0, 1].map(axis => [Math.min(0, ...all.map(one => one[axis])), Math.max(0, ...all.map(one => one[axis]))]);
  const [across, up] = ends.map(([low, high]) => high - low);
  const scale = Math.min((WIDE - 2 * EDGE) / across, (HIGH - 2 * EDGE) / up);
  if (!Number.isFinite(scale) || scale === 0) return [];
  const left = (WIDE - scale * across) / 2, bottom = (HIGH + scale * up) / 2;
  const at = ([x, y]) => [left + scale * (x - ends[0][0]), bottom - scale * (y - ends[1][0])];
  const [x0, y0] = at([0, 0]);
  const lines = Object.entries(kinds).flatMap(([kind, found]) => found.map(one => {
    const [x2, y2] = at(one);
    return drawn("line", { class: kind, x1: x0, y1: y0, x2, y2, "marker-end": `url(#${kind})` });
  }));
  const names = kinds["play-before"].map((one, i) => {
    const [x, y] = at(one);
    return drawn("text", { x: x + 5, y: y + 3 }, `g${i + 1}`);
  });
  const heads = Object.keys(kinds).map(kind => drawn("marker", {
    id: kind, viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto",
  }, drawn("path", { class: kind, d: "M0 0 6 3 0 6z" })));
  return [...heads, drawn("path", { class: "play-axes", d: `M0 ${y0}H${WIDE}M${x0} 0V${HIGH}` }), ...lines, ...names];
}

function bars(kinds, all) {
  const most = Math.max(...all.flat().map(Math.abs));
  const groups = kinds["play-before"], places = groups.flat().length + groups.length - 1;
  const width = Math.min(28, (WIDE - 2 * EDGE) / places), middle = HIGH / 2, scale = (middle - EDGE) / most;
  if (!Number.isFinite(scale) || scale === 0) return [];
  const shapes = Object.entries(kinds).flatMap(([kind, found]) => found.flatMap((one, group) => one.map((value, i) => {
    const place = groups.slice(0, group).flat().length + group + i, thin = kind === "play-after" ? 0.45 : 0.9;
    return drawn("rect", {
      class: kind, x: EDGE + (place + (1 - thin) / 2) * width, width: thin * width,
      y: middle - scale * Math.max(0, value), height: scale * Math.abs(value),
    });
  })));
  return [drawn("path", { class: "play-axes", d: `M0 ${middle}H${WIDE}` }), ...shapes];
}

// ---- the answer --------------------------------------------------------------------------------------------------------

function number(label, text, exact, name) {
  return element("div", { className: "play-number" }, element("span", {}, label), element("output", { name, title: exact ?? "" }, text));
}

function row(answer, i) {
  const each = ["norm", "coefficient"].map(name => Array.isArray(answer[name])
    ? number(words[name], answer[name][i], answer.exact[name][i], `${name}${i + 1}`) : null);
  return element("section", {}, element("h4", {}, `g${i + 1}`), ...each,
    number(words.result, answer.after[i], answer.exact.after[i], `result${i + 1}`));
}

function show(answer) {
  page.dataset.state = answer.error ? "error" : "answered";
  if (answer.error) {
    got.replaceChildren(element("pre", { className: "play-error", role: "alert" }, answer.error));
    same.replaceChildren();
    return;
  }
  const one = ["norm", "coefficient"].map(name => Array.isArray(answer[name])
    ? null : number(words[name], answer[name] ?? words.none, answer.exact[name], name));
  got.replaceChildren(...[
    picture(state.gradients, answer.exact.after),
    ...answer.warnings.map(text => element("pre", { className: "play-error" }, text)),
    element("p", { className: "play-formula" }, ...answer.formula.map(line => element("code", {}, line)), element("span", {}, answer.scope)),
    ...one.filter(Boolean),
    ...answer.after.map((_, i) => row(answer, i)),
  ].filter(Boolean));
  const missing = answer.words.some(each => each.mark === "no native equivalent" || each.exactly);
  same.replaceChildren(
    element("h3", {}, words.words),
    element("dl", {}, ...answer.words.flatMap(({ framework, mark, code: text, note, differs, exactly }) => [
      element("dt", {}, FRAMEWORKS[framework], element("span", { className: "play-mark" }, words[mark])),
      element("dd", {}, code(text), ...[...differs, note].filter(Boolean).map(line => element("small", {}, line)),
        exactly ? element("small", {}, `${words.exactly}: `, code(exactly)) : null),
    ]), ...(missing ? [element("dt", {}, words.where), element("dd", {}, code(`rule = ${answer.rule}`))] : [])),
  );
}

function fail(text) {
  page.dataset.state = "failed";
  page.replaceChildren(element("pre", { className: "play-error", role: "alert" }, text));
}

// ---- from the worker ---------------------------------------------------------------------------------------------------

function begin(catalogue) {
  rules = Object.fromEntries(catalogue.flatMap(({ name, rules: own }) => own.map(rule => [rule.name, { ...rule, dialect: name }])));
  const wanted = state.rule;
  if (!(wanted in rules)) state.rule = "torch.clip_grad_norm";
  const known = rules[state.rule].parameters.filter(({ name }) => name in state.arguments).map(({ name }) => [name, state.arguments[name]]);
  state.arguments = { ...rules[state.rule].first, ...Object.fromEntries(known) };
  page.replaceChildren(element("div", { className: "play-both" }, given, got), same);
  form();
  ask(wanted);
}

function hear({ data }) {
  if (data.failure) fail(`${words.failed}\n${data.failure}`);
  else if (data.step) page.replaceChildren(...[element("p", {}, words[data.step], element("progress")), picture(state.gradients)].filter(Boolean));
  else if (data.catalogue) begin(data.catalogue);
  else if (data.number === asked) show(data.answer);
}

let worker;
if (location.protocol === "file:") fail(words.disk);
else {
  read();
  worker = new Worker(new URL("worker.js", here), { type: "module" });
  worker.onmessage = hear;
  worker.onerror = event => fail(`${words.failed}\n${event.message ?? ""}`);
}
