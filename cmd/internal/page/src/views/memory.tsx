import { computed, signal, useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { bytes, clock, short } from '../format'
import { colourOf, heldAt, holder, isHost, kindOf, on, otherPrograms, past, refresh } from '../history'
import { look, moment, next, shown, span, spans, timeOfDay, widen } from '../moment'
import { link, usePoll } from '../parts'
import { devices, functions } from '../store'
import type { Device } from '../types'
import { Chart, Patterns } from './chart'
import { Around } from './around'

interface Part { name: string; amount: number; kind: string; href?: string; paint: string }

const most = 12 // holders that are listed apart
const mostDrawn = 16 // devices

const painted = (name: string, kind: string) => (name === otherPrograms ? 'fx' : 'f' + colourOf(name)) + ' ' + kind

// sum adds up what is held of a device, by holder and how.
function sum(list: { name: string; kind: string; amount: number; href?: string }[]): Part[] {
  const by = new Map<string, Part>()
  for (const h of list) {
    if (!h.amount) continue
    const key = h.name + '\n' + h.kind
    const old = by.get(key)
    if (old) old.amount += h.amount
    else by.set(key, { ...h, paint: painted(h.name, h.kind) })
  }
  const parts = [...by.values()].sort((a, b) => b.amount - a.amount)
  const rest = parts.splice(most)
  if (rest.length) parts.push({ name: `${rest.length} more`, amount: rest.reduce((n, p) => n + p.amount, 0), kind: 'together', paint: 'other' })
  return parts
}

const heldThen = computed(() => (past.value && moment.value !== null ? heldAt(past.value, moment.value) : []))

// then is who held what of a device at the moment.
const then = (d: Device): Part[] =>
  sum(heldThen.value.map((h) => ({ name: holder(h), kind: kindOf(h), amount: on(d, h), href: h.function && link(h.function) })))

// nowOf is who has what of a device now, and what is kept of it for whom.
function nowOf(d: Device): Part[] {
  const list = functions.value.flatMap((f) => (f.instances ?? []).filter((i) => i.state !== 'gone').map((i) => ({
    name: short(f.name), kind: i.state === 'asleep' ? 'asleep' : 'awake', amount: on(d, { ...i.memory, at: '', instance: '', node: i.node, devices: i.devices, state: i.state }), href: link(f.name),
  })))
  const parts = sum(list)
  const kept = (name: string, kind: string, amount: number) => amount > 0 && parts.push({ name, amount, kind, paint: kind })
  kept('kept for what starts or wakes', 'rising', d.rising)
  kept('kept for sleepers that may wake', 'reserved', d.reserved)
  kept(otherPrograms, 'others', d.others ?? 0)
  return parts
}

function DeviceView({ d }: { d: Device }) {
  const t = moment.value
  const parts = t === null ? nowOf(d) : then(d)
  const all = Math.max(d.total, d.capacity, parts.reduce((n, p) => n + p.amount, 0), 1)
  return (
    <section class="device" aria-label={d.id === d.name ? d.name : `${d.name}, ${d.id}`}>
      <h2>{d.name} <small>{d.id !== d.name && d.id + ' · '}{bytes(d.capacity)} for models{t === null && `, ${bytes(d.free)} free`}</small></h2>
      <Chart d={d} />
      <div class="ledger" aria-hidden="true">
        {parts.map((p) => <i key={p.name + p.kind} class={p.paint} title={`${p.name}: ${bytes(p.amount)} ${p.kind}`} style={{ flexBasis: (p.amount / all) * 100 + '%' }} />)}
      </div>
      <table>
        <caption class="unseen">Who {t === null ? 'holds' : 'held'} what of {d.name}{t !== null && ' at ' + clock(new Date(t).toISOString())}</caption>
        <thead><tr><th scope="col">Who</th><th scope="col">How</th><th scope="col" class="num">Memory</th></tr></thead>
        <tbody>
          {parts.map((p) => (
            <tr key={p.name + p.kind}><th scope="row"><i class={p.paint + ' swatch'} aria-hidden="true" />{p.href ? <a href={p.href}>{p.name}</a> : p.name}</th><td>{p.kind}</td><td class="num">{bytes(p.amount)}</td></tr>
          ))}
          {parts.length === 0 && <tr><td colSpan={3} class="faint">{t === null ? 'Nobody holds anything.' : 'Nobody held anything.'}</td></tr>}
        </tbody>
      </table>
    </section>
  )
}

// TimeBar chooses the moment, by the keyboard too.
function TimeBar() {
  const { from, to } = shown.value
  const t = moment.value
  const said = t === null ? 'now' : clock(new Date(t).toISOString())
  const bad = useSignal('')
  const first = past.value?.since
  return (
    <div class="time" role="group" aria-label="Time">
      <div class="chips" role="group" aria-label="How long">
        {spans.map((s) => <button key={s.ms} aria-pressed={span.value === s.ms} onClick={() => widen(s.ms)}>{s.name}</button>)}
      </div>
      <form onSubmit={(e) => {
        e.preventDefault()
        const field = e.currentTarget.elements[0] as HTMLInputElement
        const at = timeOfDay(field.value)
        bad.value = Number.isNaN(at) ? 'A time looks like 03:12 or 03:12:30.' : first && at < first ? `Nothing is known of then: what is kept begins at ${clock(new Date(first).toISOString())}.` : ''
        if (!bad.value) look(at)
      }}>
        <label class="field">At <input size={8} placeholder="03:12" inputMode="numeric" aria-describedby="time-fault" /></label> <button>Look</button>
        <em id="time-fault" class="bad" role="alert">{bad}</em>
      </form>
      <span class="steps">
        <button onClick={() => next(-1)} aria-label="The change before">◂ change</button>
        <button onClick={() => next(1)} disabled={t === null} aria-label="The change after">change ▸</button>
        <button aria-pressed={t === null} onClick={() => look(null)}>Now</button>
      </span>
      <output class={t === null ? 'unseen' : 'at'} aria-live="polite">{said}</output>
      <input type="range" class="slider" aria-label="Moment" aria-valuetext={said} min={from} max={to} step={1000} value={t ?? to} onInput={(e) => look(e.currentTarget.valueAsNumber)} />
    </div>
  )
}

const search = signal('')
const matching = computed(() => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
  const gpusFirst = [...devices.value.filter((d) => !isHost(d)), ...devices.value.filter(isHost)]
  return gpusFirst.filter((d) => words.every((w) => `${d.id} ${d.name} ${d.node ?? ''} ${isHost(d) ? 'host' : 'gpu'}`.toLowerCase().includes(w)))
})

export function MemoryView({ at }: { at?: string }) {
  const failed = usePoll(refresh, 3000)
  useEffect(() => {
    if (at) look(Number(at) || null)
  }, [at])
  const list = matching.value
  return (
    <div>
      <Patterns />
      <div class="bar">
        <h1>Memory</h1>
        {devices.value.length > 3 && <input type="search" placeholder="Device or node" aria-label="Search devices" value={search.value} onInput={(e) => (search.value = e.currentTarget.value)} />}
        <p class="faint">Who {moment.value === null ? 'holds' : 'held'} what of each device. Full colour is awake, hatched is asleep, pale is starting or waking.</p>
      </div>
      {failed}
      <TimeBar />
      <div class="split">
        <div>
          {list.slice(0, mostDrawn).map((d) => <DeviceView key={d.id} d={d} />)}
          {list.length > mostDrawn && <p class="faint">and {list.length - mostDrawn} more devices: search for one of them</p>}
          {list.length === 0 && <p class="empty">No device matches.</p>}
        </div>
        <Around />
      </div>
    </div>
  )
}
