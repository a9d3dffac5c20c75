// Makes built/ from src/: the same source makes the same bytes, of which page-check is the proof.
import * as esbuild from 'esbuild'
import { copyFileSync, mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const out = process.argv[2] ?? join(here, 'built')
mkdirSync(out, { recursive: true })
await esbuild.build({
  absWorkingDir: here,
  entryPoints: { page: 'src/main.tsx' },
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  charset: 'utf8',
  banner: { js: '/* Rouse, Apache-2.0; with Preact and @preact/signals, MIT */' },
  outdir: out,
})
await esbuild.build({ absWorkingDir: here, entryPoints: ['src/page.css'], minify: true, outdir: out })
for (const name of ['index.html', 'icon.svg']) copyFileSync(join(here, 'src', name), join(out, name))
