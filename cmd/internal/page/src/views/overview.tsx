import { computed } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { brief, bytes, clock, count, doing, millis, short } from '../format'
import { isHost } from '../history'
import { asked, inCluster, quantile, rates, refreshRequests, refreshUsed, used } from '../log'
import { link, usePoll } from '../parts'
import { decisions, devices, functions, now } from '../store'
import type { Device } from '../types'
import { Bars, type Bar } from './bars'
import { FailedList } from './failed'
import { failedFirst } from './functions'

const mostFailed = 5
const mostWaiting = 5
const mostDevices = 8
const mostDecisions = 8

const number = (n: number) => (n >= 100 ? count(Math.round(n)) : n >= 10 ? n.toFixed(1) : n ? n.toFixed(2) : '0')

function Tile({ title, about, bad, href, children }: { title: string; about: string; bad?: boolean; href: string; children: ComponentChildren }) {
  return (
    <div class={'tile' + (bad ? ' failed' : '')}>
      <dt><a href={href}>{title}</a></dt>
      <dd><b>{children}</b><small>{about}</small></dd>
    </div>
  )
}

// Numbers are of the access log; in a cluster, of what its activators have reported.
function Numbers() {
  const waiting = functions.value.reduce((n, f) => n + (f.waiting ?? 0), 0)
  const running = functions.value.reduce((n, f) => n + (f.running ?? 0), 0)
  const held = <Tile title="Held" about={`${running} running`} href="#/functions">{waiting}</Tile>
  if (inCluster.value) {
    const u = used.value
    const seconds = u ? Math.max(1, (Date.parse(u.until) - Date.parse(u.since)) / 1000) : 1
    const sum = (of: 'requests' | 'outputTokens') => number((u?.rows ?? []).reduce((n, r) => n + r[of], 0) / seconds)
    return (
      <dl class="tiles">
        <Tile title="Requests/s" about="of the last five minutes" href="#/usage">{sum('requests')}</Tile>
        <Tile title="Tokens/s" about="generated" href="#/usage">{sum('outputTokens')}</Tile>
        {held}
      </dl>
    )
  }
  const r = rates.value
  const time = (q: number) => (r.first.length ? millis(quantile(r.first, q)) : '–')
  return (
    <dl class="tiles">
      <Tile title="Requests/s" about={`of the last ${Math.round(r.seconds)} s`} href="#/requests">{number(r.requests)}</Tile>
      <Tile title="Tokens/s" about="generated" href="#/usage">{number(r.tokens)}</Tile>
      <Tile title="First token, p50" about={`of ${count(r.first.length)} in five minutes`} href="#/requests">{time(0.5)}</Tile>
      <Tile title="First token, p95" about="waits and wakes counted" href="#/requests">{time(0.95)}</Tile>
      {held}
      <Tile title="Failures" about={`in five minutes, and ${r.refused} refused`} bad={r.failed > 0} href="#/requests">{r.failed}</Tile>
    </dl>
  )
}

const piece = 15_000 // ms
const pieces = 60

// traffic is how many requests ended in each piece of the last quarter of an hour.
const traffic = computed<Bar[]>(() => {
  const end = Math.ceil(now.value / piece) * piece
  const list = Array.from({ length: pieces }, () => ({ n: 0, bad: 0 }))
  for (const r of asked.value ?? []) {
    const p = list[pieces - 1 - Math.floor((end - Date.parse(r.time)) / piece)]
    if (!p) continue
    p.n++
    if (r.status >= 500) p.bad++
  }
  return list.map((p, k) => ({ amount: p.n, bad: p.bad, title: `${clock(new Date(end - (pieces - k) * piece).toISOString())}: ${p.n} requests${p.bad ? `, ${p.bad} failed` : ''}` }))
})

// Waiting says what waits now, and why.
function Waiting() {
  const all = functions.value.filter((f) => f.waiting || f.waits)
  if (!all.length) return null
  return (
    <section class="waiting" aria-label="What waits">
      <h2>Waiting</h2>
      <ul>
        {all.slice(0, mostWaiting).map((f) => (
          <li key={f.name}><a href={link(f.name)}>{short(f.name)}</a> {f.waiting ? `holds ${f.waiting}` : ''} <span class="faint">{brief(f.waits ?? '') || doing(f)}</span></li>
        ))}
      </ul>
      {all.length > mostWaiting && <p class="faint">and {all.length - mostWaiting} more</p>}
    </section>
  )
}

const parts = [['awake', 'awake'], ['rising', 'starting or waking'], ['reserved', 'kept for sleepers'], ['asleep', 'asleep'], ['leaving', 'going to sleep'], ['others', 'other programs']] as const

function DeviceBar({ d }: { d: Device }) {
  const whole = Math.max(d.capacity + (d.others ?? 0), 1)
  const said = parts.filter(([k]) => d[k]).map(([k, name]) => `${bytes(d[k]!)} ${name}`)
  return (
    <li>
      <p><span>{d.name}{d.node && <small> {d.node}</small>}</span><small>{bytes(Math.max(0, d.free))} of {bytes(d.capacity)} free</small></p>
      <div class="ledger thin" aria-hidden="true">{parts.map(([k]) => d[k] ? <i key={k} class={k} style={{ flexBasis: (d[k]! / whole) * 100 + '%' }} /> : null)}</div>
      <small>{said.join(', ') || 'Nobody holds anything.'}</small>
    </li>
  )
}

export function Overview() {
  const failed = usePoll(inCluster.value ? refreshUsed : refreshRequests, inCluster.value ? 10_000 : 2000, inCluster.value)
  const list = [...devices.value.filter((d) => !isHost(d)), ...devices.value.filter(isHost)]
  const last = decisions.value.slice(-mostDecisions).reverse()
  return (
    <div class="overview">
      <h1 class="unseen">Overview</h1>
      {failed}
      <FailedList all={failedFirst.value.filter((f) => f.failed)} most={mostFailed} />
      <Waiting />
      <Numbers />
      {!inCluster.value && <figure><figcaption>Requests, of the last 15 minutes</figcaption><Bars list={traffic.value} label={`Requests of the last 15 minutes: ${traffic.value.reduce((n, b) => n + b.amount, 0)}, at most ${Math.max(...traffic.value.map((b) => b.amount))} in 15 s`} /></figure>}
      <div class="halves">
        <section aria-label="Memory">
          <h2><a href="#/memory">Memory</a></h2>
          <ul class="devices">{list.slice(0, mostDevices).map((d) => <DeviceBar key={d.id} d={d} />)}</ul>
          {list.length > mostDevices && <p><a href="#/memory">and {list.length - mostDevices} more devices</a></p>}
        </section>
        <section aria-label="Last decisions">
          <h2><a href="#/decisions">Last decisions</a></h2>
          {last.length === 0 && <p class="faint">Nothing was decided yet: nobody has asked for anything.</p>}
          <ol class="log">
            {last.map((d) => (
              <li key={d.at + d.function + d.action + d.instance}><a href={'#/memory/' + Date.parse(d.at)} title="Who held what then">{clock(d.at)}</a><b>{d.action}</b><span title={d.reason}><a href={link(d.function)}>{short(d.function)}</a> {brief(d.reason)}{d.error && <em class="bad"> {d.error}</em>}</span></li>
            ))}
          </ol>
        </section>
      </div>
    </div>
  )
}
