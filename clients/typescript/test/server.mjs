// The real server, for tests: dist/hansard on a store of its own, and a proxy that misbehaves.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = path.resolve(fileURLToPath(import.meta.url), '../../../..');
export const program = process.env.HANSARD_BIN ?? path.join(root, 'dist', 'hansard');
export const token = 'a-token-of-this-test-0123456789abcdef';

export function directory() {
  const dir = mkdtempSync(path.join(tmpdir(), 'hansard-client-'));
  return { path: dir, remove: () => rmSync(dir, { recursive: true, force: true, maxRetries: 5 }) };
}

/** hansard serve. Several may serve one directory; `kill` is kill -9. */
export async function serve(dir, port = 0) {
  const tokenFile = path.join(dir, 'test-token');
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const child = spawn(program, ['serve', '--store', path.join(dir, 'store'), '--listen', `127.0.0.1:${port}`, '--token-from', tokenFile], { stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = new Promise((done) => child.once('exit', done));
  process.once('exit', () => child.kill('SIGKILL'));
  const said = [];
  const url = await new Promise((done, fail) => {
    for (const out of [child.stdout, child.stderr]) {
      createInterface({ input: out }).on('line', (line) => {
        said.push(line);
        const found = /^serving (http:\/\/127\.0\.0\.1:\d+)/.exec(line);
        if (found) done(found[1]);
      });
    }
    child.once('error', fail);
    void exited.then(() => fail(new Error('the server did not start:\n' + said.join('\n'))));
  });
  return {
    url,
    port: Number(new URL(url).port),
    async kill() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

/**
 * Passes connections on. `plan` gets the number of a request and its first bytes, and says what to do:
 * "pass", "refuse" (cut before the server sees it), "lose" (cut before the answer comes back), "half"
 * (cut after the first bytes of the answer), "short" (cut after a million) or "keep" (the answer never comes,
 * and nothing is cut).
 */
export async function proxy(port, plan = () => 'pass') {
  const open = new Set();
  const self = { target: port, plan, count: 0, heads: [], kept: undefined, onKept: undefined };
  const listener = net.createServer((client) => {
    open.add(client);
    let server;
    client.on('error', () => client.destroy());
    client.on('close', () => {
      open.delete(client);
      server?.destroy();
    });
    client.on('data', (data) => {
      const head = data.toString('latin1', 0, 200);
      let what = 'pass';
      if (/^(GET|POST|PUT|PATCH|DELETE) /.test(head)) {
        self.heads.push(head.split('\r\n')[0]);
        what = self.plan(++self.count, head);
      }
      if (what === 'refuse') return client.destroy();
      if (!server) {
        server = net.connect(self.target, '127.0.0.1');
        server.on('error', () => client.destroy());
        server.on('close', () => client.destroy());
        server.on('data', (answer) => server.answer(answer));
      }
      server.answer = (answer) => client.write(answer);
      if (what === 'lose') server.answer = () => client.destroy();
      if (what === 'keep') server.answer = () => self.onKept?.();
      let left = { half: 40, short: 1_000_000 }[what];
      if (left) {
        server.answer = (answer) => {
          client.write(answer.subarray(0, left));
          left -= answer.length;
          if (left > 0) return;
          client.end();
          server.answer = () => undefined;
        };
      }
      server.write(data);
    });
  });
  await new Promise((done) => listener.listen(0, '127.0.0.1', done));
  self.port = listener.address().port;
  self.url = `http://127.0.0.1:${self.port}`;
  self.cut = () => open.forEach((s) => s.destroy());
  self.close = () => {
    listener.close();
    self.cut();
  };
  return self;
}

export async function collect(items) {
  const out = [];
  for await (const item of items) out.push(item);
  return out;
}

/** Whether this server makes new sessions of ids that were deleted. */
export async function reuses(client) {
  const made = await client.create();
  await made.delete();
  return client.create({ id: made.id, reuse: true }).then(() => true, () => false);
}
