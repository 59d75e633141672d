// What stands here while nobody is signed in.
import { useEffect } from 'preact/hooks';
import { useAct } from '../act';
import { call, signedOut, type Problem } from '../api';
import { EVERYWHERE } from '../wire';
import { Trouble } from './panel';

/** Whoever signed in again in another tab goes on here where they were, with what they had typed. */
async function goOn(): Promise<void> {
  await call(EVERYWHERE, 'projects', {});
  signedOut.value = null;
}

export function SignIn({ problem }: { problem: Problem }) {
  const act = useAct();
  useEffect(() => {
    const look = () => document.hidden || void goOn().catch(() => undefined);
    document.addEventListener('visibilitychange', look);
    window.addEventListener('focus', look);
    return () => {
      document.removeEventListener('visibilitychange', look);
      window.removeEventListener('focus', look);
    };
  }, []);
  return (
    <main class="signin">
      <h1>Sign in</h1>
      <p>{problem.message} Nothing was lost: what you typed is here again once you are signed in.</p>
      <p>
        In a terminal on the machine that runs Prism: <code>prism dashboard</code>. It opens this page with a link that
        works once, for thirty seconds. Over SSH, <code>prism dashboard --print</code> prints it.
      </p>
      <p>
        <button type="button" class="main" aria-disabled={act.busy} onClick={() => void act.run(goOn, EVERYWHERE)}>
          I have done that
        </button>
      </p>
      <Trouble problem={act.problem} />
    </main>
  );
}
