import { signal, useSignal } from '@preact/signals'
import { call, get } from '../api'
import { bytes, count, short, stateOf } from '../format'
import { Copy, link, Progress, StateWord } from '../parts'
import { functionNamed, info, order, say } from '../store'
import type { Found } from '../types'

const path = '/rouse/v1/models'

// usual is the quantization that other programs take where none is named.
const usual = 'Q4_K_M'

// added are the functions that were declared here, with their models.
const added = signal<{ name: string; model: string }[]>([])

// Models finds a model by its name, and has it fetched and served.
export function Models() {
  const text = useSignal('')
  const found = useSignal<Found[] | null>(null)
  const busy = useSignal(false)
  const failed = useSignal('')
  if (info.value?.leader) {
    return (
      <div>
        <div class="bar"><h1>Add a model</h1></div>
        <p>In a cluster a function is a Knative Service, made at a shell with your own rights:</p>
        <Copy title="Commands" text={'kn rouse create NAME --model hf.co/ORG/NAME:QUANT\nkn rouse create NAME --model ollama://NAME:TAG'} />
      </div>
    )
  }
  const attempt = async (do_: () => Promise<void>) => {
    busy.value = true
    failed.value = ''
    try {
      await do_()
    } catch (err) {
      failed.value = (err as Error).message
    } finally {
      busy.value = false
    }
  }
  const search = () => attempt(async () => {
    found.value = await get<Found[]>(path + '?search=' + encodeURIComponent(text.value.trim()))
  })
  const serve = (model: string) => attempt(async () => {
    const done: { function: string; result: string } = await (await call(path, { method: 'POST', body: JSON.stringify({ model }) })).json()
    added.value = [{ name: done.function, model }, ...added.value.filter((a) => a.name !== done.function)]
    if (done.result === 'unchanged') say(`${short(done.function)} was there already`)
    void order(done.function, '/wake')
  })
  return (
    <div>
      <div class="bar">
        <h1>Add a model</h1>
        <form role="search" class="steps" onSubmit={(e) => { e.preventDefault(); void search() }}>
          <input type="search" required placeholder="qwen3:0.6b" aria-label="Name of a model" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
          <button class="main" disabled={busy.value}>Search</button>
        </form>
        <span class="faint">The hub's GGUF models with that in their names, and the model of that name in Ollama's library. They are fetched to this server.</span>
      </div>
      {failed.value && <p class="banner bad" role="alert">{failed.value}</p>}
      {added.value.map((a) => <Added key={a.name} {...a} />)}
      {found.value?.length === 0 && <p class="empty">Neither has such a model.</p>}
      {found.value && found.value.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Models that were found">
          <table>
            <thead><tr><th scope="col">Model</th><th scope="col" class="wide">From</th><th scope="col" class="num wide">Downloads</th><th scope="col">Quantization</th><th scope="col"><span class="unseen">By hand</span></th></tr></thead>
            <tbody>{found.value.map((m) => <Row key={m.model} m={m} busy={busy.value} serve={serve} />)}</tbody>
          </table>
        </div>
      )}
    </div>
  )
}

function Row({ m, busy, serve }: { m: Found; busy: boolean; serve: (model: string) => void }) {
  const quant = useSignal(m.quants?.find((q) => q.toUpperCase() === usual) ?? m.quants?.[0] ?? '')
  const [, from, name] = /^(hf\.co\/|ollama:\/\/)(.*)$/.exec(m.model) ?? ['', '', m.model]
  return (
    <tr>
      <th scope="row">{name}{m.gated && <small> its terms must be accepted at the hub</small>}</th>
      <td class="wide">{from === 'hf.co/' ? 'Hugging Face' : 'Ollama'}</td>
      <td class="num wide">{m.downloads ? count(m.downloads) : '–'}</td>
      <td>{m.quants?.length ? <select aria-label={'Quantization of ' + name} value={quant.value} onChange={(e) => (quant.value = e.currentTarget.value)}>{m.quants.map((q) => <option key={q}>{q}</option>)}</select> : m.size ? bytes(m.size) : '–'}</td>
      <td class="num"><button disabled={busy} aria-label={'Fetch and serve ' + name} onClick={() => serve(m.model + (quant.value && ':' + quant.value))}>Serve</button></td>
    </tr>
  )
}

// Added is how far a model is, and how it stays.
function Added({ name, model }: { name: string; model: string }) {
  const f = functionNamed(name)
  return (
    <section class="card" aria-label={short(name)}>
      <p class="bar"><a href={link(name)}><b>{short(name)}</b></a>{f ? <StateWord state={stateOf(f)} /> : <span class="faint">gone</span>}{f && <Progress f={f} />}</p>
      {f?.failed && <p class="bad">{f.failed}</p>}
      <Copy title="Until the server ends, unless you keep it" text={'rouse apply --save --model ' + model} />
    </section>
  )
}
