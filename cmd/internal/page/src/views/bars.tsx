// Bar is one piece of time: its amount, and what a reader is told of it.
export interface Bar { amount: number; bad?: number; title: string }

const high = 72

// Bars draws amounts over time. What it shows is in a table or in words beside it too.
export function Bars({ list, label }: { list: Bar[]; label: string }) {
  const top = Math.max(...list.map((b) => b.amount), 0)
  const wide = 1000 / Math.max(list.length, 1)
  return (
    <svg class="bars" viewBox={`0 0 1000 ${high}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {list.map((b, k) => {
        const h = top ? (b.amount / top) * (high - 4) : 0
        const bad = top ? ((b.bad ?? 0) / top) * (high - 4) : 0
        return (
          <g key={k}>
            <title>{b.title}</title>
            <rect class="all" x={k * wide} width={wide} y="0" height={high} />
            <rect class="good" x={k * wide + wide * 0.1} width={wide * 0.8} y={high - h} height={h} />
            {bad > 0 && <rect class="fault-bar" x={k * wide + wide * 0.1} width={wide * 0.8} y={high - bad} height={bad} />}
          </g>
        )
      })}
    </svg>
  )
}
