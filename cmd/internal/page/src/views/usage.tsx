import { signal } from '@preact/signals'
import { get } from '../api'
import { clock, count, short } from '../format'
import { usePoll } from '../parts'
import type { Usage } from '../types'

const usage = signal<Usage | null>(null)
const price = signal(0)

export function UsageView() {
  const failed = usePoll(async (signal) => {
    usage.value = await get<Usage>('/rouse/v1/usage', signal)
  }, 5000)
  const rows = usage.value?.rows ?? []
  const sum = (of: (r: (typeof rows)[number]) => number) => rows.reduce((n, r) => n + of(r), 0)
  const cost = (s: number) => ((s / 3600) * price.value).toFixed(2)
  return (
    <div>
      <div class="bar">
        <h1>Usage by key</h1>
        <label class="field">Price of a GPU hour <input type="number" min="0" step="0.01" value={price.value || ''} onInput={(e) => (price.value = Math.max(0, e.currentTarget.valueAsNumber || 0))} /></label>
      </div>
      {failed}
      {usage.value && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Usage">
          <table>
            <caption class="unseen">Usage by tenant and function</caption>
            <thead><tr><th scope="col">Key</th><th scope="col">Function</th><th scope="col" class="num">Requests</th><th scope="col" class="num">Tokens in</th><th scope="col" class="num">Tokens out</th><th scope="col" class="num">GPU seconds</th>{price.value > 0 && <th scope="col" class="num">Cost</th>}</tr></thead>
            <tbody>
              {rows.map((r) => (
                <tr key={r.state + r.tenant + r.function}>
                  <th scope="row">{r.state === 'idle' || r.state === 'asleep' ? <span class="faint">({r.state})</span> : r.tenant || <span class="faint">none</span>}</th>
                  <td>{r.function ? short(r.function) : <span class="faint">–</span>}</td>
                  <td class="num">{count(r.requests)}</td><td class="num">{count(r.inputTokens)}</td><td class="num">{count(r.outputTokens)}</td>
                  <td class="num">{r.gpuSeconds.toFixed(1)}</td>{price.value > 0 && <td class="num">{cost(r.gpuSeconds)}</td>}
                </tr>
              ))}
            </tbody>
            <tfoot><tr><th scope="row">All</th><td /><td class="num">{count(sum((r) => r.requests))}</td><td class="num">{count(sum((r) => r.inputTokens))}</td><td class="num">{count(sum((r) => r.outputTokens))}</td><td class="num">{sum((r) => r.gpuSeconds).toFixed(1)}</td>{price.value > 0 && <td class="num">{cost(sum((r) => r.gpuSeconds))}</td>}</tr></tfoot>
          </table>
          {rows.length === 0 && <p class="empty">Nothing was used yet.</p>}
          <p class="faint">Since {clock(usage.value.since)}. The time of all GPUs is shared by what keys used of it; (asleep) is what sleepers keep, (idle) what nobody held.</p>
        </div>
      )}
    </div>
  )
}
