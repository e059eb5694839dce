import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { Schemas } from "../../api/client";
import { readLines } from "../../live/followLog";
import { Card } from "../../ui/parts";
import { taskNames } from "./Logs";

const COUNT = 20;

/** What a failed job said last: of the task that failed, or of the first one. What follows comes with it. */
export function LastLines({ job, children }: { job: Schemas["JobDetail"]; children: ReactNode }) {
  const failed = job.tasks.find((task) => task.exit_code !== null && task.exit_code !== 0);
  const task = failed?.name.split("/").at(-1) ?? taskNames(job)[0] ?? "";
  const { data: lines, isPending } = useQuery({
    queryKey: ["last-lines", job.id, job.attempts, task],
    queryFn: ({ signal }) => readLines(job.id, false, { task, tail: COUNT }, signal),
  });
  const more = (
    <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: "logs" }} className="button">
      All of the log
    </Link>
  );
  if (isPending) return null;
  return (
    <>
      <Card title="Its last lines" aside={more} note={taskNames(job).length > 1 ? `Of task ${task}.` : undefined}>
        <pre className="text last-lines" tabIndex={0} aria-label="Its last lines">
          {lines?.length === 0 ? "It wrote nothing." : lines?.map((line) => line.text).join("\n")}
        </pre>
      </Card>
      {children}
    </>
  );
}
