// The page: a text enters, its words with their tags leave. Windows and rules are those of `bertkit tag`.
"use strict";
const Tagger = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const weights = Kernels.readWeights(data.weights, data.places);
  const nodes = Kernels.folded(data.nodes, weights);
  const { tokenizer, form, labels, rules } = data;
  tokenizer.vocab = new Map(Object.entries(tokenizer.vocab));
  tokenizer.merges = new Map((tokenizer.merges ?? []).map((pair, rank) => [pair, rank]));
  const split = data.split ? Words.splitter(data.split) : (text) => [text];
  const encode = Words.subwords(tokenizer);

  // The words of a text, each with its tag; of a classifier the text as one word.
  function tag(text) {
    const words = split(text);
    if (!words.length) return { words, tags: [] };
    const subwords = words.map((word, index) => {
      const ids = encode(index ? ` ${word}` : word);
      return ids.length ? ids : form.stand_in;
    });
    const ids = subwords.flat();
    const starts = windowStarts(ids.length);
    const logits = starts.map((start) => compute([...form.before, ...ids.slice(start, start + form.room), ...form.after]));
    if (data.kind === "classifier") return { words, tags: [labels[best(mean(logits))]] };
    let at = 0;
    const firsts = subwords.map((own) => (at += own.length) - own.length);
    const scores = firsts.map((first, word) => {
      const window = owner(first, starts, ids.length);
      const end = Math.min(first + (form.all_subwords ? subwords[word].length : 1), starts[window] + form.room);
      const answers = [];
      for (let at = first; at < end; at++) {
        const place = at - starts[window] + form.before.length;
        answers.push(logits[window].slice(place * labels.length, (place + 1) * labels.length));
      }
      return mean(answers);
    });
    const chosen = rules ? likeliestAllowed(scores) : scores.map(best);
    return { words, tags: chosen.map((label) => labels[label]) };
  }

  function compute(ids) {
    const dims = [1, ids.length];
    const given = {
      input_ids: { data: Int32Array.from(ids), dims },
      attention_mask: { data: new Int32Array(ids.length).fill(1), dims },
      token_type_ids: { data: new Int32Array(ids.length), dims },
    };
    return Kernels.run(nodes, weights, given, data.output).data;
  }

  // Each window a step after the one before it, the last at the end.
  function windowStarts(size) {
    if (size <= form.room) return [0];
    const starts = [];
    for (let start = 0; start < size - form.room; start += form.step) starts.push(start);
    return [...starts, size - form.room];
  }

  // The window that answers for a word: the one with most subwords on the word's poorer side.
  function owner(first, starts, size) {
    const context = starts.map((start) => {
      const end = start + form.room;
      if (first < start || first >= end) return -1;
      return Math.min(start === 0 ? size : first - start, end >= size ? size : end - 1 - first);
    });
    return best(context);
  }

  function best(values) {
    let found = 0;
    for (let i = 1; i < values.length; i++) if (values[i] > values[found]) found = i;
    return found;
  }

  function mean(rows) {
    return rows[0].map((_, label) => rows.reduce((sum, row) => sum + row[label], 0) / rows.length);
  }

  // Of all sequences of tags that the scheme allows, the one with the highest sum (Viterbi).
  function likeliestAllowed(scores) {
    const count = labels.length;
    let sums = Array.from({ length: count }, (_, label) => (rules.begins[label] ? scores[0][label] : -Infinity));
    const before = [];
    for (const here of scores.slice(1)) {
      const from = [];
      const next = [];
      for (let label = 0; label < count; label++) {
        const reach = sums.map((sum, previous) => (rules.follows[previous][label] ? sum : -Infinity));
        from.push(best(reach));
        next.push(reach[from[label]] + here[label]);
      }
      before.push(from);
      sums = next;
    }
    const path = [best(sums.map((sum, label) => (rules.ends[label] ? sum : -Infinity)))];
    for (const from of before.reverse()) path.unshift(from[path[0]]);
    return path;
  }

  const given = document.getElementById("text");
  const answer = document.getElementById("answer");

  // Words of one kind have one colour, whether they begin a span or continue it.
  const kindOf = (label) => label.replace(/^[BIES]-/, "");
  const kinds = [...new Set(labels.filter((label) => label !== "O").map(kindOf))];

  function show() {
    const lines = given.value.split("\n").filter((line) => line.trim());
    const start = performance.now();
    const found = lines.map(tag);
    answer.replaceChildren(...found.map(shown));
    const count = found.reduce((sum, { words }) => sum + words.length, 0);
    document.getElementById("time").textContent = `${count} words in ${Math.round(performance.now() - start)} ms`;
  }

  function shown({ words, tags }) {
    const line = document.createElement("p");
    words.forEach((word, index) => {
      const mark = document.createElement(tags[index] === "O" ? "span" : "mark");
      const spelled = document.createElement("span");
      spelled.textContent = word;
      mark.append(spelled);
      if (tags[index] !== "O") {
        mark.className = `run-${kinds.indexOf(kindOf(tags[index])) % 8}`;
        const name = document.createElement("small");
        name.textContent = ` ${tags[index]}`;
        mark.append(name);
      }
      line.append(mark, " ");
    });
    return line;
  }

  document.getElementById("tag").addEventListener("click", show);
  given.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) show();
  });
  return { tag };
})();
