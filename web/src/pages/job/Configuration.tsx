import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../../api/client";
import { jobFileQuery } from "../../api/queries";
import { Card, Problem } from "../../ui/parts";

/** As a file that would submit it again. */
export function Configuration({ job }: { job: Schemas["JobDetail"] }) {
  const { data, error } = useQuery(jobFileQuery(job.id));
  return (
    <Card
      title="Configuration"
      note={data?.hidden.length ? `Values that are not shown: ${data.hidden.join(", ")}.` : undefined}
    >
      {error ? <Problem error={error} /> : null}
      <pre className="text" tabIndex={0} aria-label="Job file">
        {data?.text}
      </pre>
    </Card>
  );
}
