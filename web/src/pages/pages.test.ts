import { describe, expect, it } from "vitest";

import type { Schemas } from "../api/client";
import { linesOf } from "../api/changes";
import { trimmed } from "../api/trim";
import { mayOf } from "../ui/may";
import { align, byImportance } from "./compare/curves";
import { differences } from "./compare/parameters";
import { bestOf, columnsOf, isLowerBetter, sorted, type Compared } from "./compare/table";
import { nextSort, readJobsSearch, toKey } from "./jobs/search";
import { gpuHoursOf, ranOf, waitedOf } from "./jobs/times";
import { lastWords } from "./job/Fixes";
import { readViews } from "./jobs/views";
import { isOurs } from "./login/LoginPage";
import { spelled } from "./policy/Switch";
import { FIELDS, readDocument, valueOf, withValue } from "./submit/fields";

describe("changes that were tried out", () => {
  it("come in pieces", () => {
    const line = '{"type":"tried","changes":3,"seconds":0.1,"cut":false,"error":""}';
    const [none, rest] = linesOf(line.slice(0, 9));
    expect(none).toEqual([]);
    const [lines, left] = linesOf(`${rest}${line.slice(9)}\n{"ty`);
    expect(lines).toEqual([JSON.parse(line)]);
    expect(left).toBe('{"ty');
  });

  it("end with what was not tried", () => {
    const tried = { type: "tried" as const, changes: 3, seconds: 0.1, cut: false, error: "" };
    expect(lastWords(tried, 0)).toBe("Nothing that you may do helps.");
    expect(lastWords(tried, 2)).toBe("Nothing else that you may do helps.");
    expect(lastWords({ ...tried, cut: true }, 0)).toBe("There was no time to try everything.");
    expect(lastWords({ ...tried, error: "gone" }, 0)).toBe("Nothing could be tried out: gone.");
  });
});

describe("filters in the address", () => {
  it("are read, and nonsense is left out", () => {
    expect(readJobsSearch({ state: "running,nonsense", q: "", vc: 7, sort: "-waited", all: "true" })).toEqual({
      state: "running",
      vc: "7",
      all: true,
      sort: "-waited",
    });
    expect(readJobsSearch({ sort: "rm -rf", state: "no" })).toEqual({});
    expect(toKey({}).sort).toBe("-id");
  });

  it("sort upwards, downwards, and no more", () => {
    expect([nextSort("-id", "gpus"), nextSort("gpus", "gpus"), nextSort("-gpus", "gpus")]).toEqual([
      "gpus",
      "-gpus",
      undefined,
    ]);
  });
});

describe("the form of a job file", () => {
  const text = "# mine\nname: a # why\nsweep: {lr: [1, 2]}\ngpus: 1\n";
  const field = (label: string) => {
    const found = FIELDS.find((one) => one.label === label);
    if (!found) throw new Error(label);
    return found;
  };
  const change = (from: string, label: string, typed: string) => {
    const document = readDocument(from);
    if (!document) throw new Error("not read");
    return withValue(document, field(label), typed);
  };

  it("changes one field and leaves comments and what it does not know", () => {
    const changed = change(text, "GPUs", "4");
    expect(changed).toContain("# mine\nname: a # why\n");
    expect(changed).toContain("gpus: 4\n");
    expect(readDocument(changed)?.toJS()).toEqual({ name: "a", sweep: { lr: [1, 2] }, gpus: 4 });
  });

  it("takes a field away when it is emptied, and keeps what is no number for the server to refuse", () => {
    expect(change(text, "GPUs", "")).not.toContain("gpus");
    expect(change(text, "GPUs", "many")).toContain("gpus: many");
    expect(change(text, "Tags", "a, b")).toMatch(/tags:\s+- a\s+- b/);
  });

  it("reads values of any kind", () => {
    const document = readDocument("tags: [a, b]\nhold: true\ncommand: |\n  one\n  two\n");
    expect(
      document && ["Tags", "Hold it at first", "Command", "Name"].map((label) => valueOf(document, field(label))),
    ).toEqual(["a, b", "true", "one\ntwo\n", ""]);
  });

  it.each(["- a\n- b\n", "just text", "a: [", "{"])("rests at %j", (broken) => expect(readDocument(broken)).toBeNull());

  it("begins with nothing", () => expect(readDocument("")).not.toBeNull());
});

describe("comparing", () => {
  const series = (step: number[], value: number[]): Schemas["Series"] => ({
    key: "loss",
    step,
    value,
    at_s: step,
    attempt: step.map(() => 1),
  });

  it("puts curves on one axis", () => {
    expect(align([series([1, 3], [10, 30]), undefined, series([2, 3], [5, 6])])).toEqual({
      x: [1, 2, 3],
      values: [
        [10, null, 30],
        [null, null, null],
        [null, 5, 6],
      ],
    });
  });

  it("shows what differs", () => {
    const rows = differences(
      [
        { name: "a", tasks: { w: { argv: ["x", "1"], gpus: 1 } } },
        { name: "b", tasks: { w: { argv: ["x", "2"], gpus: 1 } } },
      ],
      false,
    );
    expect(rows).toEqual([{ name: "tasks.w.argv", values: ["x 1", "x 2"] }]);
  });

  it("begins with the loss", () => {
    expect(
      ["z", "samples_per_s", "val_loss", "loss"]
        .map((key) => ({ key }))
        .sort(byImportance)
        .map(({ key }) => key),
    ).toEqual(["loss", "val_loss", "samples_per_s", "z"]);
  });
});

describe("roles", () => {
  const me = (role: "admin" | "owner" | "user" | "viewer", vcs: string[] = []): Schemas["Me"] =>
    ({ user: "ann", role, vcs, auth: "token" }) as Schemas["Me"];
  const own = { user: "ann", vc: "x" };

  it.each([
    [me("admin"), { user: "bob", vc: "y" }, true],
    [me("user"), own, true],
    [me("user"), { user: "bob", vc: "x" }, false],
    [me("user", ["y"]), own, false],
    [me("viewer"), own, false],
    [me("owner", ["x"]), { user: "bob", vc: "x" }, true],
    [me("owner", ["x"]), { user: "bob", vc: "y" }, false],
    [undefined, own, false],
  ])("%o", (who, job, expected) => expect(mayOf(who).change(job)).toBe(expected));
});

it("after the login only our own pages are opened", () => {
  expect(
    ["/jobs?q=1", "//evil.example", "/\\evil.example", "https://evil.example", "/login", undefined].map(isOurs),
  ).toEqual([true, false, false, false, false, false]);
});

it("a policy with knobs is spelled as the command line does", () => {
  expect([spelled("fifo", {}), spelled("las", { walk: "skip", place: " " })]).toEqual(["fifo", "las:walk=skip"]);
});

it("history begins where the server did and ends where it was asked", () => {
  const data = {
    t: [10, 20, 30],
    until_s: 34,
    gpus: [null, 8, 8],
    used: [null, 1, 2],
    lent: [],
    bad: [],
    drained: [],
    queue: [],
    queue_gpus: [],
    vcs: [],
  } as unknown as Schemas["History"];
  expect(trimmed(data).t).toEqual([20, 30, 34]);
  expect(trimmed(data).used).toEqual([1, 2, 2]);
});

describe("a sweep", () => {
  const compared = (id: string, lr: string, loss: number | null) =>
    ({
      id,
      name: `tune-${id}`,
      request: { name: `tune-${id}`, parameters: { lr } },
      values: loss === null ? {} : { loss, at_s: 1, note: "x" },
    }) as unknown as Compared;
  const jobs = [compared("1", "0.1", 0.5), compared("2", "0.01", 0.25), compared("3", "1e-3", null)];
  const columns = columnsOf(jobs);

  it("has a column for each parameter and each value", () => {
    expect(columns.map((column) => column.title)).toEqual(["Job", "State", "Ran", "lr", "loss"]);
  });

  it("is sorted by numbers, and those without a value are last either way", () => {
    const ids = (sort: string) => sorted(jobs, columns, sort, 0).map((job) => job.id);
    expect([ids("p.lr"), ids("v.loss"), ids("-v.loss")]).toEqual([
      ["3", "2", "1"],
      ["2", "1", "3"],
      ["1", "2", "3"],
    ]);
  });

  it("has a best job, as the name of the value says", () => {
    expect([...bestOf(jobs, "loss", isLowerBetter("loss"))]).toEqual(["2"]);
    expect(["val_loss", "error_rate", "accuracy", "samples_per_s", "epoch_s"].map(isLowerBetter)).toEqual([
      true,
      true,
      false,
      false,
      true,
    ]);
    expect(bestOf(jobs, "nothing", true).size).toBe(0);
  });
});

it("times go on from what the server has added up", () => {
  const job = { finish_s: null, at_s: 100, waited_s: 10, ran_s: 30, service_gpu_s: 60, held_gpus: 2 } as Schemas["Job"];
  expect([waitedOf(job, 105), ranOf(job, 105), gpuHoursOf(job, 105) * 3600]).toEqual([10, 35, 70]);
  const waiting = { ...job, held_gpus: null };
  expect([waitedOf(waiting, 105), ranOf(waiting, 105), gpuHoursOf(waiting, 105) * 3600]).toEqual([15, 30, 60]);
  expect(ranOf({ ...job, finish_s: 100, held_gpus: null }, 999)).toBe(30);
});

it("saved views that make no sense are left out", () => {
  expect(readViews('[{"name": "a", "search": {"q": "x", "sort": "rm"}}, {"search": {}}, 7]')).toEqual([
    { name: "a", search: { q: "x" } },
  ]);
  expect([readViews("nonsense"), readViews(null), readViews("{}")]).toEqual([[], [], []]);
});
