// Short words on what was done, in a corner, read out by screen readers.
import { Toast } from "radix-ui";
import { createContext, useCallback, useContext, useState, type ReactNode } from "react";

interface Said {
  id: number;
  text: string;
  tone: "good" | "bad";
}
type Say = (text: string, tone?: "good" | "bad") => void;

const SayContext = createContext<Say>(() => undefined);

export function useSay(): Say {
  return useContext(SayContext);
}

export function Toasts({ children }: { children: ReactNode }) {
  const [said, setSaid] = useState<Said[]>([]);
  const say = useCallback<Say>((text, tone = "good") => {
    setSaid((known) => [...known.slice(-3), { id: (known.at(-1)?.id ?? 0) + 1, text, tone }]);
  }, []);
  const drop = (id: number) => setSaid((known) => known.filter((one) => one.id !== id));
  return (
    <SayContext value={say}>
      <Toast.Provider duration={6000} label="What was done">
        {children}
        {said.map((one) => (
          <Toast.Root
            key={one.id}
            className="toast"
            data-tone={one.tone}
            onOpenChange={(open) => !open && drop(one.id)}
          >
            <Toast.Description>{one.text}</Toast.Description>
            <Toast.Close className="plain" aria-label="Close">
              ×
            </Toast.Close>
          </Toast.Root>
        ))}
        <Toast.Viewport className="toasts" />
      </Toast.Provider>
    </SayContext>
  );
}
