// What a person sees of the page, in a real Chromium, against a running server: node browser.mjs CHROMIUM ADDRESS PID [FOLDER].
// ADDRESS has the token. In FOLDER, if one is given, are screenshots then. PAGE_ONLY chooses checks by name. It ends with 1 and what failed.
import { chromium } from 'playwright-core'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import assert from 'node:assert/strict'

const [executablePath, address, , folder] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const origin = new URL(address).origin
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
const patience = 60_000

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

// go chooses a view.
const go = (page, view) => page.getByRole('navigation').getByRole('link', { name: view, exact: true }).click()

// openAt opens the page with its token, and chooses a view.
async function openAt(view, options) {
  const page = await open(options)
  await page.goto(address)
  await go(page, view)
  return page
}

// ask has a model answer, and returns the request's id.
async function ask(model) {
  const resp = await fetch(origin + '/v1/chat/completions', { method: 'POST', body: JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }], max_tokens: 4 }) })
  assert.equal(resp.status, 200, await resp.text())
  return resp.headers.get('x-request-id')
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
    expression: `axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | ')))` })
  assert.equal(exceptionDetails, undefined)
  assert.deepEqual(result.value, [], 'accessibility of ' + where)
}

const checks = {
  async 'the views'() {
    for (const colorScheme of ['light', 'dark']) {
      const page = await openAt('Functions', { colorScheme })
      await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
      assert.equal(page.url().includes('token'), false, 'the token stays in the address')
      for (const view of ['Overview', 'Playground', 'Memory', 'Requests', 'Decisions', 'Usage', 'Keys', 'Logs', 'Clusters', 'Functions']) {
        await go(page, view)
        await page.getByRole('heading', { level: 1 }).first().waitFor()
        await accessible(page, view + ', ' + colorScheme)
      }
      assert.deepEqual(page.faults, [])
      await page.context().close()
    }
  },

  async 'a playground that wakes'() {
    const page = await openAt('Playground')
    await page.getByLabel('Two models side by side').check()
    for (const n of [0, 1]) await page.locator('.pane select').nth(n).selectOption('pico')
    await page.getByLabel('Prompt', { exact: true }).fill('echo hello world')
    await page.getByRole('button', { name: 'Send' }).click()
    const answers = page.locator('.turn.assistant')
    await answers.nth(1).getByText('hello world').waitFor()
    await page.getByRole('button', { name: 'Send' }).waitFor()
    assert.match(await answers.nth(0).innerText(), /hold [\d.]+ .*first token [\d.]+ .*tokens/s)
    await page.getByRole('button', { name: 'Send' }).waitFor()
    await accessible(page, 'answers')
    await page.locator('.pane select').nth(1).selectOption('one')
    await page.getByLabel('Prompt', { exact: true }).fill('What happened?')
    await page.getByRole('button', { name: 'Send' }).click()
    await page.locator('.pane').nth(1).getByText(/tokens, [\d.]+\/s/).waitFor()
    await page.getByRole('button', { name: 'Send' }).waitFor()
    await shot(page, 'playground')
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'tools, images, and what is refused'() {
    const page = await openAt('Playground', { colorScheme: 'dark' })
    await page.locator('.pane select').selectOption('pico')
    await page.getByText('Settings and tools').click()
    await page.getByLabel('Tools, as JSON').fill('{"name": ')
    await page.getByText('This is no JSON').waitFor()
    assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled())
    await page.getByLabel('Tools, as JSON').fill('{"name": "paint", "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": false}}')
    await page.getByLabel('Tools are').selectOption('required')
    await accessible(page, 'settings')
    await page.getByText('Settings and tools').click()
    await page.getByLabel('Prompt', { exact: true }).fill('echo red')
    await page.getByRole('button', { name: 'Send' }).click()
    const call = page.locator('.call')
    await call.getByText(/"colour": "(red|blue)"/).waitFor()
    assert.ok(await page.getByRole('button', { name: 'Send the result' }).isDisabled(), 'a call without a result is answered')
    await page.getByLabel('Result of paint').fill('painted')
    await accessible(page, 'a call')
    await shot(page, 'tools')
    await page.getByText('Settings and tools').click()
    await page.getByLabel('Tools are').selectOption('none')
    await page.getByText('Settings and tools').click()
    await page.getByRole('button', { name: 'Send the result' }).click()
    await page.locator('.turn.assistant').nth(1).locator('.times').getByText(/tokens/).waitFor()
    await page.getByLabel('Images').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64') })
    await page.getByRole('list', { name: 'Images of the question' }).waitFor()
    await page.getByLabel('Prompt', { exact: true }).fill('what is this')
    await page.getByRole('button', { name: 'Send' }).click()
    await page.getByRole('alert').getByText(/reads parts of type "text" only/).waitFor() // the server's own reason
    await page.getByRole('button', { name: 'Try again' }).waitFor()
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'stopped by hand'() {
    const page = await open()
    await page.route('**/v1/chat/completions', () => {}) // it is held for ever
    await page.goto(address)
    await go(page, 'Playground')
    await page.locator('.pane select').selectOption('pico')
    await page.getByLabel('Prompt', { exact: true }).fill('hello')
    await page.getByLabel('Prompt', { exact: true }).press('Enter')
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByRole('alert').getByText('stopped by you').waitFor()
    await page.context().close()
  },

  async 'who held what, and why'() {
    const page = await open()
    await page.goto(address)
    const token = await page.evaluate(() => sessionStorage.getItem('rouse-token'))
    for (const model of ['one', 'two', 'one']) await ask(model) // each takes the GPU of the other
    const history = await (await fetch(origin + '/rouse/v1/history', { headers: { Authorization: 'Bearer ' + token } })).json()
    const at = Date.parse(history.changes.find((c) => c.function === 'default/two' && c.state === 'awake').at)
    await go(page, 'Memory')
    const gpu = page.getByRole('region', { name: 'Simulated GPU' })
    await gpu.locator('path.band.awake').first().waitFor()
    await gpu.getByRole('row').filter({ hasText: 'one' }).getByText('awake').waitFor()
    await shot(page, 'memory')
    await page.evaluate((t) => { location.hash = '#/memory/' + t }, at + 1)
    await gpu.getByRole('row').filter({ hasText: 'two' }).getByText('awake').waitFor()
    await gpu.getByRole('row').filter({ hasText: 'one' }).getByText('asleep').waitFor()
    await page.getByRole('region', { name: 'Decisions about then' }).getByText(/makes room for default\/two/).first().waitFor()
    await accessible(page, 'a moment')
    await shot(page, 'moment')
    // All of it by the keyboard: the moment moves with the slider, from change to change, and back to now.
    const slider = page.getByRole('slider', { name: 'Moment' })
    const said = await slider.getAttribute('aria-valuetext')
    await slider.focus()
    for (let k = 0; k < 3; k++) await page.keyboard.press('ArrowLeft')
    assert.notEqual(await slider.getAttribute('aria-valuetext'), said)
    await page.getByRole('button', { name: 'The change before' }).press('Enter')
    await page.getByLabel('At', { exact: true }).fill('nonsense')
    await page.keyboard.press('Enter')
    await page.getByText('A time looks like').waitFor()
    await page.getByRole('button', { name: 'Now' }).press('Enter')
    await gpu.getByRole('row').filter({ hasText: 'one' }).getByText('awake').waitFor()
    await page.getByRole('link', { name: 'All decisions' }).click()
    await page.getByRole('button', { name: /^sleep \d+$/ }).click()
    await page.getByRole('table').getByRole('cell', { name: 'wake', exact: true }).first().waitFor({ state: 'detached' })
    await page.getByRole('row').filter({ hasText: 'makes room for default/two' }).first().getByRole('link').first().click()
    await page.getByRole('region', { name: 'Decisions about then' }).waitFor()
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'adapters and scale by hand'() {
    const page = await openAt('Functions')
    await page.getByRole('link', { name: 'pico', exact: true }).click()
    const adapters = page.getByRole('region', { name: 'Adapters', exact: true })
    await adapters.getByLabel('Name').fill('loud')
    await adapters.getByLabel('Folder or reference').fill('pico/shout')
    await adapters.getByRole('button', { name: 'Load', exact: true }).click()
    await adapters.getByRole('row').filter({ hasText: 'loud' }).waitFor()
    await accessible(page, 'adapters')
    await adapters.getByLabel('Name').fill('none')
    await adapters.getByLabel('Folder or reference').fill('/no/such/file')
    await adapters.getByRole('button', { name: 'Load', exact: true }).click()
    await page.locator('.note.bad').getByText(/none/).waitFor()
    await adapters.getByRole('button', { name: 'Unload loud' }).click()
    await adapters.getByRole('row').filter({ hasText: 'loud' }).waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Keep' }).click()
    await page.getByRole('definition').getByText(/the page wants 1 until/).waitFor()
    await page.getByRole('button', { name: 'Let demand decide' }).click()
    await page.getByRole('definition').getByText(/the page wants 1 until/).waitFor({ state: 'detached' })
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'orders and what is told of them'() {
    await ask('pico')
    const page = await openAt('Functions')
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
    await page.getByRole('region', { name: 'Logs' }).getByRole('button', { name: 'Close' }).click()
    await page.locator('main').evaluate((m) => { m.scrollTop = 0 })
    await shot(page, 'function')
    for (const view of ['Requests', 'Decisions', 'Usage', 'Clusters']) {
      await go(page, view)
      await page.getByRole('table').getByText(/pico/).or(page.getByText('No cluster joins')).first().waitFor()
      await shot(page, view.toLowerCase())
    }
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'a small screen'() {
    const id = await ask('pico')
    const page = await openAt('Functions', { viewport: { width: 360, height: 640 }, colorScheme: 'dark' })
    await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
    for (const view of ['', 'functions', 'play', 'memory', 'requests', 'requests/' + id, 'decisions', 'usage', 'keys', 'logs', 'clusters', 'models', 'f/default/pico']) {
      await page.evaluate((v) => { location.hash = '#/' + v }, view)
      await page.getByRole('heading', { level: 1 }).first().waitFor()
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360 && document.querySelector('main').scrollWidth <= 360), `#/${view} is wider than 360 px`)
      await accessible(page, view + ' at 360 px')
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
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    assert.equal(await page.evaluate(() => Object.keys(localStorage).join() + document.cookie), '', 'a secret is kept beyond the tab')
    await page.context().close()
  },

  async 'a stream that is cut'() {
    const page = await open()
    let next = (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([fn('default/then', 'awake')]) })
    await page.route('**/rouse/v1/watch', (route) => next(route))
    await page.goto(address)
    await go(page, 'Functions')
    await page.getByText('Connection lost:').waitFor()
    await page.getByRole('link', { name: 'then', exact: true }).waitFor()
    const dot = async (state) => { // text and colour at one moment: the next try may begin between two looks
      for (const began = Date.now(); Date.now() - began < patience;) {
        const colour = await page.locator('header i').evaluateAll((all, state) => all.filter((e) => e.parentElement.textContent.includes(state)).map((e) => getComputedStyle(e).backgroundColor)[0], state)
        if (colour) return colour
      }
      assert.fail('it never says ' + state)
    }
    next = (route) => route.abort()
    const lost = await dot('connection lost')
    let answer
    next = (route) => (answer = route) // a try that has no answer yet
    await page.locator('header').getByText('reconnecting').waitFor()
    await page.getByText('Connection lost:').waitFor()
    const trying = await dot('reconnecting')
    next = (route) => route.continue()
    await answer.continue()
    await page.getByRole('link', { name: 'pico', exact: true }).waitFor()
    assert.equal(new Set([lost, trying, await dot('live')]).size, 3, 'the dot is the same live, lost and reconnecting')
    await page.getByRole('link', { name: 'then', exact: true }).waitFor({ state: 'detached' })
    await page.context().close()
  },

  async 'what has failed'() {
    const page = await open()
    const whole = 'exit status 65; its last output:\nthe first line\nno weights ' + 'x'.repeat(100)
    const failed = { ...fn('default/z', 'gone'), failed: '…no weights ' + 'x'.repeat(100), lastError: whole.slice(-200), failures: 3, retryAt: new Date(Date.now() + 3600_000).toISOString() }
    const large = { ...fn('default/y', 'gone'), failed: 'needs 2 GPUs, there are 1' }
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([fn('default/a', 'awake'), large, failed]) }))
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 503, json: { error: { message: 'ask who operates it', code: 'start_failed' } } }))
    await page.route('**/rouse/v1/functions/default/z', (route) => route.fulfill({ json: { lastError: whole } }))
    await page.route('**/rouse/v1/functions/default/z/*', (route) => route.fulfill({ json: [] }))
    await page.goto(address)
    const said = page.getByRole('region', { name: 'What has failed' })
    await said.getByText('the first line').waitFor()
    await said.getByText('no weights ' + 'x'.repeat(100)).waitFor()
    await said.getByText(/Declare fewer GPUs/).waitFor()
    await said.getByText(/3 in a row/).waitFor()
    assert.equal(await said.getByRole('button', { name: 'Try now' }).count(), 1, 'what can never fit is tried again')
    await said.getByText(/It is tried again for requests from [\d:-]+/).waitFor()
    const top = (at) => at.evaluate((e) => e.getBoundingClientRect().top)
    assert.ok(await top(said) < await top(page.locator('.tiles')), 'what has failed does not come first')
    await shot(page, 'failed')
    await go(page, 'Functions')
    assert.match(await page.getByRole('row').nth(1).innerText(), /^[yz]\s/, 'it does not come first')
    const colour = (at) => at.evaluate((e) => getComputedStyle(e).color)
    const red = await colour(page.locator('.state.failed').first())
    assert.notEqual(red, await colour(page.locator('.state.awake').first()))
    await accessible(page, 'what has failed')
    await page.getByRole('button', { name: 'failed 2' }).click()
    await page.getByRole('link', { name: 'a', exact: true }).waitFor({ state: 'detached' })
    await page.getByRole('link', { name: 'z', exact: true }).click()
    await page.getByRole('region', { name: 'Why it failed' }).getByText('the first line').waitFor()
    assert.equal(await colour(page.getByText('the first line')), red)
    await accessible(page, 'why it failed')
    await go(page, 'Playground')
    await page.locator('.pane select').selectOption('z')
    await page.getByLabel('Prompt', { exact: true }).fill('hello')
    await page.getByRole('button', { name: 'Send' }).click()
    await page.getByRole('alert').getByText('no weights').waitFor()
    await page.context().close()
  },

  async 'an overview'() {
    for (const model of ['one', 'two', 'one', 'pico', 'pico', 'pico']) await ask(model)
    const real = await openAt('Overview')
    await real.getByRole('region', { name: 'Memory' }).getByText(/of .* free/).first().waitFor()
    await real.getByRole('region', { name: 'Last decisions' }).getByRole('listitem').first().waitFor()
    await real.locator('.tile', { hasText: 'First token, p50' }).getByText(/ (ms|s|µs)$/).waitFor()
    await accessible(real, 'the overview')
    await shot(real, 'overview')
    assert.deepEqual(real.faults, [])
    await real.context().close()

    const page = await open()
    const now = Date.parse('2026-01-02T03:04:05Z')
    await page.clock.setFixedTime(now)
    const asked = Array.from({ length: 60 }, (_, k) => ({ time: new Date(now - 1000 * k).toISOString(), request: 'r' + k, model: 'm', status: k === 3 ? 503 : k === 4 ? 404 : 200, output_tokens: 30, ttft_ms: k === 3 || k === 4 ? undefined : k + 1 }))
    await page.route('**/rouse/v1/requests*', (route) => route.fulfill({ json: asked.toReversed() }))
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([{ ...fn('default/a', 'awake'), waiting: 2, running: 5 }]) }))
    await page.goto(address)
    for (const [title, text] of [['Requests/s', '1.00'], ['Tokens/s', '30.0'], ['First token, p50', '31.0 ms'], ['First token, p95', '58.0 ms'], ['Held', '2'], ['Failures', '1']])
      await page.locator('.tile', { hasText: title }).locator('b').getByText(text, { exact: true }).waitFor()
    await page.locator('.tile', { hasText: 'Failures' }).getByText('1 refused').waitFor()
    await page.context().close()

    const cluster = await open() // whose requests are not here
    await cluster.route('**/rouse/v1/requests*', (route) => cluster.faults.push('asks for requests') && route.abort())
    await cluster.route('**/rouse/v1/usage*', (route) => route.fulfill({ json: { since: '2026-01-02T03:00:00Z', until: '2026-01-02T03:05:00Z', rows: [{ state: 'awake', requests: 450, outputTokens: 900 }, { state: 'awake', requests: 150, outputTokens: 300 }] } }))
    await cluster.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([fn('default/a', 'awake')], { leader: 'l' }) }))
    await cluster.goto(address)
    for (const [title, text] of [['Requests/s', '2.00'], ['Tokens/s', '4.00']]) await cluster.locator('.tile', { hasText: title }).locator('b').getByText(text, { exact: true }).waitFor()
    await go(cluster, 'Requests')
    await cluster.getByText('in the access logs of its activators').waitFor()
    assert.deepEqual(cluster.faults, [])
    await cluster.context().close()
  },

  async 'one request, with what it waited for'() {
    await ask('two')
    const id = await ask('one') // which takes the GPU of the other
    const page = await openAt('Requests')
    await page.getByRole('searchbox').fill(id)
    await page.getByRole('button', { name: 'woke a model 1' }).click()
    await page.getByRole('link', { name: 'Request ' + id }).press('Enter')
    await page.getByRole('heading', { name: 'Request ' + id }).waitFor()
    await page.getByRole('region', { name: 'Choices' }).getByText(/one-\d+: .*slots in use/).first().waitFor()
    await page.getByRole('region', { name: 'Wake' }).locator('.waterfall li').first().waitFor()
    await page.getByRole('definition').getByText(/GPU-seconds/).waitFor()
    await accessible(page, 'a request')
    await shot(page, 'request')
    await page.evaluate(() => { location.hash = '#/requests/none' })
    await page.getByText('It is not among the last requests').waitFor()
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'a function to copy, and the logs of all'() {
    const page = await openAt('Functions', { permissions: ['clipboard-read', 'clipboard-write'] })
    await page.getByRole('link', { name: 'pico', exact: true }).click()
    await page.getByRole('button', { name: 'Copy curl' }).click()
    await page.getByText('curl copied', { exact: true }).waitFor()
    const said = execFileSync('sh', ['-c', await page.evaluate(() => navigator.clipboard.readText())], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    assert.ok(JSON.parse(said).choices, said)
    await page.getByText('Its manifest').click()
    await page.getByRole('button', { name: 'Copy Manifest' }).click()
    await page.getByText('Manifest copied', { exact: true }).waitFor()
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^apiVersion: serving.knative.dev\/v1\nkind: Service\n.*sleep-after: 10m0s\n/s)
    await accessible(page, 'a manifest')
    await ask('one')
    await go(page, 'Logs')
    await page.getByRole('log').getByText(/default\/one {2}/).waitFor()
    await accessible(page, 'logs')
    await shot(page, 'logs')
    await page.getByRole('searchbox').fill('no such line is there')
    await page.getByText('No line matches.').waitFor()
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'a key, made, limited and revoked'() {
    const page = await openAt('Keys', { permissions: ['clipboard-read', 'clipboard-write'] })
    const form = page.getByRole('form', { name: 'A new key' })
    await form.getByLabel('Name').fill('alice')
    await form.getByLabel('Models').fill('pico, one*')
    await form.getByLabel('Requests/min').fill('1')
    await form.getByLabel('Ends').selectOption('30')
    await form.getByLabel('Name').press('Enter')
    const made = page.getByRole('dialog', { name: 'The key of alice' })
    const key = await made.getByRole('group', { name: 'Key' }).innerText()
    assert.match(key, /^rouse-/)
    await accessible(page, 'a key')
    await shot(page, 'key')
    await made.getByRole('button', { name: 'Copy Key' }).click()
    await made.getByRole('button', { name: 'Copied Key' }).waitFor()
    await accessible(page, 'a key that was copied')
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), key)
    await page.keyboard.press('Escape')
    await made.waitFor({ state: 'detached' })
    const left = () => page.evaluate(() => document.documentElement.outerHTML + JSON.stringify([sessionStorage, localStorage, history.state, location.href]))
    for (const closed = Date.now(); (await left()).includes(key);) assert.ok(Date.now() - closed < patience, 'the key is still in the page') // a closed dialog is hidden first
    const ask = async (model) => (await fetch(origin + '/v1/chat/completions', { method: 'POST', headers: { Authorization: 'Bearer ' + key }, body: JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }], max_tokens: 4 }) })).status
    // until the server has read the file again
    const until = async (status) => { for (let n = 0; n < 300 && (await ask('pico')) !== status; n++) await page.waitForTimeout(100) }
    await until(200)
    assert.equal(await ask('pico'), 429, 'a second request in a minute')
    assert.ok([403, 404].includes(await ask('two')), 'a model that the key is not for')
    const row = page.getByRole('row', { name: /^alice/ })
    await shot(page, 'keys')
    assert.match(await row.innerText(), /pico, one\*\s+1 requests\/min/)
    await row.getByRole('button', { name: 'Change alice' }).click()
    const change = page.getByRole('dialog', { name: 'Change alice' })
    assert.equal(await change.getByLabel('Requests/min').inputValue(), '1')
    await accessible(page, 'a change of a key')
    await change.getByLabel('Models').fill('')
    await change.getByLabel('Tokens/day').fill('9')
    await change.getByRole('button', { name: 'Change', exact: true }).click()
    await change.waitFor({ state: 'detached' })
    await row.getByText('9 tokens/day').waitFor()
    assert.match(await row.innerText(), /all\s+1 requests\/min/)
    await row.getByRole('button', { name: 'Revoke alice' }).press('Enter')
    const sure = page.getByRole('dialog', { name: 'Revoke alice?' })
    await accessible(page, 'whether to revoke a key')
    await sure.getByRole('button', { name: 'Keep it' }).press('Enter')
    await sure.waitFor({ state: 'detached' })
    assert.equal(await ask('pico'), 429)
    await row.getByRole('button', { name: 'Revoke alice' }).click()
    await sure.getByRole('button', { name: 'Revoke', exact: true }).click()
    await row.waitFor({ state: 'detached' })
    await until(401)
    assert.equal(await ask('pico'), 401)
    await form.getByLabel('Name').fill('anonymous')
    await form.getByRole('button', { name: 'Make a key' }).click()
    await page.locator('.note.bad').getByText('a key anonymous already').waitFor()
    assert.deepEqual(page.faults, [])

    for (const [server, text] of [[{}, 'Clients need no key here'], [{ leader: 'l' }, 'kn rouse keys create NAME']]) {
      await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([], server) }))
      await page.route('**/rouse/v1/keys', (route) => route.fulfill({ status: 404, json: { error: { message: 'no such path' } } }))
      await page.reload()
      await page.getByText(text).waitFor()
      await accessible(page, text)
      await page.unroute('**/rouse/v1/watch')
    }
    await page.context().close()
  },

  async 'a model, found, fetched and served'() {
    const page = await openAt('Functions')
    await page.getByRole('link', { name: 'Add a model' }).click()
    await page.getByLabel('Name of a model').fill('tiny')
    await page.keyboard.press('Enter')
    await page.getByRole('row', { name: /^tiny:latest Ollama – 523 MiB/ }).waitFor()
    const row = page.getByRole('row').filter({ hasText: 'acme/tiny-GGUF' })
    await row.getByLabel('Quantization of acme/tiny-GGUF').selectOption('Q8_0')
    await accessible(page, 'models')
    await row.getByRole('button', { name: 'Fetch and serve acme/tiny-GGUF' }).click()
    const added = page.getByRole('region', { name: 'tiny-gguf' })
    await added.getByText(/fetching [1-9]\d* %/).waitFor()
    assert.ok(await added.getByRole('progressbar').isVisible())
    await accessible(page, 'a model that is fetched')
    await shot(page, 'models')
    await page.setViewportSize({ width: 360, height: 640 })
    assert.ok(await page.evaluate(() => document.querySelector('main').scrollWidth <= 360), 'what is found is wider than 360 px')
    await page.setViewportSize({ width: 1180, height: 720 })
    await fetch(process.env.PAGE_HUB + '/go')
    await added.locator('.state.awake').waitFor()
    await ask('tiny-gguf')
    await added.getByText('rouse apply --save --model hf.co/acme/tiny-GGUF:Q8_0').waitFor()
    await row.getByRole('combobox').selectOption('Q4_K_M')
    await row.getByRole('button').click()
    await page.getByRole('alert').getByText('another function is called tiny-gguf already').waitFor()
    await added.getByRole('link', { name: 'tiny-gguf' }).click()
    await page.getByText('Its manifest').click()
    await page.getByRole('group', { name: 'Manifest' }).getByText('hf://acme/tiny-GGUF?quant=Q8_0').waitFor()
    assert.deepEqual(page.faults, [])

    await page.route('**/rouse/v1/models*', (route) => route.fulfill({ json: [] }))
    await page.evaluate(() => { location.hash = '#/models' })
    await page.getByLabel('Name of a model').fill('none')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('Neither has such a model').waitFor()
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([], { leader: 'l' }) }))
    await page.reload()
    await page.getByText('kn rouse create NAME --model hf.co').waitFor()
    await accessible(page, 'models of a cluster')
    await page.context().close()
  },

  async 'usage by key'() {
    const page = await open()
    const row = (tenant, key, requests) => ({ tenant, key, function: 'default/m', state: 'awake', requests, inputTokens: 10, cachedTokens: 0, outputTokens: 20, gpuSeconds: 3600 })
    const queries = []
    await page.route('**/rouse/v1/usage*', (route) => {
      const q = new URL(route.request().url()).searchParams
      queries.push(q)
      return route.fulfill({ json: { since: q.get('from') ?? '2026-01-01T00:00:00Z', until: q.get('to') ?? '2026-01-02T00:00:00Z', rows: [row('acme', 'alice', 3), row('acme', '=1+"2"', 4), row('other', 'bob', 5)] } })
    })
    await page.goto(address)
    await go(page, 'Usage')
    await page.getByRole('row', { name: /acme alice m 3/ }).waitFor()
    await page.locator('.bars g').nth(23).waitFor({ state: 'attached' })
    assert.ok(queries.every((q) => q.get('keys') === 'true' && q.get('from')))
    await page.getByRole('button', { name: '7 days' }).press('Enter')
    await page.locator('.bars g').nth(27).waitFor({ state: 'attached' })
    await page.getByLabel('Tenant').selectOption('acme')
    await page.getByRole('row', { name: /other bob/ }).waitFor({ state: 'detached' })
    await page.getByLabel('Price of a GPU hour').fill('2')
    const coming = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Save as CSV' }).click()
    const lines = readFileSync(await (await coming).path(), 'utf8').split('\r\n')
    assert.equal(lines.length, 4)
    assert.match(lines[1], /^"acme","alice","default\/m","awake","3","10","0","20","3600","2.00",/)
    assert.match(lines[2], /^"acme","'=1\+""2""",/, 'a cell is a formula')
    await accessible(page, 'usage')
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'markup in names is text'() {
    const page = await open()
    const evil = '<img src=x onerror=alert(1)><script>alert(2)</script>'
    page.on('dialog', (d) => page.faults.push('a dialog: ' + d.message()))
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream([{ ...fn('default/a', 'gone'), model: evil, source: evil, waits: evil, lastError: evil }]) }))
    const at = new Date().toISOString()
    const held = { at, instance: evil, function: 'default/' + evil, state: 'awake', host: 1e9 }
    await page.route('**/rouse/v1/history*', (route) => route.fulfill({ json: { since: at, seq: 1, whole: true, changes: [held], decisions: [{ at, function: 'default/' + evil, instance: evil, action: evil, reason: evil, error: evil }] } }))
    await page.goto(address)
    await page.getByText(evil).first().waitFor()
    for (const view of ['memory', 'memory/' + (Date.now() + 1), 'decisions']) {
      await page.evaluate((v) => { location.hash = '#/' + v }, view)
      await page.getByRole('link', { name: evil }).first().waitFor()
      assert.equal(await page.locator('img[src=x], #page script').count(), 0)
    }
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async '10,000 functions'() {
    const page = await open()
    const states = ['awake', 'asleep', 'gone', 'starting']
    const all = Array.from({ length: 10_000 }, (_, k) => fn(`team-${k % 7}/model-${String(k).padStart(5, '0')}`, states[k % 4]))
    await page.route('**/rouse/v1/watch', (route) => route.fulfill({ contentType: 'text/event-stream', body: stream(all) }))
    await page.goto(address)
    await go(page, 'Functions')
    const table = page.getByRole('table', { name: 'Functions' })
    await table.getByRole('row').nth(5).waitFor()
    assert.equal(await table.getAttribute('aria-rowcount'), '10001')
    await table.locator('.body').evaluate((b) => { b.scrollTop = b.scrollHeight })
    await page.getByRole('link', { name: 'team-6/model-09995', exact: true }).waitFor()
    assert.ok(await page.getByRole('row').count() < 60, 'rows that nobody sees are in the document')
    const header = table.getByRole('columnheader', { name: 'Function' })
    await header.getByRole('button').press('Enter')
    assert.equal(await header.getAttribute('aria-sort'), 'ascending')
    await page.getByRole('link', { name: 'team-0/model-00000', exact: true }).waitFor()
    await header.getByRole('button').press('Enter')
    assert.equal(await header.getAttribute('aria-sort'), 'descending')
    await page.getByRole('link', { name: 'team-6/model-09995', exact: true }).waitFor()
    await page.getByRole('searchbox').fill('model-04242')
    await page.getByRole('link', { name: 'team-0/model-04242', exact: true }).waitFor()
    assert.deepEqual(page.faults, [])
    await page.context().close()
  },

  async 'another origin'() {
    const page = await openAt('Functions')
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
function stream(list, server) {
  return event('server', { version: 'v', url: origin, ...server }) + event('functions', list) + event('devices', [{ id: 'host', name: 'host memory', capacity: 16e9, total: 16e9, awake: 0, rising: 0, reserved: 0, asleep: 0, leaving: 0, free: 16e9 }]) + event('ready', {})
}

let failed = 0
const only = new RegExp(process.env.PAGE_ONLY ?? '')
for (const [name, check] of Object.entries(checks).filter(([name]) => only.test(name))) {
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
