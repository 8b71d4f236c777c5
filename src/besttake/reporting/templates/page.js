"use strict";
(() => {
  const root = document.documentElement;
  const kept = () => { try { return localStorage.getItem("besttake-theme"); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem("besttake-theme", name); } catch { /* a page opened from a file may have no storage */ } };
  if (kept()) root.dataset.theme = kept();
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    keep(root.dataset.theme);
  });

  const value = (cell) => {
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.classList.contains("none") ? null : cell.textContent.trim();
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("th").forEach((head, column) => {
      head.tabIndex = 0;
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return down ? compare(b, a) : compare(a, b);
        });
        body.append(...rows.map(([, row]) => row));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
    });
  }

  // On a phone a row of a table is a card, and each of its cells says what it is.
  for (const table of document.querySelectorAll("table.sortable")) {
    const names = [...table.querySelectorAll("th")].map((head) => head.textContent);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.label = names[i]; });
  }
  // A link to a folded part opens it. Paper shows what is open.
  const unfold = () => { const part = location.hash && document.querySelector(`${location.hash} > details`); if (part) part.open = true; };
  addEventListener("hashchange", unfold);
  unfold();

  const tip = document.getElementById("tip");
  const show = (mark) => {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const at = mark.getBoundingClientRect();
    const x = Math.min(Math.max(8, at.left + at.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = at.top - tip.offsetHeight - 8;
    tip.style.left = `${x}px`;
    tip.style.top = `${above > 60 ? above : at.bottom + 8}px`;
  };
  const hide = () => { tip.hidden = true; };
  const over = (event) => { const mark = event.target.closest?.("[data-tip]"); if (mark) show(mark); };
  const out = (event) => { if (event.target.closest?.("[data-tip]")) hide(); };
  for (const [name, react] of [["pointerover", over], ["focusin", over], ["pointerout", out], ["focusout", out]]) document.addEventListener(name, react);
  addEventListener("scroll", hide, { passive: true, capture: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
