// A proxy between a client and turnlog that cuts the connection of one model
// call in the middle of its stream, as networks do.
import http from 'node:http';

// cutOnce listens and passes everything on to target; the first streamed model
// call that offers tools loses its connection after the given number of bytes.
export async function cutOnce(target, bytes) {
  let cut = false;
  const server = http.createServer((q, s) => {
    const parts = [];
    q.on('data', d => parts.push(d));
    q.on('end', () => {
      const body = Buffer.concat(parts);
      const mine = !cut && q.method === 'POST' && body.includes('"tools":[{') && body.includes('"stream":true');
      if (mine) cut = true;
      const u = new URL(q.url, target);
      const up = http.request(u, { method: q.method, headers: { ...q.headers, host: u.host } }, r => {
        s.writeHead(r.statusCode, r.headers);
        let left = bytes;
        r.on('data', d => {
          if (!mine) return s.write(d);
          s.write(d.subarray(0, left));
          if ((left -= d.length) <= 0) { up.destroy(); s.destroy(); }
        });
        r.on('end', () => s.end());
        r.on('error', () => s.destroy());
      });
      up.on('error', () => s.destroy());
      s.on('close', () => up.destroy());
      up.end(body);
    });
  }).listen(0, '127.0.0.1');
  await new Promise(r => server.on('listening', r));
  return { url: `http://127.0.0.1:${server.address().port}`, happened: () => cut, stop: () => server.close() };
}
