// The package as it is published, in an empty project: the programs of the README and of docs/integrations.md.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { directory, program as hansard, serve, token } from './server.mjs';

const root = path.resolve(fileURLToPath(import.meta.url), '../..');
const npm = (args, cwd) => execFileSync('npm', [...args, '--loglevel=error', '--no-audit', '--no-fund'], { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
const programs = (file) => [...readFileSync(file, 'utf8').matchAll(/```js\n(.*?)```/gs)].map((m) => m[1]);
let dir, server, project;

before(async () => {
  dir = directory();
  server = await serve(dir.path);
  project = path.join(dir.path, 'project');
  mkdirSync(project);
  writeFileSync(path.join(project, 'package.json'), '{"type":"module","private":true}');
  const [{ filename, files }] = JSON.parse(npm(['pack', '--json', '--pack-destination', dir.path], root));
  assert.deepEqual(files.filter((f) => !/^(dist\/[\w-]+\.(js|d\.ts)|package\.json|README\.md)$/.test(f.path)), []);
  npm(['install', '--offline', '--ignore-scripts', path.join(dir.path, path.basename(filename))], project);
});
after(async () => {
  await server.kill();
  dir.remove();
});

function run(program) {
  const file = path.join(project, 'program.mjs');
  writeFileSync(file, program);
  const env = { ...process.env, HANSARD_STORE: server.url, HANSARD_TOKEN: token, PATH: path.dirname(hansard) + path.delimiter + process.env.PATH };
  return execFileSync(process.execPath, [file], { cwd: project, env, encoding: 'utf8', timeout: 60_000 });
}

test('the README, in a project that has nothing else', () => {
  const [program] = programs(path.join(root, 'README.md'));
  assert.deepEqual(readdirSync(path.join(project, 'node_modules')).filter((n) => !n.startsWith('.')), ['hansard']);
  assert.match(run(program), /agent Lima\./);
});

test('docs/integrations.md', () => {
  // The frameworks, as this package has them for its tests.
  for (const name of readdirSync(path.join(root, 'node_modules'))) {
    if (!name.startsWith('.') && name !== 'hansard') symlinkSync(path.join(root, 'node_modules', name), path.join(project, 'node_modules', name));
  }
  const said = programs(path.join(root, '../../docs/integrations.md')).map(run);
  assert.equal(said.length, 8);
  assert.match(said[0], /uuid: 'u1'[\s\S]*firstPrompt: 'Hello'/);
  assert.match(said[1], /content: 'Hello'/);
  assert.match(said[2], /city: 'Lima'/);
  assert.match(said[3], /id: 'm1'[\s\S]*data: hello/);
  assert.match(said[4], /^2_stream-1 two$/m);
  assert.equal(said[5], 'user What is the capital of Peru?\n');
  assert.equal(said[6], 'Lima\nis the capital.\n');
  assert.match(said[7], /\[conversation-2#\d+\][^\n]* user[\s\S]*Hello/);
});
