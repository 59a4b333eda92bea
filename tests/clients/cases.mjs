// The cases: a client, what the mock engine is told in the prompt, and what the
// record must then say. A prompt's lines that begin with "mock: " are the
// engine's script; see gateway/engine/mock.
import fs from 'node:fs';
import path from 'node:path';
import { check, checkTree, line } from './lib.mjs';

// What the gateway says of system messages that a template does not take.
const [, systemText] = fs.readFileSync(path.join(import.meta.dirname, '../../gateway/fit.go'), 'utf8').match(/message = "(role 'system' is not supported[^"]*)"/);

const say = 'mock: say All done.';
const script = (...steps) => ['Do this.', ...steps, say, 'Thanks.'].join('\n');

// shell is the client's tool that runs commands, and a call of it.
const tools = {
  claude: c => `Bash ${JSON.stringify({ command: c, description: 'probe' })}`,
  codex: c => `exec_command ${JSON.stringify({ cmd: c })}`,
  opencode: c => `bash ${JSON.stringify({ command: c, description: 'probe' })}`,
  pi: c => `bash ${JSON.stringify({ command: c })}`,
  qwen: c => `run_shell_command ${JSON.stringify({ command: c, is_background: false })}`,
};
tools['claude-new'] = tools.claude;
const shell = client => tools[client] || tools[client.split('-')[0]];

const dialects = { claude: 'anthropic_messages', codex: 'openai_responses', qwen: 'openai_chat' };
const dialect = client => ({ chat: 'openai_chat', anthropic: 'anthropic_messages', responses: 'openai_responses' })[client.split('-')[1]] || dialects[client.split('-')[0]];

// Side requests of clients stand beside the main line.
const sides = client => client.startsWith('opencode') || client.startsWith('qwen') ? ['root:new_conversation', 'root:head_changed'] : [];

// finished asserts what every good run has in common.
function finished(client, record, turns) {
  checkTree(record, sides(client));
  const main = line(record);
  check(main.length === turns, `${main.length} turns on the main line instead of ${turns}`);
  check(main.every(t => t.dialect === dialect(client)), `not every turn is ${dialect(client)}`);
  check(main.every(t => !t.rewritten && !t.ambiguous), 'a turn is rewritten or ambiguous');
  check(main.at(-1).finish_reason === 'stop', `the last turn ended with ${main.at(-1).finish_reason}`);
}

const one = client => ({
  client, name: 'one tool call', prompt: script('mock: call ' + shell(client)('echo one')),
  assert(record) { finished(client, record, 2); check(record.aborted === 0, 'turns were aborted'); },
});

const parallel = client => ({
  client, name: 'thinking and parallel calls that end in another order',
  prompt: script('mock: think I should look at two things.', 'mock: call ' + shell(client)('sleep 0.5; echo one'), 'mock: and ' + shell(client)('echo two'),
    'mock: think Once more.', 'mock: call ' + shell(client)('echo three')),
  assert(record) { finished(client, record, 3); },
});

// Clients write arguments anew: spaces, escapes and forms of numbers differ.
const spelling = client => ({
  client, name: 'oddly spelled arguments',
  prompt: script('mock: call ' + shell(client)('echo café /1').replaceAll(':"', ' :  "').replaceAll('é', '\\u00e9').replaceAll('/', '\\/')),
  assert(record) { finished(client, record, 2); },
});

const cut = client => ({
  client, name: 'connection cut in the middle of an answer', cutAfter: 700,
  prompt: script('mock: pace 20ms', 'mock: think ' + 'Let me think about this for a while. '.repeat(4), 'mock: call ' + shell(client)('echo one')),
  assert(record, { proxy }) {
    check(proxy.happened(), 'nothing was cut');
    check(record.aborted >= 1, 'the cut turn is not recorded as aborted');
    finished(client, record, 2);
  },
});

// The engine is busy at first; the gateway says so in the way that makes the
// client wait and ask again.
const overload = client => ({
  client, name: 'an engine that is busy at first', trouble: { status: 503, times: 4 },
  prompt: script('mock: call ' + shell(client)('echo one')),
  assert(record, { trouble }) { check(trouble.happened(), 'it was not busy'); finished(client, record, 2); },
});

// The engine's connection breaks in the middle of an answer of which the client
// has read a part: it is told that this was no answer, and asks again.
const engineCut = client => ({
  client, name: 'an engine that breaks in the middle of an answer', trouble: { cutAfter: 30_000 },
  prompt: script('mock: think ' + 'Let me think about this for a while. '.repeat(12), 'mock: call ' + shell(client)('echo one')),
  assert(record, { trouble }) {
    check(trouble.happened(), 'nothing broke');
    check(record.aborted >= 1, 'the broken turn is not recorded as aborted');
    finished(client, record, 2);
  },
});

const unknownTool = client => ({
  client, name: 'a tool that does not exist', prompt: script('mock: call no_such_tool {"a":1}'),
  assert(record) {
    checkTree(record, sides(client));
    check(line(record).length >= 2, 'the client did not go on');
  },
});

const noKey = client => ({
  client, name: 'a wrong key ends at once', key: 'wrong', limit: 60_000, prompt: script(),
  assert(record) { check(record.turns.length === 0, 'turns were recorded'); },
  output(r) { check(r.code !== 0 || /401|auth|key/i.test(r.out + r.err), 'the client did not notice'); },
});

const subagent = (client, call, more = []) => ({
  client, name: 'a sub-agent', prompt: script('mock: call ' + call, ...more),
  assert(record) {
    checkTree(record, [...sides(client), 'root:head_changed', 'root:new_conversation']);
    const sub = line(record, 'subagent'), main = line(record);
    check(sub.length >= 1, 'no turn of a sub-agent');
    check(main.length >= 2, 'the main line did not go on');
    check(sub[0].decision === 'root', 'the sub-agent is no tree of its own');
    check(client === 'qwen' || sub.every(t => t.thread && t.thread !== main[0].thread), 'the sub-agent has no thread of its own');
  },
});

// Claude Code puts system messages into the history; here the template refuses
// them there.
const strictTemplate = client => ({
  ...parallel(client), name: 'a template that takes no system message inside', strict: true,
});

// A history grows over the context: the client reads so in the error, and
// compacts.
const overflow = (client, window) => ({
  client, name: 'a history that grows over the context', window, output() { }, // the engine's summaries are poor
  prompt: script('mock: call ' + shell(client)('echo one'), 'mock: call ' + shell(client)('echo two'),
    'mock: call ' + shell(client)('for i in $(seq 400); do echo line $i of many lines; done')),
  assert(record) {
    checkTree(record, ['branch:rewind', 'branch:history_rewritten', 'root:history_rewritten', 'root:new_conversation', 'root:head_changed', 'branch:resample', 'root:resample']);
    check(record.turns.some(t => t.class === 'compaction'), 'the client did not compact');
  },
});

// Codex compacts when a turn's usage is over its limit: by itself, without
// tools, and goes on with a summary.
const codexCompaction = client => ({
  client, name: 'compaction', config: 'model_auto_compact_token_limit=16000',
  prompt: script('mock: call ' + shell(client)('for i in $(seq 400); do echo line $i of many lines; done'), 'mock: call ' + shell(client)('echo two')),
  assert(record) {
    checkTree(record, ['root:head_changed', 'root:new_conversation']);
    const at = record.turns.findIndex(t => t.class === 'compaction');
    check(at > 0, 'the client did not compact');
    check(record.turns[at].decision === 'root' && record.turns[at + 1].decision === 'root', 'the summary and what follows are no roots');
    check(record.turns[at + 1].class === 'main' && record.turns[at + 1].prompt_tokens < record.turns[at - 1].prompt_tokens + 2000, 'the history is not cut');
    check(record.turns.filter(t => t.class === 'main').length >= 2, 'the main line did not go on');
  },
});

const compaction = client => ({
  client, name: 'compaction', prompt: script('mock: call ' + shell(client)('echo one')),
  then: [{ args: ['--continue'], prompt: '/compact Keep it short.\nmock: say A short summary.' }, { args: ['--continue'], prompt: script() }],
  assert(record) {
    checkTree(record, ['branch:rewind', 'branch:history_rewritten', 'root:history_rewritten', 'root:new_conversation', 'root:head_changed']);
    const compacted = record.turns.filter(t => t.class === 'compaction');
    check(compacted.length >= 1, 'no turn of class compaction');
    check(record.turns.at(-1).decision === 'root', 'the conversation did not begin anew after the compaction');
  },
});

// The client finds a tool that it had kept back: its definition comes in a
// result, and the head of the prompt stays as it was.
const toolSearch = client => ({
  client, name: 'a tool that is loaded late',
  prompt: script('mock: call ToolSearch {"query":"select:WebFetch","max_results":1}'),
  assert(record) {
    checkTree(record);
    const main = line(record);
    // What follows is the engine's own idea: the result brings a word of the
    // client's that ends the script.
    check(main.length >= 2, 'the main line did not go on');
    check(main[1].decision === 'extend' && main[1].prompt_tokens - main[1].parent_keep > 100, 'the definition did not come with the result');
  },
});

// Claude Code's search is a request of its own, in which a tool of Anthropic's
// must be called: refused, and the agent reads so in the result.
const webSearch = client => ({
  client, name: 'a search that nobody runs', prompt: script('mock: call WebSearch {"query":"what is new"}'),
  assert(record) { finished(client, record, 2); },
});

// A gateway that refuses system messages inside says so in words that Claude
// Code knows: it puts them elsewhere, and the rest of the run is one line.
const systemRefused = client => ({
  client, name: 'system messages inside are refused', refuse: systemText, prompt: script('mock: call ' + shell(client)('echo one'), 'mock: call ' + shell(client)('echo two')),
  assert(record, { proxy }) {
    check(proxy.happened(), 'nothing was refused');
    finished(client, record, 3);
  },
});

// A name that no model has: the client ends, and shows which there are.
const unknownModel = client => ({
  client, name: 'a model that does not exist', strictNames: true, model: 'no-such-model', prompt: script(), limit: 60_000,
  assert(record) { check(record.turns.length === 0, 'turns were recorded'); },
  output(r) { check(/known models: demo|no-such-model/.test(r.out + r.err), 'the error is not shown'); },
});

// Names of Anthropic's models work, also those that sub-agents ask for by
// themselves: in the older version a small one.
const modelNames = (client, small) => {
  const c = subagent(client, `Agent {"description":"look","prompt":"Look.\\nmock: say Sub done.","subagent_type":"Explore","run_in_background":false}`);
  return {
    ...c, name: 'names of Anthropic\'s models',
    assert(record) {
      c.assert(record);
      check(line(record).every(t => t.model_asked === 'claude-opus-4-8' && t.model === 'demo'), 'the main line asked for another model');
      check(line(record, 'subagent').every(t => t.model_asked.startsWith(small) && t.model === 'demo'), 'the sub-agent asked for another model');
    },
  };
};

// An answer that is empty is dropped from the client's history, and asked for
// again from the turn before.
const empty = client => ({
  client, name: 'an empty answer', limit: 30_000, output() { }, // some give up, some wait
  prompt: script('mock: call ' + shell(client)('echo one'), 'mock: say '),
  assert(record) {
    // The nudge ends the script: what the engine does then is its own idea, a
    // sub-agent among it.
    checkTree(record, [...sides(client), 'branch:resample', 'branch:rewind', 'root:head_changed', 'subagent root:new_conversation']);
    check(record.turns.length >= 2, 'the empty turn is not recorded');
  },
});

const agent = `{"description":"look","prompt":"Look.\\nmock: say Sub done.","subagent_type":"general-purpose","run_in_background":false}`;

// cases are in the order in which they run: one call with each client first,
// then what agents do beyond that.
export const cases = [
  one('opencode-chat'), one('pi-chat'),
  one('claude'), one('claude-new'), one('codex'), one('qwen'),
  one('opencode-anthropic'), one('opencode-responses'), one('pi-anthropic'), one('pi-responses'),
  ...['claude', 'claude-new', 'codex', 'pi-chat', 'pi-anthropic', 'opencode-chat'].map(parallel),
  ...['claude', 'claude-new', 'codex', 'pi-chat', 'pi-responses'].map(spelling),
  ...['claude-new', 'codex', 'pi-chat', 'pi-anthropic'].map(cut),
  ...['claude', 'claude-new', 'codex', 'pi-chat'].map(unknownTool),
  ...['claude', 'claude-new', 'codex', 'pi-chat'].map(overload),
  ...['claude', 'claude-new', 'codex', 'pi-anthropic', 'pi-chat'].map(engineCut),
  noKey('pi-chat'),
  subagent('claude', 'Agent ' + agent), subagent('claude-new', 'Agent ' + agent),
  subagent('opencode-chat', `task ${JSON.stringify({ description: 'look', prompt: 'Look.\nmock: say Sub done.', subagent_type: 'general' })}`),
  subagent('codex', `spawn_agent ${JSON.stringify({ message: 'Look.\nmock: say Sub done.' })}`,
    ['mock: call ' + shell('codex')('sleep 4')]), // it runs beside, and is ended with the main line
  subagent('qwen', `agent ${JSON.stringify({ description: 'look', prompt: 'Look.\nmock: say Sub done.', subagent_type: 'general-purpose' })}`),
  compaction('claude'), compaction('claude-new'), codexCompaction('codex'),
  modelNames('claude', 'claude-haiku'), modelNames('claude-new', 'claude-'),
  ...['claude', 'claude-new', 'codex', 'opencode-chat', 'pi-chat'].map(unknownModel),
  ...['claude', 'claude-new'].map(systemRefused), ...['claude', 'claude-new'].map(webSearch),
  strictTemplate('claude'), strictTemplate('claude-new'), strictTemplate('codex'),
  overflow('claude', 33_000), overflow('claude-new', 21_000),
  toolSearch('claude-new'), ...['claude', 'claude-new', 'codex', 'pi-chat'].map(empty),
];
