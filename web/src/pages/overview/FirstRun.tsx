import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { meQuery, vcsQuery } from "../../api/queries";
import { Card } from "../../ui/parts";

const DEFAULT = "http://127.0.0.1:7437";

/** On a server that has seen no job yet: how to begin. */
export function FirstRun() {
  const me = useQuery(meQuery).data;
  const vcs = useQuery(vcsQuery).data ?? [];
  const mine = vcs.filter((vc) => !me?.vcs.length || me.vcs.includes(vc.name));
  const vc = mine.some(({ name }) => name === "default") ? undefined : (mine.find(({ gpus }) => gpus > 0) ?? mine[0]);
  const commands = [
    `skep run --gpus 1 ${vc ? `--vc ${vc.name} ` : ""}-- python3 -c 'print("hello")'`,
    "skep ps --all",
    "skep logs 1",
  ];
  const { origin } = globalThis.location;
  const before = [
    ...(origin === DEFAULT ? [] : [`export SKEP_URL=${origin}`]),
    ...(me?.auth === "token" ? ["export SKEP_TOKEN=…  # the token that you logged in with"] : []),
  ];
  return (
    <Card title="Nothing has run here yet" note="Three commands: run a job on a GPU, list the jobs, read what it wrote.">
      {before.length ? (
        <pre className="text" aria-label="In a new shell" tabIndex={0}>
          {before.join("\n")}
        </pre>
      ) : null}
      <ol className="commands">
        {commands.map((command) => (
          <li key={command}>
            <pre className="text" tabIndex={0} aria-label="Command">
              {command}
            </pre>
          </li>
        ))}
      </ol>
      <p className="note">
        Or <Link to="/submit">submit a job file here</Link>, with examples.
      </p>
    </Card>
  );
}
