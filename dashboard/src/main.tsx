// Where the page begins.
import { render } from 'preact';
import { App } from './app';
import * as keys from './keys';
import * as live from './live';
import './theme';
import './style/theme.css';
import './style/layout.css';
import './style/parts.css';
import './style/pages.css';

const root = document.getElementById('page');
if (root) {
  keys.listen();
  live.connect();
  render(<App />, root);
}
