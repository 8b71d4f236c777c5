"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // The token comes after the #, which no browser sends; this page alone keeps it, until it is closed.
  let token = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (token) sessionStorage.setItem("besttake-token", token);
    else token = sessionStorage.getItem("besttake-token");
  } catch { /* without storage it holds until the page is loaded again */ }
  if (location.hash.includes("token=")) history.replaceState(null, "", location.pathname);
  const order = async (name) => {
    by("said").textContent = "…";
    try {
      const answer = await fetch(name, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
      by("said").textContent = await answer.text();
    } catch { by("said").textContent = "No answer."; }
  };
  for (const name of ["stop", "continue", "end"]) by(name).addEventListener("click", () => order(name));
  const show = (phase, controls) => {
    if (document.body.dataset.phase === phase) return;
    const pressed = document.activeElement;
    by("said").textContent = "";
    by("controls").hidden = !token || !controls;
    by("stop").hidden = phase !== "running" && phase !== "setting up";
    by("continue").hidden = by("end").hidden = phase !== "stopped";
    // A button that goes away hands the focus on to the one that comes.
    if (pressed && pressed.hidden) (pressed.id === "stop" ? by("continue") : by("stop")).focus();
  };

  // Films play again and again, all to one clock.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const cards = new Map();
  let paused = still, tick = 0;
  const draw = (card) => {
    const { film, image, canvas } = card;
    if (!film || !image.complete || !image.naturalWidth) return;
    const frame = still && paused && !tick ? film.count - 1 : tick % (film.count + 8);
    const index = Math.min(frame, film.count - 1);
    const x = index % film.columns, y = Math.floor(index / film.columns);
    canvas.getContext("2d").drawImage(image, x * film.width, y * film.height, film.width, film.height, 0, 0, film.width, film.height);
    canvas.dataset.frame = index;
  };
  const load = async (card, id) => {
    try {
      const answer = await fetch(`takes/${id}`);
      if (!answer.ok) throw new Error(await answer.text());
      const { film } = await answer.json();
      if (!film) throw new Error("This take has no film.");
      card.canvas.width = film.width;
      card.canvas.height = film.height;
      card.canvas.classList.toggle("crisp", film.width <= 128);
      card.image.addEventListener("load", () => { card.film = film; draw(card); });
      card.image.src = "data:image/webp;base64," + film.data;
    } catch (error) { card.box.append(make("p", "none", error.message)); }
  };
  const add = (take) => {
    const box = make("article", "take"), head = make("h3", "", `${take.task}, start ${take.start}, take ${take.seed} of ${take.arm} `);
    head.append(take.success ? make("span", "won", "✓ success") : make("span", "lost", `✗ failed after ${take.steps} steps`));
    const canvas = make("canvas", "film");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `film of ${head.textContent}`);
    box.append(head, make("p", "small", take.policy), canvas);
    const card = { box, canvas, image: new Image(), film: null };
    load(card, take.id);
    return card;
  };
  const reel = (newest) => {
    for (const id of [...cards.keys()]) if (!newest.some((take) => take.id === id)) { cards.get(id).box.remove(); cards.delete(id); }
    for (const take of newest) if (!cards.has(take.id)) cards.set(take.id, add(take));
    by("reel").replaceChildren(...newest.map((take) => cards.get(take.id).box));
    by("no-takes").hidden = newest.length > 0;
  };
  const press = () => {
    by("pause").textContent = paused ? "Play" : "Pause";
    by("pause").setAttribute("aria-pressed", String(paused));
  };
  by("pause").addEventListener("click", () => { paused = !paused; press(); });
  press();
  setInterval(() => { if (!paused && !document.hidden) { tick += 1; for (const card of cards.values()) draw(card); } }, 110);

  const shown = {};
  const events = new EventSource("events");
  events.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    by("lost").hidden = true;
    for (const [id, text] of Object.entries(state.parts)) if (shown[id] !== text) {
      shown[id] = text;
      by(id).innerHTML = text;  // ours: every value in it was escaped when it was made
    }
    show(state.phase, state.controls);
    reel(state.newest);
    document.body.dataset.phase = state.phase;
  });
  events.addEventListener("finished", () => { events.close(); location.reload(); });
  events.addEventListener("ended", () => events.close());
  events.addEventListener("error", () => { by("lost").hidden = false; });
})();
