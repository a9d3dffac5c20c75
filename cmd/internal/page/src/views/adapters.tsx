import { useSignal } from '@preact/signals'
import { call, functionPath, get } from '../api'
import { short } from '../format'
import { usePoll } from '../parts'
import { info, say } from '../store'
import type { Adapter, Summary } from '../types'

// Adapters are the LoRA adapters of a function: what there is, and on one machine, loaded and unloaded by hand. A cluster's are
// declared with the function.
export function Adapters({ f }: { f: Summary }) {
  const list = useSignal<Adapter[]>([])
  const busy = useSignal(false)
  const failed = usePoll(async (signal) => {
    list.value = await get<Adapter[]>(functionPath(f.name, '/adapters'), signal)
  }, 5000, f.name)
  const may = !info.value?.leader
  const change = async (what: string, path: string, init: RequestInit) => {
    busy.value = true
    try {
      await call(functionPath(f.name, path), init)
      list.value = await get<Adapter[]>(functionPath(f.name, '/adapters'))
      say(what)
      return true
    } catch (err) {
      say((err as Error).message, true)
      return false
    } finally {
      busy.value = false
    }
  }
  return (
    <section aria-label="Adapters">
      <h2>Adapters</h2>
      {failed}
      {list.value.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Adapters of this function">
          <table>
            <thead><tr><th scope="col">Adapter</th><th scope="col">From</th><th scope="col">Loaded in</th>{may && <th scope="col"><span class="unseen">By hand</span></th>}</tr></thead>
            <tbody>
              {list.value.map((a) => (
                <tr key={a.name}>
                  <th scope="row">{a.name}</th><td>{a.path || <span class="faint">not declared here</span>}</td>
                  <td>{a.loaded.join(', ') || <span class="faint">{a.standby?.length ? 'loaded when it is asked for' : 'nothing: no instance is awake'}</span>}</td>
                  {may && <td>{a.path && <button disabled={busy.value} aria-label={`Unload ${a.name}`} onClick={() => change(`${a.name} is unloaded`, '/adapters/' + encodeURIComponent(a.name), { method: 'DELETE' })}>Unload</button>}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {may ? (
        <form class="bar" onSubmit={async (e) => {
          e.preventDefault()
          const form = e.currentTarget
          const data = new FormData(form)
          const name = String(data.get('name')).trim()
          if (await change(`${name} is an adapter of ${short(f.name)}`, '/adapters', { method: 'POST', body: JSON.stringify({ name, path: String(data.get('path')).trim() }) })) form.reset()
        }}>
          <label class="field">Name <input name="name" required autocomplete="off" /></label>
          <label class="field">Folder or reference <input name="path" required autocomplete="off" size={30} /></label>
          <button disabled={busy.value}>Load</button>
          <span class="faint">Clients ask for it by its name, as a model. It stays until it is unloaded or the function is declared anew.</span>
        </form>
      ) : list.value.length === 0 && <p class="faint">None. Those of a cluster's function are declared with it.</p>}
    </section>
  )
}
