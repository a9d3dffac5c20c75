// Search, and buttons that copy commands. The index is loaded when it is first needed.
let documents
const up = document.currentScript.dataset.up
const find = document.querySelector('search')
const [input, list] = find.children
find.hidden = false

// matches returns the sections that have all words, the best first: those with a word in their heading or the title of
// their document.
function matches(words) {
  const found = []
  for (const s of documents) {
    const heading = (s.Heading + ' ' + s.Document).toLowerCase()
    const text = s.Text.toLowerCase()
    if (!words.every(w => heading.includes(w) || text.includes(w))) continue
    const design = s.Page.startsWith('docs/design/') || s.Page === 'CHANGELOG.html'
    found.push({ s, at: text.indexOf(words[0]), rank: words.filter(w => heading.includes(w)).length - (design ? words.length + 1 : 0) })
  }
  return found.sort((a, b) => b.rank - a.rank).slice(0, 15)
}

function show() {
  const words = input.value.toLowerCase().split(/\s+/).filter(w => w)
  list.replaceChildren()
  if (!words.length || !documents) return
  for (const { s, at } of matches(words)) {
    const link = document.createElement('a')
    link.href = up + s.Page + (s.Anchor && '#' + s.Anchor)
    link.append(s.Heading ? `${s.Document}: ${s.Heading}` : s.Document)
    if (at >= 0) {
      const part = document.createElement('small')
      part.textContent = (at > 30 ? '…' : '') + s.Text.slice(Math.max(0, at - 30), at + 70)
      link.append(part)
    }
    const item = document.createElement('li')
    item.append(link)
    list.append(item)
  }
  if (!list.children.length) {
    const item = document.createElement('li')
    item.textContent = 'Nothing found.'
    list.append(item)
  }
}

input.addEventListener('focus', () => {
  if (document.getElementById('index')) return
  const script = document.createElement('script')
  script.id = 'index'
  script.src = up + 'index.js'
  script.onload = show
  document.head.append(script)
})
input.addEventListener('input', show)

document.addEventListener('keydown', event => {
  if (event.key === '/' && !event.ctrlKey && !event.metaKey && document.activeElement !== input) {
    event.preventDefault()
    input.focus()
    return
  }
  if (!find.contains(document.activeElement)) return
  const links = [input, ...list.querySelectorAll('a')]
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
  if (step) {
    event.preventDefault()
    links[links.indexOf(document.activeElement) + step]?.focus()
  } else if (event.key === 'Escape') {
    input.value = ''
    show()
    input.focus()
  } else if (event.key === 'Enter' && document.activeElement === input) {
    links[1]?.click()
  }
})

for (const wide of document.querySelectorAll('pre, table')) wide.tabIndex = 0 // they can be scrolled by keyboard

// commands returns the commands of a transcript, whose lines begin with a prompt, and other text as it is.
function commands(text) {
  if (!/^\$ /m.test(text)) return text
  let whole = ''
  let quoted = false
  let open = false // the command goes on in the next line
  let until // the last line of a document in it
  for (const line of text.split('\n')) {
    if (!open && !until && !line.startsWith('$ ')) continue
    const command = open || until ? line : line.slice(2)
    whole += command + '\n'
    if (until) {
      if (command === until) until = undefined
      continue
    }
    until = command.match(/<<-?'?(\w+)/)?.[1]
    const quotes = command.replace(/(^|\s)#.*/, '').split("'").length - 1
    if (quotes % 2) quoted = !quoted
    open = quoted || command.endsWith('\\')
  }
  return whole
}

for (const code of document.querySelectorAll('pre > code')) {
  const block = document.createElement('div')
  block.className = 'block'
  const pre = code.parentElement
  pre.replaceWith(block)
  const button = document.createElement('button')
  button.type = 'button'
  button.textContent = 'Copy'
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(commands(code.textContent))
      button.textContent = 'Copied'
    } catch {
      getSelection().selectAllChildren(code)
      button.textContent = 'Press Ctrl+C'
    }
    setTimeout(() => { button.textContent = 'Copy' }, 2000)
  }
  block.append(pre, button)
}
