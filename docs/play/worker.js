// Runs Python beside the page, so that the page never stands still. It loads everything from its own folder.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const at = name => new URL(name, import.meta.url).href;

async function got(name) {
  const response = await fetch(at(name));
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

async function start() {
  postMessage({ step: "python" });
  const python = await loadPyodide({ indexURL: at("pyodide/") });
  postMessage({ step: "gradclip" });
  python.unpackArchive(await got("gradclip.whl"), "wheel");
  for (const name of ["lists.py", "answers.py"]) python.FS.writeFile(name, new Uint8Array(await got(name)));
  const answers = python.pyimport("answers");
  postMessage({ catalogue: JSON.parse(answers.catalogue()) });
  return answers;
}

// what Pyodide cannot load it does not always say to who waits for it
addEventListener("unhandledrejection", event => postMessage({ failure: String(event.reason) }));

const started = start().catch(error => postMessage({ failure: String(error) }));

onmessage = async ({ data: { number, question } }) => {
  const answers = await started;
  if (answers) postMessage({ number, answer: JSON.parse(answers.answer(JSON.stringify(question))) });
};
