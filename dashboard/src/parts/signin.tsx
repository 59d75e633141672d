// What stands here while nobody is signed in.
import type { Problem } from '../api';

export function SignIn({ problem }: { problem: Problem }) {
  return (
    <main class="signin">
      <h1>Sign in</h1>
      <p>{problem.message} Nothing was lost.</p>
      <p>
        In a terminal on the machine that runs Prism: <code>prism dashboard</code>. It opens this page with a link that
        works once, for thirty seconds. Over SSH, <code>prism dashboard --print</code> prints it.
      </p>
      <p>
        <button type="button" class="main" onClick={() => location.reload()}>
          I have done that
        </button>
      </p>
    </main>
  );
}
