// Where another implementation, Hugging Face's tokenizers in JavaScript, cuts texts into words:
//
//	npm i @huggingface/tokenizers@0.2.0
//	node splits.mjs ../tokenizer/testdata/golden-gpt-2.json > ../tokenizer/testdata/splits.json
//
// The settings are those that the models' tokenizer.json publish: deepseek-ai/DeepSeek-V3, deepseek-ai/deepseek-coder-6.7b-base,
// CohereForAI/c4ai-command-r-v01, Qwen/Qwen3-0.6B, Qwen/Qwen3.5-9B (as llama.cpp has it); those of deepseek-ai/deepseek-llm-7b-base and tiiuae/falcon-7b are llama.cpp's lists
// of expressions, which have the same tokens. \s of JavaScript takes U+FEFF and not U+0085, so the texts have neither.
import fs from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const split = (regex) => ({ type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false });
const bytes = (use_regex) => ({ type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex });
const digit = split("\\p{N}"); // what "Digits" is in Rust; here it would be \d
const cased = "[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]";
const settings = {
  "deepseek-v3": [
    split("\\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    bytes(false),
  ],
  "deepseek-coder": [split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), digit, bytes(false)],
  "deepseek-llm": [
    split("[\r\n]"), split("\\s?" + cased + "+"), split("\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"), split("\\s+$"), split("[一-龥ࠀ-一가-퟿]+"), split("\\p{N}+"), bytes(false),
  ],
  falcon: [
    split("[\\p{P}\\$\\+<=>\\^~\\|`]+"), split("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"), split("[0-9][0-9][0-9]"), bytes(false),
  ],
  "command-r": [digit, bytes(true)],
  qwen2: [
    split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"), bytes(false),
  ],
  qwen35: [
    split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"), bytes(false),
  ],
};
const nfc = ["command-r", "qwen2", "qwen35"];

// texts are llama.cpp's and ours, and random ones of what the expressions tell apart.
let seed = 1;
const random = (n) => ((seed = (seed * 48271) % 2147483647), seed % n);
const alphabet = [..."aZz éß\u0301\u0300àÀ1209٣Ⅷ²½ \n\r\t\u3000\u00a0\u2003.,!?'`^~$+<=>|/_-(){}[]«»“”‘。、！：～$€😀👍🏽世界龥のアー한글가क्षाกำЖжΩωǅªſ\u2028\u0001\u200d'sS'tT'reLL"];
const texts = JSON.parse(fs.readFileSync(process.argv[2])).cases.filter((c) => c.text && !c.base64 && !c.special && !/[\u0085\ufeff]/.test(c.text)).map((c) => c.text);
for (let i = 0; i < 600; i++) texts.push(Array.from({ length: 1 + random(18) }, () => alphabet[random(alphabet.length)]).join(""));

// Byte-level words are turned back: the characters that stand for bytes are GPT-2's.
const byteOf = new Map();
for (let b = 0, next = 256; b < 256; b++) byteOf.set(String.fromCodePoint((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++), b);
const words = {};
for (const [name, pretokenizers] of Object.entries(settings)) {
  const t = new Tokenizer({
    normalizer: nfc.includes(name) ? { type: "NFC" } : null, pre_tokenizer: { type: "Sequence", pretokenizers },
    model: { type: "BPE", vocab: { a: 0 }, merges: [] }, added_tokens: [], decoder: { type: "ByteLevel" }, post_processor: null,
  }, {});
  words[name] = texts.map((text) => {
    const input = t.normalizer ? t.normalizer(text) : text;
    const parts = t.pre_tokenizer(input);
    const back = Buffer.from(parts.flatMap((p) => [...p].map((c) => byteOf.get(c)))).toString();
    if (back !== input) throw new Error(`${name}: ${JSON.stringify(input)} comes back as ${JSON.stringify(back)}`);
    return parts.map((p) => [...p].length); // a character a byte
  });
}
console.log(JSON.stringify({ texts, words }).replace(/\],\[/g, "],\n["));
