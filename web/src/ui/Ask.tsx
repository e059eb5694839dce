// Asks before something is done. The browser's own dialog keeps the focus inside and closes on Escape.
import { useEffect, useRef, type ReactNode } from "react";

import { Problem } from "./parts";

interface Props {
  title: string;
  action: string;
  danger?: boolean;
  isBusy?: boolean;
  cannot?: boolean;
  error?: unknown;
  onDo: () => void;
  onClose: () => void;
  children?: ReactNode;
}

export function Ask({ title, action, danger, isBusy, cannot, error, onDo, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-label={title}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onDo();
        }}
      >
        <h2>{title}</h2>
        {children}
        {error ? <Problem error={error} /> : null}
        <div className="row">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className={danger ? "danger" : "main"} disabled={isBusy || cannot}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
