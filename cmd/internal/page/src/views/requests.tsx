import { signal } from '@preact/signals'
import { get } from '../api'
import { clock, count, millis, short } from '../format'
import { link, usePoll, VirtualTable, type Column } from '../parts'
import { info } from '../store'
import type { Asked } from '../types'

const list = signal<Asked[] | null>(null)

const ms = (v: number | undefined) => (v === undefined ? <span class="faint">–</span> : millis(v))

const columns: Column<Asked>[] = [
  { title: 'When', class: 'when', cell: (r) => clock(r.time) },
  { title: 'Model', class: 'grow', cell: (r) => <>{r.function ? <a href={link(r.function)}>{r.model || short(r.function)}</a> : r.model || <span class="faint">–</span>}<small>{r.method} {r.path}</small></> },
  { title: 'Status', class: 'num', cell: (r) => <span class={r.status >= 400 ? 'bad' : ''} title={r.code}>{r.status}</span> },
  { title: 'Held', class: 'num wide', cell: (r) => (r.hold_ms ? millis(r.hold_ms) : <span class="faint">0</span>) },
  { title: 'First token', class: 'num', cell: (r) => ms(r.ttft_ms) },
  { title: 'Took', class: 'num wide', cell: (r) => ms(r.duration_ms) },
  { title: 'Tokens in', class: 'num wide', cell: (r) => (r.input_tokens === undefined ? '' : count(r.input_tokens)) },
  { title: 'out', class: 'num wide', cell: (r) => (r.output_tokens === undefined ? '' : count(r.output_tokens)) },
  { title: 'Client', class: 'name wide', cell: (r) => <>{r.tenant || r.client}<small>{r.key}</small></> },
]

export function Requests() {
  if (info.value?.leader) return <div><div class="bar"><h1>Requests</h1></div><p class="empty">A cluster's requests are in the access logs of its activators: <code>kubectl logs -n knative-serving -l app=rouse-activator</code></p></div>
  return <Here />
}

function Here() {
  const failed = usePoll(async (signal) => {
    list.value = (await get<Asked[]>('/rouse/v1/requests', signal)).reverse()
  }, 2000)
  return (
    <div class="fill">
      <div class="bar"><h1>Requests</h1><p class="faint">The last 1,000. Prompts and answers are never kept.</p></div>
      {failed}
      <VirtualTable label="Requests, the newest first" rows={list.value ?? []} columns={columns} id={(r) => r.time + (r.request ?? '')} height={52}
        empty={list.value ? 'Nobody has asked anything yet.' : 'One moment …'} />
    </div>
  )
}
