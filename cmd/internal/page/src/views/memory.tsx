import { bytes, short } from '../format'
import { link } from '../parts'
import { devices, functions } from '../store'
import type { Device } from '../types'

interface Part { name: string; amount: number; kind: string; href?: string }

const most = 12 // functions that are drawn apart

// partsOf is who has what of a device: of the host by what instances use, of a GPU by what they hold of it.
function partsOf(d: Device): Part[] {
  const host = !/gpu/i.test(d.id) && (d.id === 'host' || d.id.endsWith('/host'))
  const list: Part[] = []
  for (const f of functions.value) {
    let awake = 0
    let asleep = 0
    for (const i of f.instances ?? []) {
      if (host ? (i.node ?? '') !== (d.node ?? '') : !i.devices?.includes(d.id)) continue
      const n = host ? i.memory.host : i.memory.perDevice ?? 0
      if (i.state === 'asleep') asleep += n
      else if (i.state !== 'gone') awake += n
    }
    if (awake) list.push({ name: short(f.name), amount: awake, kind: 'awake', href: link(f.name) })
    if (asleep) list.push({ name: short(f.name), amount: asleep, kind: 'asleep', href: link(f.name) })
  }
  list.sort((a, b) => b.amount - a.amount)
  const rest = list.splice(most)
  const more = (kind: string, name: string, amount: number) => amount > 0 && list.push({ name, amount, kind })
  more('other', `${rest.length} more functions`, rest.reduce((n, p) => n + p.amount, 0))
  more('rising', 'kept for what starts or wakes', d.rising)
  more('reserved', 'kept for sleepers that may wake', d.reserved)
  more('others', 'other programs', d.others ?? 0)
  return list
}

export function MemoryView() {
  return (
    <div>
      <div class="bar"><h1>Memory</h1><p class="faint">Who holds what of each device, awake and asleep.</p></div>
      {devices.value.map((d) => {
        const parts = partsOf(d)
        const all = Math.max(d.total, d.capacity, 1)
        return (
          <section key={d.id} class="device" aria-label={d.name}>
            <h2>{d.name} <small>{d.id !== d.name && d.id} · {bytes(d.capacity)} for models, {bytes(d.free)} free</small></h2>
            <div class="ledger" aria-hidden="true">
              {parts.map((p) => <i key={p.name + p.kind} class={p.kind} title={`${p.name}: ${bytes(p.amount)} ${p.kind}`} style={{ flexBasis: (p.amount / all) * 100 + '%' }} />)}
            </div>
            <table>
              <caption class="unseen">Who holds what of {d.name}</caption>
              <thead><tr><th scope="col">Who</th><th scope="col">How</th><th scope="col" class="num">Memory</th></tr></thead>
              <tbody>
                {parts.map((p) => (
                  <tr key={p.name + p.kind}><th scope="row">{p.href ? <a href={p.href}>{p.name}</a> : p.name}</th><td><i class={'swatch ' + p.kind} aria-hidden="true" />{p.kind}</td><td class="num">{bytes(p.amount)}</td></tr>
                ))}
                {parts.length === 0 && <tr><td colSpan={3} class="faint">Nobody holds anything.</td></tr>}
              </tbody>
            </table>
          </section>
        )
      })}
    </div>
  )
}
