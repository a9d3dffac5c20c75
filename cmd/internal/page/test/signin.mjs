// How a person signs in at the page of `rouse page`, in a real Chromium, by a real OpenID provider: node signin.mjs CHROMIUM PAGE PROVIDER FUNCTION.
import { chromium } from 'playwright-core'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import assert from 'node:assert/strict'

const [executablePath, url, provider, name] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
const context = await browser.newContext({ ignoreHTTPSErrors: true })
const page = await context.newPage()
page.setDefaultTimeout(60_000)
const faults = []
page.on('pageerror', (err) => faults.push(String(err)))
page.on('console', (m) => /Content Security Policy|TrustedHTML/.test(m.text()) && faults.push(m.text()))

// accessible has axe look at the page in an isolated world, which its policy does not bind.
async function accessible(where) {
  const cdp = await context.newCDPSession(page)
  const { frameTree } = await cdp.send('Page.getFrameTree')
  const { executionContextId: contextId } = await cdp.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id })
  await cdp.send('Runtime.evaluate', { contextId, expression: axe })
  const { result } = await cdp.send('Runtime.evaluate', { contextId, awaitPromise: true, returnByValue: true,
    expression: `axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter(v => ['serious','critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes.map(n => n.html + n.failureSummary).join(' | ')))` })
  assert.deepEqual(result.value, [], where)
}

async function signIn(user, password = 'verysecure') {
  await page.getByRole('link', { name: /^Sign in/ }).click()
  await page.waitForURL((u) => u.href.startsWith(provider))
  await page.getByLabel('Username').fill(user)
  await page.getByLabel('Password').fill(password)
  await page.getByRole('button', { name: 'Login' }).click()
}
const status = (path, init) => page.evaluate(([path, init]) => fetch(path, init).then((r) => r.status), [path, init])
const functions = '/rouse/v1/functions'

try {
  // Without a session there is nothing but the way to get one.
  await page.goto(url + '/#/memory')
  await page.getByRole('link', { name: 'Sign in' }).waitFor()
  await accessible('the door')
  for (const path of [functions, '/v1/models', '/rouse/session']) assert.equal(await status(path), 401, path)
  await page.getByRole('navigation').getByRole('link', { name: 'Playground' }).click()
  await page.getByRole('link', { name: 'Sign in' }).waitFor()

  // Who is not allowed is told so.
  await page.goto(url + '/#/memory')
  await signIn('test-user2')
  await page.getByText('test-user2@zitadel.ch to the provider').waitFor()
  await accessible('who may not')
  assert.equal(await status(functions), 401)

  // Who is has what the page has, where the browser was before.
  await page.goto(url + '/#/memory')
  const host = new URL(provider).hostname
  await signIn('test-user@' + host)
  await page.getByRole('button', { name: 'Sign out test-user@zitadel.ch' }).waitFor()
  assert.equal(new URL(page.url()).hash, '#/memory')
  await page.getByRole('heading', { level: 1, name: 'Memory' }).waitFor()
  await accessible('signed in')
  await page.getByRole('navigation').getByRole('link', { name: 'Functions' }).click()
  await page.locator('a[href^="#/f/"]').first().waitFor()
  assert.equal(await page.evaluate(() => document.cookie), '', 'scripts see the session')
  const [cookie] = (await context.cookies(url)).filter((c) => c.name.includes('session'))
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.secure], [true, 'Strict', url.startsWith('https')])

  // The page gives orders, and no other page does: neither one of another origin nor one of the same site.
  const order = functions + '/' + name + '/sleep'
  const own = await status(order, { method: 'POST' })
  assert.ok(![401, 403, 404].includes(own), 'an order is answered ' + own)
  const other = await context.newPage()
  await other.goto(provider + 'login/username')
  const refused = await other.evaluate((u) => fetch(u, { method: 'POST', credentials: 'include', mode: 'no-cors' }).then((r) => r.type, () => 'refused'), url + order)
  assert.ok(['opaque', 'refused'].includes(refused), refused)
  const answers = []
  other.on('response', (r) => r.url().endsWith('/sleep') && answers.push(r.status()))
  await other.evaluate((u) => new Promise((done) => {
    const f = Object.assign(document.createElement('form'), { method: 'POST', action: u, target: 'frame' })
    const frame = Object.assign(document.createElement('iframe'), { name: 'frame', onload: done })
    document.body.append(frame, f)
    f.submit()
  }), url + order)
  assert.ok(answers.every((s) => s === 403), 'a form of another page is answered ' + answers)
  await other.close()

  // A second tab is signed in too, and both are signed out.
  const second = await context.newPage()
  await second.goto(url)
  await second.getByRole('button', { name: /^Sign out/ }).click()
  await second.getByRole('link', { name: 'Sign in' }).waitFor()
  await page.getByRole('link', { name: 'Sign in' }).waitFor() // what it followed has ended
  assert.equal(await status(functions), 401)
  assert.deepEqual((await context.cookies(url)).filter((c) => /rouse/.test(c.name)), [])
  assert.deepEqual(faults, [])
  console.log('ok')
} catch (err) {
  console.log('FAIL at', page.url(), err, await page.content().catch(() => ''))
  process.exitCode = 1
}
await browser.close()
