// Who looks: a token is exchanged for a cookie that scripts cannot read.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { useState } from "react";

import { api, asked } from "../../api/client";
import { Problem } from "../../ui/parts";
import { useTitle } from "../../ui/title";

const route = getRouteApi("/login");

export default function LoginPage() {
  useTitle("Log in");
  const { to } = route.useSearch();
  const router = useRouter();
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const enter = useMutation({
    mutationFn: () => asked(api.POST("/api/v1/session", { body: { token: token.trim() } })),
    onSuccess: (me) => {
      client.clear();
      client.setQueryData(["me"], me);
      router.history.push(isOurs(to) ? to : "/");
    },
  });
  return (
    <main className="login">
      <form
        className="card stack"
        onSubmit={(event) => {
          event.preventDefault();
          enter.mutate();
        }}
      >
        <span className="brand">
          <img src="/icon.svg" alt="" />
          Skep
        </span>
        <h1>Log in to this server</h1>
        <label className="field">
          <span>Token</span>
          <input
            type="password"
            autoComplete="current-password"
            required
            autoFocus
            value={token}
            onChange={(event) => setToken(event.target.value)}
            aria-invalid={enter.isError}
          />
        </label>
        {enter.error ? <Problem error={enter.error} /> : null}
        <button className="main" disabled={enter.isPending || !token.trim()}>
          Log in
        </button>
        <p className="note">
          An admin makes tokens with <code>skep token create --user NAME</code>.
        </p>
      </form>
    </main>
  );
}

/** Only addresses of this page: a link must not lead to another site after the login. */
export function isOurs(to: string | undefined): to is string {
  return to !== undefined && /^\/(?![/\\])/.test(to) && !to.startsWith("/login");
}
