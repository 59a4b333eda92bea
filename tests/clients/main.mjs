// Runs the cases against a turnlog of their own and prints one line for each,
// then "N passed, N failed, N skipped".
// usage: node main.mjs BINARY ROWS CLIENTS RUN [only...]
//   ROWS: the program of that folder; only: client or case names
import fs from 'node:fs';
import path from 'node:path';
import { cases } from './cases.mjs';
import { packages, start } from './clients.mjs';
import { cutOnce, refuseSystem, trouble } from './faults.mjs';
import { check, checkTree, engine, freePort, line, run, up } from './lib.mjs';
import { sdkCases } from './sdk.mjs';

const [binary, rows, folder, dir, ...only] = process.argv.slice(2);
// No run of a client takes longer than this, and the whole set is stopped when
// its time is over: what is left is then counted as skipped.
const limit = 90_000, budget = +(process.env.TURNLOG_CLIENTS_SECONDS || 480) * 1000;
const begun = Date.now(), count = { passed: 0, failed: 0, skipped: 0 };

const installed = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
const bin = name => {
  const found = installed.find(d => d.slice(0, d.lastIndexOf('_')) === packages[name] && fs.existsSync(path.join(folder, d, '.installed')));
  return found && path.join(folder, found);
};

function tell(result, name, why = '', ms) {
  count[result]++;
  console.log(`${result.padEnd(7)} ${name}${ms ? ` (${(ms / 1000).toFixed(1)} s)` : ''}${why ? ': ' + why : ''}`);
}

const journal = path.join(dir, 'engine.jsonl');
const backend = await engine(binary, dir, journal);
const models = [{ name: 'demo', aliases: ['*'], files: 'demo', engine: 'sglang', backends: [backend], context_length: 131072 }];
// strict is the folder of a model whose template takes a system message at the
// beginning only, as many do.
function strict() {
  const from = path.join(import.meta.dirname, '../../tokenizer/demo'), to = path.join(dir, 'strict');
  fs.cpSync(path.join(from, 'files'), to, { recursive: true });
  const inside = "{%- elif message.role in ('system', 'developer') %}", template = fs.readFileSync(path.join(from, 'chat_template.jinja'), 'utf8');
  check(template.includes(inside), 'the demo template has changed');
  fs.writeFileSync(path.join(to, 'chat_template.jinja'), template.replace(inside, inside + "{{- raise_exception('System message must be at the beginning.') }}"));
  return to;
}

// A case whose engine has trouble, a small context or a strict template, has a
// model of its own.
const troubles = new Map(), own = c => c.trouble || c.window || c.strict;
for (const [i, c] of cases.entries()) {
  if (!own(c)) continue;
  const model = { ...models[0], name: `demo-${i}`, aliases: [] };
  if (c.window) model.context_length = c.window;
  if (c.strict) model.files = strict();
  if (c.trouble) {
    troubles.set(i, await trouble(backend, c.trouble));
    model.backends = [troubles.get(i).url];
  }
  models.push(model);
}
const turnlog = await up(binary, dir, ['--models', JSON.stringify(models), '--exporter.flush', '500ms']);
// Another, in which models have no name but their own.
const named = await up(binary, path.join(dir, 'named'), ['--models', JSON.stringify([{ ...models[0], aliases: [] }])]);
const rewarded = [];

async function client(c, n) {
  const home = path.join(dir, `${n}-${c.client}`);
  const at = c.strictNames ? named : turnlog;
  const opened = await at.open({ session: `c${n}-${c.client}`, task: c.name });
  const proxy = c.cutAfter && await cutOnce(at.url, c.cutAfter) || c.refuse && await refuseSystem(at.url, c.refuse);
  troubles.get(n)?.arm();
  try {
    const base = proxy ? opened.base_url.replace(at.url, proxy.url) : opened.base_url;
    let r;
    for (const [i, step] of [{ prompt: c.prompt }, ...c.then || []].entries()) {
      r = await start(c.client, {
        bin: bin(c.client), home: path.join(home, 'home'), work: path.join(home, 'work'), base, model: c.model || (own(c) ? `demo-${n}` : 'demo'), config: c.config,
        key: c.key || opened.key, prompt: step.prompt, args: step.args, log: path.join(home, `${i}.log`), limit: c.limit || limit,
      });
      if (!c.output && r.code !== 0) throw new Error(`the client ended with ${r.code}${r.late ? ', too late' : ''}; see ${path.join(home, `${i}.log`)}`);
    }
    const record = await at.show(opened.session);
    fs.writeFileSync(path.join(home, 'record.json'), JSON.stringify(record, null, 1));
    if (c.output) c.output(r);
    c.assert(record, { proxy, trouble: troubles.get(n) });
    await at.close(opened.session, 1);
    if (record.turns.length) rewarded.push(opened.session);
  } finally { proxy && proxy.stop(); }
}

// The commands of the README, as they stand there but for the address and
// where npm has put the client.
async function firstHour() {
  const readme = fs.readFileSync(path.join(import.meta.dirname, '../../gateway/dialect/README.md'), 'utf8');
  const [, script] = readme.match(/## Claude Code, the first hour[^]*?```sh\n([^]*?)```/);
  const home = path.join(dir, 'first-hour'), work = path.join(home, 'work');
  fs.mkdirSync(path.join(work, 'bin'), { recursive: true });
  fs.symlinkSync(path.resolve(binary), path.join(work, 'bin/turnlog'));
  const npx = 'npx -y @anthropic-ai/claude-code@2.1.197', port = '8425';
  check(script.includes(npx) && script.includes(port), 'the README has changed');
  const local = script.replaceAll(npx, path.join(bin('claude'), 'node_modules/.bin/claude')).replaceAll(port, await freePort());
  const r = await run('bash', ['-euo', 'pipefail', '-c', local], {
    cwd: work, log: path.join(home, 'log'), limit,
    env: { PATH: process.env.PATH, HOME: home, LANG: 'C.UTF-8', IS_SANDBOX: '1' },
  });
  check(r.code === 0, `it ended with ${r.code}; see ${path.join(home, 'log')}`);
  const record = JSON.parse(r.out.split('\n').find(l => l.startsWith('{"session"')));
  checkTree(record);
  check(line(record).length === 2, `${record.turns.length} turns`);
}

const list = [
  { client: 'claude', name: 'the first hour, as the README has it', run: firstHour },
  ...sdkCases.map(c => ({ ...c, run: () => c.sdk(bin(c.client), turnlog) })),
  ...cases.map((c, i) => ({ ...c, run: () => client(c, i) })),
].filter(c => c.client !== 'openai-python' || bin(c.client)) // run.sh says why not
  .filter(c => !only.length || only.includes(c.client) || only.includes(c.name));

async function one(c) {
  const name = `${c.client}: ${c.name}`, t0 = Date.now();
  if (!bin(c.client)) return tell('skipped', name, 'not installed');
  if (t0 - begun > budget) return tell('skipped', name, 'the time of this run is over');
  try {
    await c.run();
    tell('passed', name, '', Date.now() - t0);
  } catch (e) {
    tell('failed', name, e.message, Date.now() - t0);
  }
}

// Clients mostly wait, for themselves and for each other's start.
const jobs = 3;
await Promise.all(Array.from({ length: jobs }, async () => { while (list.length) await one(list.shift()); }));

if (rewarded.length) {
  const name = 'all clients: rows are what the engine sampled', t0 = Date.now();
  const r = await run(rows, [path.join(dir, 'data/shards'), journal, ...rewarded], { log: path.join(dir, 'rows.log') });
  tell(r.code === 0 ? 'passed' : 'failed', name, (r.code === 0 ? r.out : r.err).trim(), Date.now() - t0);
}
await turnlog.stop();
await named.stop();
console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
process.exit(count.failed ? 1 : 0);
