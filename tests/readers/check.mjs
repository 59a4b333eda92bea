// Reads shards with the readers of npm and compares them with pyarrow's digests:
//
//	node check.mjs SHARDS REFERENCE.json     with NODE_PATH's packages in ./node_modules
//
// One line a check; see check.py.
import fs from 'node:fs'
import path from 'node:path'
import { createRequire } from 'node:module'

const require = createRequire(path.join(process.env.TURNLOG_READERS_NODE, 'package.json'))
const load = async (name) => import(require.resolve(name))

const [shards, reference] = process.argv.slice(2)
const want = JSON.parse(fs.readFileSync(reference, 'utf8'))
const files = fs.readdirSync(shards, { recursive: true })
  .filter((f) => /(^|\/)part-[^/]*\.parquet$/.test(f)).sort().map((f) => path.join(shards, f))

const word = new DataView(new ArrayBuffer(4))
function bits (x) {
  word.setFloat32(0, x, true)
  return word.getUint32(0, true)
}

function digest (ids, mask, logprobs, reward, session) {
  let sum = 0, weighted = 0, trained = 0, where = 0
  ids.forEach((x, i) => { sum += x; weighted += (i + 1) * x })
  mask.forEach((m, i) => { trained += m; where += (i + 1) * m })
  let lp = null
  if (logprobs != null) {
    lp = 0
    logprobs.forEach((x, i) => { lp += ((i % 1000) + 1) * bits(x) })
  }
  return [session, ids.length, sum, weighted, trained, where, lp, reward == null ? null : bits(reward)]
}

async function check (name, f) {
  try {
    const got = await f()
    const n = Object.keys(want).length
    if (Object.keys(got).length !== n) throw new Error(`${Object.keys(got).length} rows of ${n}`)
    for (const [id, d] of Object.entries(got)) {
      if (JSON.stringify(d) !== JSON.stringify(want[id])) throw new Error(`${id}: ${d}, not ${want[id]}`)
    }
    console.log('ok   ', name)
  } catch (e) {
    console.log('FAIL ', name, '-', String(e.stack).slice(0, 500))
  }
}

const columns = ['row_id', 'session_id', 'input_ids', 'loss_mask', 'logprobs', 'reward']

await check('hyparquet: digests', async () => {
  const { parquetReadObjects } = await load('hyparquet')
  const { compressors } = await load('hyparquet-compressors')
  const got = {}
  for (const file of files) {
    const b = fs.readFileSync(file)
    const buffer = b.buffer.slice(b.byteOffset, b.byteOffset + b.length)
    for (const r of await parquetReadObjects({ file: buffer, columns, compressors })) {
      got[r.row_id] = digest(r.input_ids, r.loss_mask, r.logprobs, r.reward, r.session_id)
    }
  }
  return got
})

await check('arrow-rs (parquet-wasm): digests', async () => {
  const { readParquet } = require('parquet-wasm/node')
  const { tableFromIPC } = require('apache-arrow')
  const got = {}
  for (const file of files) {
    const table = tableFromIPC(readParquet(fs.readFileSync(file)).intoIPCStream())
    for (const r of table) {
      const list = (v) => (v == null ? null : Array.from(v))
      got[r.row_id] = digest(list(r.input_ids), list(r.loss_mask), list(r.logprobs), r.reward, r.session_id)
    }
  }
  return got
})
