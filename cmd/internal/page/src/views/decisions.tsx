import { computed, signal } from '@preact/signals'
import { brief, clock, short } from '../format'
import { past, refresh } from '../history'
import { Chips, link, matcher, Search, usePoll, VirtualTable, type Column } from '../parts'
import { decisions } from '../store'
import type { Decision } from '../types'

const search = signal('')

// all are those that the server keeps, and what has come since it was asked.
const all = computed<Decision[]>(() => {
  const kept = past.value?.decisions ?? []
  const last = kept[kept.length - 1]?.t ?? 0
  return [...kept, ...decisions.value.filter((d) => Date.parse(d.at) > last)]
})

const kind = signal('')

const matching = computed(() => {
  const matches = matcher(search.value)
  return all.value.filter((d) => matches(`${d.function} ${d.instance ?? ''} ${d.action} ${d.reason} ${d.error ?? ''}`)).reverse()
})

// kindsOf is what was decided; failed is what could not be carried out.
const kindsOf = (d: Decision) => (d.error ? ['failed', d.action] : [d.action])

const counts = computed(() => {
  const n = new Map<string, number>([['failed', 0]])
  for (const d of matching.value) for (const k of kindsOf(d)) n.set(k, (n.get(k) ?? 0) + 1)
  return [...n]
})

const shown = computed(() => (kind.value ? matching.value.filter((d) => kindsOf(d).includes(kind.value)) : matching.value))

const columns: Column<Decision>[] = [
  { title: 'When', class: 'when', cell: (d) => <a href={'#/memory/' + Date.parse(d.at)} title="Who held what then">{clock(d.at)}</a> },
  { title: 'What', class: 'word', cell: (d) => <b>{d.action}</b> },
  { title: 'Function', class: 'name', cell: (d) => <><a href={link(d.function)}>{short(d.function)}</a><small>{d.instance}</small></> },
  { title: 'Why', class: 'grow wrap', cell: (d) => <span title={d.reason}>{brief(d.reason)}{d.error && <em class="bad"> {d.error}</em>}</span> },
]

export function Decisions() {
  const failed = usePoll(refresh, 10_000)
  return (
    <div class="fill">
      <div class="bar">
        <h1>Decisions</h1>
        <Search text={search} label="Search decisions" />
        <Chips label="Kinds" all={matching.value.length} counts={counts.value} chosen={kind.value} choose={(k) => (kind.value = k)} />
        <p class="faint">Of the last day, with the reasons of then. A time leads to who held what at it.</p>
      </div>
      {failed}
      <VirtualTable label="Decisions, the newest first" rows={shown.value} columns={columns} id={(d) => d.at + d.function + d.instance + d.action} height={52}
        empty={all.value.length ? 'No decision matches.' : 'Nothing was decided yet: nobody has asked for anything.'} />
    </div>
  )
}
