// Runs the tests and reports each as go test does, for scripts/gotest and scripts/summary.
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { run } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';

const least = 805; // tests that have to have run, so that a file that ends early is not taken for success
const here = path.dirname(fileURLToPath(import.meta.url));
const only = process.argv.slice(2);
const files = readdirSync(here).filter((f) => f.endsWith('.test.mjs') && (!only.length || only.some((o) => f.startsWith(o)))).map((f) => path.join(here, f));
const counts = { PASS: 0, FAIL: 0, SKIP: 0 };

function report(outcome, event) {
  if (event.details?.type === 'suite' && outcome !== 'FAIL') return;
  if (event.name.endsWith('.test.mjs') && outcome !== 'FAIL') return; // a file is none
  // A suite, or a file, in which a test failed has failed for that alone.
  if (outcome === 'FAIL' && event.details?.error?.failureType === 'subtestsFailed') return;
  counts[outcome]++;
  const seconds = ((event.details?.duration_ms ?? 0) / 1000).toFixed(2);
  console.log(`--- ${outcome}: typescript/${path.basename(event.file ?? '', '.test.mjs')}/${event.name.replaceAll(/\s+/g, ' ')} (${seconds}s)`);
  if (outcome === 'FAIL') console.log(inspect(event.details?.error?.cause ?? event.details?.error, { depth: 5 }));
}

for await (const { type, data } of run({ files, concurrency: 2, timeout: 300_000 })) {
  if (type === 'test:pass') report(data.skip !== undefined && data.skip !== false ? 'SKIP' : 'PASS', data);
  if (type === 'test:fail') report('FAIL', data);
  if (type === 'test:diagnostic' && data.message.startsWith('seed')) console.log(data.message);
  if (type === 'test:stderr') process.stderr.write(data.message);
}
const ran = counts.PASS + counts.FAIL + counts.SKIP;
const enough = only.length > 0 || ran >= least;
if (!enough) console.log(`--- FAIL: typescript\nonly ${ran} tests ran`);
const good = counts.FAIL === 0 && enough;
console.log(`${good ? 'ok  ' : 'FAIL'} clients/typescript ${ran} tests`);
process.exit(good ? 0 : 1);
