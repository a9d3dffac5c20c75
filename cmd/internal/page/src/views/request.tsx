import { signal, useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { functionPath, get } from '../api'
import { clock, count, millis, short } from '../format'
import { asked, idOf } from '../log'
import { link } from '../parts'
import type { Asked, Pick, Wake } from '../types'
import { Waterfall } from './waterfall'

// price is that of an hour of a GPU, as somebody has said it.
export const price = signal(0)

// costOf is what seconds of a GPU cost; empty: nobody has said a price.
export const costOf = (seconds: number) => (price.value > 0 ? ((seconds / 3600) * price.value).toFixed(seconds * price.value < 360 ? 6 : 2) : '')

// reasons are why an instance was chosen: api.Choice.
const reasons: Record<string, string> = {
  only: 'it is the only one', wake: 'it was woken for the request', prefix: 'it has computed most of the prompt before', session: 'it has the client\'s session',
  prompt: 'prompts that begin so go there', adapter: 'it has the adapter', load: 'it has the least to do',
}

// wakeOf is the wake that a request waited for: that of its instance within its time.
function wakeOf(list: Wake[], r: Asked): Wake | undefined {
  const end = Date.parse(r.time)
  const begin = end - (r.duration_ms ?? 0)
  return list.find((w) => (!r.instance || w.instance === r.instance) && Date.parse(w.start) <= end && Date.parse(w.start) + w.total / 1e6 >= begin)
}

// RequestView is all about one request.
export function RequestView({ id }: { id: string }) {
  const r = asked.value?.find((r) => idOf(r) === id)
  const picks = useSignal<Pick[]>([])
  const wake = useSignal<Wake | undefined>(undefined)
  const failed = useSignal('')
  useEffect(() => {
    const abort = new AbortController()
    const read = async () => {
      picks.value = await get<Pick[]>('/rouse/v1/picks?request=' + encodeURIComponent(id), abort.signal)
      if (r?.function && r.hold_ms) wake.value = wakeOf(await get<Wake[]>(functionPath(r.function, '/wakes'), abort.signal), r)
    }
    read().catch((err: Error) => abort.signal.aborted || (failed.value = err.message))
    return () => abort.abort()
  }, [id, !!r])
  const head = <div class="bar"><h1>Request {id}</h1>{r && <span class={r.status >= 400 ? 'bad' : ''}>status {r.status}{r.code && `, ${r.code}`}</span>}<a href="#/requests">All requests</a></div>
  if (!r) return <div class="detail">{head}<p class="empty">{asked.value ? 'It is not among the last requests that the server keeps.' : 'One moment …'}</p></div>
  const cost = costOf(r.gpu_seconds ?? 0)
  const again = [r.attempts && `${r.attempts} attempts`, r.resumed && `resumed ${r.resumed} times`, r.moved && `moved ${r.moved} times`].filter(Boolean).join(', ')
  return (
    <div class="detail">
      {head}
      {failed.value && <p class="banner bad" role="alert">{failed.value}</p>}
      <dl class="facts">
        <div><dt>Ended</dt><dd><a href={'#/memory/' + Date.parse(r.time)} title="Who held what then">{clock(r.time)}</a></dd></div>
        <div><dt>Asked</dt><dd>{r.method} {r.path}{r.stream ? ', as a stream' : ''}</dd></div>
        <div><dt>Model</dt><dd>{r.function ? <a href={link(r.function)}>{r.model || short(r.function)}</a> : r.model || '–'}{r.fallback && `, in place of ${r.fallback}`}</dd></div>
        <div><dt>Instance</dt><dd>{r.instance || 'none'}{again && `, ${again}`}</dd></div>
        <div><dt>Client</dt><dd>{[r.tenant, r.key && `key ${r.key}`, !r.tenant && r.client].filter(Boolean).join(', ') || '–'}</dd></div>
        <div><dt>Tokens</dt><dd>{r.input_tokens === undefined ? '–' : `${count(r.input_tokens)} in${r.cached_tokens ? ` (${count(r.cached_tokens)} cached)` : ''}, ${count(r.output_tokens ?? 0)} out`}</dd></div>
        <div><dt>Cost</dt><dd>{r.gpu_seconds ? `${r.gpu_seconds} GPU-seconds` : 'no time of a GPU'}{cost && `, ${cost}`}</dd></div>
        <div><dt>Time</dt><dd>{millis(r.hold_ms ?? 0)} held{r.wake_ms ? ` (${millis(r.wake_ms)} for the wake)` : ''}, {r.ttft_ms === undefined ? 'no token' : `first token after ${millis(r.ttft_ms)}`}, {millis(r.duration_ms ?? 0)} in all</dd></div>
      </dl>
      <section aria-label="Choices">
        <h2>Why that instance</h2>
        {picks.value.length === 0 && <p class="faint">Nothing is on record.</p>}
        <ol class="log">
          {picks.value.map((p) => <li key={p.at}><time>{clock(p.at)}</time><span>{p.instance}: {reasons[p.by] ?? p.by}; {p.running} of {p.slots} slots in use{p.known ? `, ${count(p.known)} of ${count(p.prompt ?? 0)} tokens cached` : ''}{p.after && <em class="bad"> after {p.after}</em>}</span></li>)}
        </ol>
      </section>
      {wake.value && <section aria-label="Wake"><h2>The wake it waited for</h2><Waterfall wake={wake.value} /></section>}
    </div>
  )
}
