// SPDX-License-Identifier: Apache-2.0
// What E2B's SDK documents for sandboxes, one step a line: "ok NAME", or "not ok NAME" and why.
import assert from 'node:assert/strict'
import { Sandbox, CommandExitError, NotFoundError } from 'e2b'

const template = process.argv[2]
let failed = 0
const step = async (name, f) => {
  const begun = Date.now()
  try {
    await f()
    console.log(`ok ${name} ${Date.now() - begun} ms`)
  } catch (err) {
    failed++
    console.log(`not ok ${name}: ${err?.stack ?? err}`)
  }
}
const seen = (limit) => {
  let resolve
  const wanted = new Promise((r, reject) => { resolve = r; setTimeout(() => reject(new Error('nothing came')), limit).unref() })
  return { wanted, resolve }
}

const sandbox = await Sandbox.create(template, { timeoutMs: 120_000, metadata: { task: 'suite' }, envs: { GREETING: 'hello' } })
console.log(`ok create ${sandbox.sandboxId}`)
const dir = (await sandbox.commands.run('echo $HOME')).stdout.trim()

await step('isRunning', async () => assert.equal(await sandbox.isRunning(), true))
await step('getInfo', async () => {
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.templateId, template)
  assert.equal(info.state, 'running')
  assert.deepEqual({ ...info.metadata }, { task: 'suite' })
  assert.ok(info.endAt > info.startedAt)
})
await step('commands.run', async () => {
  const lines = []
  const result = await sandbox.commands.run('echo "$GREETING $EXTRA"; echo bad >&2', {
    envs: { EXTRA: 'there' }, cwd: '/tmp', onStdout: (data) => { lines.push(data) },
  })
  assert.equal(result.stdout, 'hello there\n')
  assert.equal(result.stderr, 'bad\n')
  assert.equal(result.exitCode, 0)
  assert.equal(lines.join(''), 'hello there\n')
})
await step('commands.run fails', async () => {
  await assert.rejects(sandbox.commands.run('echo out; exit 3'), (err) => err instanceof CommandExitError && err.exitCode === 3 && err.stdout === 'out\n')
})
await step('commands.run timeout', async () => {
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }))
})
await step('commands.run background, stdin, list, connect, kill', async () => {
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  assert.ok((await sandbox.commands.list()).some((p) => p.pid === cat.pid))
  await sandbox.commands.sendStdin(cat.pid, 'typed')
  const again = await sandbox.commands.connect(cat.pid)
  await sandbox.commands.closeStdin(cat.pid)
  assert.equal((await again.wait()).stdout, 'typed')
  const sleeping = await sandbox.commands.run('sleep 600', { background: true })
  assert.equal(await sandbox.commands.kill(sleeping.pid), true)
  await assert.rejects(sleeping.wait())
  assert.equal(await sandbox.commands.kill(sleeping.pid), false)
})
await step('commands.run large output', async () => {
  const result = await sandbox.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')
  assert.equal(result.stdout.length, 3_000_000)
})
await step('files.write and read', async () => {
  const info = await sandbox.files.write(`${dir}/a/b.txt`, 'content')
  assert.equal(info.path, `${dir}/a/b.txt`)
  assert.equal(await sandbox.files.read(`${dir}/a/b.txt`), 'content')
  const bytes = new Uint8Array(5_000_000).map((_, i) => i % 251)
  await sandbox.files.write(`${dir}/bytes`, bytes.buffer)
  assert.deepEqual(Buffer.from(await sandbox.files.read(`${dir}/bytes`, { format: 'bytes' })), Buffer.from(bytes))
})
await step('files.write several', async () => {
  const all = await sandbox.files.write([{ path: `${dir}/one`, data: '1' }, { path: `${dir}/two`, data: '2' }])
  assert.equal(all.length, 2)
  assert.equal(await sandbox.files.read(`${dir}/two`), '2')
})
await step('files.read of what is not there', async () => assert.rejects(sandbox.files.read(`${dir}/none`), NotFoundError))
await step('files.makeDir, list, exists, rename, getInfo, remove', async () => {
  assert.equal(await sandbox.files.makeDir(`${dir}/d`), true)
  assert.equal(await sandbox.files.makeDir(`${dir}/d`), false)
  await sandbox.files.write(`${dir}/d/f`, 'x')
  const entries = await sandbox.files.list(`${dir}/d`)
  assert.deepEqual(entries.map((e) => [e.name, e.type, e.size]), [['f', 'file', 1]])
  assert.equal(await sandbox.files.exists(`${dir}/d/f`), true)
  const moved = await sandbox.files.rename(`${dir}/d/f`, `${dir}/d/g`)
  assert.equal(moved.name, 'g')
  assert.equal((await sandbox.files.getInfo(`${dir}/d/g`)).size, 1)
  await sandbox.files.remove(`${dir}/d`)
  assert.equal(await sandbox.files.exists(`${dir}/d`), false)
})
await step('files.watchDir', async () => {
  await sandbox.files.makeDir(`${dir}/w`)
  const { wanted, resolve } = seen(10_000)
  const handle = await sandbox.files.watchDir(`${dir}/w`, (event) => { if (event.name === 'new') resolve(event) })
  await sandbox.files.write(`${dir}/w/new`, 'x')
  await wanted
  await handle.stop()
})
await step('pty', async () => {
  const { wanted, resolve } = seen(10_000)
  let text = ''
  const pty = await sandbox.pty.create({
    cols: 90, rows: 20, onData: (data) => { text += new TextDecoder().decode(data); if (text.includes('30 100')) resolve() },
  })
  await sandbox.pty.resize(pty.pid, { cols: 100, rows: 30 })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size\n'))
  await wanted
  assert.equal(await sandbox.pty.kill(pty.pid), true)
})
await step('list with pages', async () => {
  const second = await Sandbox.create(template, { timeoutMs: 60_000, metadata: { task: 'other' } })
  try {
    const ids = []
    for (const pages = Sandbox.list({ limit: 1 }); pages.hasNext;) ids.push(...(await pages.nextItems()).map((s) => s.sandboxId))
    assert.ok(ids.includes(sandbox.sandboxId) && ids.includes(second.sandboxId))
    const filtered = await Sandbox.list({ query: { metadata: { task: 'other' } } }).nextItems()
    assert.deepEqual(filtered.map((s) => s.sandboxId), [second.sandboxId])
  } finally {
    assert.equal(await second.kill(), true)
  }
})
await step('setTimeout', async () => {
  await sandbox.setTimeout(600_000)
  const left = (await sandbox.getInfo()).endAt.getTime() - Date.now()
  assert.ok(left > 500_000 && left < 700_000, `ends in ${left} ms`)
})
await step('connect', async () => {
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('echo $GREETING')).stdout, 'hello\n')
})
await step('connect to what is not there', async () => assert.rejects(Sandbox.connect('01arz3ndektsv4rrffq69g5fav-east')))
await step('an unknown template', async () => assert.rejects(Sandbox.create('no-such-env', { timeoutMs: 10_000 })))
await step('kill', async () => {
  assert.equal(await sandbox.kill(), true)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  assert.equal(await sandbox.isRunning(), false)
})
process.exit(failed ? 1 : 0)
