import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

import { readRows } from "../api/queries";
import { patchJobs } from "./LiveProvider";

const EVERY_MS = 2000;

/** What running jobs say of their own progress is no event, so those in sight are asked for it. */
export function useProgress(ids: readonly string[]): void {
  const client = useQueryClient();
  const { data } = useQuery({
    queryKey: ["progress", ...ids],
    queryFn: ({ signal }) => readRows([...ids], signal),
    enabled: ids.length > 0,
    refetchInterval: EVERY_MS,
    staleTime: EVERY_MS,
    gcTime: 0,
  });
  useEffect(() => {
    if (data) patchJobs(client, new Map(data.map((job) => [job.id, job])));
  }, [client, data]);
}
