// The official SDKs against turnlog: whatever it emits must parse, and what
// they send must work.
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { mangle } from './faults.mjs';
import { check, checkTree, line, run } from './lib.mjs';

const load = async (bin, name) => (await import(pathToFileURL(createRequire(path.join(bin, 'x.js')).resolve(name)))).default;

const weather = { name: 'weather', description: 'Weather of a city', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } };
const asked = ['What now?', 'mock: think Let me see.', 'mock: call weather {"city": "Bern"}', 'mock: and weather {"city":  "Ulm"}', 'mock: say It rains.'].join('\n');

async function rejects(promise, status, pattern) {
  try { await promise; } catch (e) {
    check(e.status === status, `status ${e.status} instead of ${status}: ${e.message}`);
    check(pattern.test(e.message), `"${e.message}" does not match ${pattern}`);
    return;
  }
  throw new Error(`no error; status ${status} was expected`);
}

async function chat(bin, turnlog) {
  const OpenAI = await load(bin, 'openai'), s = await turnlog.open();
  const c = new OpenAI({ baseURL: s.base_url, apiKey: s.key, maxRetries: 0 });
  check((await c.models.list()).data[0].id === 'demo', 'the model is not listed');
  const tools = [{ type: 'function', function: weather }];
  const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: asked }];
  const stream = c.chat.completions.stream({ model: 'gpt-x', messages, tools, stream_options: { include_usage: true } });
  const first = await stream.finalChatCompletion();
  const m = first.choices[0].message;
  check(first.choices[0].finish_reason === 'tool_calls' && m.tool_calls.length === 2, `calls: ${JSON.stringify(m)}`);
  check(m.tool_calls[1].function.arguments === '{"city":  "Ulm"}', 'arguments are not as the model wrote them');
  check(first.usage.total_tokens === first.usage.prompt_tokens + first.usage.completion_tokens, 'usage does not add up');
  messages.push(m, ...m.tool_calls.map(t => ({ role: 'tool', tool_call_id: t.id, content: 'rain' })));
  const second = await c.chat.completions.create({ model: 'gpt-x', messages, tools, logprobs: true });
  check(second.choices[0].message.content === 'It rains.', `content: ${second.choices[0].message.content}`);
  check(second.choices[0].logprobs.content.length > 0, 'no logprobs');
  const record = await turnlog.show(s.session);
  checkTree(record);
  check(line(record).length === 2, 'not two turns in a line');
}

async function choices(bin, turnlog) {
  const OpenAI = await load(bin, 'openai'), s = await turnlog.open();
  const c = new OpenAI({ baseURL: s.base_url, apiKey: s.key, maxRetries: 0 });
  const messages = [{ role: 'user', content: 'Say something.' }];
  const whole = await c.chat.completions.create({ model: 'demo', messages, n: 3 });
  check(whole.choices.map(x => x.index).join() === '0,1,2', 'not three choices');
  const stream = await c.chat.completions.create({ model: 'demo', messages, n: 2, stream: true });
  const ended = new Set();
  for await (const chunk of stream) for (const x of chunk.choices) if (x.finish_reason) ended.add(x.index);
  check(ended.size === 2, 'not two streamed choices');
  const record = await turnlog.show(s.session);
  check(record.turns.length === 5 && record.turns.every(t => t.decision === 'root'), 'not five siblings');
}

async function errors(bin, turnlog) {
  const OpenAI = await load(bin, 'openai'), s = await turnlog.open();
  const c = new OpenAI({ baseURL: s.base_url, apiKey: s.key, maxRetries: 0 });
  const messages = [{ role: 'user', content: 'hi' }];
  await rejects(c.chat.completions.create({ model: 'demo', messages: [] }), 400, /messages/);
  await rejects(c.chat.completions.create({ model: 'demo', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }] }] }), 400, /demo.*text only/);
  await rejects(c.chat.completions.create({ model: 'demo', messages, temperature: 'hot' }), 400, /temperature/);
  await rejects(c.responses.create({ model: 'demo', input: 'hi', previous_response_id: 'resp_1' }), 400, /previous_response_id/);
  await rejects(new OpenAI({ baseURL: s.base_url, apiKey: 'wrong', maxRetries: 0 }).chat.completions.create({ model: 'demo', messages }), 401, /key/i);
  await rejects(c.chat.completions.create({ model: 'demo', messages: [{ role: 'user', content: 'long '.repeat(150_000) }] }), 400, /context length/);
  await turnlog.close(s.session, 0);
  await rejects(c.chat.completions.create({ model: 'demo', messages }), 410, /closed/);
  check((await turnlog.show(s.session)).turns.length === 0, 'an error left a turn');
}

async function responses(bin, turnlog) {
  const OpenAI = await load(bin, 'openai'), s = await turnlog.open();
  const c = new OpenAI({ baseURL: s.base_url, apiKey: s.key, maxRetries: 0 });
  const tools = [{ type: 'function', ...weather, strict: false }];
  const input = [{ role: 'user', content: asked }];
  const first = await c.responses.stream({ model: 'demo', instructions: 'Be brief.', input, tools }).finalResponse();
  check(first.status === 'completed', `status ${first.status}`);
  check(first.output.map(x => x.type).join() === 'reasoning,function_call,function_call', `output: ${first.output.map(x => x.type)}`);
  input.push(...first.output, ...first.output.filter(x => x.type === 'function_call').map(x => ({ type: 'function_call_output', call_id: x.call_id, output: 'rain' })));
  const second = await c.responses.create({ model: 'demo', instructions: 'Be brief.', input, tools });
  check(second.output_text === 'It rains.', `text: ${second.output_text}`);
  const cut = await c.responses.create({ model: 'demo', input: 'Go on.\nmock: length 9' });
  check(cut.status === 'incomplete' && cut.incomplete_details.reason === 'max_output_tokens', `status ${cut.status}`);
  const record = await turnlog.show(s.session);
  checkTree(record, ['root:new_conversation']);
  check(record.turns[1].parent === record.turns[0].turn, 'the second turn is not the child of the first');
}

async function anthropic(bin, turnlog) {
  const Anthropic = await load(bin, '@anthropic-ai/sdk'), s = await turnlog.open();
  const c = new Anthropic({ baseURL: s.base_url.replace(/\/v1$/, ''), apiKey: s.key, maxRetries: 0 });
  const listed = [];
  for await (const m of c.models.list()) listed.push(m.id);
  check(listed[0] === 'demo', `models: ${listed}`);
  const tools = [{ name: weather.name, description: weather.description, input_schema: weather.parameters }];
  const messages = [{ role: 'user', content: asked }];
  const call = { model: 'claude-x', max_tokens: 500, system: 'Be brief.', messages, tools };
  const counted = await c.messages.countTokens({ model: 'claude-x', system: 'Be brief.', messages, tools });
  const first = await c.messages.stream(call).finalMessage();
  check(first.content.map(b => b.type).join() === 'thinking,tool_use,tool_use', `content: ${first.content.map(b => b.type)}`);
  check(first.content[0].signature, 'thinking has no signature');
  check(first.stop_reason === 'tool_use', `stop reason ${first.stop_reason}`);
  const u = first.usage;
  check(u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens === counted.input_tokens, 'usage and count differ');
  messages.push({ role: 'assistant', content: first.content },
    { role: 'user', content: first.content.filter(b => b.type === 'tool_use').reverse().map(b => ({ type: 'tool_result', tool_use_id: b.id, content: 'rain' })) });
  const second = await c.messages.create(call);
  check(second.content[0].text === 'It rains.', `content: ${JSON.stringify(second.content)}`);
  await rejects(c.messages.create({ ...call, messages: [{ role: 'user', content: 'long '.repeat(150_000) }] }), 400, /prompt is too long: \d+ tokens > \d+ maximum/);
  await rejects(c.messages.create({ ...call, messages: [] }), 400, /at least one message/);
  const record = await turnlog.show(s.session);
  checkTree(record);
  check(line(record)[1].tolerances.includes('result_order'), `tolerances: ${line(record)[1].tolerances}`);
}

// mangled runs cases through a proxy that respells every stream.
const mangled = (...cases) => async (bin, turnlog) => {
  const proxy = await mangle(turnlog.url);
  const open = async () => { const s = await turnlog.open(); return { ...s, base_url: s.base_url.replace(turnlog.url, proxy.url) }; };
  try { for (const c of cases) await c(bin, { ...turnlog, open }); } finally { proxy.stop(); }
};

// python runs sdk.py with the SDK in the folder bin.
async function python(bin, turnlog) {
  const s = await turnlog.open();
  const r = await run('python3', [path.join(import.meta.dirname, 'sdk.py'), s.base_url, s.key], { env: { PATH: process.env.PATH, HOME: process.env.HOME, PYTHONPATH: bin } });
  check(r.code === 0, r.err.trim().split('\n').at(-1));
  checkTree(await turnlog.show(s.session), ['root:resample']);
}

export const sdkCases = [
  { client: 'openai', name: 'SDK: chat, streamed and not', sdk: chat },
  { client: 'openai', name: 'SDK: several choices', sdk: choices },
  { client: 'openai', name: 'SDK: errors', sdk: errors },
  { client: 'openai', name: 'SDK: responses', sdk: responses },
  { client: 'openai', name: 'SDK: streams in single bytes, with comments', sdk: mangled(chat, responses) },
  { client: 'anthropic', name: 'SDK: messages, streamed and not', sdk: anthropic },
  { client: 'anthropic', name: 'SDK: streams in single bytes, with comments', sdk: mangled(anthropic) },
  { client: 'openai-python', name: 'SDK: chat and responses', sdk: python },
  { client: 'openai-python', name: 'SDK: streams in single bytes, with comments', sdk: mangled(python) },
];
