// Calls to the server. The token of the address and a client's key are kept for this tab only.

const tokenKey = 'rouse-token'
const keyKey = 'rouse-key'

// takeToken moves the token out of the address, where it would stay in the history.
export function takeToken(): void {
  const m = /^#token=([\w.~-]+)$/.exec(location.hash)
  if (m?.[1]) {
    sessionStorage.setItem(tokenKey, m[1])
    history.replaceState(null, '', location.pathname + '#/')
  }
}

// signsIn says that the right is a session in a cookie, which `rouse page` gives to who has signed in.
export const signsIn = document.documentElement.hasAttribute('data-sign-in')
// credentials are sent to no page's server but that one: cookies of a machine know no ports.
export const credentials: RequestCredentials = signsIn ? 'same-origin' : 'omit'

export const token = () => sessionStorage.getItem(tokenKey) ?? ''
export const setToken = (t: string) => sessionStorage.setItem(tokenKey, t)
export const clientKey = () => sessionStorage.getItem(keyKey) ?? ''
export const setClientKey = (k: string) => (k ? sessionStorage.setItem(keyKey, k) : sessionStorage.removeItem(keyKey))

// Refused is an answer that is no success, with what the server says.
export class Refused extends Error {
  constructor(readonly status: number, message: string, readonly fault: { code?: string; request?: string; retry?: string } = {}) {
    super(message)
  }
}

// refusal reads the error of an answer, in any of the shapes that the API has.
export async function refusal(resp: Response): Promise<Refused> {
  const text = await resp.text().catch(() => '')
  let message = text.slice(0, 4000)
  let code: unknown
  try {
    const body = JSON.parse(text)
    message = body.error?.message ?? body.error ?? body.message ?? message
    code = body.error?.code ?? body.error?.type
  } catch {
    // not JSON: the text itself
  }
  return new Refused(resp.status, String(message || `status ${resp.status}`), {
    code: code ? String(code) : undefined, request: resp.headers.get('X-Request-Id') ?? undefined, retry: resp.headers.get('Retry-After') ?? undefined,
  })
}

export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  if (token()) headers.set('Authorization', 'Bearer ' + token())
  const resp = await fetch(path, { ...init, headers, cache: 'no-store', credentials })
  if (!resp.ok) throw await refusal(resp)
  return resp
}

export const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await call(path, { signal })).json()

// functionPath is the path of a function, NAMESPACE/NAME.
export const functionPath = (name: string, rest = '') =>
  '/rouse/v1/functions/' + name.split('/').map(encodeURIComponent).join('/') + rest

// lines reads an answer line by line. silent is called where nothing has come for so long, in ms.
export async function* lines(resp: Response, silence = 0, silent = () => {}): AsyncGenerator<string> {
  const reader = resp.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  let timer = 0
  const wait = () => {
    clearTimeout(timer)
    if (silence) timer = setTimeout(silent, silence) as unknown as number
  }
  try {
    for (;;) {
      wait()
      const { done, value } = await reader.read()
      if (done) break
      const parts = (rest + value).split('\n')
      rest = parts.pop()!
      for (const p of parts) yield p.endsWith('\r') ? p.slice(0, -1) : p
    }
    if (rest) yield rest
  } finally {
    clearTimeout(timer)
    reader.cancel().catch(() => {})
  }
}

export interface ServerEvent { name: string; data: string }

// events reads server-sent events. Comments have the name ":".
export async function* events(resp: Response, silence = 0, silent = () => {}): AsyncGenerator<ServerEvent> {
  let name = ''
  let data: string[] = []
  for await (const line of lines(resp, silence, silent)) {
    if (line === '') {
      if (data.length) yield { name: name || 'message', data: data.join('\n') }
      name = ''
      data = []
    } else if (line.startsWith(':')) {
      yield { name: ':', data: line.slice(1).trim() }
    } else if (line.startsWith('event:')) {
      name = line.slice(6).trim()
    } else if (line.startsWith('data:')) {
      data.push(line.slice(line[5] === ' ' ? 6 : 5))
    }
  }
}
