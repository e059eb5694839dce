import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import type { Schemas } from "../../api/client";
import { decisionsQuery } from "../../api/queries";
import { Card, Empty, Problem, Time } from "../../ui/parts";
import { Words } from "../../ui/Words";
import { amount } from "../../units";

type Decision = Schemas["Decision"];

export function Decisions() {
  const { data, error, isPending, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(decisionsQuery);
  const all = data?.pages.flatMap((page) => page.decisions) ?? [];
  return (
    <Card title="Last decisions">
      {error ? <Problem error={error} /> : null}
      {isPending ? <div className="decisions" /> : null}
      {data && !all.length ? <Empty>Nothing has been decided yet.</Empty> : null}
      {all.length ? (
        <div className="scroll decisions" tabIndex={0} role="region" aria-label="Last decisions">
          <table>
            <thead>
              <tr>
                <th>When</th>
                <th>What</th>
                <th>Job</th>
                <th>Where</th>
                <th>Why</th>
              </tr>
            </thead>
            <tbody>
              {/* By place: a new decision changes texts and moves no row. */}
              {all.map((decision, place) => (
                <Row key={place} decision={decision} />
              ))}
            </tbody>
          </table>
          {hasNextPage ? (
            <button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
              Earlier ones
            </button>
          ) : null}
        </div>
      ) : null}
    </Card>
  );
}

function Row({ decision }: { decision: Decision }) {
  return (
    <tr>
      <td>
        <Time at_s={decision.at_s} />
      </td>
      <td>{decision.kind}</td>
      <td>
        <Link to="/jobs/$id" params={{ id: decision.job.split("/")[0] ?? decision.job }} title={decision.name}>
          {decision.job} {decision.name}
        </Link>
      </td>
      <td>{whereOf(decision)}</td>
      <td className="wrap">
        <Words text={decision.reason} />
        {decision.because.length ? (
          <span className="quiet">
            {" "}
            After: <Words text={decision.because.join("; ")} />
          </span>
        ) : null}
      </td>
    </tr>
  );
}

function whereOf({ before, after }: Decision): string {
  const words = (where: Schemas["Where"] | null) =>
    where ? `${amount(where.gpus)} on ${where.nodes.join(", ") || "–"}` : "";
  if (before && after) return `${words(before)} → ${words(after)}`;
  return words(after) || words(before) || "–";
}
