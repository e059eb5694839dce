// What decides, what it assumes, and what it decided last.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import type { Schemas } from "../../api/client";
import { policiesQuery, policyQuery } from "../../api/queries";
import { useMay } from "../../ui/may";
import { Card, Fact, Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";
import { Decisions } from "./Decisions";
import { Switch } from "./Switch";

type Info = Schemas["PolicyInfo"];
const NONE: never[] = [];

export default function PolicyPage() {
  useTitle("Policy");
  const { data: now, error } = useQuery(policyQuery);
  const { data: all = NONE, isPending } = useQuery(policiesQuery);
  const [wish, setWish] = useState<Info | null>(null);
  const may = useMay();
  const name = now?.policy.split(":")[0] ?? "";
  const info = all.find((policy) => policy.name === name);
  return (
    <>
      <h1>Policy</h1>
      {now && !isPending ? (
        <p className="verdict">
          <strong>{now.policy}</strong> decides{info ? <>: {lowered(info.title)}</> : "."}
        </p>
      ) : null}
      {error && !now ? <Problem error={error} /> : null}
      {now?.problems.map((problem) => (
        <p className="problem" role="alert" key={problem}>
          {problem}
        </p>
      ))}
      {now && !isPending ? (
        <>
          {info ? <Running info={info} said={now?.policy ?? ""} /> : null}
          <Decisions />
          <Others all={all} now={name} onChoose={may.administer ? setWish : null} />
        </>
      ) : null}
      {wish ? <Switch info={wish} now={now?.policy ?? ""} onClose={() => setWish(null)} /> : null}
    </>
  );
}

function lowered(title: string): string {
  return title.endsWith(".") ? title : `${title}.`;
}

function Running({ info, said }: { info: Info; said: string }) {
  const chosen = new Map(
    said
      .split(":")
      .slice(1)
      .join(":")
      .split(",")
      .filter(Boolean)
      .map((part) => part.split("=", 2) as [string, string]),
  );
  return (
    <Card title="What runs">
      <dl className="facts">
        <Fact what="Paper">{info.paper || "–"}</Fact>
        <Fact what="Assumes">{info.assumes || "nothing in particular"}</Fact>
        {info.missing.length ? <Fact what="Missing here">{info.missing.join("; ")}</Fact> : null}
        {info.oracle ? <Fact what="Oracle">It is given durations that a real cluster does not know.</Fact> : null}
      </dl>
      {info.knobs.length ? <Knobs knobs={info.knobs} chosen={chosen} /> : null}
    </Card>
  );
}

function Knobs({ knobs, chosen }: { knobs: Info["knobs"]; chosen: ReadonlyMap<string, string> }) {
  return (
    <div className="scroll knobs" tabIndex={0} role="region" aria-label="Knobs">
      <table>
        <thead>
          <tr>
            <th>Knob</th>
            <th>Now</th>
            <th>Default</th>
            <th>What it does</th>
          </tr>
        </thead>
        <tbody>
          {knobs.map((knob) => (
            <tr key={knob.name}>
              <th scope="row">{knob.name}</th>
              <td>
                <b>{chosen.get(knob.name) ?? knob.default}</b>
              </td>
              <td className="quiet">{knob.default}</td>
              <td className="wrap">
                {knob.help}
                {knob.choices.length ? <span className="quiet"> ({knob.choices.join(", ")})</span> : null}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Others({ all, now, onChoose }: { all: Info[]; now: string; onChoose: ((info: Info) => void) | null }) {
  return (
    <Card title="All policies">
      <div className="scroll" tabIndex={0} role="region" aria-label="All policies">
        <table>
          <thead>
            <tr>
              <th>Policy</th>
              <th>What it does</th>
              <th>Paper</th>
              <th />
            </tr>
          </thead>
          <tbody>
            {all.map((info) => (
              <tr key={info.name}>
                <th scope="row">{info.name}</th>
                <td className="wrap">
                  {info.title}
                  {info.oracle ? <span className="quiet"> Needs to know durations.</span> : null}
                </td>
                <td className="wrap quiet">{info.paper}</td>
                <td>
                  {onChoose ? (
                    <button onClick={() => onChoose(info)} aria-label={`Switch to ${info.name}`}>
                      {info.name === now ? "Change knobs" : "Switch"}
                    </button>
                  ) : null}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
