"use strict";
// The page of a session on a robot: shows what to do next, and sends the operator's orders.
(() => {
  const at = id => document.getElementById(id), query = location.search, heading = document.querySelector("h1");
  let shown = {}, busy = false, since = 0;
  const early = 1000;  // milliseconds in which a key press is meant for the previous take

  const send = async (order, what) => {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(order + query, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
      at("said").textContent = await answer.text();
      at("said").className = answer.ok ? "" : "flag";
      if (answer.ok) at("reason").value = "";
    } catch { at("said").textContent = "The session does not answer: the command has ended, or the machine cannot be reached."; }
    busy = false;
    await look();
  };
  const judge = outcome => { if (shown.number && Date.now() - since > early) send("judge", { number: shown.number, outcome, reason: at("reason").value }); };

  const todo = now => {
    const place = `start ${now.start}`;
    switch (now.phase) {
      case "waiting": return `Set up ${place}${now.first ? " exactly as the first time" : ""}, then press Ready`;
      case "ready": return `Run the robot from ${place}`;
      case "playing": return `The robot is playing from ${place}. What is the outcome?`;
      case "left": return `The robot has ended its take from ${place}. What was the outcome?`;
      case "over": return "All takes are judged: the results are ready";
      default: return "Please wait";
    }
  };

  const list = judged => {
    const items = judged.map(([place, said, at], index) => {
      const item = document.createElement("li"), other = said === "success" ? "failure" : "success", button = document.createElement("button");
      button.type = "button";
      button.textContent = `it was a ${other}`;
      button.onclick = () => send("correct", { take: `${index + 1}`, outcome: other });
      item.append(`#${index + 1}, ${at.slice(11, 16)}, ${place}: ${said} `, button);
      return item;
    });
    at("judged").replaceChildren(...items.reverse());
  };

  const show = now => {
    const changed = JSON.stringify(now.judged) !== JSON.stringify(shown.judged);
    if (now.number !== shown.number) since = Date.now();
    shown = now;
    heading.textContent = now.planned ? `${now.done} of ${now.planned} takes` : "A session";
    at("todo").textContent = todo(now);
    at("more").textContent = [now.task, now.arm && `arm: ${now.arm}`, now.number && `${now.steps} steps so far`].filter(Boolean).join(" · ");
    for (const name of ["now", "first"]) { at(name).hidden = !now[name]; if (now[name] && at(name).src !== now[name]) at(name).src = now[name]; }
    at("overlay").hidden = !now.first || !now.now;
    at("first").style.opacity = now.now ? at("mix").value / 100 : 1;
    at("ready").disabled = now.phase !== "waiting";
    for (const button of document.querySelectorAll("[data-outcome]")) button.disabled = !now.number || Date.now() - since < early || (button.dataset.outcome !== "spoiled" && !now.calls);
    at("bar").max = Math.max(now.planned, 1);
    at("bar").value = now.done;
    at("stop").textContent = !now.questions ? "" : 
      `${now.settled} of ${now.questions} questions that need no score are settled, by bounds that hold at any time.`;
    at("results").hidden = !now.results;
    at("results").href = "results/" + query;
    if (changed) list(now.judged);
  };
  const look = async () => {
    try { show(await (await fetch("now" + query, { cache: "no-store" })).json()); }
    catch { at("todo").textContent = "This page has lost its server: the command has ended, or the machine cannot be reached."; }
  };

  for (const button of document.querySelectorAll("[data-outcome]")) button.onclick = () => judge(button.dataset.outcome);
  at("ready").onclick = () => send("ready", {});
  at("end").onclick = () => { if (confirm("End the session? The remaining takes will not be played.")) send("end", {}); };
  at("mix").oninput = () => { at("first").style.opacity = at("mix").value / 100; };
  document.addEventListener("keydown", event => {
    if (event.target.matches("input[type=text]") || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    const outcome = { s: "success", f: "failure", x: "spoiled" }[event.key.toLowerCase()];
    if (outcome) judge(outcome);
    if (event.key.toLowerCase() === "r" && !at("ready").disabled) send("ready", {});
  });
  look();
  setInterval(look, 500);
})();
