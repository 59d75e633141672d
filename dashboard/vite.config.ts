// How the page is built: one script and one style sheet, with addresses that hold under any path.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** Packs each asset once, here, so that the server packs none. */
const packed: Plugin = {
  name: 'packed',
  writeBundle({ dir = '' }) {
    const folder = join(dir, 'assets');
    for (const name of readdirSync(folder))
      writeFileSync(join(folder, `${name}.gz`), gzipSync(readFileSync(join(folder, name)), { level: 9 }));
  },
};

export default defineConfig({
  plugins: [packed],
  base: './',
  build: {
    outDir: 'dist',
    target: ['chrome123', 'firefox125', 'safari17.5'],
    // Every asset stays a file of its own: the page's policy allows no `data:` scripts or styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
});
