// Loss, throughput and whatever else the job reported.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import type { Schemas } from "../../api/client";
import { curveQuery } from "../../api/queries";
import { seriesColour } from "../../draw/palette";
import { Chart } from "../../ui/Chart";
import { Choice } from "../../ui/Choice";
import { Card, Empty, Problem } from "../../ui/parts";
import { measured } from "../../units";
import { byImportance } from "../compare/curves";

type Axis = "step" | "time";
const REFRESH_MS = 5000;

export function Curves({ job }: { job: Schemas["JobDetail"] }) {
  const [axis, setAxis] = useState<Axis>("step");
  const { data, error } = useQuery({
    ...curveQuery(job.id),
    refetchInterval: job.state === "running" ? REFRESH_MS : false,
  });
  const aside = (
    <Choice
      label="Over"
      value={axis}
      choices={[
        ["step", "Steps"],
        ["time", "Time"],
      ]}
      onChange={setAxis}
    />
  );
  return (
    <Card
      title="Curves"
      aside={aside}
      note={data?.is_cut ? "The files are long; their latest part is shown." : undefined}
    >
      {error ? <Problem error={error} /> : null}
      {data?.series.length === 0 ? <Empty>It has reported nothing; `skep.train` does so at each step.</Empty> : null}
      <div className="charts">
        {[...(data?.series ?? [])].sort(byImportance).map((series, index) => (
          <OneCurve key={series.key} series={series} axis={axis} index={index} />
        ))}
      </div>
    </Card>
  );
}

function OneCurve({ series, axis, index }: { series: Schemas["Series"]; axis: Axis; index: number }) {
  const x = (axis === "step" ? series.step : series.at_s).map((value) => value ?? 0);
  const line = { label: series.key, values: series.value, colour: seriesColour(index) };
  return (
    <div>
      <h3>{series.key}</h3>
      <Chart
        label={`${series.key} by ${axis}`}
        x={x}
        lines={[line]}
        isTime={axis === "time"}
        fromZero={false}
        format={measured}
        together={`job-${axis}`}
      />
    </div>
  );
}
