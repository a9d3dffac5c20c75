import { computed, signal } from '@preact/signals'
import { get } from '../api'
import { clock, count, short } from '../format'
import { usePoll } from '../parts'
import type { Usage, UsageRow } from '../types'
import { Bars, type Bar } from './bars'
import { costOf, price } from './request'

const hour = 3600_000

// ranges are how far back usage is shown, and in how many pieces it is drawn; all of it is not drawn.
const ranges = [
  { name: '1 hour', ms: hour, pieces: 12 }, { name: '24 hours', ms: 24 * hour, pieces: 24 }, { name: '7 days', ms: 168 * hour, pieces: 28 },
  { name: '30 days', ms: 720 * hour, pieces: 30 }, { name: 'all', ms: 0, pieces: 0 },
]
const measures: [string, (r: UsageRow) => number][] = [['requests', (r) => r.requests], ['tokens', (r) => r.inputTokens + r.outputTokens], ['GPU-seconds', (r) => (r.state === 'awake' ? r.gpuSeconds : 0)]]

const range = signal(1)
const measure = signal(0)
const usage = signal<Usage | null>(null)
const drawn = signal<Usage[]>([])
const tenant = signal('')

const inRange = (from: number, to?: number) => {
  const at = (t: number) => new Date(t).toISOString().slice(0, 19) + 'Z'
  return '/rouse/v1/usage?keys=true' + (from ? '&from=' + at(from) : '') + (to ? '&to=' + at(to) : '')
}

async function refresh(signal: AbortSignal) {
  const { ms } = ranges[range.value]!
  usage.value = await get<Usage>(inRange(ms && Date.now() - ms), signal)
}

// draw asks for each piece of the time; the last one ends with the present.
async function draw(signal: AbortSignal) {
  const { ms, pieces } = ranges[range.value]!
  const step = ms / pieces
  const end = Math.ceil(Date.now() / 60_000) * 60_000
  drawn.value = await Promise.all(Array.from({ length: pieces }, (_, k) => get<Usage>(inRange(end - ms + k * step, end - ms + (k + 1) * step), signal)))
}

const rows = computed(() => (usage.value?.rows ?? []).filter((r) => !tenant.value || r.tenant === tenant.value))
const tenants = computed(() => [...new Set((usage.value?.rows ?? []).map((r) => r.tenant ?? '').filter((t) => t && t !== '-'))])

// bars are the pieces; the server counts by minutes and, a day later, by hours, so that a piece may begin somewhat earlier.
const bars = computed<Bar[]>(() => {
  const [name, of] = measures[measure.value]!
  return drawn.value.map((u) => {
    const amount = (u.rows ?? []).filter((r) => !tenant.value || r.tenant === tenant.value).reduce((n, r) => n + of(r), 0)
    return { amount, title: `${clock(u.since)} to ${clock(u.until)}: ${count(Math.round(amount))} ${name}` }
  })
})

// quoted is a cell of a table for other programs, which must not take it for a formula.
const quoted = (v: unknown) => {
  const text = String(v ?? '')
  return '"' + (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? "'" : '') + text.replaceAll('"', '""') + '"'
}

function save() {
  const head = ['tenant', 'key', 'function', 'state', 'requests', 'input_tokens', 'cached_tokens', 'output_tokens', 'gpu_seconds', 'cost', 'since', 'until']
  const lines = rows.value.map((r) => [r.tenant, r.key, r.function, r.state, r.requests, r.inputTokens, r.cachedTokens, r.outputTokens, r.gpuSeconds, costOf(r.gpuSeconds), usage.value!.since, usage.value!.until])
  const url = URL.createObjectURL(new Blob([[head, ...lines].map((l) => l.map(quoted).join(',') + '\r\n').join('')], { type: 'text/csv' }))
  const a = document.createElement('a')
  a.href = url
  a.download = 'usage.csv'
  a.click()
  setTimeout(() => URL.revokeObjectURL(url), 1000)
}

export function UsageView() {
  const failed = usePoll(refresh, 5000, range.value)
  const undrawn = usePoll(draw, 60_000, range.value)
  const sum = (of: (r: UsageRow) => number) => rows.value.reduce((n, r) => n + of(r), 0)
  const priced = price.value > 0
  return (
    <div>
      <div class="bar">
        <h1>Usage</h1>
        <div class="chips" role="group" aria-label="How long">{ranges.map((r, k) => <button key={r.name} aria-pressed={range.value === k} onClick={() => (range.value = k)}>{r.name}</button>)}</div>
        {tenants.value.length > 0 && <label class="field">Tenant <select value={tenant.value} onChange={(e) => (tenant.value = e.currentTarget.value)}><option value="">all</option>{tenants.value.map((t) => <option key={t}>{t}</option>)}</select></label>}
        <label class="field">Price of a GPU hour <input type="number" min="0" step="0.01" value={price.value || ''} onInput={(e) => (price.value = Math.max(0, e.currentTarget.valueAsNumber || 0))} /></label>
        <button onClick={save} disabled={!rows.value.length}>Save as CSV</button>
      </div>
      {failed || undrawn}
      {ranges[range.value]!.pieces > 0 && (
        <figure>
          <figcaption class="chips" role="group" aria-label="What is drawn">{measures.map(([name], k) => <button key={name} aria-pressed={measure.value === k} onClick={() => (measure.value = k)}>{name}</button>)}</figcaption>
          <Bars list={bars.value} label={`${measures[measure.value]![0]} over time: ${bars.value.filter((b) => b.amount).map((b) => b.title).join('; ') || 'none'}`} />
        </figure>
      )}
      {usage.value && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Usage">
          <table>
            <caption class="unseen">Usage by tenant, key and function</caption>
            <thead><tr><th scope="col">Tenant</th><th scope="col">Key</th><th scope="col">Function</th><th scope="col" class="num">Requests</th><th scope="col" class="num">Tokens in</th><th scope="col" class="num">Tokens out</th><th scope="col" class="num">GPU seconds</th>{priced && <th scope="col" class="num">Cost</th>}</tr></thead>
            <tbody>
              {rows.value.map((r) => (
                <tr key={r.state + r.tenant + '\n' + r.key + '\n' + r.function}>
                  <th scope="row">{r.state === 'idle' || r.state === 'asleep' ? <span class="faint">({r.state})</span> : r.tenant || <span class="faint">none</span>}</th>
                  <td>{r.key || <span class="faint">–</span>}</td>
                  <td>{r.function ? short(r.function) : <span class="faint">–</span>}</td>
                  <td class="num">{count(r.requests)}</td><td class="num">{count(r.inputTokens)}</td><td class="num">{count(r.outputTokens)}</td>
                  <td class="num">{r.gpuSeconds.toFixed(1)}</td>{priced && <td class="num">{costOf(r.gpuSeconds)}</td>}
                </tr>
              ))}
            </tbody>
            <tfoot><tr><th scope="row">All</th><td /><td /><td class="num">{count(sum((r) => r.requests))}</td><td class="num">{count(sum((r) => r.inputTokens))}</td><td class="num">{count(sum((r) => r.outputTokens))}</td><td class="num">{sum((r) => r.gpuSeconds).toFixed(1)}</td>{priced && <td class="num">{costOf(sum((r) => r.gpuSeconds))}</td>}</tr></tfoot>
          </table>
          {rows.value.length === 0 && <p class="empty">Nothing was used then.</p>}
        </div>
      )}
      {usage.value && <p class="faint">From {clock(usage.value.since)} to {clock(usage.value.until)}. A tenant's time of GPUs is that of its requests; <code>-</code> is a function's own, (asleep) what sleepers keep, (idle) what nobody held. <a href="#/keys">Keys</a> are made and revoked in a view of their own.</p>}
    </div>
  )
}
