import { computed, signal } from '@preact/signals'
import { clock, short } from '../format'
import { link, VirtualTable, type Column } from '../parts'
import { decisions } from '../store'
import type { Decision } from '../types'

const search = signal('')

const shown = computed(() => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
  const list = decisions.value.filter((d) => {
    const text = `${d.function} ${d.instance ?? ''} ${d.action} ${d.reason} ${d.error ?? ''}`.toLowerCase()
    return words.every((w) => text.includes(w))
  })
  return list.reverse()
})

const columns: Column<Decision>[] = [
  { title: 'When', class: 'when', cell: (d) => clock(d.at) },
  { title: 'What', class: 'word', cell: (d) => <b>{d.action}</b> },
  { title: 'Function', class: 'name', cell: (d) => <><a href={link(d.function)}>{short(d.function)}</a><small>{d.instance}</small></> },
  { title: 'Why', class: 'grow wrap', cell: (d) => <span title={d.reason}>{d.reason}{d.error && <em class="bad"> {d.error}</em>}</span> },
]

export function Decisions() {
  return (
    <div class="fill">
      <div class="bar">
        <h1>Decisions</h1>
        <input type="search" placeholder="Search" aria-label="Search decisions" value={search.value} onInput={(e) => (search.value = e.currentTarget.value)} />
      </div>
      <VirtualTable label="Decisions, the newest first" rows={shown.value} columns={columns} id={(d) => d.at + d.function + d.instance + d.action} height={52}
        empty={decisions.value.length ? 'No decision matches.' : 'Nothing was decided yet: nobody has asked for anything.'} />
    </div>
  )
}
