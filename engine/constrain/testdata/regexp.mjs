// regexp.mjs: what JavaScript says of patterns. Each line of the input is {"pattern", "texts"}, each of the output null for what
// is no pattern, or whether each text has it. Patterns are read with the flag u, or without it where they are none then.
import readline from 'node:readline';

function compile(pattern) {
  for (const flags of ['u', '']) {
    try {
      return new RegExp(pattern, flags);
    } catch {
      // the next
    }
  }
  return null;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { pattern, texts } = JSON.parse(line);
  const read = compile(pattern);
  console.log(JSON.stringify(read && texts.map((text) => read.test(text))));
}
