// What transformers.js answers: a JSON file names folders, tasks and texts; the answers go to standard output.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname } from "node:path";

const [, , installed, questions] = process.argv;
const { env, pipeline } = createRequire(`${installed}/node_modules/`)("@huggingface/transformers");
env.allowRemoteModels = false;
const answers = [];
for (const { folder, task, dtype, texts, options } of JSON.parse(readFileSync(questions))) {
  env.localModelPath = dirname(folder);
  const ask = await pipeline(task, basename(folder), { dtype });
  const found = [];
  for (const text of texts) found.push(await ask(text, options));
  answers.push(found);
}
console.log(JSON.stringify(answers));
