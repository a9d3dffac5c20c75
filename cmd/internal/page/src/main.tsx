import { computed, signal, useSignal } from '@preact/signals'
import { render, type ComponentChildren, type JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { call, setToken, signsIn, takeToken, token } from './api'
import { clock } from './format'
import { again, connection, follow, info, lostAt, note, ready, said, say } from './store'
import { Clusters } from './views/clusters'
import { Decisions } from './views/decisions'
import { FunctionView } from './views/function'
import { Functions } from './views/functions'
import { Keys } from './views/keys'
import { LogsView } from './views/logs'
import { MemoryView } from './views/memory'
import { Models } from './views/models'
import { Overview } from './views/overview'
import { Playground } from './views/playground'
import { Requests } from './views/requests'
import { UsageView } from './views/usage'

// here keeps the view while a browser is at the provider.
const here = 'rouse-view'

takeToken()
if (signsIn && !location.hash) history.replaceState(null, '', location.pathname + (sessionStorage.getItem(here) ?? ''))
sessionStorage.removeItem(here)

const hash = signal(location.hash)
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#token=')) {
    takeToken()
    again()
  }
  hash.value = location.hash
})
const route = computed(() => hash.value.replace(/^#\/?/, '').split('/').map(decode))

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

const views: Record<string, { title: string; view: (at: { at?: string }) => JSX.Element }> = {
  '': { title: 'Overview', view: Overview },
  functions: { title: 'Functions', view: Functions },
  play: { title: 'Playground', view: Playground },
  memory: { title: 'Memory', view: MemoryView },
  requests: { title: 'Requests', view: Requests },
  decisions: { title: 'Decisions', view: Decisions },
  usage: { title: 'Usage', view: UsageView },
  keys: { title: 'Keys', view: Keys },
  logs: { title: 'Logs', view: LogsView },
  clusters: { title: 'Clusters', view: Clusters },
  models: { title: 'Add a model', view: Models },
}

// theme is what was chosen by hand; empty is the system's.
const theme = signal(localStorage.getItem('rouse-theme') ?? '')

function setTheme(t: string) {
  theme.value = t
  localStorage.setItem('rouse-theme', t)
}

function ThemeButton() {
  const dark = theme.value ? theme.value === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  useEffect(() => {
    document.documentElement.dataset.theme = theme.value
  })
  return (
    <button class="quiet" onClick={() => setTheme(dark ? 'light' : 'dark')} aria-label={dark ? 'Light colours' : 'Dark colours'} title={dark ? 'Light colours' : 'Dark colours'}>
      {dark ? '☀' : '☾'}
    </button>
  )
}

function Header() {
  const at = ['f', 'models'].includes(route.value[0]!) ? 'functions' : route.value[0]
  const state = { connecting: 'connecting', live: 'live', lost: 'connection lost', reconnecting: 'reconnecting', denied: 'no right' }[connection.value]
  return (
    <header>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus() }}>To the content</a>
      <a class="mark" href="#/" aria-label="Rouse: overview"><img src="/rouse/page/icon.svg" alt="" width="22" height="22" /><b>Rouse</b></a>
      <nav aria-label="Views">
        {Object.entries(views).filter(([path]) => path !== 'models').map(([path, v]) => (
          <a key={path} href={'#/' + path} aria-current={at === path ? 'page' : undefined}>{v.title}</a>
        ))}
      </nav>
      <span class={'connection ' + connection.value} title={info.value ? `rouse ${info.value.version} at ${info.value.url}` : ''}>
        <i aria-hidden="true" />{state}
      </span>
      {signsIn && <Person />}
      <ThemeButton />
    </header>
  )
}

function Banner({ children, bad }: { children: ComponentChildren; bad?: boolean }) {
  return <div class={'banner' + (bad ? ' bad' : '')} role={bad ? 'alert' : 'status'}>{children}</div>
}

// Person is who has signed in, and the way out, after which this tab knows nothing any more.
function Person() {
  const who = useSignal('')
  const live = connection.value === 'live'
  useEffect(() => {
    if (live) call('/rouse/session').then((r) => r.json()).then((s) => (who.value = s.email || s.name || s.subject), () => {})
  }, [live])
  if (!live || !who.value) return null
  const out = () => call('/rouse/session', { method: 'DELETE' }).then(() => location.reload(), (err) => say(err.message, true))
  return <button class="quiet" onClick={out} aria-label={'Sign out ' + who.value} title={'Signed in as ' + who.value}>Sign out</button>
}

// SignIn leads to the provider.
function SignIn() {
  return (
    <section class="door">
      <h1>This page is for those who run these models</h1>
      <p><a class="main" href="/rouse/signin" onClick={() => sessionStorage.setItem(here, location.hash)}>Sign in</a></p>
    </section>
  )
}

// Door asks for the right to administer.
function Door() {
  if (signsIn) return <SignIn />
  return <TokenDoor />
}

function TokenDoor() {
  const field = useRef<HTMLInputElement>(null)
  return (
    <section class="door">
      <h1>{token() ? 'Your right has ended' : 'This page shows what only you may see'}</h1>
      <p>
        {token() ? 'The server was started anew, or its token was changed. ' : ''}
        Type <code>rouse ui</code> on the machine where Rouse runs and open the address that it prints. Or paste the token of
        <code>--admin-token-file</code> here; it is kept for this tab only.
      </p>
      <form onSubmit={(e) => {
        e.preventDefault()
        const given = field.current!.value.trim()
        const inLink = /#token=([\w.~-]+)$/.exec(given)
        if (!given) return
        setToken(inLink?.[1] ?? given)
        again()
      }}>
        <label>Token <input ref={field} type="password" autocomplete="off" required /></label>
        <button class="main">Open</button>
      </form>
      <p>Without it there is the <a href="#/play">playground</a>.</p>
    </section>
  )
}

function View() {
  const [name, a, b] = route.value
  const main = useRef<HTMLElement>(null)
  const first = useRef(true)
  const v = views[name ?? '']
  const title = name === 'f' ? b ?? '' : v?.title ?? 'Nothing here'
  useEffect(() => {
    document.title = (title ? title + ' · ' : '') + 'Rouse'
    if (first.current) first.current = false
    else main.current?.focus() // a screen reader goes on with the new view
  }, [hash.value])
  let body: JSX.Element
  if ((name !== 'play' || signsIn) && connection.value === 'denied') body = <Door />
  else if (name !== 'play' && !ready.value) body = <p class="empty">{['lost', 'reconnecting'].includes(connection.value) ? 'The server does not answer. Trying again …' : 'One moment …'}</p>
  else if (name === 'f' && a && b) body = <FunctionView key={a + '/' + b} name={a + '/' + b} />
  else if (v) body = <v.view at={a} />
  else body = <p class="empty">There is no such view. <a href="#/">Overview</a></p>
  return <main id="main" ref={main} tabIndex={-1}>{body}</main>
}

function App() {
  return (
    <>
      <Header />
      {['lost', 'reconnecting'].includes(connection.value) && ready.value && <Banner>Connection lost: this is how things were at {clock(new Date(lostAt.value).toISOString())}. Trying again … <button onClick={again}>Now</button></Banner>}
      <View />
      {note.value && (
        <div class={'note' + (note.value.bad ? ' bad' : '')} role={note.value.bad ? 'alert' : 'status'}>
          <span>{note.value.text}</span>
          <button class="quiet" aria-label="Close" onClick={() => (note.value = null)}>✕</button>
        </div>
      )}
      <div class="unseen" aria-live="polite">{said.value}</div>
    </>
  )
}

render(<App />, document.getElementById('page')!)
void follow()
