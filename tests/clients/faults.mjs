// Proxies between a client and turnlog that do what networks do.
import http from 'node:http';

// proxy listens and passes everything on to target. answer(q, body, r, s) passes
// the response r of the request q on to s.
async function proxy(target, answer) {
  const server = http.createServer((q, s) => {
    const parts = [];
    q.on('data', d => parts.push(d));
    q.on('end', () => {
      const body = Buffer.concat(parts), u = new URL(q.url, target);
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
