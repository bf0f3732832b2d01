// Runs Python in a worker, so that the page stays responsive. It loads everything from its own folder.

import { loadPyodide } from "./pyodide/pyodide.mjs";

// Pyodide waits forever if one of these is missing
const WAITED_FOR = ["pyodide.asm.wasm", "python_stdlib.zip"];
const at = name => new URL(name, import.meta.url).href;

async function got(name, method = "GET") {
  const response = await fetch(at(name), { method });
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

async function start() {
  postMessage({ step: "python" });
  await Promise.all(WAITED_FOR.map(name => got(`pyodide/${name}`, "HEAD")));
  const python = await loadPyodide({ indexURL: at("pyodide/") });
  postMessage({ step: "gradclip" });
  python.unpackArchive(await got("gradclip.whl"), "wheel");
  for (const name of ["lists.py", "answers.py"]) python.FS.writeFile(name, new Uint8Array(await got(name)));
  const answers = python.pyimport("answers");
  postMessage({ catalogue: JSON.parse(answers.catalogue()) });
  return answers;
}

const started = start().catch(error => postMessage({ failure: String(error) }));

onmessage = async ({ data: { number, question } }) => {
  const answers = await started;
  if (answers) postMessage({ number, answer: JSON.parse(answers.answer(JSON.stringify(question))) });
};
