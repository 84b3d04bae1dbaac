// SPDX-License-Identifier: Apache-2.0
// What E2B's SDK documents for sandboxes, call by call. Prints one line of JSON a call: its name, "works", "differs", "refused", "absent" (the
// SDK has no such call, or the image no git) or "failed", and a detail. Usage: client.js TEMPLATE [PACKAGE], and see run.
import assert from 'node:assert/strict'

const [template, name = 'e2b'] = process.argv.slice(2)
const { Sandbox, CommandExitError, NotFoundError, Volume, Template } = await import(name)

let failed = 0
const say = (call, result, detail) => console.log(JSON.stringify({ call, result, detail }))
// step runs one call. as is what it is if f returns: "works", or "differs" and how.
const step = async (call, f, as = 'works', there = true) => {
  const begun = Date.now()
  if (!there) return say(call, 'absent', '')
  try {
    await f()
    say(call, as, `${Date.now() - begun} ms`)
  } catch (err) {
    failed++
    say(call, 'failed', `${err?.stack ?? err}`)
  }
}
const works = (call, f, there) => step(call, f, 'works', there)
const differs = (call, f, there) => step(call, f, 'differs', there)
// refused wants an error whose message tells what to do instead.
const refused = (call, advice, f, there) => step(call, async () => {
  await assert.rejects(async () => f(), (err) => advice.test(`${err?.message ?? err} ${err?.cause?.message ?? ''}`) || assert.fail(`it says: ${err?.stack ?? err}`))
}, 'refused', there)
const seen = (limit) => {
  let resolve
  const wanted = new Promise((r, reject) => { resolve = r; setTimeout(() => reject(new Error('nothing came')), limit).unref() })
  return { wanted, resolve }
}
const done = () => { process.exit(failed ? 1 : 0) }

// Version 0 of the SDK speaks to another daemon, by JSON-RPC over WebSocket.
if (Sandbox.prototype.getHostname) {
  await refused('Sandbox.create', /Not Implemented/, () => Sandbox.create({ template, timeout: 20_000 }))
  done()
}

const options = { timeoutMs: 300_000, metadata: { task: 'suite' }, envs: { GREETING: 'hello' } }
let sandbox
await works('Sandbox.create', async () => { sandbox = await Sandbox.create(template, options) })
if (!sandbox) done()
const hasGit = (await sandbox.commands.run('git --version || true')).stdout.startsWith('git version')
const dir = (await sandbox.commands.run('echo $HOME')).stdout.trim()
const listed = async (opts) => {
  const list = await Sandbox.list(opts)
  if (Array.isArray(list)) return list
  const all = []
  while (list.hasNext) all.push(...await list.nextItems())
  return all
}

await works('Sandbox.create with envs and metadata', async () => {
  assert.equal((await sandbox.commands.run('echo $GREETING')).stdout, 'hello\n')
  const [found] = (await listed({ query: { metadata: { task: 'suite' } } })).filter((s) => s.sandboxId === sandbox.sandboxId)
  assert.deepEqual({ ...found.metadata }, { task: 'suite' })
})
await works('isRunning', async () => assert.equal(await sandbox.isRunning(), true))
await works('getInfo', async () => {
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.templateId, template)
  if (info.state) assert.equal(info.state, 'running')
  assert.deepEqual({ ...info.metadata }, { task: 'suite' })
  if (info.endAt) assert.ok(info.endAt > info.startedAt)
}, !!sandbox.getInfo)
await works('commands.run', async () => {
  const lines = []
  const result = await sandbox.commands.run('echo "$GREETING $EXTRA"; pwd; echo bad >&2', {
    envs: { EXTRA: 'there' }, cwd: '/tmp', onStdout: (data) => { lines.push(data) },
  })
  assert.equal(result.stdout, 'hello there\n/tmp\n')
  assert.equal(result.stderr, 'bad\n')
  assert.equal(result.exitCode, 0)
  assert.equal(lines.join(''), result.stdout)
  await assert.rejects(sandbox.commands.run('echo out; exit 3'), (err) => err instanceof CommandExitError && err.exitCode === 3 && err.stdout === 'out\n')
  assert.equal((await sandbox.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')).stdout.length, 3_000_000)
})
await works('commands.run with timeoutMs', async () => { await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 })) })
await works('commands.run in the background, wait, kill', async () => {
  const command = await sandbox.commands.run('echo begun; exec sleep 600', { background: true })
  assert.equal(await command.kill(), true)
  await assert.rejects(command.wait())
  assert.equal(await sandbox.commands.kill(command.pid), false)
})
await works('commands.list, connect, sendStdin', async () => {
  const cat = await sandbox.commands.run('read line; echo "got $line"', { background: true, stdin: true })
  assert.ok((await sandbox.commands.list()).some((p) => p.pid === cat.pid))
  const again = await sandbox.commands.connect(cat.pid)
  await sandbox.commands.sendStdin(cat.pid, 'typed\n')
  assert.equal((await again.wait()).stdout, 'got typed\n')
})
await works('commands.closeStdin', async () => {
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(cat.pid, 'typed')
  await sandbox.commands.closeStdin(cat.pid)
  assert.equal((await cat.wait()).stdout, 'typed')
}, !!sandbox.commands.closeStdin)
await differs('commands.run of a login shell', async () => {
  assert.equal((await sandbox.commands.run('case $- in *l*) echo login;; *) echo none;; esac')).stdout, 'none\n')
})
await works('files.write, read', async () => {
  const info = await sandbox.files.write(`${dir}/a/b.txt`, 'content')
  assert.equal(info.path, `${dir}/a/b.txt`)
  assert.equal(await sandbox.files.read(`${dir}/a/b.txt`), 'content')
  const bytes = new Uint8Array(5_000_000).map((_, i) => i % 251)
  await sandbox.files.write(`${dir}/bytes`, bytes.buffer)
  assert.deepEqual(Buffer.from(await sandbox.files.read(`${dir}/bytes`, { format: 'bytes' })), Buffer.from(bytes))
  await assert.rejects(sandbox.files.read(`${dir}/none`), NotFoundError)
})
await works('files.read as stream and blob', async () => {
  await sandbox.files.write(`${dir}/s`, 'streamed')
  assert.equal(await (await sandbox.files.read(`${dir}/s`, { format: 'blob' })).text(), 'streamed')
  assert.equal(await new Response(await sandbox.files.read(`${dir}/s`, { format: 'stream' })).text(), 'streamed')
})
await works('files.write of several', async () => {
  const all = await sandbox.files.write([{ path: `${dir}/one`, data: '1' }, { path: `${dir}/two`, data: '2' }])
  assert.equal(all.length, 2)
  assert.equal(await sandbox.files.read(`${dir}/two`), '2')
})
await works('files.makeDir, list, exists, rename, remove', async () => {
  assert.equal(await sandbox.files.makeDir(`${dir}/d`), true)
  assert.equal(await sandbox.files.makeDir(`${dir}/d`), false)
  await sandbox.files.write(`${dir}/d/f`, 'x')
  assert.deepEqual((await sandbox.files.list(`${dir}/d`)).map((e) => [e.name, e.type]), [['f', 'file']])
  assert.equal(await sandbox.files.exists(`${dir}/d/f`), true)
  assert.equal((await sandbox.files.rename(`${dir}/d/f`, `${dir}/d/g`)).name, 'g')
  await sandbox.files.remove(`${dir}/d`)
  assert.equal(await sandbox.files.exists(`${dir}/d`), false)
})
await works('files.getInfo', async () => {
  await sandbox.files.write(`${dir}/i`, 'four')
  assert.equal((await sandbox.files.getInfo(`${dir}/i`)).size, 4)
}, !!sandbox.files.getInfo)
await works('files.watchDir', async () => {
  await sandbox.files.makeDir(`${dir}/w`)
  const { wanted, resolve } = seen(10_000)
  const handle = await sandbox.files.watchDir(`${dir}/w`, (event) => { if (event.name === 'new') resolve(event) })
  await sandbox.files.write(`${dir}/w/new`, 'x')
  await wanted
  await handle.stop()
})
await works('pty.create, resize, sendInput, kill', async () => {
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
await works('pty.connect', async () => {
  const { wanted, resolve } = seen(10_000)
  let text = ''
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
  const again = await sandbox.pty.connect(pty.pid, { onData: (data) => { text += new TextDecoder().decode(data); if (text.includes('ab')) resolve() } })
  await sandbox.pty.sendInput(again.pid, new TextEncoder().encode('printf a; printf "b\\n"\n'))
  await wanted
  await sandbox.pty.kill(pty.pid)
}, !!sandbox.pty.connect)
await works('git.init, status', async () => {
  await sandbox.git.init(`${dir}/repository`)
  await sandbox.files.write(`${dir}/repository/file`, 'x')
  assert.equal((await sandbox.git.status(`${dir}/repository`)).fileStatus.length, 1)
}, !!sandbox.git && hasGit)
await works('Sandbox.list', async () => {
  const second = await Sandbox.create(template, { timeoutMs: 60_000, metadata: { task: 'other', owner: 'é b@example.org' } })
  try {
    const ids = (await listed({ limit: 1 })).map((s) => s.sandboxId)
    assert.ok(ids.includes(sandbox.sandboxId) && ids.includes(second.sandboxId))
    assert.deepEqual((await listed({ query: { metadata: { owner: 'é b@example.org' } } })).map((s) => s.sandboxId), [second.sandboxId])
  } finally {
    assert.notEqual(await second.kill(), false) // some versions return nothing
  }
})
await differs('setTimeout', async () => {
  await sandbox.setTimeout(600_000)
  const info = await sandbox.getInfo()
  if (info.endAt) assert.ok(Math.abs(info.endAt.getTime() - Date.now() - 600_000) < 30_000, `ends at ${info.endAt}`)
})
await works('Sandbox.connect', async () => {
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('echo $GREETING')).stdout, 'hello\n')
  await assert.rejects(async () => (await Sandbox.connect('01arz3ndektsv4rrffq69g5fav-east')).commands.run('true'))
})
const pause = sandbox.pause ?? sandbox.betaPause
await differs('pause, connect to what is paused', async () => {
  await sandbox.files.write(`${dir}/kept`, 'kept')
  await pause.call(sandbox)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read(`${dir}/kept`), 'kept')
}, !!pause)
await differs('getHost', async () => assert.match(sandbox.getHost(8000), new RegExp(`^8000-${sandbox.sandboxId}\\.`)))
// Without a wildcard name the URL names no sandbox.
await refused('uploadUrl, downloadUrl', process.env.E2B_DOMAIN ? /401/ : /404|fetch failed/, async () => {
  const response = await fetch(await sandbox.downloadUrl(`${dir}/a/b.txt`))
  if (!response.ok) throw new Error(`${response.status}`)
})
await refused('getMetrics', /501.*metrics/s, () => sandbox.getMetrics(), !!sandbox.getMetrics)
await refused('createSnapshot', /501.*pause/s, () => sandbox.createSnapshot(), !!sandbox.createSnapshot)
await refused('listSnapshots', /501.*snapshot/s, () => sandbox.listSnapshots().nextItems(), !!sandbox.listSnapshots)
await refused('fork', /501.*create another/s, async () => {
  for (const one of await sandbox.fork()) if (one.error ?? one instanceof Error) throw one.error ?? one
}, !!sandbox.fork)
await refused('updateNetwork', /501.*egress/s, () => sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] }), !!sandbox.updateNetwork)
// A worker that makes no network policies can deny no sandbox its egress.
const denied = (call, options, there) => process.env.NETWORK_POLICIES
  ? works(call, async () => { await (await Sandbox.create(template, options)).kill() }, there)
  : refused(call, /422.*denyEgress.*network policies/s, () => Sandbox.create(template, options), there)
await denied('Sandbox.create with allowInternetAccess: false', { allowInternetAccess: false }, !!sandbox.getMetrics)
await denied('Sandbox.create with network', { network: { denyOut: ['0.0.0.0/0'] } }, !!sandbox.updateNetwork)
await refused('Sandbox.create with lifecycle: pause', /501.*pause/s, () => Sandbox.create(template, { lifecycle: { onTimeout: 'pause' } }), !!sandbox.updateNetwork)
await refused('Sandbox.create with volumeMounts', /501.*template/s, () => Sandbox.create(template, { volumeMounts: { '/data': 'v' } }), !!Volume)
await refused('Volume.create', /501.*template/s, () => Volume.create('v'), !!Volume)
await refused('Template.build with steps', /501.*(fromImage|ask a hub)/s, () => Template.build(Template().fromImage('registry.example/python:suite').runCmd('true'), 'suite-steps', {}), !!Template?.build)
await works('Sandbox.create of an unknown template fails', async () => { await assert.rejects(Sandbox.create('no-such-env', { timeoutMs: 10_000 }), /404.*no-such-env/s) })
await works('kill', async () => {
  assert.notEqual(await sandbox.kill(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  assert.equal(await sandbox.isRunning(), false)
})
done()
