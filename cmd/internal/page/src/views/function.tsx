import { useSignal } from '@preact/signals'
import { functionPath, get } from '../api'
import { ago, brief, bytes, clock, doing, duration, held, short, stateOf } from '../format'
import { Orders, Progress, StateWord, usePoll } from '../parts'
import { functionNamed, now, order, say } from '../store'
import type { Decision, Summary, Wake } from '../types'
import { Adapters } from './adapters'
import { Failure } from './failed'
import { Logs } from './logs'
import { Use } from './use'
import { Waterfall } from './waterfall'

// FunctionView is all about one function.
export function FunctionView({ name }: { name: string }) {
  const f = functionNamed(name)
  const wakes = useSignal<Wake[]>([])
  const why = useSignal<Decision[]>([])
  const failed = usePoll(async (signal) => {
    const [w, d] = await Promise.all([get<Wake[]>(functionPath(name, '/wakes'), signal), get<Decision[]>(functionPath(name, '/why'), signal)])
    wakes.value = w.reverse()
    why.value = d.reverse()
  }, 2000, name)
  if (!f) return <p class="empty">There is no function {short(name)}. <a href="#/functions">Functions</a></p>
  return (
    <div class="detail">
      <div class="bar"><h1>{short(name)}</h1><StateWord state={stateOf(f)} more={f.state === 'starting' ? '' : doing(f)} /><Orders f={f} all /><Scale f={f} /><Progress f={f} /></div>
      {failed}
      {(f.failed || f.lastError) && <section class="waiting failed" aria-label={f.failed ? 'Why it failed' : 'Last error'}><h2>{f.failed ? 'Why it failed' : 'Last error'}</h2><Failure f={f} /></section>}
      <Facts f={f} />
      {!f.clusters && <Use f={f} />}
      <Instances f={f} />
      {!f.clusters && <Adapters f={f} />}
      <Wakes list={wakes.value} />
      <section aria-label="Decisions">
        <h2>Decisions</h2>
        {why.value.length === 0 && <p class="faint">None yet.</p>}
        <ol class="log">
          {why.value.slice(0, 50).map((d) => (
            <li key={d.at + d.action + d.instance}><a href={'#/memory/' + Date.parse(d.at)} title="Who held what then">{clock(d.at)}</a><b>{d.action}</b><span title={d.reason}>{brief(d.reason)}{d.error && <em class="bad"> {d.error}</em>}</span></li>
          ))}
        </ol>
      </section>
      <Logs name={name} />
    </div>
  )
}

const lengths = [['10m', '10 minutes'], ['1h', '1 hour'], ['8h', '8 hours'], ['24h', '24 hours']] as const

// Scale keeps so many instances awake for a while, or gives the decision back to demand.
function Scale({ f }: { f: Summary }) {
  if (f.clusters) return null
  const set = async (replicas: number, length: string, done: string) => {
    if (await order(f.name, '/scale', { replicas, for: length, by: 'the page' })) say(`${short(f.name)}: ${done}`)
  }
  return (
    <form class="scale" onSubmit={(e) => {
      e.preventDefault()
      const data = new FormData(e.currentTarget)
      const n = Number(data.get('n'))
      const length = String(data.get('for'))
      void set(n, length, `${n} awake for ${lengths.find(([v]) => v === length)?.[1]}`)
    }}>
      <label class="field">Keep <input name="n" type="number" min="0" max={f.max} required defaultValue={f.scale?.replicas ?? 1} /> awake</label>
      <label class="field">for <select name="for" aria-label="For how long">{lengths.map(([v, text]) => <option key={v} value={v}>{text}</option>)}</select></label>
      <button>Keep</button>
      {f.scale && <button type="button" onClick={() => void set(f.scale!.replicas, '1s', 'demand decides again')}>Let demand decide</button>}
    </form>
  )
}

function Facts({ f }: { f: Summary }) {
  const { host, gpu } = held(f.instances)
  return (
    <dl class="facts">
      <div><dt>Model</dt><dd>{f.model}</dd></div>
      <div><dt>Runs</dt><dd>{[f.runtime, f.source].filter(Boolean).join(', ') || 'any'}</dd></div>
      <div><dt>Requests</dt><dd>{f.waiting ?? 0} held, {f.running ?? 0} running, last {ago(f.lastRequest, now.value)}</dd></div>
      <div><dt>Holds now</dt><dd>{bytes(host)} of host{gpu > 0 && `, ${bytes(gpu)} of GPUs`}</dd></div>
      <div><dt>Needs awake</dt><dd>{bytes(f.need.host)} of host{f.need.devices ? `, ${f.need.devices} GPU × ${f.need.perDevice ? bytes(f.need.perDevice) : f.need.share ? `${Math.round(f.need.share * 100)} %` : 'all of it'}` : ''}</dd></div>
      {f.waits && <div class="full"><dt>Waits for</dt><dd>{brief(f.waits)}</dd></div>}
      {f.scale && <div><dt>Set</dt><dd>{f.scale.by || 'somebody'} wants {f.scale.replicas} until {clock(f.scale.until)}</dd></div>}
      {f.clusters && <div><dt>Clusters</dt><dd>{f.clusters.join(', ') || 'none has it now'}</dd></div>}
    </dl>
  )
}

function Instances({ f }: { f: Summary }) {
  if (!f.instances?.length) return null
  return (
    <section class="scroll" tabIndex={0} aria-label="Instances">
      <h2>Instances</h2>
      <table>
        <thead><tr><th scope="col">Instance</th><th scope="col">State</th><th scope="col">Since</th><th scope="col">On</th><th scope="col" class="num">Host</th><th scope="col" class="num">GPU each</th><th scope="col">Says</th></tr></thead>
        <tbody>
          {f.instances.map((i) => (
            <tr key={i.instance}>
              <th scope="row">{i.instance}</th>
              <td><StateWord state={i.state} more={i.level ? `level ${i.level}` : i.stage} /></td>
              <td>{ago(i.since, now.value)}</td><td>{[i.node, ...(i.devices ?? [])].filter(Boolean).join(', ') || 'this machine'}</td>
              <td class="num">{bytes(i.memory.host)}</td><td class="num">{i.memory.perDevice ? bytes(i.memory.perDevice) : '–'}</td>
              <td>{i.granted ? 'may wake without asking' : ''} {i.message}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

function Wakes({ list }: { list: Wake[] }) {
  const chosen = useSignal('')
  const w = list.find((x) => x.trace === chosen.value) ?? list[0]
  return (
    <section aria-label="Wakes">
      <h2>Wakes</h2>
      {!w && <p class="faint">None is on record.</p>}
      {w && (
        <>
          <div class="chips" role="group" aria-label="Which wake">
            {list.slice(0, 12).map((x) => (
              <button key={x.trace} aria-pressed={x === w} onClick={() => (chosen.value = x.trace)}>{clock(x.start)} · {x.path} · {duration(x.total)}</button>
            ))}
          </div>
          <Waterfall wake={w} />
        </>
      )}
    </section>
  )
}
