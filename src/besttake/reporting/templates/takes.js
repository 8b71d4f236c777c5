"use strict";
// The player: all takes of one start side by side and in step. heat.js chooses the start.
const player = (() => {
  const by = (id) => document.getElementById(id);
  const [stage, time, clock, play, speed] = ["stage", "time", "clock", "play", "speed"].map(by);
  const SVG = "http://www.w3.org/2000/svg";
  let shown = [];
  let timer = 0;

  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const draw = (tag, attributes) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const picture = (film, whenReady) => {
    if (!film) return null;
    const image = new Image();
    image.addEventListener("load", whenReady);
    image.src = "data:image/webp;base64," + film.data;
    return image;
  };
  const tile = (canvas, image, film, index) => {
    if (!image || !image.complete || !image.naturalWidth || index === null || index === undefined || index < 0) return;
    const column = index % film.columns, row = Math.floor(index / film.columns);
    canvas.getContext("2d").drawImage(image, column * film.width, row * film.height, film.width, film.height, 0, 0, film.width, film.height);
    canvas.dataset.frame = index;
  };
  const screen = (film, name) => {
    const canvas = make("canvas", name + (film && film.width <= 128 ? " crisp" : ""));
    canvas.width = film ? film.width : 4;
    canvas.height = film ? film.height : 3;
    return canvas;
  };
  const lastAt = (steps, now) => {
    let low = 0, high = steps.length - 1, last = -1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= now) { last = middle; low = middle + 1; } else high = middle - 1;
    }
    return last;
  };

  const course = (take) => {
    const known = take.best.map((value, i) => [value, take.trace_steps[i]]).filter(([value]) => value !== null);
    if (!known.length) return "This take has no trace of scores.";
    const [least, at] = known.reduce((a, b) => b[0] < a[0] ? b : a);
    const [first, last] = [known[0][0], known[known.length - 1][0]];
    return `Cosine to the nearest demonstration frame: ${first.toFixed(3)} at first, lowest ${least.toFixed(3)} at step ${at}, ${last.toFixed(3)} at the end.`;
  };
  const trace = (take, last, low, high) => {
    const svg = draw("svg", { class: "trace", viewBox: "0 0 300 86", preserveAspectRatio: "none", role: "img", "aria-label": course(take) });
    const x = (step) => 2 + 296 * step / last;
    const y = (value) => 80 - 70 * (value - low) / Math.max(1e-6, high - low);
    svg.append(draw("line", { x1: 2, y1: 82, x2: 298, y2: 82, style: "stroke:var(--faint)" }));
    if (take.success_step !== null) {
      svg.append(draw("line", { class: "success", x1: x(take.success_step), y1: 4, x2: x(take.success_step), y2: 82, style: "stroke:var(--won);stroke-width:1.5;stroke-dasharray:3 3", "vector-effect": "non-scaling-stroke" }));
    }
    const points = take.best.map((value, i) => value === null ? null : `${x(take.trace_steps[i]).toFixed(1)},${y(value).toFixed(1)}`).filter(Boolean);
    const color = take.picked ? "var(--accent)" : "var(--muted)";
    svg.append(draw("polyline", { points: points.join(" "), style: `fill:none;stroke:${color};stroke-width:2`, "vector-effect": "non-scaling-stroke" }));
    const cursor = draw("line", { class: "cursor", x1: 2, y1: 2, x2: 2, y2: 82, style: "stroke:var(--ink);stroke-width:1", "vector-effect": "non-scaling-stroke" });
    svg.append(cursor);
    return { svg, move: (now) => { const at = x(Math.min(now, last)); cursor.setAttribute("x1", at); cursor.setAttribute("x2", at); } };
  };

  const card = (start, take, last, low, high, demo) => {
    const box = make("article", "take" + (take.picked ? " picked" : ""));
    box.dataset.seed = take.seed;
    box.dataset.arm = take.arm;
    const head = make("h3", "", `take ${take.seed}`);
    head.append(take.success ? make("span", "won", `✓ success at step ${take.success_step}`) : make("span", "lost", `✗ failed after ${take.steps} steps`));
    const film = screen(take.film, "film"), near = screen(start.demo, "demo");
    const label = make("div", "", ""), nearLabel = make("div", "", "");
    const left = make("div"), right = make("div");
    left.append(film, label);
    right.append(near, nearLabel);
    const screens = make("div", "screens");
    screens.append(left);
    if (start.demo) screens.append(right);
    else screens.style.gridTemplateColumns = "1fr";
    const line = trace(take, last, low, high);
    const total = make("div", "small" + (take.picked ? " pick" : ""), take.score === null ? "no score" : `${take.picked ? "picked, " : ""}score ${take.score.toFixed(4)}`);
    box.append(head, screens, ...(take.best.some((value) => value !== null) ? [line.svg] : []), total);
    let image = null;
    const show = (now) => {
      const frame = lastAt(take.film_steps, now);
      tile(film, image, take.film, frame);
      const moment = lastAt(take.trace_steps, now);
      if (moment >= 0) tile(near, demo.image, start.demo, take.nearest[moment]);
      const over = now > take.steps;
      box.classList.toggle("over-take", over);
      label.textContent = over ? `ended at step ${take.steps}` : `step ${Math.min(now, take.steps)}`;
      const best = moment >= 0 ? take.best[moment] : null;
      nearLabel.textContent = best === null || best === undefined ? "no demonstration frame" : `nearest demonstration frame, cosine ${best.toFixed(3)}`;
      line.move(now);
    };
    image = picture(take.film, () => show(Number(time.value)));
    if (!take.film) label.textContent = "no film";
    return { box, show };
  };

  const render = () => { for (const one of shown) one.show(Number(time.value)); clock.value = `step ${time.value}`; };
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
  const start = () => {
    if (Number(time.value) >= Number(time.max)) time.value = 0;
    const beat = 50;
    const pace = Math.max(0.25, Number(time.max) / 120);
    let now = Number(time.value);
    play.textContent = "Pause";
    timer = setInterval(() => {
      now = Math.min(now + pace * Number(speed.value), Number(time.max));
      time.value = Math.floor(now);
      render();
      if (now >= Number(time.max)) stop();
    }, beat);
  };

  const unique = (values) => [...new Set(values)];
  const show = (chosen, arm, seed) => {
    stop();
    const takes = chosen.takes.filter((take) => !arm || take.arm === arm);
    const last = Math.max(1, ...takes.map((take) => take.steps));
    const values = takes.flatMap((take) => take.best).filter((value) => value !== null);
    const low = values.length ? Math.min(...values) : 0, high = values.length ? Math.max(...values) : 1;
    const demo = { image: null };
    shown = takes.map((take) => card(chosen, take, last, low, high, demo));
    demo.image = picture(chosen.demo, render);
    time.max = last;
    time.value = last; // how they ended: at the first step all of them look alike
    const rows = unique(takes.map((take) => take.arm)).map((name) => {
      const own = takes.filter((take) => take.arm === name);
      const row = make("div", "armrow"), cards = make("div", "arm");
      row.append(make("p", "armname", `${name}: ${own.filter((take) => take.success).length} of ${own.length} takes succeeded`), cards);
      cards.append(...shown.filter((one) => one.box.dataset.arm === name).map((one) => one.box));
      return row;
    });
    stage.replaceChildren(...rows);
    const words = [`${chosen.policy}, ${chosen.task}, start ${chosen.start}.`];
    if (values.length) words.push(`Traces: cosine to the nearest demonstration frame, from ${low.toFixed(3)} (bottom) to ${high.toFixed(3)} (top); dashed: success.`);
    if (chosen.takes.some((take) => take.score !== null)) words.push(`Scores: ${chosen.scorer}, window ${chosen.window}.`);
    if (chosen.hidden) words.push(`${chosen.hidden} more takes of this start are not shown.`);
    if (!chosen.demo && values.length) words.push("Nearest demonstration frames are not in this page: the library has no pictures, or it is no longer where it was.");
    words.push(...chosen.errors);
    by("outcome").textContent = words.join(" ");
    render();
    const marked = shown.find((one) => seed && one.box.dataset.arm === seed[0] && Number(one.box.dataset.seed) === seed[1]);
    if (marked) {
      marked.box.classList.add("marked");
      marked.box.scrollIntoView({ block: "nearest" });
    }
  };
  const clear = (text) => {
    stop();
    shown = [];
    stage.replaceChildren();
    by("outcome").textContent = text;
  };
  time.addEventListener("input", () => { stop(); render(); });
  play.addEventListener("click", () => (timer ? stop() : start()));
  return { show, clear, start };
})();
