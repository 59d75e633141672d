// How the page is built: one script and one style sheet, with addresses that hold under any path.
import { defineConfig } from 'vite';

export default defineConfig({
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
