import { Link } from "@tanstack/react-router";

import { useTitle } from "./title";

export function NotFound() {
  useTitle("Not found");
  return (
    <>
      <h1>Not found</h1>
      <p className="verdict">There is no page at this address.</p>
      <p>
        <Link to="/">Overview</Link> · <Link to="/jobs">Jobs</Link>
      </p>
    </>
  );
}
