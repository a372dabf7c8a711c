"use strict";
const $ = id => document.getElementById(id);
const PANES = ["source", "ir", "code", "sass"], VIEWS = {diff: "What changed", roofline: "Roofline", timeline: "Timeline", layouts: "Layouts", hazards: "Hazards"};
let state = null, surface = "", view = "diff", drawn = {}, hazards = null, busy = 0, turn = 0;
const held = {source: new Map(), ir: new Map(), code: new Map(), sass: new Map()};
const rowsOf = new Map(), pathsOf = new Map();
let marked = [];

async function ask(path, body, quiet) {
  if (!quiet && ++busy) document.body.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(path, body === undefined ? {} : {method: "POST", headers: {"x-kir": "KEY", "content-type": "application/json"}, body: JSON.stringify(body)});
    const found = await answer.json();
    if (!answer.ok) { say(found.error.join("\n\n")); return null; }
    if (body !== undefined) say("");
    return found;
  } catch (gone) { say("the server does not answer: " + gone.message); return null; }
  finally { if (!quiet && !--busy) document.body.removeAttribute("aria-busy"); }
}
function say(text, good) { $("said").textContent = text; $("said").className = good ? "good" : ""; }
function made(tag, text, name) {
  const one = document.createElement(tag);
  if (text) one.textContent = text;
  if (name) one.className = name;
  return one;
}

// Lines, and which belong together: by the statement's path; of the source by the lines that the IR's statements came from.
function lines(pane, rows, refused) {
  const index = held[pane], into = $(pane);
  index.clear();
  if (refused && refused.length) { into.replaceChildren(...refused.map(text => made("div", text, "none"))); return; }
  const all = document.createDocumentFragment();
  rows.forEach((row, k) => {
    const line = made("div", row.text || " ");
    line.dataset.n = k + 1;
    const key = pane === "source" ? String(k + 1) : row.path;
    if (key) { line.dataset.key = key; if (!index.has(key)) index.set(key, []); index.get(key).push(line); }
    all.append(line);
  });
  into.replaceChildren(all);
}
function mark(line, pane, follow) {
  for (const each of marked) each.classList.remove("on", "at");
  marked = [];
  if (!line || !line.dataset.n) return;
  const key = line.dataset.key;
  const paths = !key ? [] : pane === "source" ? pathsOf.get(key) || [] : [key];
  const found = paths.flatMap(path => ["ir", "code", "sass"].flatMap(side => held[side].get(path) || []));
  for (const row of new Set(paths.map(path => rowsOf.get(path)).filter(Boolean))) found.push(...held.source.get(String(row)) || []);
  marked = [line, ...found];
  for (const each of marked) each.classList.add("on");
  line.classList.add("at");
  if (follow) for (const side of PANES) {
    const first = $(side) === line.parentElement ? line : found.find(each => each.parentElement === $(side));
    if (first) $(side).scrollTop = Math.max(0, first.offsetTop - $(side).clientHeight / 3);
  }
}
for (const pane of PANES) {
  const box = $(pane), of = event => event.target.closest("div[data-n]");
  box.addEventListener("mouseover", event => of(event) && mark(of(event), pane));
  box.addEventListener("click", event => of(event) && mark(of(event), pane, true));
  box.addEventListener("keydown", event => {
    const by = {ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20}[event.key];
    if (!by) return;
    event.preventDefault();
    const at = [...box.children].findIndex(each => each.classList.contains("at"));
    mark(box.children[Math.max(0, Math.min(box.children.length - 1, at < 0 ? 0 : at + by))], pane, true);
  });
}

function tabs(into, names, chosen, choose) {
  const there = document.activeElement && into.contains(document.activeElement) ? document.activeElement.dataset.tab : "";
  into.replaceChildren(...Object.entries(names).map(([name, text]) => {
    const tab = made("button", text);
    tab.dataset.tab = name;
    tab.setAttribute("aria-pressed", name === chosen);
    tab.onclick = () => choose(name);
    return tab;
  }));
  if (there) into.querySelector(`[data-tab="${there}"]`)?.focus();
}
async function shown() {
  const chosen = state.code[surface] || {lines: [], refused: []};
  lines("code", chosen.lines, chosen.refused.map(text => "cannot be said: " + text));
  tabs($("tabs"), Object.fromEntries(Object.keys(state.code).map(name => [name, name])), surface, name => { surface = name; shown(); });
  if (chosen.refused.length) { lines("sass", [], ["no code, no instructions"]); $("sassof").textContent = ""; return; }
  const mine = turn, of = surface;
  $("sassof").textContent = "compiling for " + state.device;
  const found = await ask("machine?surface=" + of, undefined, true);
  if (!found || mine !== turn || of !== surface) return;
  $("sassof").textContent = found.lines.length ? found.lines.length + " lines, " + of + " on " + state.device : "";
  lines("sass", found.lines, found.refused);
}
function look(name) {
  view = name;
  tabs($("views"), VIEWS, view, look);
  const into = $("view");
  if (view === "diff") into.innerHTML = state && state.diff || '<p class="none">No step was taken yet.</p>';
  else if (view === "hazards") into.replaceChildren(made("pre", hazards || "Not checked yet: “Check for hazards” runs the kernel at small sizes, as a suspicious machine would."));
  else into.innerHTML = drawn[view] || '<p class="none">…</p>';
}
async function draw() {
  const mine = turn, found = await ask("pictures", undefined, true);
  if (!found || mine !== turn) return;
  drawn = found;
  $("figures").textContent = found.figures;
  if (view !== "diff" && view !== "hazards") look(view);
}

function place(site) {
  const row = made("div", "", "site"), button = made("button"), gain = made("span", "", "gain"), seen = site.forecast;
  if (site.refused.length) row.classList.add("no");
  gain.textContent = site.refused.length || seen && seen.refused ? "refused" : seen ? seen.brief + (seen.fails >= .05 ? ", fails " + Math.round(100 * seen.fails) + " %" : "") : "…";
  if (seen && seen.low > 1) gain.classList.add("good");
  if (seen && seen.high < 1) gain.classList.add("bad");
  if (seen && seen.defer) gain.title = "not to be relied on: " + seen.defer;
  for (const part of site.step.split(/(?<=[\/@])/)) button.append(part, made("wbr")); // a long place breaks between its parts
  button.onclick = async () => show(await ask("apply", {step: site.step}));
  row.append(button, gain);
  if (site.verdicts.length || seen && seen.refused) {
    const more = made("details"), stop = site.verdicts.filter(v => site.refused.includes(v.id));
    more.append(made("summary", stop.length ? stop.map(v => v.id + " " + (v.reason || v.sentence)).join("; ") : seen && seen.refused || site.verdicts.length + (site.verdicts.length > 1 ? " conditions hold" : " condition holds")), conditions(site.verdicts));
    row.append(more);
  }
  return row;
}
function conditions(rows) {
  const list = made("ul");
  for (const v of rows) {
    const item = made("li");
    item.append(made("b", v.verdict, v.verdict), ` ${v.id} ${v.sentence}` + (v.advice ? " (advice)" : "") + (v.reason ? `: ${v.reason}` : ""));
    list.append(item);
  }
  return list;
}
let places = [];
function listed() {
  const wanted = $("filter").value.trim().toLowerCase(), chosen = places.filter(p => p.step.toLowerCase().includes(wanted));
  const at = document.activeElement && $("sites").contains(document.activeElement) ? document.activeElement.textContent : "", top = $("sites").scrollTop;
  const open = new Set([...$("sites").querySelectorAll("details[open]")].map(each => each.parentElement.firstChild.textContent));
  $("sites").replaceChildren(...chosen.map(place), ...places.length && !chosen.length ? [made("p", `None of the ${places.length} steps has “${wanted}” in it.`, "none")] : []);
  for (const row of $("sites").querySelectorAll(".site")) {
    if (open.has(row.firstChild.textContent)) row.querySelector("details")?.setAttribute("open", "");
    if (at && row.firstChild.textContent === at) row.firstChild.focus();
  }
  $("sites").scrollTop = top;
}
async function rank() {
  const mine = turn;
  for (;;) {
    const found = await ask("sites", undefined, true);
    if (!found || mine !== turn) return;
    places = found.places;
    const able = places.filter(p => !p.refused.length).length;
    $("count").textContent = `(${able} of ${places.length}${found.finding ? ", looking for more" : found.left ? ", " + found.left + " to forecast" : ""})`;
    $("count").title = found.note || "forecast by the " + found.model + " model";
    listed();
    if (!found.left) return;
  }
}

function story(slide) {
  $("slides").hidden = $("story").hidden = !slide;
  if (!slide) return;
  $("slide").replaceChildren(...slide.names.map((name, k) => { const one = made("option", name); one.value = k; return one; }));
  $("slide").value = slide.place;
  $("previous").disabled = slide.place === 0; $("next").disabled = slide.place === slide.last;
  $("where").textContent = `state ${slide.place} of ${slide.last}`;
  const into = $("story");
  into.replaceChildren(made("p", slide.claim || (slide.step ? "" : "The naive program, where the lineage begins.")));
  if (!slide.step) return;
  into.append(made("p", slide.step, "pipeline"), made("p", [...slide.gains, slide.realized ? "the compiled code changes" : "the compiled code was not seen to change"].join(" · "), "soft"));
  if (slide.conditions.length) into.append(conditions(slide.conditions));
}
async function show(found) {
  if (!found) return;
  const mine = ++turn;
  state = found; drawn = {}; hazards = null; places = [];
  if (!surface || !(surface in found.code)) surface = found.code[found.surface] && !found.code[found.surface].refused.length ? found.surface : "cuda";
  $("name").textContent = found.name + (found.surface === "kir" ? "" : ", " + found.surface);
  document.title = found.name + " - kir explore";
  $("pipeline").textContent = found.pipeline;
  $("undo").disabled = $("copy").disabled = !found.steps; $("redo").disabled = !found.redo;
  $("sizes").value = found.sizes; $("device").value = found.device; $("file").textContent = found.source.file;
  $("sourcepane").hidden = !found.source.lines.length;
  rowsOf.clear(); pathsOf.clear();
  for (const row of found.ir) if (row.path && row.source) {
    rowsOf.set(row.path, row.source);
    const key = String(row.source);
    if (!pathsOf.has(key)) pathsOf.set(key, []);
    if (!pathsOf.get(key).includes(row.path)) pathsOf.get(key).push(row.path);
  }
  lines("source", found.source.lines.map(text => ({text}))); lines("ir", found.ir);
  $("under").textContent = found.under;
  story(found.slide); look(view);
  $("count").textContent = "..."; $("figures").textContent = ""; $("sites").replaceChildren(made("p", "…", "none"));
  await draw();
  if (mine === turn) await Promise.all([shown(), rank()]);
}
const moved = (path, body) => async () => show(await ask(path, body ? body() : {}));
$("undo").onclick = moved("undo"); $("redo").onclick = moved("redo");
$("previous").onclick = moved("go", () => ({place: state.slide.place - 1})); $("next").onclick = moved("go", () => ({place: state.slide.place + 1}));
$("slide").onchange = moved("go", () => ({place: Number($("slide").value)}));
$("setting").onsubmit = event => { event.preventDefault(); moved("set", () => ({sizes: $("sizes").value, device: $("device").value}))(); };
$("filter").oninput = listed;
$("copy").onclick = async () => { try { await navigator.clipboard.writeText(state.pipeline); say("copied: " + state.pipeline, true); } catch { say(state.pipeline, true); } };
$("check").onclick = async () => {
  const found = await ask("hazards", {});
  if (!found) return;
  const sizes = Object.entries(found.sizes).map(([name, value]) => `${name}=${value}`).join(", ");
  hazards = (found.findings.join("\n\n") || "no hazards at " + sizes) + `\n\nextra passes through shared memory's banks: ${found.conflicts}, at ${sizes}`;
  say(found.findings.length ? `${found.findings.length} findings, see Hazards` : "no hazards at " + sizes, found.ok);
  look("hazards");
};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const button = {u: "undo", r: "redo", ",": "previous", ".": "next"}[event.key];
  if (button && !$(button).disabled && !$(button).closest("[hidden]")) $(button).click();
  if (event.key === "/") { event.preventDefault(); $("filter").focus(); }
});
(async () => show(await ask("state")))();
