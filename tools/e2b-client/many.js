// SPDX-License-Identifier: Apache-2.0
// Creates N sandboxes at once, runs a command in each and kills it. Prints a line of JSON: how many, and the seconds of the creates.
// Usage: many.js TEMPLATE N, and see run.
import { Sandbox } from 'e2b'

const [template, n] = process.argv.slice(2)
const begun = performance.now()
const took = []
const errors = {}
await Promise.all(Array.from({ length: Number(n) }, async (_, i) => {
  try {
    const sandbox = await Sandbox.create(template, { timeoutMs: 300_000, requestTimeoutMs: 300_000, envs: { N: `${i}` } })
    took.push((performance.now() - begun) / 1000)
    try {
      const { stdout } = await sandbox.commands.run('echo $N', { requestTimeoutMs: 120_000 })
      if (stdout !== `${i}\n`) throw new Error(`sandbox ${i} printed ${stdout}`)
    } finally {
      await sandbox.kill({ requestTimeoutMs: 120_000 })
    }
  } catch (err) {
    const what = `${err?.message ?? err}`.slice(0, 200)
    errors[what] = (errors[what] ?? 0) + 1
  }
}))
took.sort((a, b) => a - b)
const at = (q) => Number((took[Math.min(took.length - 1, Math.floor(q * took.length))] ?? NaN).toFixed(1))
console.log(JSON.stringify({ created: took.length, first: at(0), p50: at(0.5), last: at(1), errors }))
process.exit(Object.keys(errors).length ? 1 : 0)
