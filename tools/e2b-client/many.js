// SPDX-License-Identifier: Apache-2.0
// Creates N sandboxes at once, then runs a command in each and kills it. Prints a line of JSON: how many were created, how many ran their
// command, the seconds of the creates, and what kinds of errors there were. Usage: many.js TEMPLATE N, and see run.
import { Sandbox } from 'e2b'

const [template, n] = process.argv.slice(2)
const begun = performance.now()
const took = []
const errors = {}
const kinds = {}
const noted = async (f) => {
  try {
    return await f()
  } catch (err) {
    const what = `${err?.message ?? err}`.slice(0, 200)
    errors[what] = (errors[what] ?? 0) + 1
    kinds[err?.name] = (kinds[err?.name] ?? 0) + 1
  }
}
const all = await Promise.all(Array.from({ length: Number(n) }, (_, i) => noted(async () => {
  const sandbox = await Sandbox.create(template, { timeoutMs: 600_000, requestTimeoutMs: 300_000, envs: { N: `${i}` } })
  took.push((performance.now() - begun) / 1000)
  return sandbox
})))
let ran = 0
const left = [...all.entries()].filter(([, sandbox]) => sandbox)
await Promise.all(Array.from({ length: 8 }, async () => {
  for (let one; (one = left.pop());) {
    await noted(async () => {
      const { stdout } = await one[1].commands.run('echo $N')
      if (stdout === `${one[0]}\n`) ran++ // after the await: += reads its left side before it
    })
    await noted(() => one[1].kill())
  }
}))
took.sort((a, b) => a - b)
const at = (q) => Number((took[Math.min(took.length - 1, Math.floor(q * took.length))] ?? NaN).toFixed(1))
console.log(JSON.stringify({ created: took.length, ran, first: at(0), p50: at(0.5), last: at(1), kinds, errors: Object.fromEntries(Object.entries(errors).slice(0, 10)) }))
process.exit(Object.keys(errors).length ? 1 : 0)
