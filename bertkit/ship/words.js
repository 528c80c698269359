// Text to words, as the training data was split, and words to subwords, as the tokenizer does.
"use strict";
const Words = (() => {
  // Python's white space, which a regular expression of JavaScript does not quite have.
  const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
  const WORD = "\\p{L}\\p{N}_";
  const LETTER = "[\\p{L}\\p{Nl}\\p{No}]";
  const CLITIC = new RegExp(`^.*?${LETTER}(n['’]t|['’](?:s|m|d|re|ve|ll))$`, "isu");

  // The words of a text by the rule of the training data.
  function splitter(rule) {
    const together = new Set(rule.together);
    const parts = partsOf(rule);
    const chunks = new RegExp(`[^${SPACE}]+`, "gu");
    return (text) => (text.match(chunks) ?? []).flatMap((chunk) => splitChunk(chunk, rule, together, parts));
  }

  function splitChunk(chunk, rule, together, parts) {
    if (!rule.punctuation || together.has(chunk)) return [chunk];
    const words = [];
    let at = 0;
    while (at < chunk.length) {
      const word = wholeFrom(chunk.slice(at), together) ?? firstPart(chunk, at, parts);
      const clitic = rule.clitics && !together.has(word) ? word.match(CLITIC) : null;
      if (clitic) words.push(word.slice(0, -clitic[1].length), clitic[1]);
      else words.push(word);
      at += word.length;
    }
    return words;
  }

  function firstPart(chunk, at, parts) {
    parts.lastIndex = at;
    return parts.exec(chunk)[0];
  }

  // The longest word that stays whole at the beginning of a text; only punctuation may follow it.
  function wholeFrom(text, together) {
    if (!together.size) return null;
    const chars = Array.from(text);
    for (let end = chars.length; end > 0; end--) {
      const word = chars.slice(0, end).join("");
      if (together.has(word)) return word;
      if (/[\p{L}\p{N}]/u.test(chars[end - 1])) return null;
    }
    return null;
  }

  // What a word can be, the first match wins: address, name with @ or #, number, initials, emoji, one Chinese or
  // Japanese character, letters, a repeated mark, any one character.
  function partsOf({ hyphens, single }) {
    const letter = `[^${SPACE}\\p{P}\\p{S}${single}]`;
    const joint = hyphens ? "['’]" : "['’‐-]";
    const emoji = "[\\u{1f000}-\\u{1faff}☀-➿⬀-⯿]";
    const kinds = [
      `(?:https?:\\/\\/|www\\.)[^${SPACE}]*[${WORD}\\/]`,
      `[${WORD}.+\\-]+@[${WORD}][${WORD}\\-]*(?:\\.[${WORD}][${WORD}\\-]*)+`,
      `[@#][${WORD}]+`,
      "\\p{Nd}+(?:[.,:\\/]\\p{Nd}+)+",
      `(?:${LETTER}\\.){2,}`,
      `${emoji}(?:[\\ufe0f\\u{1f3fb}-\\u{1f3ff}]|\\u200d${emoji})*`,
      `[${single}]`,
      `${letter}+(?:${joint}${letter}+)*`,
      "([.!?=*_~\\-])\\1+",
      ".",
    ];
    return new RegExp(kinds.join("|"), "suy");
  }

  // A word to the ids of its subwords; nothing for a word that the tokenizer makes nothing of.
  function subwords(tokenizer) {
    const model = tokenizer.kind === "wordpiece" ? wordPiece(tokenizer) : bytePairs(tokenizer);
    const known = new Map();
    return (word) => {
      if (!known.has(word)) known.set(word, model(normalized(word, tokenizer)));
      return known.get(word);
    };
  }

  function normalized(text, { normalizer }) {
    if (!normalizer) return text;
    let chars = Array.from(text);
    if (normalizer.clean_text) {
      chars = chars
        .filter((char) => char !== "\ufffd" && (/[\t\n\r]/.test(char) || !/\p{C}/u.test(char)))
        .map((char) => (/\s|\x85/u.test(char) ? " " : char));
    }
    if (normalizer.handle_chinese_chars) chars = chars.flatMap((char) => (IDEOGRAPH.test(char) ? [" ", char, " "] : char));
    if (normalizer.strip_accents ?? normalizer.lowercase) {
      chars = Array.from(chars.join("").normalize("NFD")).filter((char) => !/\p{Mn}/u.test(char));
    }
    // One character at a time: a sigma at the end of a word is no special case to the tokenizer.
    if (normalizer.lowercase) chars = chars.map((char) => char.toLowerCase());
    return chars.join("");
  }

  const IDEOGRAPH =
    /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/u;

  // Words at spaces and around punctuation; then the longest known beginning, again and again.
  function wordPiece({ vocab, unknown, prefix, longest }) {
    const parts = /[!-/:-@[-`{-~]|\p{P}|[^\s!-/:-@[-`{-~\p{P}]+/gu;
    const pieces = (word) => {
      const chars = Array.from(word);
      const ids = [];
      for (let start = 0; start < chars.length; ) {
        let end = chars.length;
        const piece = () => (start ? prefix : "") + chars.slice(start, end).join("");
        while (end > start && !vocab.has(piece())) end--;
        if (end === start) return [unknown];
        ids.push(vocab.get(piece()));
        start = end;
      }
      return chars.length > longest ? [unknown] : ids;
    };
    return (text) => (text.match(parts) ?? []).flatMap(pieces);
  }

  // Bytes, of which the pair that was merged first in training is merged, again and again.
  function bytePairs({ vocab, merges, space }) {
    const parts =
      /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
    const letters = byteLetters();
    const encoder = new TextEncoder();
    const pieces = (part) => {
      const found = Array.from(encoder.encode(part), (byte) => letters[byte]);
      for (;;) {
        let best = Infinity;
        let at = -1;
        for (let i = 0; i + 1 < found.length; i++) {
          const rank = merges.get(`${found[i]} ${found[i + 1]}`) ?? Infinity;
          if (rank < best) [best, at] = [rank, i];
        }
        if (at < 0) return found.map((piece) => vocab.get(piece)).filter((id) => id !== undefined);
        found.splice(at, 2, found[at] + found[at + 1]);
      }
    };
    return (text) => ((space && !/^\s/u.test(text) ? ` ${text}` : text).match(parts) ?? []).flatMap(pieces);
  }

  // The letter that stands for each byte in a vocabulary: itself where it can be seen, else one from 256 on.
  function byteLetters() {
    let next = 256;
    return Array.from({ length: 256 }, (_, byte) => {
      const seen = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      return String.fromCodePoint(seen ? byte : next++);
    });
  }

  return { splitter, subwords };
})();
