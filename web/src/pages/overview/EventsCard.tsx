import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { eventsQuery } from "../../api/queries";
import { Card, Empty } from "../../ui/parts";
import { EventList } from "../../ui/EventList";

const FEW = 12;

export function EventsCard() {
  const { data = [] } = useQuery(eventsQuery);
  const [isAll, setAll] = useState(false);
  const more =
    data.length > FEW ? (
      <button className="plain" onClick={() => setAll(!isAll)}>
        {isAll ? "Fewer" : "More"}
      </button>
    ) : null;
  return (
    <Card title="What just happened" aside={more}>
      {data.length ? (
        <EventList events={isAll ? data : data.slice(0, FEW)} />
      ) : (
        <Empty>Nothing has happened yet.</Empty>
      )}
    </Card>
  );
}
