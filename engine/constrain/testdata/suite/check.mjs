// check.mjs: what Ajv says of texts. Each line of the input is {"name", "schema", "texts"}, each of the output a text that Ajv finds invalid.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import readline from 'node:readline';

const require = createRequire(import.meta.url);
const addFormats = require('ajv-formats').default;
const drafts = { 'draft-04': require('ajv-draft-04').default, 'draft-06': require('ajv').default, 'draft-07': require('ajv').default, '2019-09': require('ajv/dist/2019').default };
const newest = require('ajv/dist/2020').default;

// ownProperties: a property is not there because every JavaScript object has it. multipleOfPrecision: decimal numbers are multiples of 0.01.
const options = { multipleOfPrecision: 6, strict: false, logger: false, validateSchema: false, ownProperties: true };

function compile(schema) {
  const named = Object.keys(drafts).find((d) => String(schema?.$schema).includes(d));
  const ajv = new (named ? drafts[named] : newest)(options);
  addFormats(ajv);
  if (named === 'draft-06') ajv.addMetaSchema(require('ajv/dist/refs/json-schema-draft-06.json'));
  return ajv.compile(schema);
}

// valid is what Ajv says; where its code fails, as it does with some schemas that contain themselves, it says nothing.
function valid(validate, text) {
  try {
    return validate(JSON.parse(text));
  } catch (error) {
    if (error instanceof TypeError || error instanceof RangeError) return true;
    throw error;
  }
}

let taken = 0, texts = 0;
for await (const line of readline.createInterface({ input: fs.createReadStream(process.argv[2]) })) {
  const { name, schema, texts: all } = JSON.parse(line);
  let validate;
  try {
    validate = compile(schema);
  } catch {
    continue; // Ajv does not take this schema
  }
  taken++;
  for (const text of all ?? []) {
    texts++;
    if (!valid(validate, text)) {
      console.log(JSON.stringify({ name, text, error: validate.errors[0] }));
      break;
    }
  }
}
console.log(`${taken} schemas, ${texts} texts`);
