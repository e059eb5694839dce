import { Link } from "@tanstack/react-router";

import type { Schemas } from "../api/client";
import { Time } from "./parts";
import { Words } from "./Words";

/** Events in sentences; `showJob`: each with the job it is about. */
export function EventList({ events, showJob = true }: { events: readonly Schemas["Event"][]; showJob?: boolean }) {
  return (
    <ol className="events">
      {events.map((event) => (
        <li key={event.seq} data-kind={event.kind}>
          <Time at_s={event.at_s} />
          <span className="what">{event.kind}</span>
          <span>
            {showJob && event.job_id !== null ? (
              <Link to="/jobs/$id" params={{ id: event.job_id }} title={event.name} className="job-name">
                {event.job_id} {event.name}
              </Link>
            ) : null}{" "}
            <Words text={event.text} />
            {event.who ? <span className="quiet"> · {event.who}</span> : null}
          </span>
        </li>
      ))}
    </ol>
  );
}
