import { useLayoutEffect, useRef } from 'preact/hooks'
import { brief, clock, millis, short } from '../format'
import { past } from '../history'
import { look, moment } from '../moment'
import { link } from '../parts'
import type { Decision } from '../types'

type Timed = Decision & { t: number }

const near = 60_000 // ms before and after a moment
const most = 40

// around are the decisions about a moment: those within a minute; where there are none, the last before.
function around(list: Timed[], t: number | null): Timed[] {
  if (t === null) return list.slice(-12).reverse()
  const close = list.filter((d) => Math.abs(d.t - t) <= near)
  if (close.length) return close.sort((a, b) => Math.abs(a.t - t) - Math.abs(b.t - t)).slice(0, most).sort((a, b) => a.t - b.t)
  return list.filter((d) => d.t < t).slice(-3)
}

const offset = (ms: number) => (Math.abs(ms) < 100 ? 'then' : `${millis(Math.abs(ms))} ${ms < 0 ? 'before' : 'after'}`)

// Around says what was decided about the moment, and why.
export function Around() {
  const t = moment.value
  const list = around(past.value?.decisions ?? [], t)
  const box = useRef<HTMLOListElement>(null)
  const first = t === null ? -1 : list.findLastIndex((d) => d.t <= t) // the last before, which the list is scrolled to
  useLayoutEffect(() => {
    const b = box.current
    const row = b?.children[first] as HTMLElement | undefined
    if (b) b.scrollTop = row ? row.offsetTop - b.clientHeight / 3 : 0
  }, [t, first])
  return (
    <section class="around" aria-label={t === null ? 'Last decisions' : 'Decisions about then'}>
      <h2>{t === null ? 'Last decisions' : `Decisions about ${clock(new Date(t).toISOString())}`}</h2>
      {list.length === 0 && <p class="faint">{t === null ? 'Nothing was decided yet: nobody has asked for anything.' : 'Nothing was decided within a minute, and nothing before.'}</p>}
      <ol ref={box} tabIndex={0}>
        {list.map((d, k) => (
          <li key={d.at + d.function + d.action + d.instance} class={k === first ? 'then' : ''}>
            <p><button class="link" onClick={() => look(d.t)} title="Look at this moment">{clock(d.at)}</button> {t !== null && <small>{offset(d.t - t)}</small>}</p>
            <p><b>{d.action}</b> <a href={link(d.function)}>{short(d.function)}</a> <small>{d.instance}</small></p>
            <p class="faint" title={d.reason}>{brief(d.reason)}{d.error && <em class="bad"> {d.error}</em>}</p>
          </li>
        ))}
      </ol>
      <p><a href="#/decisions">All decisions</a></p>
    </section>
  )
}
