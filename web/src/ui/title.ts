import { useEffect } from "react";

/** The name of the page, in the window's title. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Skep`;
  }, [title]);
}
