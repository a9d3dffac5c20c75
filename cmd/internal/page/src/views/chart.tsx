import { useComputed, useSignal } from '@preact/signals'
import { useLayoutEffect, useRef } from 'preact/hooks'
import { colourOf, kinds, layersOf, otherPrograms, paint, past, type Layers } from '../history'
import { bytes } from '../format'
import { look, moment, shown } from '../moment'
import type { Device } from '../types'

const high = 116 // px, of what is drawn
const below = 18 // for the clock

// Patterns are how colours are hatched; there is one set in the document.
export const Patterns = () => (
  <svg class="unseen" aria-hidden="true">
    <defs>
      {Array.from({ length: paint }, (_, k) => (
        <pattern key={k} id={'asleep-' + k} class={'f' + k} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" class="under" /><rect width="2.4" height="5" class="ink" /></pattern>
      ))}
    </defs>
  </svg>
)

// ticks are round times within what is shown, at most so many.
function ticks(from: number, to: number, most: number): number[] {
  const minute = 60_000
  const step = [1, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((m) => m * minute).find((s) => (to - from) / s <= most) ?? to - from
  const zone = new Date(from).getTimezoneOffset() * minute
  const list: number[] = []
  for (let t = Math.ceil((from - zone) / step) * step + zone; t < to; t += step) list.push(t)
  return list
}

type Scale = (n: number) => number

// area is the outline of one band: what lies between the sums below and above it.
function area(l: Layers, band: number, x: Scale, y: Scale, to: number): string {
  let path = ''
  for (let k = 0; k < l.steps.length; ) { // one piece for each time that it holds something
    if (l.steps[k]!.sums[band] === l.steps[k]!.sums[band + 1]) {
      k++
      continue
    }
    let top = ''
    const bottom: string[] = []
    for (; k < l.steps.length; k++) {
      const low = l.steps[k]!.sums[band]!
      const up = l.steps[k]!.sums[band + 1]!
      if (low === up) break
      const a = x(l.steps[k]!.t).toFixed(1)
      const b = x(l.steps[k + 1]?.t ?? to).toFixed(1)
      top += `${top ? 'L' : 'M'}${a} ${y(up).toFixed(1)}H${b}`
      bottom.push(`L${b} ${y(low).toFixed(1)}H${a}`)
    }
    path += top + bottom.reverse().join('') + 'Z'
  }
  return path
}

// label is where a band has room for its name: the widest piece that is high enough.
function label(l: Layers, band: number, name: string, x: Scale, y: Scale, to: number): { x: number; y: number } | null {
  let best: { x: number; y: number } | null = null
  let widest = name.length * 6.5 + 12
  for (let k = 0; k < l.steps.length; k++) {
    const low = y(l.steps[k]!.sums[band]!)
    const up = y(l.steps[k]!.sums[band + 1]!)
    const a = x(l.steps[k]!.t)
    const wide = x(l.steps[k + 1]?.t ?? to) - a
    if (wide > widest && low - up > 16) {
      widest = wide
      best = { x: a + 6, y: (low + up) / 2 + 4 }
    }
  }
  return best
}

const clockOf = (t: number) => new Date(t).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })

// draw is all of a chart but the moment, which is chosen more often than anything else changes.
function draw(d: Device, wide: number) {
  const { from, to } = shown.value
  const l = past.value && layersOf(past.value, d, from, to, Math.max(60, wide))
  const whole = Math.max(d.total, d.capacity, 1)
  const top = l && l.peak < whole * 0.4 ? Math.max(l.peak * 1.2, 1) : Math.max(whole, l?.peak ?? 0)
  const x = (t: number) => ((Math.max(t, from) - from) / (to - from)) * wide
  const y = (n: number) => high - (n / top) * (high - 8)
  const end = Math.min(to, Date.now())
  return (
    <>
      {ticks(from, to, Math.max(2, wide / 90)).map((t) => (
        <g key={t}><line x1={x(t)} x2={x(t)} y1="0" y2={high} class="grid" /><text x={x(t)} y={high + 14} text-anchor="middle">{clockOf(t)}</text></g>
      ))}
      {l?.names.map((name, k) => kinds.map((kind, j) => {
        const path = area(l, k * 3 + j, x, y, end)
        const n = colourOf(name)
        return path && <path key={name + kind} d={path} class={`band f${name === otherPrograms ? 'x' : n} ${kind}`} style={kind === 'asleep' ? { fill: `url(#asleep-${n})` } : {}}><title>{name}: {kind}</title></path>
      }))}
      {l?.names.map((name, k) => {
        const at = label(l, k * 3, name, x, y, end)
        return at && <text key={name} x={at.x} y={at.y} class="on">{name}</text>
      })}
      <line x1="0" x2={wide} y1={high} y2={high} class="axis" />
      {past.value && past.value.since > from && <rect x="0" y="0" width={x(Math.min(past.value.since, to))} height={high} class="unknown"><title>before the server began</title></rect>}
      <text x="4" y="11">{bytes(top)}{top < whole ? ` of ${bytes(whole)}` : ''}</text>
    </>
  )
}

// Chart draws who held what of a device over the time that is shown. The moment is chosen with a pointer here, and with the keyboard
// in the bar of the view, whose table says the same.
export function Chart({ d }: { d: Device }) {
  const box = useRef<HTMLDivElement>(null)
  const wide = useSignal(600)
  useLayoutEffect(() => {
    const o = new ResizeObserver(() => (wide.value = box.current!.clientWidth))
    o.observe(box.current!)
    return () => o.disconnect()
  }, [])
  const drawn = useComputed(() => draw(d, wide.value))
  const { from, to } = shown.value
  const choose = (e: PointerEvent) => {
    if (e.type === 'pointermove' && !(e.buttons & 1)) return
    const r = box.current!.getBoundingClientRect()
    look(from + ((e.clientX - r.left) / r.width) * (to - from))
  }
  const t = moment.value
  const at = t === null ? 0 : ((t - from) / (to - from)) * wide.value
  return (
    <div class="chart" ref={box} onPointerDown={choose} onPointerMove={choose} aria-hidden="true">
      <svg width={wide.value} height={high + below}>
        {drawn.value}
        {t !== null && <line x1={at} x2={at} y1="0" y2={high} class="cursor" />}
      </svg>
    </div>
  )
}
