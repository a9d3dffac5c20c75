import { signal } from '@preact/signals'
import { get } from '../api'
import { ago, duration } from '../format'
import { usePoll } from '../parts'
import { now } from '../store'
import type { Cluster } from '../types'

const clusters = signal<Cluster[] | null>(null)

export function Clusters() {
  const failed = usePoll(async (signal) => {
    clusters.value = await get<Cluster[]>('/rouse/v1/clusters', signal)
  }, 3000)
  return (
    <div>
      <div class="bar"><h1>Clusters</h1></div>
      {failed}
      {clusters.value?.length === 0 && <p class="empty">No cluster joins this server. <code>rouse up --clusters FILE</code> makes it a front door of others.</p>}
      {!!clusters.value?.length && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Clusters">
          <table>
            <caption class="unseen">Clusters that join this server</caption>
            <thead><tr><th scope="col">Cluster</th><th scope="col">State</th><th scope="col">Since</th><th scope="col" class="num">Awake</th><th scope="col" class="num">Running</th><th scope="col">Agents, and the way there and back</th></tr></thead>
            <tbody>
              {clusters.value.map((c) => (
                <tr key={c.name}>
                  <th scope="row">{c.name}{c.front && <small> a front door</small>}</th>
                  <td><span class={'state ' + (c.state === 'joined' ? 'awake' : c.state === 'leaving' ? 'draining' : 'gone')}><i aria-hidden="true" />{c.state}</span></td>
                  <td>{c.since ? ago(c.since, now.value) : 'not seen yet'}</td>
                  <td class="num">{c.awake ?? 0}<span class="faint">/{c.functions?.length ?? 0}</span></td>
                  <td class="num">{c.running}</td>
                  <td>{c.agents?.map((a) => `${a.name} (${a.way ? duration(a.way) : 'not measured'})`).join(', ')}{c.rejected && <em class="bad"> {c.rejected}</em>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  )
}
