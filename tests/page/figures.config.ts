// Figures of the page in Chromium, for `prism bench dashboard`; by hand: PRISM_BIN=... tests/page/run --config figures.config.ts
import base from './playwright.config';

export default { ...base, testMatch: 'figures.ts', timeout: 600_000, retries: 0, reporter: [['line']] };
