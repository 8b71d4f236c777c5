"use strict";
// A page of a run that goes on: it is loaded again when its server has another one, and stays where it was scrolled to.
(() => {
  const here = document.body.dataset.stamp, status = document.querySelector(".over");
  const look = async () => {
    let next = here;
    try {
      const answer = await fetch(".", { method: "HEAD", cache: "no-store" });
      next = answer.headers.get("ETag") ?? here;
    } catch { status.textContent = "This page has lost its server: the command has ended, or the machine cannot be reached."; }
    const playing = document.getElementById("play")?.textContent === "Pause";
    if (next !== here && !playing) location.reload();
  };
  setInterval(look, 3000);
})();
