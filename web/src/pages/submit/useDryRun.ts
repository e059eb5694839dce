import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import type { Schemas } from "../../api/client";
import { tryText } from "../../api/submit";

export interface DryRunState {
  /** Of the text as it is now, or, while that is asked, of the text before. */
  result: Schemas["DryRun"] | undefined;
  error: Error | null;
  isAsking: boolean;
  /** The server would take this very text. */
  isGood: boolean;
}

const PAUSE_MS = 250;

/** What the server would make of a text, asked when the typing pauses. */
export function useDryRun(text: string): DryRunState {
  const settled = useSettled(text, PAUSE_MS);
  const { data, error, isFetching, isPlaceholderData } = useQuery({
    queryKey: ["dry-run", settled],
    queryFn: ({ signal }) => tryText(settled, signal),
    placeholderData: keepPreviousData,
    retry: false,
    gcTime: 30_000,
  });
  const isCurrent = settled === text && !isPlaceholderData && !isFetching;
  return { result: data, error, isAsking: !isCurrent, isGood: isCurrent && !error && data?.errors.length === 0 };
}

function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}
