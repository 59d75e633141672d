// Asking once more before what cannot be taken back.
import { useState } from 'preact/hooks';

/** A second press does it; what the second button says is what will happen. */
export function Sure({ label, sure, run, busy }: { label: string; sure: string; run: () => void; busy: boolean }) {
  const [asking, setAsking] = useState(false);
  if (!asking)
    return (
      <button class="plain" type="button" onClick={() => setAsking(true)}>
        {label}
      </button>
    );
  return (
    <span class="row">
      <button class="bad" type="button" aria-disabled={busy} onClick={() => (setAsking(false), run())}>
        {sure}
      </button>
      <button class="plain" type="button" onClick={() => setAsking(false)}>
        Keep
      </button>
    </span>
  );
}
