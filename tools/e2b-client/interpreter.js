// SPDX-License-Identifier: Apache-2.0
// Runs code with the stock npm package @e2b/code-interpreter in a sandbox of examples/code-interpreter. Usage: interpreter.js TEMPLATE, see run.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create(process.argv[2], { timeoutMs: 300_000 })
try {
  // On a plane a Pod's command starts with the first call of its sandbox.
  for (const until = Date.now() + 60_000; ;) {
    try {
      await sandbox.listCodeContexts()
      break
    } catch (err) {
      if (Date.now() > until) throw err
    }
  }
  const printed = []
  const one = await sandbox.runCode('x = 20\nprint("out")\nimport sys\nprint("err", file=sys.stderr)\nx + 1', { onStdout: (m) => printed.push(m.line) })
  assert.equal(one.text, '21')
  assert.deepEqual(one.logs, { stdout: ['out\n'], stderr: ['err\n'] })
  assert.deepEqual(printed, ['out\n'])
  const two = await sandbox.runCode('x += 1; x')
  assert.equal(two.text, '21')
  assert.equal(two.executionCount, one.executionCount + 1)
  console.log('ok runCode, in one context')
  const failed = await sandbox.runCode('1 / 0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  assert.match(failed.error.traceback, /division by zero/)
  console.log('ok errors')
  assert.equal((await sandbox.runCode('import os; os.environ["A"]', { envs: { A: 'b' } })).text, "'b'")
  assert.equal((await sandbox.runCode('os.environ.get("A", "gone")')).text, "'gone'")
  console.log('ok envs')
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  assert.equal((await sandbox.runCode('import os; os.getcwd(), "x" in globals()', { context })).text, "('/tmp', False)")
  await sandbox.runCode('y = 1', { context })
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('"y" in globals()', { context })).text, 'False')
  assert.deepEqual((await sandbox.listCodeContexts()).map((c) => c.language), ['python', 'python'])
  await sandbox.removeCodeContext(context)
  assert.equal((await sandbox.listCodeContexts()).length, 1)
  console.log('ok contexts')
  const html = await sandbox.runCode('from IPython.display import HTML; HTML("<b>x</b>")')
  assert.equal(html.results[0].html, '<b>x</b>')
  const plot = await sandbox.runCode('import matplotlib.pyplot as plt; plt.plot([1, 2, 4]); plt.show()')
  assert.equal(plot.error, undefined)
  assert.equal(Buffer.from(plot.results[0].png, 'base64').subarray(1, 4).toString(), 'PNG')
  console.log('ok results, plots included')
  await assert.rejects(sandbox.runCode('1', { language: 'r' }), /501|Not Implemented/)
  console.log('ok another language is refused')
} finally {
  await sandbox.kill()
}
process.exit(0)
