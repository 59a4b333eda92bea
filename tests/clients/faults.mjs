// Proxies between a client and turnlog that do what networks do.
import http from 'node:http';

// proxy listens and passes everything on to target. answer(q, body, r, s) passes
// the response r of the request q on to s. A request for which refuse gives a
// status gets that; one for whose body refuseBody gives a text gets a 400 with it.
async function proxy(target, answer, refuse = () => 0, refuseBody = () => '') {
  const server = http.createServer((q, s) => {
    const status = refuse(q);
    if (status) {
      q.resume();
      return s.writeHead(status, { 'content-type': 'application/json' }).end('{"error":{"message":"as the case says"}}');
    }
    const parts = [];
    q.on('data', d => parts.push(d));
    q.on('end', () => {
      const body = Buffer.concat(parts), u = new URL(q.url, target), message = refuseBody(body);
      if (message) {
        const error = { type: 'error', error: { type: 'invalid_request_error', message } };
        return s.writeHead(400, { 'content-type': 'application/json' }).end(JSON.stringify(error));
      }
      const up = http.request(u, { method: q.method, headers: { ...q.headers, host: u.host } }, r => {
        const headers = { ...r.headers };
        delete headers['content-length'];
        s.writeHead(r.statusCode, headers);
        r.on('error', () => s.destroy());
        answer(q, body, r, s, up);
      });
      up.on('error', () => s.destroy());
      s.on('close', () => up.destroy());
      up.end(body);
    });
  }).listen(0, '127.0.0.1');
  await new Promise(r => server.on('listening', r));
  return { url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

// mangle respells streams in ways that mean the same: line ends of two bytes,
// comments, and every byte in a piece of its own.
export const mangle = target => proxy(target, async (q, body, r, s) => {
  if (!(r.headers['content-type'] || '').startsWith('text/event-stream')) return r.pipe(s);
  s.socket.setNoDelay(true);
  for await (const d of r) {
    const text = d.toString('latin1').replaceAll('\n\n', '\n\n: nothing\n\n').replaceAll('\n', '\r\n');
    for (const b of Buffer.from(text, 'latin1')) {
      s.write(Buffer.of(b));
      await new Promise(setImmediate);
    }
  }
  s.end();
});

// cutOnce cuts the connection of the first streamed model call that offers
// tools, after the given number of bytes.
export async function cutOnce(target, bytes) {
  let cut = false;
  const p = await proxy(target, (q, body, r, s, up) => {
    if (cut || !body.includes('"tools":[{') || !body.includes('"stream":true')) return r.pipe(s);
    cut = true;
    let left = bytes;
    r.on('data', d => {
      s.write(d.subarray(0, left));
      if ((left -= d.length) <= 0) { up.destroy(); s.destroy(); }
    });
    r.on('end', () => s.end());
  });
  return { ...p, happened: () => cut };
}

// refuseSystem refuses requests with system messages inside, in these words.
export async function refuseSystem(target, text) {
  let refused = 0;
  const p = await proxy(target, (q, body, r, s) => r.pipe(s), () => 0, body => {
    if (!body.includes('"role":"system"')) return '';
    refused++;
    return text;
  });
  return { ...p, happened: () => refused > 0 };
}

// trouble stands before an engine. Of the generations it is asked for once it is
// armed, it refuses the first ones with a status, or cuts them after a number of
// bytes.
export async function trouble(target, { status = 0, cutAfter = 0, times = 1 }) {
  let left = 0, armed = false;
  const p = await proxy(target, (q, body, r, s, up) => {
    if (q.url !== '/generate' || !cutAfter || left <= 0) return r.pipe(s);
    left--;
    let bytes = cutAfter;
    r.on('data', d => {
      s.write(d.subarray(0, bytes));
      if ((bytes -= d.length) <= 0) { up.destroy(); s.destroy(); }
    });
    r.on('end', () => s.end());
  }, q => q.url === '/generate' && status && left-- > 0 ? status : 0);
  return { ...p, arm: () => { left = times; armed = true; }, happened: () => armed && left < times };
}
