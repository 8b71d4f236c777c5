"use strict";
// The map of starts, takes and arms with its filters: a row per start, a square per take. A click plays the takes.
(() => {
  const by = (id) => document.getElementById(id);
  const { arms, cells, starts } = JSON.parse(by("takes-data").textContent).heat;
  const inside = document.querySelectorAll(".start-data"); // parsed when asked for: a large page opens sooner
  const [box, byPolicy, byGroup, byKind, byArm, filmed] = ["heat", "by-policy", "by-group", "by-kind", "by-arm", "filmed"].map(by);
  const CHUNK = 150;
  let rows = [], drawn = 0, chosen = -1;

  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const WORDS = { 1: "success", 0: "failure", x: "could not be made", "-": "not made" };
  const SHADES = { 1: "won", 0: "lost", x: "bad", "-": "gone" };
  const many = new Set(starts.map((one) => `${one.cell} ${one.task}`)).size > new Set(starts.map((one) => one.cell)).size;
  const heading = (name, text) => { const one = make("p", name, text); one.title = text; return one; };
  const playable = (one) => one.film !== null;
  const ofTake = (one, a, k) => {
    const { takes, steps, picked } = one.arms[a];
    const when = takes[k] === "1" ? ` at step ${steps[k]}` : takes[k] === "0" ? ` after ${steps[k]} steps` : "";
    return `${arms[a]}, take ${k}: ${WORDS[takes[k]]}${when}${picked === k ? ", picked" : ""}`;
  };
  const ofStart = (one) => {
    const counts = one.arms.map(({ takes }, a) => {
      const made = [...takes].filter((take) => take !== "-").length;
      return made ? `${arms[a]} ${[...takes].filter((take) => take === "1").length} of ${made}` : "";
    });
    const [policy, group] = cells[one.cell];
    return `${policy}, ${many ? one.task : group}, start ${one.start}, successes: ${counts.filter(Boolean).join(", ")}${playable(one) ? "" : "; no films in this page"}`;
  };

  const row = (i) => {
    const one = starts[i], button = make("button", "start");
    button.type = "button";
    button.dataset.i = i;
    button.tabIndex = -1;
    button.setAttribute("aria-label", ofStart(one));
    button.setAttribute("aria-pressed", String(i === chosen));
    button.append(make("span", "who", `start ${one.start}`));
    one.arms.forEach(({ takes, picked }, a) => {
      const group = make("span", "squares");
      [...takes].forEach((take, k) => {
        const square = make("i", SHADES[take] + (picked === k ? " chosen" : ""));
        square.dataset.tip = ofTake(one, a, k);
        square.dataset.take = `${a} ${k}`;
        group.append(square);
      });
      button.append(group);
    });
    button.append(make("span", "plays", playable(one) ? "▶" : ""));
    return button;
  };
  const more = (until) => {
    const nodes = [];
    for (; drawn < Math.min(rows.length, until); drawn++) {
      const i = rows[drawn], one = starts[i], before = drawn ? starts[rows[drawn - 1]] : null;
      if (one.cell !== before?.cell) nodes.push(heading("cellname", cells[one.cell].join(" · ")));
      if (many && (one.cell !== before?.cell || one.task !== before?.task)) nodes.push(heading("taskname", one.task));
      nodes.push(row(i));
    }
    box.append(...nodes);
  };
  const draw = () => {
    drawn = 0;
    box.replaceChildren();
    more(CHUNK);
    box.scrollTop = 0;
    const playing = rows.filter((i) => playable(starts[i])).length;
    by("count").textContent = `${rows.length} of ${starts.length} starts, ${playing} with films in this page`;
  };
  const rowOf = (i) => box.querySelector(`.start[data-i="${i}"]`);

  const open = (i, seed, play) => {
    const one = starts[i];
    for (const other of box.querySelectorAll(".start[aria-pressed=true]")) { other.setAttribute("aria-pressed", "false"); other.tabIndex = -1; }
    chosen = i;
    const at = rowOf(i);
    if (at) {
      at.setAttribute("aria-pressed", "true");
      at.tabIndex = 0;
      const top = at.offsetTop - box.offsetTop;
      if (top < box.scrollTop + 40 || top > box.scrollTop + box.clientHeight - 30) box.scrollTop = top - box.clientHeight / 3;
    }
    if (!playable(one)) {
      player.clear(`${ofStart(one)}. This page holds the films of some starts only; besttake export RUN --films writes all of them.`);
      return;
    }
    player.show(JSON.parse(inside[one.film].textContent), byArm.value, seed);
    if (play && !matchMedia("(prefers-reduced-motion: reduce)").matches) player.start();
  };

  const option = (value) => { const one = make("option", "", value); one.value = value; return one; };
  const unique = (values) => [...new Set(values)];
  [byPolicy, byGroup].forEach((select, part) => {
    const values = unique(starts.map((one) => cells[one.cell][part]));
    select.append(...values.map(option));
    if (values.length < 2) select.parentElement.hidden = true;
  });
  byArm.append(...arms.map(option));
  if (arms.length < 2) byArm.parentElement.hidden = true;
  if (starts.every(playable) || !starts.some(playable)) filmed.parentElement.hidden = true;
  for (const kind of [...byKind.options].slice(1)) kind.hidden = !starts.some((one) => one.kind === kind.value);

  const head = by("heat-arms");
  box.style.setProperty("--arms", starts[0].arms.map(({ takes }) => `${Math.max(46, takes.length * 12)}px`).join(" "));
  head.style.setProperty("--arms", box.style.getPropertyValue("--arms"));
  head.append(make("span"), ...arms.map((arm) => { const one = make("span", "armhead", arm); one.title = arm; return one; }));

  by("columns").textContent = `Arms from left to right: ${arms.join(", ")}.`;

  const list = () => {
    rows = [...starts.keys()].filter((i) => {
      const one = starts[i], [policy, group] = cells[one.cell];
      return (!byPolicy.value || policy === byPolicy.value) && (!byGroup.value || group === byGroup.value)
        && (!byKind.value || one.kind === byKind.value) && (!filmed.checked || playable(one));
    });
    draw();
    const first = rows.find((i) => starts[i].film !== null) ?? rows[0];
    if (first === undefined) player.clear("No start fits these filters.");
    else {
      more(rows.indexOf(first) + 1);
      open(first);
    }
  };

  const step = (by, playableOnly) => {
    const able = playableOnly ? rows.filter((i) => playable(starts[i])) : rows;
    if (!able.length) return;
    const at = able.findIndex((i) => i >= chosen);
    const here = at < 0 ? able.length - 1 : at;
    const next = playableOnly ? (here + by + able.length) % able.length : Math.min(Math.max(here + by, 0), able.length - 1);
    more(rows.indexOf(able[next]) + 1);
    open(able[next]);
  };
  box.addEventListener("click", (event) => {
    const start = event.target.closest(".start");
    if (!start) return;
    const take = event.target.dataset.take?.split(" ").map(Number);
    open(Number(start.dataset.i), take && [arms[take[0]], take[1]], true);
  });
  box.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
    rowOf(chosen)?.focus({ preventScroll: true });
  });
  box.addEventListener("scroll", () => { if (box.scrollTop + box.clientHeight > box.scrollHeight - 300) more(drawn + CHUNK); }, { passive: true });
  addEventListener("beforeprint", () => more(rows.length));
  by("previous").addEventListener("click", () => step(-1, true));
  by("next").addEventListener("click", () => step(1, true));
  for (const filter of [byPolicy, byGroup, byKind, filmed]) filter.addEventListener("change", list);
  byArm.addEventListener("change", () => open(chosen));

  const watch = ([policy, group]) => {
    byPolicy.value = policy;
    byGroup.value = group;
    byKind.value = byArm.value = "";
    filmed.checked = false;
    list();
    by("takes").scrollIntoView();
    rowOf(chosen)?.focus({ preventScroll: true });
  };
  document.querySelectorAll("#cells tbody tr").forEach((line, i) => {
    const button = make("button", "watch", "▶");
    button.type = "button";
    button.setAttribute("aria-label", `watch takes of ${cells[i].join(", ")}`);
    button.addEventListener("click", () => watch(cells[i]));
    line.cells[0].append(" ", button);
  });
  for (const mark of document.querySelectorAll("#relation [data-path^='/cells/']")) {
    const go = () => watch(cells[Number(mark.dataset.path.split("/")[2])]);
    mark.addEventListener("click", go);
    mark.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  }
  for (const link of document.querySelectorAll("a.see")) link.addEventListener("click", (event) => { event.preventDefault(); watch([link.dataset.policy, ""]); });
  list();
})();
