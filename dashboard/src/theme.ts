// Light, dark, or as the system is.
import { effect, signal } from '@preact/signals';

const PLACE = 'prism.theme';
export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

function kept(): Theme {
  try {
    return THEMES.find((t) => t === localStorage.getItem(PLACE)) ?? 'system';
  } catch {
    return 'system';
  }
}

export const theme = signal<Theme>(kept());

effect(() => {
  document.documentElement.dataset['theme'] = theme.value;
  try {
    localStorage.setItem(PLACE, theme.value);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
});

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? 'system';
}
