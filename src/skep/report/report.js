"use strict";
// Values under the pointer, policies hidden by a click, tables sorted. The page is complete without any of it.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const make = (name, text, cls) => {
    const element = document.createElement(name);
    element.textContent = text;
    if (cls) element.className = cls;
    return element;
  };

  const units = [["s", 1, 60], ["min", 60, 60], ["h", 3600, 24], ["d", 86400, Infinity]];
  const round = (x) => (Math.round(x * 10) / 10 < 10 ? Math.round(x * 10) / 10 : Math.round(x));
  const duration = (s) => {
    const unit = units.find(([, size, limit]) => round(s / size) < limit);
    return `${round(s / unit[1]).toLocaleString("en")} ${unit[0]}`;
  };
  const instant = (s) => {
    const pad = (x) => String(Math.floor(x)).padStart(2, "0");
    const day = Math.floor(s / 86400);
    return `${day ? `${day} d ` : ""}${pad((s % 86400) / 3600)}:${pad((s % 3600) / 60)}`;
  };
  const percent = (x) => `${(x * 100).toFixed(1)}%`;
  const count = (x) => x.toLocaleString("en", { maximumFractionDigits: x < 10 ? 1 : 0 });

  // The tip: a heading and lines of two columns, near the pointer and inside the window.
  const tip = document.body.appendChild(make("div", ""));
  tip.id = "tip";
  tip.hidden = true;
  const showTip = (event, top, lines) => {
    tip.replaceChildren(make("p", top, "top"));
    for (const [series, name, value] of lines) {
      const line = tip.appendChild(make("div", ""));
      const label = line.appendChild(make("span", name));
      if (series !== null) label.prepend(document.querySelector(`[data-toggle="${series}"] .swatch`)?.cloneNode(true) ?? "");
      line.append(make("span", value));
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 16 : event.clientX + 16;
    const y = Math.min(event.clientY + 14, innerHeight - box.height - 8);
    tip.style.left = `${Math.max(x, 4)}px`;
    tip.style.top = `${Math.max(y, 4)}px`;
  };

  const crosses = new Map();
  const cross = (svg, chart, x) => {
    let line = crosses.get(svg);
    if (!line) {
      line = document.createElementNS(svg.namespaceURI, "line");
      line.setAttribute("class", "cross");
      line.setAttribute("y1", chart.y[0]);
      line.setAttribute("y2", chart.y[1]);
      svg.append(line);
      crosses.set(svg, line);
    }
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    line.style.display = x === null ? "none" : "";
  };
  const leave = () => {
    tip.hidden = true;
    crosses.forEach((line) => (line.style.display = "none"));
  };

  // The last point at or before x.
  const before = (xs, x) => {
    let lo = 0, hi = xs.length;
    while (lo < hi) {
      const middle = (lo + hi) >> 1;
      if (xs[middle] <= x) lo = middle + 1; else hi = middle;
    }
    return lo - 1;
  };
  const cdfTip = (event, chart, share) => {
    const [lo, hi] = chart.domain;
    const at = lo * (hi / lo) ** share;
    const lines = chart.series.map(([xs, ys], series) => [series, data.policies[series], percent(ys[before(xs, at)] ?? 0)]);
    showTip(event, `within ${duration(at)}`, lines.filter(([series]) => !hidden.has(series)));
  };
  const demandTip = (event, chart, share) => {
    const [lo, hi] = chart.domain;
    const at = lo + (hi - lo) * share;
    const lines = chart.series.map(([xs, ys], series) => [series, data.policies[series], `${ys[Math.max(before(xs, at), 0)].toFixed(1)}%`]);
    showTip(event, `demand ${at.toFixed(0)}%`, lines.filter(([series]) => !hidden.has(series)));
  };
  const timeTip = (event, chart, share) => {
    const [lo, hi] = chart.domain;
    const steps = Math.max(...chart.series.map(([means]) => means.length)); // none where a policy has no history
    const index = Math.min(Math.floor(share * steps), steps - 1);
    const lines = [];
    chart.series.forEach(([other, top], series) => {
      const mean = other[index];
      if (hidden.has(series)) return;
      const text = mean == null ? "–" : chart.percent ? percent(mean) : `${count(mean)} (max ${count(top[index])})`;
      lines.push([series, data.policies[series], text]);
    });
    showTip(event, instant(lo + (hi - lo) * (index + 0.5) / steps), lines);
  };

  for (const svg of all("svg[data-chart]")) {
    const chart = data.charts[svg.dataset.chart];
    const family = () => (chart.kind === "time" ? all("svg[data-chart]").filter((s) => data.charts[s.dataset.chart].kind === "time") : [svg]);
    svg.addEventListener("pointermove", (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const share = (point.x - chart.x[0]) / (chart.x[1] - chart.x[0]);
      if (share < 0 || share > 1) return leave();
      family().forEach((other) => cross(other, data.charts[other.dataset.chart], point.x));
      ({ cdf: cdfTip, time: timeTip, demand: demandTip })[chart.kind](event, chart, share);
    });
    svg.addEventListener("pointerleave", leave);
  }

  all("svg[data-gantt]").forEach((svg, series) => {
    let lit = [];
    const calm = () => { lit.forEach((bar) => bar.classList.remove("lit")); lit = []; tip.hidden = true; };
    svg.addEventListener("pointermove", (event) => {
      calm();
      const entry = event.target.dataset?.b;
      if (entry === undefined) return;
      const [job, vc, gpus, start, end, seconds] = data.gantts[series][entry];
      lit = all(`[data-b="${entry}"]`, svg);
      lit.forEach((bar) => bar.classList.add("lit"));
      showTip(event, job, [[null, "virtual cluster", vc], [null, "gpus", count(gpus)], [null, "from", start], [null, "to", end], [null, "held for", duration(seconds)]]);
    });
    svg.addEventListener("pointerleave", calm);
  });

  for (const button of all("[data-colour]")) {
    button.addEventListener("click", () => {
      const frame = button.closest("[data-by]");
      frame.dataset.by = button.dataset.colour;
      all("[data-colour]", frame).forEach((other) => other.setAttribute("aria-pressed", other === button));
    });
  }

  for (const button of all("[data-toggle]")) {
    const series = +button.dataset.toggle;
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", isShown);
      if (isShown) hidden.delete(series); else hidden.add(series);
      all(`[data-p="${series}"]`).forEach((element) => element.classList.toggle("off", !isShown));
    });
  }

  // Numbers by size, text by alphabet; what has no value goes last either way.
  const order = (a, b, sign) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    const [x, y] = [Number(a), Number(b)];
    return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
  };
  for (const table of all("table:has(th button)")) {
    const heads = all("thead tr:last-child th", table);
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const isUp = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      const body = table.tBodies[0];
      const value = (row) => row.cells[column].dataset.v;
      body.append(...[...body.rows].sort((a, b) => order(value(a), value(b), isUp ? 1 : -1)));
    }));
  }
})();
