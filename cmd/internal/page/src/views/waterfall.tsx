import { duration } from '../format'
import type { Span, Wake } from '../types'

const deepest = 3

// tree orders spans so that each follows the one that it lies in, as `rouse trace wake` does.
function tree(w: Wake): { span: Span; depth: number }[] {
  const spans = w.spans ?? []
  const there = new Set(spans.map((s) => s.id))
  const done = new Set<Span>()
  const rows: { span: Span; depth: number }[] = []
  const add = (s: Span, depth: number) => {
    if (done.has(s)) return
    done.add(s)
    rows.push({ span: s, depth: Math.min(depth, deepest) })
    for (const child of spans) if (child.parent === s.id) add(child, depth + 1)
  }
  for (const s of spans) if (!there.has(s.parent)) add(s, 0)
  for (const s of spans) add(s, 0)
  return rows
}

export function Waterfall({ wake }: { wake: Wake }) {
  const total = Math.max(wake.total, 1)
  const by = wake.by === 'activator' ? 'woken by the activator under a grant' : wake.by ? `by the autoscaler${wake.activator ? ' for a request' : ', without a request'}` : ''
  return (
    <figure class="waterfall">
      <figcaption>{wake.instance}: {wake.path || 'woken'} in {duration(wake.total)}{by && ', ' + by}{wake.reason && <small>{wake.reason}</small>}</figcaption>
      <ol>
        {tree(wake).map(({ span: s, depth }) => (
          <li key={s.id} title={s.note}>
            <span class="part">{s.part}</span>
            <span class="step" style={{ paddingLeft: depth * 12 + 'px' }}>{s.name}{s.who && <small> {s.who}</small>}</span>
            <span class="track" aria-hidden="true"><i class={'of-' + s.part} style={{ left: (s.after / total) * 100 + '%', width: Math.max(0.4, (s.took / total) * 100) + '%' }} /></span>
            <span class="num">{duration(s.took)}</span>
          </li>
        ))}
      </ol>
    </figure>
  )
}
