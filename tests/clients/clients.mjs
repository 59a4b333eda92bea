// How each client is started: headless, with a home folder of its own and an
// environment of nothing but what is given, so that no setting leaks in.
import fs from 'node:fs';
import path from 'node:path';
import { run } from './lib.mjs';

const small = { context: 32768, output: 4096 };

// start(ctx) gives command, arguments and environment. ctx: bin (folder of the
// npm project), home, work, base, key, prompt, model, and for Codex config, lines
// of its configuration.
const clients = {
  claude: c => claude(c, path.join(c.bin, 'node_modules/.bin/claude')),
  'claude-new': c => claude(c, path.join(c.bin, `node_modules/@anthropic-ai/claude-agent-sdk-linux-${process.arch}/claude`)),
  codex: c => {
    const dir = path.join(c.home, '.codex');
    write(path.join(dir, 'config.toml'),
      `model="${c.model}"\nmodel_provider="turnlog"\n${c.config || ''}\n[model_providers.turnlog]\nname="turnlog"\nbase_url="${c.base}"\nenv_key="TURNLOG_KEY"\nwire_api="responses"\n`);
    return {
      cmd: path.join(c.bin, 'node_modules/.bin/codex'),
      args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '--json', c.prompt],
      env: { CODEX_HOME: dir, TURNLOG_KEY: c.key },
    };
  },
  'opencode-chat': c => opencode(c, '@ai-sdk/openai-compatible'),
  'opencode-anthropic': c => opencode(c, '@ai-sdk/anthropic'),
  'opencode-responses': c => opencode(c, '@ai-sdk/openai'),
  qwen: c => ({
    cmd: path.join(c.bin, 'node_modules/.bin/qwen'),
    args: ['--auth-type', 'openai', '--yolo', '-p', c.prompt],
    env: { OPENAI_API_KEY: c.key, OPENAI_BASE_URL: c.base, OPENAI_MODEL: c.model },
  }),
  'pi-chat': c => pi(c, 'openai-completions', c.base),
  'pi-anthropic': c => pi(c, 'anthropic-messages', c.base.replace(/\/v1$/, '')),
  'pi-responses': c => pi(c, 'openai-responses', c.base),
};

// packages names the npm project that a client comes from.
export const packages = {
  claude: 'anthropic-ai_claude-code', 'claude-new': 'anthropic-ai_claude-agent-sdk', codex: 'openai_codex',
  'opencode-chat': 'opencode-ai', 'opencode-anthropic': 'opencode-ai', 'opencode-responses': 'opencode-ai',
  qwen: 'qwen-code_qwen-code', 'pi-chat': 'mariozechner_pi-coding-agent', 'pi-anthropic': 'mariozechner_pi-coding-agent',
  'pi-responses': 'mariozechner_pi-coding-agent', openai: 'openai', anthropic: 'anthropic-ai_sdk', 'openai-python': 'python-openai',
};

function write(file, text) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
}

function claude(c, cmd) {
  return {
    cmd, args: ['-p', c.prompt, '--dangerously-skip-permissions', '--output-format', 'json'],
    env: {
      IS_SANDBOX: '1', ANTHROPIC_BASE_URL: c.base.replace(/\/v1$/, ''), ANTHROPIC_AUTH_TOKEN: c.key, ANTHROPIC_MODEL: c.model === 'demo' ? 'claude-opus-4-8' : c.model,
      DISABLE_TELEMETRY: '1', DISABLE_ERROR_REPORTING: '1', DISABLE_AUTOUPDATER: '1', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    },
  };
}

function opencode(c, npm) {
  write(path.join(c.work, 'opencode.json'), JSON.stringify({
    autoupdate: false, share: 'disabled', model: `turnlog/${c.model}`, small_model: 'turnlog/small', permission: 'allow',
    provider: {
      turnlog: {
        npm, name: 'turnlog', options: { baseURL: c.base, apiKey: c.key },
        models: { [c.model]: { name: 'm', tool_call: true, reasoning: true, limit: small }, small: { name: 's', limit: small } },
      },
    },
  }));
  return {
    cmd: path.join(c.bin, 'node_modules/.bin/opencode'), args: ['run', '--format', 'json', 'Do:'],
    input: c.prompt, // an argument with spaces would be quoted
    env: { OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_LSP_DOWNLOAD: '1', OPENCODE_DISABLE_DEFAULT_PLUGINS: '1' },
  };
}

function pi(c, api, baseUrl) {
  write(path.join(c.home, '.pi/agent/models.json'), JSON.stringify({
    providers: {
      turnlog: {
        baseUrl, apiKey: c.key, api,
        models: [{ id: c.model, name: 'm', reasoning: true, input: ['text'], contextWindow: 32768, maxTokens: 4096, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 } }],
      },
    },
  }));
  return {
    cmd: path.join(c.bin, 'node_modules/.bin/pi'), args: ['--provider', 'turnlog', '--model', c.model, '--mode', 'json', '-p', c.prompt],
    env: { PI_OFFLINE: '1' },
  };
}

// start runs a client until it ends and returns its output.
export async function start(name, c) {
  fs.mkdirSync(c.home, { recursive: true });
  fs.mkdirSync(c.work, { recursive: true });
  write(path.join(c.work, 'README.txt'), 'hello\n');
  const { cmd, args, env, input } = clients[name](c);
  return run(cmd, [...args, ...c.args || []], {
    cwd: c.work, log: c.log, limit: c.limit, input,
    env: { PATH: process.env.PATH, HOME: c.home, LANG: 'C.UTF-8', ...env, ...c.env },
  });
}
