(() => {
  const stops = [...document.querySelectorAll("[data-stop]")];
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  let here = 0;
  const mark = (index) => {
    here = index;
    for (const a of links.values()) a.removeAttribute("aria-current");
    const link = links.get(stops[index].id);
    if (link) {
      link.setAttribute("aria-current", "true");
      link.scrollIntoView({ block: "nearest" });
    }
  };
  const go = (index) => {
    const next = Math.max(0, Math.min(stops.length - 1, index));
    stops[next].scrollIntoView({ block: "start" });
    mark(next);
  };
  const current = () => {
    let found = 0;
    stops.forEach((stop, index) => { if (stop.getBoundingClientRect().top < 90) found = index; });
    return found;
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; const found = current(); if (found !== here) mark(found); });
  }, { passive: true });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") go(current() + 1);
    else if (event.key === "k") go(current() - 1);
    else if (event.key === "h" || event.key === "l") {
      const cells = [...stops[current()].querySelectorAll("[data-cell]")];
      if (!cells.length) return;
      const at = cells.indexOf(document.activeElement);
      const next = at < 0 ? 0 : Math.max(0, Math.min(cells.length - 1, at + (event.key === "l" ? 1 : -1)));
      cells[next].focus({ preventScroll: true });
    }
    else if (event.key === "o") {
      const inside = document.activeElement && document.activeElement.closest("[data-cell]");
      const place = inside && stops[current()].contains(inside) ? inside : stops[current()];
      const all = [...place.querySelectorAll("details")];
      const open = all.some((each) => !each.open);
      all.forEach((each) => { each.open = open; });
    }
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details[data-print]").forEach((each) => { each.open = true; }));
  if (stops.length) mark(0);
})();
