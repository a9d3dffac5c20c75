import { computed, signal } from '@preact/signals'
import { ago, brief, bytes, doing, held, short, stateOf, up, word } from '../format'
import { link, Orders, StateWord, VirtualTable, type Column } from '../parts'
import { functions, now } from '../store'
import type { State, Summary } from '../types'

const search = signal('')
const only = signal<State | 'failed' | ''>('')

const states: (State | 'failed')[] = ['failed', 'unhealthy', 'awake', 'starting', 'draining', 'asleep', 'gone']

// failedFirst are all, those that have failed before the others.
const failedFirst = computed(() => [...functions.value.filter((f) => f.failed), ...functions.value.filter((f) => !f.failed)])

const matching = computed(() => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
  if (!words.length) return failedFirst.value
  return failedFirst.value.filter((f) => {
    const text = `${f.name} ${f.model} ${f.runtime} ${f.source ?? ''}`.toLowerCase()
    return words.every((w) => text.includes(w))
  })
})

const shown = computed(() => (only.value ? matching.value.filter((f) => stateOf(f) === only.value) : matching.value))

const counts = computed(() => {
  const n = new Map<State | 'failed', number>()
  for (const f of matching.value) n.set(stateOf(f), (n.get(stateOf(f)) ?? 0) + 1)
  return n
})

const memory = (f: Summary) => {
  const { host, gpu } = held(f.instances)
  if (!host && !gpu) return <span class="faint">–</span>
  return gpu ? <>{bytes(gpu)}<small> GPU</small></> : <>{bytes(host)}</>
}

const columns: Column<Summary>[] = [
  {
    title: 'Function',
    class: 'grow',
    cell: (f) => (
      <>
        <a href={link(f.name)}>{short(f.name)}</a>
        <small class={f.failed ? 'bad' : ''} title={f.failed}>{f.failed || brief(f.waits ?? '') || [f.runtime || 'any', f.source].filter(Boolean).join(', ')}</small>
      </>
    ),
  },
  { title: 'State', class: 'state-col', cell: (f) => <StateWord state={stateOf(f)} more={doing(f)} /> },
  { title: 'Awake', class: 'num wide', cell: (f) => <>{up(f, 'awake')}<span class="faint">/{f.max}</span></> },
  { title: 'Held', class: 'num', cell: (f) => (f.waiting ? <b>{f.waiting}</b> : <span class="faint">0</span>) },
  { title: 'Running', class: 'num wide', cell: (f) => f.running || <span class="faint">0</span> },
  { title: 'Memory', class: 'num wide memory', cell: memory },
  { title: 'Last request', class: 'when wide', cell: (f) => ago(f.lastRequest, now.value) },
  { title: 'By hand', class: 'by wide', cell: (f) => <Orders f={f} /> },
]

// Waiting says what waits now, and why.
function Waiting() {
  const all = functions.value.filter((f) => f.waiting || f.waits)
  if (!all.length) return null
  return (
    <section class="waiting" aria-label="What waits">
      <h2>Waiting</h2>
      <ul>
        {all.slice(0, 5).map((f) => (
          <li key={f.name}><a href={link(f.name)}>{short(f.name)}</a> {f.waiting ? `holds ${f.waiting}` : ''} <span class="faint">{brief(f.waits ?? '') || doing(f)}</span></li>
        ))}
      </ul>
      {all.length > 5 && <p class="faint">and {all.length - 5} more</p>}
    </section>
  )
}

// Failed says of the first that have failed why, in full.
function Failed() {
  const all = failedFirst.value.filter((f) => f.failed)
  if (!all.length) return null
  return (
    <section class="waiting failed" aria-label="What has failed">
      <h2>Failed</h2>
      <ul>
        {all.slice(0, 5).map((f) => <li key={f.name}><a href={link(f.name)}>{short(f.name)}</a> <span class="bad">{brief(f.failed!)}</span></li>)}
      </ul>
      {all.length > 5 && <p class="faint">and {all.length - 5} more</p>}
    </section>
  )
}

export function Functions() {
  return (
    <div class="fill">
      <div class="bar">
        <h1>Functions</h1>
        <input type="search" placeholder="Search" aria-label="Search functions by name, model or runtime" value={search.value} onInput={(e) => (search.value = e.currentTarget.value)} />
        <div class="chips" role="group" aria-label="States">
          <button aria-pressed={only.value === ''} onClick={() => (only.value = '')}>all {matching.value.length}</button>
          {states.filter((s) => counts.value.get(s) || only.value === s).map((s) => (
            <button key={s} aria-pressed={only.value === s} onClick={() => (only.value = only.value === s ? '' : s)}>{word(s)} {counts.value.get(s) ?? 0}</button>
          ))}
        </div>
      </div>
      <Failed />
      <Waiting />
      <VirtualTable label="Functions" rows={shown.value} columns={columns} id={(f) => f.name} height={52}
        empty={functions.value.length ? 'No function matches.' : <>No function is declared. <code>rouse apply -f FILE</code> declares one.</>} />
    </div>
  )
}
