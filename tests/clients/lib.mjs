// What the cases have in common: a running turnlog, sessions, processes that
// end in time, and the checks of a session's record. No dependencies.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';

export const sleep = ms => new Promise(r => setTimeout(r, ms));

const children = new Set();
process.on('exit', () => { for (const c of children) try { process.kill(-c.pid, 'SIGKILL'); } catch { } });

// run starts a program in its own process group and ends the whole group when
// it takes longer than limit milliseconds.
export function run(cmd, args, { cwd, env, limit = 90_000, log, input }) {
  return new Promise(resolve => {
    const child = spawn(cmd, args, { cwd, env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
    children.add(child);
    child.stdin.on('error', () => { }); // it need not read it
    child.stdin.end(input || '');
    let out = '', err = '', late = false;
    child.stdout.on('data', d => { out += d; });
    child.stderr.on('data', d => { err += d; });
    const timer = setTimeout(() => { late = true; try { process.kill(-child.pid, 'SIGKILL'); } catch { } }, limit);
    const end = code => {
      clearTimeout(timer);
      children.delete(child);
      try { process.kill(-child.pid, 'SIGKILL'); } catch { } // what it left behind
      if (log) fs.writeFileSync(log, `$ ${cmd} ${args.join(' ')}\nexit ${code}${late ? ' (took too long)' : ''}\n--- stdout\n${out}\n--- stderr\n${err}\n`);
      resolve({ code, out, err, late });
    };
    child.on('error', e => { err += e; end(-1); });
    child.on('close', end);
  });
}

export async function freePort() {
  const s = net.createServer().listen(0, '127.0.0.1');
  await new Promise(r => s.on('listening', r));
  const { port } = s.address();
  await new Promise(r => s.close(r));
  return port;
}

// daemon starts turnlog for as long as this process runs.
function daemon(binary, args, log) {
  // turnlog takes every TURNLOG_ variable for a setting.
  const env = Object.fromEntries(Object.entries(process.env).filter(([k]) => !k.startsWith('TURNLOG_')));
  const out = fs.openSync(log, 'a');
  const child = spawn(binary, args, { env, detached: true, stdio: ['ignore', out, out] });
  children.add(child);
  return child;
}

async function answers(child, url, log) {
  for (let i = 0; ; i++) {
    try { if ((await fetch(url)).ok) return; } catch { }
    if (i > 300 || child.exitCode !== null) throw new Error('turnlog does not come up; see ' + log);
    await sleep(100);
  }
}

// engine starts a mock engine that writes down what it samples, and returns
// where it is.
export async function engine(binary, dir, journal) {
  const port = await freePort(), log = path.join(dir, 'engine.log');
  const child = daemon(binary, ['engine', 'mock', '--listen', `127.0.0.1:${port}`, '--journal', journal, '--non-canonical', '0.1'], log);
  await answers(child, `http://127.0.0.1:${port}/health`, log);
  return `http://127.0.0.1:${port}`;
}

// up starts turnlog with everything in it and waits until it serves.
export async function up(binary, dir, flags = []) {
  const port = await freePort(), url = `http://127.0.0.1:${port}`;
  fs.mkdirSync(dir, { recursive: true });
  const data = path.join(dir, 'data'), log = path.join(dir, 'turnlog.log');
  const child = daemon(binary, ['up', '--data', data, '--listen', `127.0.0.1:${port}`, ...flags], log);
  await answers(child, url + '/readyz', log);
  const admin = fs.readFileSync(path.join(data, 'admin.key'), 'utf8').split('\n')[0].trim();
  const call = async (method, p, body) => {
    const r = await fetch(url + p, { method, headers: { authorization: 'Bearer ' + admin }, body: body && JSON.stringify(body) });
    const text = await r.text();
    if (!r.ok) throw new Error(`${method} ${p}: ${r.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
  const stop = () => new Promise(r => { child.on('close', r); process.kill(child.pid, 'SIGINT'); });
  return {
    url, stop,
    open: body => call('POST', '/sessions', body || {}),
    show: id => call('GET', '/sessions/' + id),
    close: (id, reward) => call('POST', `/sessions/${id}/close`, { reward }),
  };
}

export function check(ok, what) { if (!ok) throw new Error(what); }

// outline is a session in one line, for those who must understand a failure.
const outline = record => record.turns.map(t =>
  `${t.decision}${t.reason ? ':' + t.reason : ''} ${t.class} ${t.prompt_tokens}+${t.completion_tokens} ${t.finish_reason}`).join(' | ');

// checkTree asserts what holds for every session: a turn that extends another
// begins with all of that one's tokens, and nothing is off the line but what
// the case allows, as "decision:reason", or "class decision:reason".
export function checkTree(record, allowed = []) {
  const byID = new Map(record.turns.map(t => [t.turn, t]));
  let first = true;
  for (const t of record.turns) {
    const what = t.decision + (t.reason ? ':' + t.reason : '');
    if (t.decision === 'extend') {
      const p = byID.get(t.parent);
      check(p, `turn ${t.turn} has no parent ${t.parent}`);
      const all = p.prompt_tokens + p.completion_tokens;
      check(t.parent_keep === all, `turn ${t.turn} keeps ${t.parent_keep} of its parent's ${all} tokens`);
      check(t.prompt_tokens > t.parent_keep, `turn ${t.turn} adds nothing to its parent`);
    } else {
      const expected = first ? ['root:first_turn'] : allowed;
      check(expected.includes(what) || expected.includes(`${t.class} ${what}`), `turn ${t.turn} (${t.class}): ${what} is not explained; the session: ${outline(record)}`);
    }
    first = false;
  }
}

// line returns the turns of a class from its first root on, and checks that
// they are one line.
export function line(record, cls = 'main') {
  const turns = record.turns.filter(t => t.class === cls);
  for (let i = 1; i < turns.length; i++) {
    check(turns[i].parent === turns[i - 1].turn, `${cls} turn ${i} is not the child of the one before: ${turns[i].decision} ${turns[i].reason || ''}`);
  }
  return turns;
}
