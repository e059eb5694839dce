// Light or dark: as the system has it, or as the reader chose.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "skep-theme";
const listeners = new Set<() => void>();
const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
dark?.addEventListener("change", tell);

export function chosenTheme(): Theme {
  const said = localStorage.getItem(KEY);
  return said === "light" || said === "dark" ? said : "system";
}

export function chooseTheme(theme: Theme): void {
  if (theme === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  showTheme();
  tell();
}

export function showTheme(): void {
  const theme = chosenTheme();
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** `light` or `dark`, as it is shown now. */
export function useShade(): string {
  return useSyncExternalStore(subscribe, shade);
}

function shade(): string {
  const theme = chosenTheme();
  return theme === "system" ? (dark?.matches ? "dark" : "light") : theme;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(): void {
  for (const listener of listeners) listener();
}
