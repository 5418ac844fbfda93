"use strict";
// The figures come as plotly's JSON; here they get the page's theme, one legend for all, and switches for the axes.
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
  const source = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const library = document.createElement("script");
  library.textContent = await source;
  document.head.append(library);

  const { figures, runs } = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const axes = { x: "linear", y: "linear" };
  const config = { responsive: true, displayModeBar: false };
  // A finger on a figure scrolls the page; a mouse on it marks what to enlarge, and a double click goes back.
  const drag = matchMedia("(pointer: fine)").matches ? "zoom" : false;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const print = matchMedia("print");

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    return { ink: colour("--ink"), soft: colour("--soft"), line: colour("--line"), paper: colour("--paper") };
  };
  // A logarithmic RTT axis is labelled at the RTTs that were measured, where they do not crowd; a linear one as usual.
  const rttTicks = (rtts, width) => {
    const span = Math.log(rtts[rtts.length - 1] / rtts[0]) || 1;
    const kept = [];
    for (const rtt of rtts) {
      const last = kept[kept.length - 1];
      if (!kept.length || Math.log(rtt / last) / span * width > 34) kept.push(rtt);
    }
    return kept;
  };
  const dress = (figure, width) => {
    const t = theme();
    const { data, layout } = structuredClone(figure);
    for (const trace of data) {
      if (trace.line && trace.line.color === "ink") trace.line.color = t.soft;
      trace.visible = !(trace.meta && hidden.has(trace.meta.label));
    }
    Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: layout.showlegend === true,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: t.ink }, dragmode: drag });
    for (const key of Object.keys(layout).filter((name) => /^[xy]axis/.test(name))) {
      layout[key] = { gridcolor: t.line, zerolinecolor: t.soft, linecolor: t.line, automargin: true, zeroline: false, ...layout[key] };
    }
    for (const shape of layout.shapes || []) if (shape.line && shape.line.color === "ink") shape.line.color = t.ink;
    if (layout.meta && layout.meta.axes) {
      layout.xaxis.type = axes.x;
      layout.yaxis.type = axes.y;
      if (axes.x === "log" && layout.meta.rtts.length) {
        const ticks = rttTicks(layout.meta.rtts, width - 80);
        Object.assign(layout.xaxis, { tickvals: ticks, ticktext: ticks.map(String) });
      }
      if (axes.y === "log") { delete layout.yaxis.rangemode; layout.yaxis.dtick = 1; layout.yaxis.exponentformat = "none"; }
    }
    return { data, layout };
  };
  const drawn = new Map();
  const draw = async (id, figure) => {
    drawn.set(id, figure);
    const place = document.getElementById(id);
    const { data, layout } = dress(figure, place.clientWidth);
    await Plotly.react(place, data, layout, config);
  };
  const redraw = () => Promise.all([...drawn].map(([id, figure]) => draw(id, figure)));

  const runFigure = (run) => {
    const line = { color: run.colour, width: 2, shape: "hv" };
    const starts = [0, ...run.t];
    const data = [{ type: "scatter", mode: "lines", x: starts, y: [...run.gbps, run.gbps[run.gbps.length - 1]], line,
      hovertemplate: "%{x:.2f} s: %{y:.3g} Gb/s<extra></extra>" }];
    const shapes = [];
    const annotations = [];
    const note = (x, text, xanchor) => annotations.push({ x, y: 1.0, yref: "paper", yanchor: "bottom", text, showarrow: false, xanchor });
    if (run.end !== undefined) {
      if (run.ramp > 0) {
        shapes.push({ type: "rect", x0: 0, x1: run.ramp, y0: 0, y1: 1, yref: "y domain", fillcolor: run.colour, opacity: 0.13,
          line: { width: 0 }, layer: "below" });
        const narrow = run.ramp < 0.2 * run.end;
        note(narrow ? 0 : run.ramp / 2, "ramp-up", narrow ? "left" : "center");
      }
      shapes.push({ type: "line", x0: run.ramp, x1: run.end, y0: run.sustained, y1: run.sustained,
        line: { color: "ink", width: 1.5, dash: "dash" } });
      note((run.ramp + run.end) / 2, "sustainment", "center");
    }
    const layout = { height: run.cwnd ? 520 : 380, margin: { l: 58, r: 14, t: 30, b: 48 }, hovermode: "closest", shapes, annotations,
      xaxis: { title: { text: "time since the first byte might leave, s" }, rangemode: "tozero" },
      yaxis: { title: { text: "throughput, Gb/s" }, rangemode: "tozero" } };
    if (run.cwnd) {
      data.push({ type: "scatter", mode: "lines", x: run.cwnd.t, y: run.cwnd.mb, yaxis: "y2", line: { color: run.colour, width: 1.5 },
        hovertemplate: "%{x:.2f} s: %{y:.3g} MB<extra></extra>" });
      layout.yaxis.domain = [0.42, 1];
      layout.yaxis2 = { title: { text: "windows, MB" }, domain: [0, 0.33], rangemode: "tozero", anchor: "x" };
      layout.xaxis.anchor = "y2";
    }
    return { data, layout };
  };
  // The map of the sustained samples: each against the one before it, and the diagonal where nothing changes.
  const mapFigure = (run) => {
    const [x, y] = run.pairs || [[], []];
    const low = Math.min(...x, ...y), high = Math.max(...x, ...y);
    const data = x.length ? [
      { type: "scatter", mode: "lines", x: [low, high], y: [low, high], line: { color: "ink", width: 1, dash: "dash" }, hoverinfo: "skip" },
      { type: "scatter", mode: "markers", x, y, marker: { color: run.colour, size: 6, opacity: 0.7 },
        hovertemplate: "%{x:.3g}, then %{y:.3g} Gb/s<extra></extra>" }] : [];
    return { data, layout: { height: 420, margin: { l: 58, r: 14, t: 14, b: 48 }, hovermode: "closest",
      xaxis: { title: { text: "throughput of an interval, Gb/s" } }, yaxis: { title: { text: "of the next interval, Gb/s" } } } };
  };
  const select = document.getElementById("run");
  const showRun = () => {
    const run = runs[Number(select.value)];
    document.getElementById("run-said").textContent = run.said || "Too few samples to tell the phases apart.";
    document.getElementById("map-said").textContent = "All runs of this configuration at this RTT: " + run.map + ".";
    return Promise.all([draw("trace", runFigure(run)), draw("poincare", mapFigure(run))]);
  };

  for (const [id, figure] of Object.entries(figures)) await draw(id, figure);
  if (select) {
    select.addEventListener("change", showRun);
    await showRun();
  }
  for (const input of document.querySelectorAll(".switch input")) {
    if (input.checked) axes[input.dataset.axis] = input.value;
    input.addEventListener("change", () => { axes[input.dataset.axis] = input.value; redraw(); });
  }
  for (const button of document.querySelectorAll(".legend button[data-label]")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      if (shown) hidden.add(button.dataset.label); else hidden.delete(button.dataset.label);
      redraw();
    });
  }
  await redraw();
  dark.addEventListener("change", redraw);
  print.addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
})().catch((error) => {
  const said = document.createElement("p");
  said.className = "warning";
  said.textContent = "The figures could not be drawn (" + error + "). Where the foot of this page names figures for a paper, those have the profiles.";
  document.querySelector("main").prepend(said);
  document.documentElement.dataset.ready = "no";
  console.error(error);
});
