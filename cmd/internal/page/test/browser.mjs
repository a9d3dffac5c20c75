// What a person sees of the page, in a real Chromium, against a running server: node browser.mjs CHROMIUM ADDRESS [FOLDER].
// ADDRESS has the token. In FOLDER, if one is given, are screenshots then. It ends with 1 and what failed.
import { chromium } from 'playwright-core'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import assert from 'node:assert/strict'

const [executablePath, address, folder] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const origin = new URL(address).origin
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
const patience = 20_000

// open makes a page of its own, whose faults fail the test.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 720 }, bypassCSP: false, ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(patience)
  page.faults = []
  page.on('pageerror', (err) => page.faults.push(String(err)))
  page.on('console', (m) => /Content Security Policy|TrustedHTML/.test(m.text()) && page.faults.push(m.text()))
  page.on('request', (r) => r.url().startsWith(origin) || r.url().startsWith('data:') || page.faults.push('asks ' + r.url()))
  return page
}

async function shot(page, name) {
  if (folder) await page.screenshot({ path: join(folder, name + '.png') })
}

// accessible has axe look at the page as it is, in an isolated world that the page's policy does not bind.
async function accessible(page, where) {
  const cdp = await page.context().newCDPSession(page)
  const { frameTree } = await cdp.send('Page.getFrameTree')
  const { executionContextId: contextId } = await cdp.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id })
  await cdp.send('Runtime.evaluate', { contextId, expression: axe })
  const { result, exceptionDetails } = await cdp.send('Runtime.evaluate', { contextId, awaitPromise: true, returnByValue: true,
    expression: `axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter(v => ['serious','critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | ')))` })
  assert.equal(exceptionDetails, undefined)
  assert.deepEqual(result.value, [], 'accessibility of ' + where)
}

const checks = {
  async 'the views'() {
    for (const colorScheme of ['light', 'dark']) {
      const page = await open({ colorScheme })
      await page.goto(address)
      await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
      assert.equal(page.url().includes('token'), false, 'the token stays in the address')
      for (const view of ['Playground', 'Memory', 'Requests', 'Decisions', 'Usage', 'Clusters', 'Functions']) {
        await page.getByRole('navigation').getByRole('link', { name: view }).click()
        await page.getByRole('heading', { level: 1 }).first().waitFor()
        await accessible(page, view + ', ' + colorScheme)
      }
      assert.deepEqual(page.faults, [])
      await page.context().close()
    }
  },

  async 'a playground that wakes'() {
    const page = await open()
    await page.goto(address)
    await page.getByRole('link', { name: 'Playground' }).click()
    await page.getByLabel('Two models side by side').check()
    await page.getByLabel('Prompt').fill('echo hello world')
    await page.getByRole('button', { name: 'Send' }).click()
    const answers = page.locator('.turn.assistant')
    await answers.nth(1).getByText('hello world').waitFor()
    await page.getByRole('button', { name: 'Send' }).waitFor()
    assert.match(await answers.nth(0).innerText(), /hold [\d.]+ .*first token [\d.]+ .*tokens/s)
    await page.getByRole('button', { name: 'Send' }).waitFor()
    await accessible(page, 'answers')
    await shot(page, 'playground')
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'orders and what is told of them'() {
    const page = await open()
    await page.goto(address)
    const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: 'pico', exact: true }) })
    await row.getByRole('button', { name: 'Wake pico' }).or(row.getByRole('button', { name: 'Sleep pico' })).first().waitFor()
    if (await row.getByRole('button', { name: 'Wake pico' }).isVisible()) await row.getByRole('button', { name: 'Wake pico' }).click()
    await row.locator('.state.awake').waitFor()
    await row.getByRole('button', { name: 'Sleep pico' }).click()
    await row.locator('.state.asleep').waitFor()
    await page.locator('[aria-live=polite]').getByText('pico is asleep').waitFor({ state: 'attached' })
    await shot(page, 'functions')
    await row.getByRole('link').click()
    await page.locator('.waterfall li').first().waitFor()
    await page.getByRole('button', { name: 'Follow' }).click()
    await page.getByRole('log').waitFor()
    await accessible(page, 'a function')
    await page.getByRole('button', { name: 'Close', exact: true }).last().click()
    await shot(page, 'function')
    for (const view of ['Memory', 'Requests', 'Decisions']) {
      await page.getByRole('navigation').getByRole('link', { name: view }).click()
      await page.getByRole('table').first().getByText(/pico|host/).first().waitFor()
      await shot(page, view.toLowerCase())
    }
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'a small screen'() {
    const page = await open({ viewport: { width: 360, height: 640 }, colorScheme: 'dark' })
    await page.goto(address)
    await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
    for (const view of ['', 'play', 'memory', 'requests', 'decisions', 'usage', 'f/default/pico']) {
      await page.evaluate((v) => { location.hash = '#/' + v }, view)
      await page.getByRole('heading', { level: 1 }).first().waitFor()
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360 && document.querySelector('main').scrollWidth <= 360), `#/${view} is wider than 360 px`)
    }
    await page.evaluate(() => { location.hash = '#/' })
    await shot(page, 'small')
    await page.context().close()
  },

  async 'no right, and one that has ended'() {
    const page = await open()
    await page.goto(origin)
    await page.getByRole('heading', { name: 'This page shows what only you may see' }).waitFor()
    await accessible(page, 'the door')
    await page.getByLabel('Token').fill('not-the-token')
    await page.getByRole('button', { name: 'Open' }).click()
    await page.getByRole('heading', { name: 'Your right has ended' }).waitFor()
    await page.getByLabel('Token').fill(address)
    await page.getByRole('button', { name: 'Open' }).click()
    await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
    assert.equal(await page.evaluate(() => Object.keys(localStorage).join() + document.cookie), '', 'a secret is kept beyond the tab')
    await page.context().close()
  },

  async 'a stream that is cut'() {
    const page = await open()
    let cut = true
    await page.route('**/rouse/v1/watch', async (route) => (cut ? route.fulfill({ contentType: 'text/event-stream', body: stream([fn('default/then', 'awake')]) }) : route.continue()))
    await page.goto(address)
    await page.getByText('Connection lost:').waitFor()
    await page.getByRole('link', { name: 'then', exact: true }).waitFor()
    cut = false
    await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
    await page.getByRole('link', { name: 'then', exact: true }).waitFor({ state: 'detached' })
    await page.context().close()
  },

  async 'markup in names is text'() {
    const page = await open()
    const evil = '<img src=x onerror=alert(1)><script>alert(2)</script>'
    page.on('dialog', (d) => page.faults.push('a dialog: ' + d.message()))
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([{ ...fn('default/a', 'gone'), model: evil, source: evil, waits: evil, lastError: evil }]) }))
    await page.goto(address)
    await page.getByText(evil).first().waitFor()
    assert.equal(await page.locator('img[src=x], #page script').count(), 0)
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async '10,000 functions'() {
    const page = await open()
    const states = ['awake', 'asleep', 'gone', 'starting']
    const all = Array.from({ length: 10_000 }, (_, k) => fn(`team-${k % 7}/model-${String(k).padStart(5, '0')}`, states[k % 4]))
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream(all) }))
    await page.goto(address)
    const table = page.getByRole('table', { name: 'Functions' })
    await table.getByRole('row').nth(5).waitFor()
    assert.equal(await table.getAttribute('aria-rowcount'), '10001')
    await table.locator('.body').evaluate((b) => { b.scrollTop = b.scrollHeight })
    await page.getByRole('link', { name: 'team-6/model-09995', exact: true }).waitFor()
    assert.ok(await page.getByRole('row').count() < 60, 'rows that nobody sees are in the document')
    await page.getByRole('searchbox').fill('model-04242')
    await page.getByRole('link', { name: 'team-0/model-04242', exact: true }).waitFor()
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'another origin'() {
    const page = await open()
    await page.goto(address)
    await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
    const token = await page.evaluate(() => sessionStorage.getItem('rouse-token'))
    const foreign = await open()
    await foreign.route('http://127.0.0.2:1/', (route) => route.fulfill({ contentType: 'text/html', body: '<p>another page' }))
    await foreign.goto('http://127.0.0.2:1/')
    for (const init of [{ headers: { Authorization: 'Bearer ' + token } }, { method: 'POST', mode: 'no-cors' }]) {
      const got = await foreign.evaluate(([url, init]) => fetch(url, init).then((r) => r.type + r.status, () => 'refused'), [origin + '/rouse/v1/functions/default/pico/wake', init])
      assert.ok(['refused', 'opaque0'].includes(got), got)
    }
    await foreign.context().close()
    await page.context().close()
  },
}

const fn = (name, state) => ({ name, model: name.split('/')[1], runtime: 'engine', state, max: 1, need: { host: 1 }, instances: state === 'gone' ? [] : [{ instance: 'i', state, since: new Date().toISOString(), memory: { host: 1e9 } }] })
const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
function stream(list) {
  return event('server', { version: 'v', url: origin }) + event('functions', list) + event('devices', []) + event('ready', {})
}

let failed = 0
for (const [name, check] of Object.entries(checks)) {
  try {
    await check()
    console.log('ok  ', name)
  } catch (err) {
    failed++
    console.log('FAIL', name, err)
  }
}
await browser.close()
process.exit(failed ? 1 : 0)
