import { Problem } from "../../ui/parts";
import { counted } from "../../units";
import type { DryRunState } from "./useDryRun";

/** What the server says of the file, in its own words. */
export function Verdicts({ dry }: { dry: DryRunState }) {
  const { result, error } = dry;
  if (error) return <Problem error={error} />;
  if (!result) return <p className="note verdicts">…</p>;
  const roles = result.requests.flatMap((request) => Object.values(request.tasks));
  const gpus = roles.reduce((sum, role) => sum + (role.count * role.gpus * role.gpu_milli) / 1000, 0);
  return (
    <div className="verdicts" role="status" aria-live="polite">
      {result.errors.map((problem) => (
        <div className="problem" key={`${problem.path} ${problem.text}`}>
          <p>
            {problem.line === null ? "" : `Line ${problem.line}: `}
            {problem.text}
          </p>
          {problem.hint ? <p>{problem.hint}</p> : null}
        </div>
      ))}
      {result.warnings.map((warning) => (
        <p className="hint" key={warning}>
          {warning}
        </p>
      ))}
      {result.errors.length === 0 ? (
        <p className="good">
          The server would take it: {counted(result.requests.length, "job")}, {counted(gpus, "GPU")}.
        </p>
      ) : null}
    </div>
  );
}
