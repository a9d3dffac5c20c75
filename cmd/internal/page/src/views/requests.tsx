import { computed, signal } from '@preact/signals'
import { clock, count, millis, short } from '../format'
import { asked, idOf, inCluster, refreshRequests } from '../log'
import { Chips, link, matcher, Search, usePoll, VirtualTable, type Column } from '../parts'
import type { Asked } from '../types'
import { RequestView } from './request'

const search = signal('')
const only = signal('')

// kinds are what requests are chosen by, besides words.
const kinds: [string, (r: Asked) => boolean][] = [
  ['failed', (r) => r.status >= 500],
  ['refused', (r) => r.status >= 400 && r.status < 500],
  ['held', (r) => !!r.hold_ms],
  ['woke a model', (r) => !!r.wake_ms],
  ['tried again', (r) => !!(r.attempts || r.resumed || r.moved)],
]

const matching = computed(() => {
  const matches = matcher(search.value)
  const list = asked.value ?? []
  return search.value ? list.filter((r) => matches([r.model, r.function, r.instance, r.tenant, r.key, r.client, r.path, r.status, r.code, r.request].join(' '))) : list
})

const shown = computed(() => {
  const is = kinds.find(([name]) => name === only.value)?.[1]
  return is ? matching.value.filter(is) : matching.value
})

const counts = computed(() => kinds.map(([name, is]) => [name, matching.value.filter(is).length] as [string, number]))

const ms = (v: number | undefined) => (v === undefined ? <span class="faint">–</span> : millis(v))

export const requestLink = (r: Asked) => '#/requests/' + encodeURIComponent(idOf(r))

const columns: Column<Asked>[] = [
  { title: 'When', class: 'when', by: (r) => Date.parse(r.time), cell: (r) => <a href={requestLink(r)} aria-label={`Request ${idOf(r)} at ${clock(r.time)}`}>{clock(r.time)}</a> },
  { title: 'Model', class: 'grow', by: (r) => r.model ?? '', cell: (r) => <>{r.function ? <a href={link(r.function)}>{r.model || short(r.function)}</a> : r.model || <span class="faint">–</span>}<small>{r.method} {r.path}</small></> },
  { title: 'Status', class: 'num', by: (r) => r.status, cell: (r) => <span class={r.status >= 400 ? 'bad' : ''} title={r.code}>{r.status}</span> },
  { title: 'Held', class: 'num wide', by: (r) => r.hold_ms ?? 0, cell: (r) => (r.hold_ms ? millis(r.hold_ms) : <span class="faint">0</span>) },
  { title: 'First token', class: 'num', by: (r) => r.ttft_ms ?? -1, cell: (r) => ms(r.ttft_ms) },
  { title: 'Took', class: 'num wide', by: (r) => r.duration_ms ?? -1, cell: (r) => ms(r.duration_ms) },
  { title: 'Tokens in', class: 'num wide', by: (r) => r.input_tokens ?? -1, cell: (r) => (r.input_tokens === undefined ? '' : count(r.input_tokens)) },
  { title: 'out', class: 'num wide', by: (r) => r.output_tokens ?? -1, cell: (r) => (r.output_tokens === undefined ? '' : count(r.output_tokens)) },
  { title: 'GPU', class: 'num wide', by: (r) => r.gpu_seconds ?? 0, cell: (r) => (r.gpu_seconds ? millis(r.gpu_seconds * 1000) : <span class="faint">–</span>) },
  { title: 'Client', class: 'name wide', by: (r) => r.tenant || r.client || '', cell: (r) => <>{r.tenant || r.client}<small>{r.key}</small></> },
]

export function Requests({ at }: { at?: string }) {
  if (inCluster.value) return <div><div class="bar"><h1>Requests</h1></div><p class="empty">A cluster's requests are in the access logs of its activators: <code>kubectl logs -n knative-serving -l app=rouse-activator</code></p></div>
  return <Here at={at} />
}

function Here({ at }: { at?: string }) {
  const failed = usePoll(refreshRequests, 2000)
  if (at) return <>{failed}<RequestView id={at} /></>
  return (
    <div class="fill">
      <div class="bar">
        <h1>Requests</h1>
        <Search text={search} label="Search requests by model, key, client, status or id" />
        <Chips label="Kinds" all={matching.value.length} counts={counts.value} chosen={only.value} choose={(k) => (only.value = k)} />
        <p class="faint">The last 1,000, and those that came since. Prompts and answers are never kept.</p>
      </div>
      {failed}
      <VirtualTable label="Requests, the newest first" rows={shown.value} columns={columns} id={(r) => r.time + (r.request ?? '')} height={52}
        empty={!asked.value ? 'One moment …' : asked.value.length ? 'No request matches.' : 'Nobody has asked anything yet.'} />
    </div>
  )
}
