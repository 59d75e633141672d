// Doing something from the page: one act at a time, what went wrong beside the button that was pressed.
import { useSignal } from '@preact/signals';
import { problemOf, type Problem } from './api';
import { tell } from './live';
import type { Change } from './wire';

export interface Act {
  busy: boolean;
  problem: Problem | undefined;
  /** Runs it and has what it changed read again at once. Says whether it was done. */
  run: (act: () => Promise<unknown>, pid: string, ...changed: Change['what'][]) => Promise<boolean>;
}

export function useAct(): Act {
  const busy = useSignal(false);
  const problem = useSignal<Problem | undefined>(undefined);
  return {
    busy: busy.value,
    problem: problem.value,
    run: async (act, pid, ...changed) => {
      if (busy.value) return false;
      busy.value = true;
      problem.value = undefined;
      try {
        await act();
        tell(changed.map((what) => ({ what, pid })));
        return true;
      } catch (error) {
        problem.value = problemOf(error);
        return false;
      } finally {
        busy.value = false;
      }
    },
  };
}
