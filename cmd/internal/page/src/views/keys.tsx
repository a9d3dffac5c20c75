import { useSignal } from '@preact/signals'
import { call, get } from '../api'
import { count, day } from '../format'
import { closest, Copy, Dialog, usePoll } from '../parts'
import { info, now, say } from '../store'
import type { Key } from '../types'

const path = '/rouse/v1/keys'
const lifetimes = [['', 'never'], ['1', 'in a day'], ['30', 'in 30 days'], ['90', 'in 90 days'], ['365', 'in a year']] as const
const limits = [['requestsPerMinute', 'requests/min'], ['tokensPerMinute', 'tokens/min'], ['tokensPerDay', 'tokens/day'], ['tokensPerMonth', 'tokens/month'], ['gpuSecondsPerDay', 'GPU-seconds/day'], ['gpuSecondsPerMonth', 'GPU-seconds/month'], ['concurrent', 'at once']] as const
const asked = ['requestsPerMinute', 'tokensPerMinute', 'tokensPerDay', 'concurrent']

// read is the key that a form declares.
function read(form: HTMLFormElement): Key {
  const data = new FormData(form)
  const text = (name: string) => String(data.get(name) ?? '').trim()
  const models = text('models').split(/[\s,]+/).filter(Boolean)
  const key: Key = { name: text('name'), ...(text('tenant') && { tenant: text('tenant') }), ...(models.length && { models }) }
  for (const [name] of limits) if (Number(text(name)) > 0) key[name] = Number(text(name))
  if (Number(text('days')) > 0) key.expires = new Date(Date.now() + Number(text('days')) * 86_400_000).toISOString().slice(0, 19) + 'Z'
  return key
}

// changed is what a form changes of a key: an empty field ends its limit.
function changed(form: HTMLFormElement): Record<string, unknown> {
  const { name: _, tenant: __, ...key } = read(form)
  const keeps = new FormData(form).get('days') === 'keep'
  return { models: null, ...Object.fromEntries(limits.map(([name]) => [name, null])), ...(!keeps && { expires: null }), ...key }
}

// Fields are what a key may use; k: as it is.
function Fields({ k }: { k?: Key }) {
  return (
    <div class="fields">
      <label>Models <input name="models" autocomplete="off" placeholder="all, or patterns: qwen*, pico" defaultValue={k?.models?.join(', ')} /></label>
      <label>Ends <select name="days">{k && <option value="keep">as before</option>}{lifetimes.map(([days, text]) => <option key={days} value={days}>{text}</option>)}</select></label>
      {limits.filter(([name]) => k || asked.includes(name)).map(([name, text]) => <label key={name}>{text[0]!.toUpperCase() + text.slice(1)} <input name={name} type="number" min="1" placeholder="no limit" defaultValue={k?.[name] ? String(k[name]) : ''} /></label>)}
    </div>
  )
}

// Keys are the clients' keys. A secret is in this view's dialog only, and gone when that is closed.
export function Keys() {
  const cluster = !!info.value?.leader
  if (!cluster && !info.value?.keys) {
    return (
      <div>
        <div class="bar"><h1>Keys</h1></div>
        <p>Clients need no key here: whoever reaches {info.value?.url} may use every model. To let only clients with a key in, make one and start the server with its file:</p>
        <Copy title="Commands" text={'rouse keys create NAME\nrouse up --keys ~/.config/rouse/keys.yaml'} />
      </div>
    )
  }
  return <Declared command={cluster ? 'kn rouse keys create NAME' : ''} />
}

function Limits({ k }: { k: Key }) {
  const list = limits.filter(([name]) => k[name]).map(([name, text]) => <div key={name}>{count(k[name]!)} {text}</div>)
  const over = !!k.expires && Date.parse(k.expires) <= now.value
  if (!list.length && !k.expires) return <span class="faint">none</span>
  return <>{list}{k.expires && <div class={over ? 'bad' : ''}>{over ? 'ended ' : 'until '}{day(new Date(k.expires))}</div>}</>
}

function Declared({ command }: { command: string }) {
  const list = useSignal<Key[] | null>(null)
  const made = useSignal<{ name: string; key: string } | null>(null)
  const ending = useSignal('')
  const setting = useSignal<Key | null>(null)
  const busy = useSignal(false)
  const refresh = async (signal?: AbortSignal) => {
    list.value = await get<Key[]>(path, signal)
  }
  const failed = usePoll(refresh, 5000)
  const change = async (do_: () => Promise<void>) => {
    busy.value = true
    try {
      await do_()
      await refresh()
    } catch (err) {
      say((err as Error).message, true)
    } finally {
      busy.value = false
    }
  }
  const make = (form: HTMLFormElement) => change(async () => {
    const key = read(form)
    const got: { name: string; key: string } = await (await call(path, { method: 'POST', body: JSON.stringify(key) })).json()
    form.reset()
    if (got.key) made.value = got
    else say('Clients that show no key are let in.')
  })
  const set = (name: string, form: HTMLFormElement) => change(async () => {
    await call(path + '?name=' + encodeURIComponent(name), { method: 'PATCH', body: JSON.stringify(changed(form)) })
    setting.value = null
    say(`The key ${name} is changed`)
  })
  const revoke = (name: string) => change(async () => {
    await call(path + '?name=' + encodeURIComponent(name), { method: 'DELETE' })
    say(`The key ${name} is revoked`)
  })
  return (
    <div>
      <div class="bar"><h1>Keys</h1></div>
      {failed}
      {failed && command && <Copy title="At a shell" text={command} />}
      {list.value && (
        <form class="card" aria-label="A new key" onSubmit={(e) => { e.preventDefault(); void make(e.currentTarget) }}>
          <div class="fields">
            <label>Name <input name="name" required autocomplete="off" maxLength={128} pattern="\S+" title="without blanks" /></label>
            <label>Tenant <input name="tenant" autocomplete="off" placeholder="its name" /></label>
          </div>
          <Fields />
          <button class="main" disabled={busy.value}>Make a key</button>
        </form>
      )}
      {list.value && list.value.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Keys that there are">
          <table>
            <thead><tr><th scope="col">Key</th><th scope="col" class="wide">Tenant</th><th scope="col">Models</th><th scope="col">Limits</th><th scope="col"><span class="unseen">By hand</span></th></tr></thead>
            <tbody>{list.value.map((k) => (
              <tr key={k.name}>
                <th scope="row">{k.name}</th><td class="wide">{k.tenant || <span class="faint">none</span>}</td><td>{k.models?.join(', ') || 'all'}</td>
                <td><Limits k={k} /></td>
                <td class="num"><button disabled={busy.value} aria-label={'Change ' + k.name} onClick={() => (setting.value = k)}>Change</button> <button disabled={busy.value} aria-label={'Revoke ' + k.name} onClick={() => (ending.value = k.name)}>Revoke</button></td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {list.value?.length === 0 && <p class="empty">There is no key yet: no client is let in.</p>}
      {made.value && (
        <Dialog title={'The key of ' + made.value.name} closed={() => (made.value = null)}>
          <p>It is shown now and never again: only its hash is kept. Clients send it as a bearer token.</p>
          <Copy title="Key" text={made.value.key} />
          <p class="ends"><button class="main" onClick={closest}>Close</button></p>
        </Dialog>
      )}
      {setting.value && (
        <Dialog title={`Change ${setting.value.name}`} closed={() => (setting.value = null)}>
          <form onSubmit={(e) => { e.preventDefault(); void set(setting.value!.name, e.currentTarget) }}>
            <Fields k={setting.value} />
            <p class="ends"><button type="button" onClick={closest}>Leave it</button><button class="main" disabled={busy.value}>Change</button></p>
          </form>
        </Dialog>
      )}
      {ending.value && (
        <Dialog title={`Revoke ${ending.value}?`} closed={() => (ending.value = '')}>
          <p>Clients that have this key are refused from now on, and their requests end.</p>
          <p class="ends"><button onClick={closest}>Keep it</button><button class="main danger" onClick={(e) => { const name = ending.value; closest(e); void revoke(name) }}>Revoke</button></p>
        </Dialog>
      )}
    </div>
  )
}
