import { computed, signal } from '@preact/signals'
import { ago, brief, bytes, doing, held, short, stateOf, up, word } from '../format'
import { Chips, link, matcher, Orders, Search, StateWord, VirtualTable, type Column } from '../parts'
import { functions, now } from '../store'
import type { State, Summary } from '../types'

const search = signal('')
const only = signal('')

const states: (State | 'failed')[] = ['failed', 'unhealthy', 'awake', 'starting', 'draining', 'asleep', 'gone']

// failedFirst are all, those that have failed before the others.
export const failedFirst = computed(() => [...functions.value.filter((f) => f.failed), ...functions.value.filter((f) => !f.failed)])

const matching = computed(() => {
  const matches = matcher(search.value)
  return search.value ? failedFirst.value.filter((f) => matches(`${f.name} ${f.model} ${f.runtime} ${f.source ?? ''}`)) : failedFirst.value
})

const shown = computed(() => (only.value ? matching.value.filter((f) => stateOf(f) === only.value) : matching.value))

const counts = computed(() => {
  const n = new Map<string, number>(states.map((s) => [s, 0]))
  for (const f of matching.value) n.set(stateOf(f), n.get(stateOf(f))! + 1)
  return [...n]
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
    by: (f) => short(f.name),
    cell: (f) => (
      <>
        <a href={link(f.name)}>{short(f.name)}</a>
        <small class={f.failed ? 'bad' : ''} title={f.failed}>{f.failed || brief(f.waits ?? '') || [f.runtime || 'any', f.source].filter(Boolean).join(', ')}</small>
      </>
    ),
  },
  { title: 'State', class: 'state-col', by: (f) => states.indexOf(stateOf(f)), cell: (f) => <StateWord state={stateOf(f)} more={doing(f)} /> },
  { title: 'Awake', class: 'num wide', by: (f) => up(f, 'awake'), cell: (f) => <>{up(f, 'awake')}<span class="faint">/{f.max}</span></> },
  { title: 'Held', class: 'num', by: (f) => f.waiting ?? 0, cell: (f) => (f.waiting ? <b>{f.waiting}</b> : <span class="faint">0</span>) },
  { title: 'Running', class: 'num wide', by: (f) => f.running ?? 0, cell: (f) => f.running || <span class="faint">0</span> },
  { title: 'Memory', class: 'num wide memory', by: (f) => held(f.instances).gpu * 1e6 + held(f.instances).host, cell: memory },
  { title: 'Last request', class: 'when wide', by: (f) => Date.parse(f.lastRequest ?? '') || 0, cell: (f) => ago(f.lastRequest, now.value) },
  { title: 'By hand', class: 'by wide', cell: (f) => <Orders f={f} /> },
]

export function Functions() {
  return (
    <div class="fill">
      <div class="bar">
        <h1>Functions</h1>
        <Search text={search} label="Search functions by name, model or runtime" />
        <Chips label="States" all={matching.value.length} counts={counts.value} chosen={only.value} choose={(s) => (only.value = s)} name={(s) => word(s as State)} />
        <a class="main" href="#/models">Add a model</a>
      </div>
      <VirtualTable label="Functions" rows={shown.value} columns={columns} id={(f) => f.name} height={52}
        empty={functions.value.length ? 'No function matches.' : <>No function is declared. <a href="#/models">Add a model</a>, or declare one with <code>rouse apply -f FILE</code>.</>} />
    </div>
  )
}
