// What the page costs, in a real Chromium and at a running server: node bench.mjs CHROMIUM ADDRESS PID REPORT COMMAND.
//
//  0. The first view, of a browser that has been nowhere: from the address to the overview with its numbers, and what that loads.
//  1. A list of 10,000 functions, from a stream that says it and then changes 100 of them twenty times a second: how soon it is there, and
//     how long each frame takes while it is scrolled through.
//  2. A day of swaps on four GPUs (8,000 changes): how long the ledger takes to draw, and to look at another moment.
//  3. 1,000 readers of the real server's stream: what they add to its memory, and how soon each is told of a change.
import { chromium } from 'playwright-core'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { cpus, loadavg } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [executablePath, address, pid, report, command] = process.argv.slice(2)
const built = join(dirname(fileURLToPath(import.meta.url)), '..', 'built')
const types = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' }
const loadBefore = loadavg().map((n) => n.toFixed(2)).join(' ')
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function quantiles(list) {
  const s = [...list].sort((a, b) => a - b)
  const q = (p) => Number(s[Math.min(s.length - 1, Math.floor(p * s.length))].toFixed(2))
  return { n: s.length, p50: q(0.5), p95: q(0.95), p99: q(0.99), max: q(1) }
}

const GiB = 2 ** 30
const states = ['awake', 'asleep', 'gone', 'starting']
const since = new Date().toISOString()
const fn = (k, state) => ({ name: `team-${k % 7}/model-${String(k).padStart(5, '0')}`, model: `model-${k}`, runtime: 'vllm', source: `org/model-${k}`, state, max: 1, need: { host: GiB, devices: 1, perDevice: 20 * GiB },
  instances: state === 'gone' ? [] : [{ instance: `model-${k}-0001`, state, since, devices: ['gpu-' + (k % 4)], memory: { host: GiB, devices: 1, perDevice: state === 'asleep' ? GiB / 2 : 20 * GiB } }] })
const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
const devices = [0, 1, 2, 3].map((k) => ({ id: 'gpu-' + k, name: 'GPU ' + k, capacity: 80 * GiB, total: 80 * GiB, awake: 0, rising: 0, reserved: 0, asleep: 0, leaving: 0, free: 0 }))

// day is a history: every ten seconds the next of twenty models takes the next GPU.
function day() {
  const changes = []
  const begin = Date.now() - 22 * 3600_000
  for (let k = 0; k < 4000; k++) {
    const at = new Date(begin + k * 19_000).toISOString()
    const held = (n, state, per) => ({ at, instance: `m${n}-0001`, function: 'default/m' + n, devices: ['gpu-' + (n % 4)], state, host: GiB, perDevice: per })
    changes.push(held((k + 16) % 20, 'asleep', GiB / 2), held(k % 20, 'awake', 70 * GiB))
  }
  return { since: new Date(begin).toISOString(), seq: 9000, whole: true, changes }
}

let changing = false
const fake = createServer((req, res) => {
  const path = req.url.split('?')[0]
  if (path === '/rouse/v1/watch') {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    res.write(event('server', { version: 'bench', url: '', started: since }))
    for (let k = 0; k < 10_000; k += 200) res.write(event('functions', Array.from({ length: 200 }, (_, j) => fn(k + j, states[(k + j) % 4]))))
    res.write(event('devices', devices) + event('ready', {}))
    let turn = 0
    const clock = setInterval(() => changing && res.write(event('functions', Array.from({ length: 100 }, (_, j) => fn((turn * 100 + j) % 10_000, states[(turn++ + j) % 4])))), 50)
    res.on('close', () => clearInterval(clock))
  } else if (path === '/rouse/v1/history') {
    res.setHeader('Content-Type', 'application/json')
    res.end(JSON.stringify(day()))
  } else {
    const name = path === '/' ? 'index.html' : path.replace('/rouse/page/', '')
    try {
      res.setHeader('Content-Type', types[name.split('.').pop()] ?? '')
      res.end(readFileSync(join(built, name)))
    } catch {
      res.writeHead(404).end()
    }
  }
})
await new Promise((resolve) => fake.listen(0, '127.0.0.1', resolve))
const at = `http://127.0.0.1:${fake.address().port}`
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })

// workOf returns what measures the processor's time of a page's own thread, in ms: what else the machine does is not in it.
async function workOf(page) {
  const cdp = await page.context().newCDPSession(page)
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' })
  return async () => 1000 * (await cdp.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value
}

// firstView opens the real server's page with nothing in any cache, and returns the times of its parts, in ms since the address was given.
async function firstView(at, ready) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 720 } })
  const page = await context.newPage()
  await page.addInitScript((ready) => {
    new MutationObserver((_, o) => document.querySelector(ready) && (o.disconnect(), requestAnimationFrame(() => setTimeout(() => { window.shownAt = performance.now() })))).observe(document, { childList: true, subtree: true })
  }, ready)
  const work = await workOf(page)
  await page.goto(at)
  await page.waitForFunction(() => window.shownAt)
  const found = await page.evaluate(() => {
    const by = (name) => performance.getEntriesByType('resource').find((e) => e.name.includes(name))
    const [document_] = performance.getEntriesByType('navigation')
    const loaded = [document_, by('page.css'), by('page.js'), by('icon.svg')].filter(Boolean)
    return { htmlMs: document_.responseEnd, scriptMs: by('page.js').responseEnd, shownMs: window.shownAt, bytes: loaded.reduce((n, e) => n + e.transferSize, 0) }
  })
  found.workMs = await work()
  await context.close()
  return found
}
async function firstViews(at, ready) {
  const all = []
  for (let k = 0; k < 7; k++) all.push(await firstView(at, ready))
  return Object.fromEntries(Object.keys(all[0]).map((key) => [key, quantiles(all.map((v) => v[key]))]))
}
const views = { 'three functions, a real server': await firstViews(address, '.tile b'), '10,000 functions': await firstViews(at + '/#/', '.tile b') }

const page = await (await browser.newContext({ viewport: { width: 1180, height: 720 } })).newPage()

const work = await workOf(page)

const began = performance.now()
await page.goto(at + '/#/functions')
await page.getByRole('row').nth(5).waitFor()
const first = performance.now() - began
await page.getByText('all 10000').waitFor()
const whole = performance.now() - began

// scroll goes through the list for some seconds, and returns the length of each frame, in ms.
const scroll = (px) => page.evaluate((px) => new Promise((resolve) => {
  const body = document.querySelector('.body')
  const frames = []
  const end = performance.now() + 6000
  let last = 0
  let way = px
  const step = (t) => {
    if (last) frames.push(t - last)
    last = t
    if (t > end) return resolve(frames)
    if (body.scrollTop + body.clientHeight >= body.scrollHeight - 2) way = -px
    else if (body.scrollTop <= 0) way = px
    body.scrollTop += way
    requestAnimationFrame(step)
  }
  requestAnimationFrame(step)
}), px)
async function scrolled(px) {
  const before = await work()
  const list = await scroll(px)
  return { framesPerSecond: Number((1000 / (list.reduce((n, f) => n + f, 0) / list.length)).toFixed(1)), frameMs: quantiles(list), workMsAFrame: Number(((await work() - before) / list.length).toFixed(2)) }
}
const fling = 150 // px a frame, which is 9,000 a second
const still = await scrolled(fling)
const dragged = await scrolled(6 * fling)
changing = true
const busy = await scrolled(fling)
changing = false
const rows = await page.getByRole('row').count()

await page.evaluate(() => { location.hash = '#/memory' })
await page.locator('.chart path').first().waitFor()
await page.getByRole('button', { name: '24 hours' }).click()
const beforeDraws = await work()
const draws = await page.evaluate(async () => {
  const list = []
  const slider = document.querySelector('.slider')
  for (let k = 1; k < 60; k++) {
    const t = performance.now()
    slider.value = String(Number(slider.min) + ((Number(slider.max) - Number(slider.min)) * k) / 60)
    slider.dispatchEvent(new Event('input', { bubbles: true }))
    await new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)))
    list.push(performance.now() - t)
  }
  return list
})
const workOfDraws = Number(((await work() - beforeDraws) / draws.length).toFixed(2))
await browser.close()
fake.close()
fake.closeAllConnections()

// The real server, with 1,000 readers.
const [url, token] = address.split('/#token=')
const headers = { Authorization: 'Bearer ' + token }
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1])
const readers = 1000
const told = []
let from = 0
let wanted = ''
const stop = new AbortController()
const quiet = memory()
await fetch(url + '/rouse/v1/functions/default/pico/wake', { method: 'POST', headers })
const all = await Promise.all(Array.from({ length: readers }, async () => {
  const resp = await fetch(url + '/rouse/v1/watch', { headers, signal: stop.signal })
  if (!resp.ok) throw new Error(`a reader is answered ${resp.status}`)
  let ready
  const there = new Promise((resolve) => (ready = resolve))
  const read = async () => {
    const decode = new TextDecoder()
    let seen = ''
    for await (const part of resp.body) {
      const text = decode.decode(part)
      if (text.includes('event: ready')) ready()
      if (wanted && text.includes(`"state":"${wanted}"`) && seen !== wanted) {
        seen = wanted
        told.push(performance.now() - from)
      }
    }
  }
  read().catch(() => {})
  await there
}))
await sleep(1000)
const open = memory()
const rounds = 20
for (let k = 0; k < rounds; k++) {
  wanted = k % 2 ? 'awake' : 'asleep'
  const before = told.length
  from = performance.now()
  const resp = await fetch(url + `/rouse/v1/functions/default/pico/${k % 2 ? 'wake' : 'sleep'}`, { method: 'POST', headers })
  if (!resp.ok) throw new Error(await resp.text())
  while (told.length < before + all.length) await sleep(5)
  wanted = ''
  await sleep(300)
}
stop.abort()

writeFileSync(report, JSON.stringify({
  command, at: new Date().toISOString().replace(/\.\d+/, ''),
  machine: { cores: cpus().length, cpu: cpus()[0].model.replace(/ \d+-Core.*/, ''), os: 'linux/amd64', browser: 'Chromium, headless', loadBefore, loadAfter: loadavg().map((n) => n.toFixed(2)).join(' ') },
  measurements: {
    'the first view, nothing cached': views,
    '10,000 functions': { firstRowsMs: Math.round(first), allMs: Math.round(whole), rowsInTheDocument: rows, 'scrolled, 150 px a frame': still, 'the scroll bar dragged, 900 px a frame': dragged, 'scrolled while 2,000 functions a second change': busy },
    'the ledger of a day, 8,000 changes on four GPUs': { 'another moment, to the end of its frame, ms': quantiles(draws), workMsAMoment: workOfDraws },
    '1,000 open event streams': { serverMiB: { before: Math.round(quiet / 1024), with: Math.round(open / 1024), eachKiB: Number(((open - quiet) / readers).toFixed(1)) }, 'an order given until each reader is told, ms': quantiles(told) },
  },
}, null, 2) + '\n')
process.exit(0)
