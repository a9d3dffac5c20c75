// The documentation's pages in a real Chromium, from files: node site.mjs CHROMIUM FOLDER [FOLDER FOR SCREENSHOTS].
import { chromium } from 'playwright-core'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import assert from 'node:assert/strict'

const [executablePath, site, folder] = process.argv.slice(2)
const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
const at = (name) => pathToFileURL(join(site, name)).href
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
const faults = []

// open opens a page of the site, whose faults and violations of accessibility fail the test.
async function open(name, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 800 }, ...options })
  page.setDefaultTimeout(60_000)
  page.on('pageerror', (err) => faults.push(String(err)))
  page.on('request', (r) => /^(file|data):/.test(r.url()) || faults.push('asks ' + r.url()))
  await page.goto(at(name))
  await page.addScriptTag({ path: axe })
  const violations = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }).then(r => r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html).join(' | '))))
  assert.deepEqual(violations, [], name)
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name + ' is wider than the window')
  if (folder) await page.screenshot({ path: join(folder, name.replaceAll('/', '-').replace('.html', options.colorScheme ?? '') + (options.viewport?.width ?? '') + '.png') })
  return page
}

for (const name of ['index.html', 'docs/functions.html', 'docs/keys.html']) {
  await open(name)
  await open(name, { colorScheme: 'dark' })
  await open(name, { viewport: { width: 360, height: 640 } })
}

// Only the part of the menu with this page is open.
const page = await open('docs/functions.html')
assert.equal(await page.locator('details[open]').count(), 1)
assert.equal(await page.locator('details[open] [aria-current=page]').count(), 1)

// By keyboard: search, choose the second result, come to its heading.
await page.keyboard.press('/')
await page.keyboard.type('sleep level')
const results = page.locator('search a')
await results.nth(1).waitFor()
const href = await results.nth(1).evaluate((a) => a.href)
for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key)
await page.waitForURL(href)
const anchor = decodeURIComponent(new URL(href).hash.slice(1))
assert.ok(!anchor || await page.evaluate((id) => document.getElementById(id) !== null, anchor), 'no heading ' + anchor)

// What is not there is said; Escape takes the results away.
await page.keyboard.press('/')
await page.keyboard.type('quetzalcoatlus')
await page.getByText('Nothing found.').waitFor()
await page.keyboard.press('Escape')
assert.equal(await page.locator('search li').count(), 0)

// The commands of a block are copied, without prompts and what they print; a block without prompts as it stands.
async function copied(page, text) {
  const block = page.locator('.block', { hasText: text }).first()
  await block.getByRole('button').click()
  await block.getByRole('button', { name: 'Copied' }).waitFor()
  return page.evaluate(() => navigator.clipboard.readText())
}
const allowed = { permissions: ['clipboard-read', 'clipboard-write'] }
const start = await open('index.html', allowed)
for (const block of await start.locator('.block').all()) {
  const all = (await block.locator('code').textContent()).split('\n')
  const prompts = all.filter((l) => l.startsWith('$ '))
  const copy = await copied(start, all[0])
  if (!prompts.length) assert.equal(copy, all.join('\n'))
  for (const p of prompts) assert.ok(copy.includes(p.slice(2)) && !/^\$ /m.test(copy), p)
}

// The list of contents leads to the headings.
const contents = start.locator('aside a')
assert.ok(await contents.count() > 2)
await contents.last().click()

assert.deepEqual(faults, [])
await browser.close()
