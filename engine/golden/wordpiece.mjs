// What another implementation of WordPiece, Hugging Face's tokenizers in JavaScript, makes of texts, with two small
// vocabularies, of which one has no capital letters:
//
//	npm i @huggingface/tokenizers@0.2.0
//	node wordpiece.mjs ../tokenizer/testdata/golden-gpt-2.json > ../tokenizer/testdata/wordpiece.json
//
// The settings are those of google-bert/bert-base-uncased and bert-base-cased. BERT drops characters that are not assigned, which
// this implementation keeps, so the texts have none.
import fs from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

let seed = 7;
const random = (n) => ((seed = (seed * 48271) % 2147483647), seed % n);
const alphabet = [..."aZzb éßàÀÅő\u0301\u030a 1209 .,!?'`^~$+<=>|/_-(){}«»“‘。、！$€😀世界のア한글ЖжΩωİ\n\t\u3000\u00a0\u200d\u0001\u00adsStT"];
const more = ["hello", "world", "worlds", "unaffable", "Hello WORLD", "naïve café", "ÅNGSTRÖM", "a".repeat(100), "a".repeat(101), "worldworldx 世界です", "[CLS] x [SEP]", "don't stop...now", ""];
const texts = JSON.parse(fs.readFileSync(process.argv[2])).cases.filter((c) => c.text && !c.base64 && !c.special && !/[\u0085\ufeff\u{10ffff}]/u.test(c.text)).map((c) => c.text).concat(more);
for (let i = 0; i < 300; i++) texts.push(Array.from({ length: 1 + random(16) }, () => alphabet[random(alphabet.length)]).join(""));

const characters = [..."abcdefghijklmnopqrstuvwxyz0123456789.,!?'^~$+<=>|/_-(){}世のßжωi"];
const pieces = ["hello", "world", "##s", "##world", "un", "##aff", "##able", "cafe", "##fe", "naive", "st", "##op", "12", "##09"].concat(characters, characters.map((c) => "##" + c));
const out = {};
for (const lowercase of [true, false]) {
  const all = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ...pieces, ...(lowercase ? [] : ["Hello", "##WORLD", "W", "O", "##O", "É", "é", "##é", "##É", "Z", "##Z"])];
  const tokens = [...new Set(all)];
  const t = new Tokenizer({
    normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase }, pre_tokenizer: { type: "BertPreTokenizer" },
    model: { type: "WordPiece", vocab: Object.fromEntries(tokens.map((p, i) => [p, i])), unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100 },
    added_tokens: [], decoder: { type: "WordPiece", prefix: "##", cleanup: true }, post_processor: null,
  }, {});
  out[lowercase ? "uncased" : "cased"] = {
    // As llama.cpp's converter writes them.
    tokens: tokens.map((p) => (/^\[.+\]$/.test(p) ? p : p.startsWith("##") ? p.slice(2) : "▁" + p)),
    cases: texts.map((text) => ({ text, ids: text ? t.encode(text, { add_special_tokens: false }).ids : [] })),
  };
}
console.log(JSON.stringify(out).replace(/\},\{/g, "},\n{"));
