// Form and YAML side by side: either may be changed, and the server says while one types what it would make of it.
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { examplesQuery, jobFileQuery } from "../../api/queries";
import { submitText } from "../../api/submit";
import { useMay } from "../../ui/may";
import { Card, Problem } from "../../ui/parts";
import { useStored } from "../../ui/stored";
import { useTitle } from "../../ui/title";
import { useSay } from "../../ui/toasts";
import { counted } from "../../units";
import { Editor } from "./Editor";
import { Form } from "./Form";
import { useDryRun } from "./useDryRun";
import { Verdicts } from "./Verdicts";

const route = getRouteApi("/frame/submit");
const START = "name: hello\ngpus: 1\ncommand: |\n  echo hello from $SKEP_JOB_ID\n  sleep 60\n";

export default function SubmitPage() {
  useTitle("Submit");
  const { from } = route.useSearch();
  // Kept in this tab until it is submitted: Back and Forward, other pages and a reload do not lose it.
  const [typed, setText] = useStored(sessionStorage, `skep-draft ${from ?? ""}`);
  const file = useQuery({ ...jobFileQuery(from ?? ""), enabled: from !== undefined });
  const text = typed ?? file.data?.text ?? START;
  const dry = useDryRun(text);
  const may = useMay();
  const navigate = useNavigate();
  const say = useSay();
  const submit = useMutation({
    mutationFn: () => submitText(text),
    onSuccess: (made) => {
      setText(null);
      say(made.jobs.length > 1 ? `${counted(made.jobs.length, "job")} submitted` : `Submitted as job ${made.id}`);
      if (made.jobs.length > 1) void navigate({ to: "/jobs", search: made.group ? { group: made.group } : {} });
      else void navigate({ to: "/jobs/$id", params: { id: made.id } });
    },
  });
  return (
    <>
      <div className="title">
        <h1>{from ? `Submit, from job ${from}` : "Submit"}</h1>
        <div className="row">
          {typed === null ? null : <button onClick={() => setText(null)}>Start over</button>}
          <Examples onChoose={(chosen) => setText(chosen ?? null)} />
        </div>
      </div>
      {file.error ? <Problem error={file.error} /> : null}
      {file.data?.hidden.length ? (
        <p className="hint">Fill in the values of {file.data.hidden.join(", ")}: they are not shown.</p>
      ) : null}
      <div className="pair submit">
        <Card title="Form">
          <Form
            text={text}
            problems={dry.result?.errors ?? []}
            chosenVc={dry.result?.requests[0]?.vc}
            onChange={setText}
          />
        </Card>
        <Card title="Job file">
          <Editor text={text} problems={dry.result?.errors ?? []} onChange={setText} />
          <Verdicts dry={dry} />
          {submit.error ? <Problem error={submit.error} /> : null}
          <div className="row">
            <button
              className="main"
              disabled={!may.submit || !dry.isGood || submit.isPending}
              onClick={() => submit.mutate()}
            >
              Submit
            </button>
            {may.submit ? null : <span className="quiet">Your role only looks.</span>}
          </div>
        </Card>
      </div>
    </>
  );
}

function Examples({ onChoose }: { onChoose: (text: string | undefined) => void }) {
  const { data = [] } = useQuery(examplesQuery);
  return (
    <div className="row">
      <span className="quiet">Begin with</span>
      <select
        aria-label="Begin with"
        value=""
        onChange={(event) => onChoose(data.find((example) => example.name === event.target.value)?.text)}
      >
        <option value="" disabled>
          an example …
        </option>
        {data.map((example) => (
          <option key={example.name} value={example.name}>
            {example.title}
          </option>
        ))}
      </select>
    </div>
  );
}
