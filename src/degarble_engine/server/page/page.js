"use strict";
// Everything that comes from the server is written as text, never as markup.
const at = id => document.getElementById(id);
const KINDS = {
  ".": ["free", "free"], c: ["cached", "free, with a cached prefix"], h: ["held", "held"], s: ["shared", "shared"],
  w: ["leaving", "free after this step"], x: ["reserved", "reserved"],
};
const turns = [];
let key = "", running = null, chosen = null, last = null;

const headers = () => ({"content-type": "application/json", ...(key ? {authorization: `Bearer ${key}`} : {})});

function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) line.append(Object.assign(document.createElement("td"), {textContent: cell}));
  return line;
}

function showBlocks(blocks) {
  const style = getComputedStyle(document.documentElement), canvas = at("blocks"), map = blocks.map, counts = {};
  for (const letter of map) counts[letter] = (counts[letter] || 0) + 1;
  const columns = Math.min(64, map.length), rows = Math.ceil(map.length / columns), size = 8;
  canvas.width = columns * size;
  canvas.height = rows * size;
  const pen = canvas.getContext("2d"), own = new Set(chosen ? chosen.blocks : []);
  for (let block = 0; block < map.length; block++) {
    const x = block % columns * size, y = Math.floor(block / columns) * size;
    pen.fillStyle = style.getPropertyValue(`--${KINDS[map[block]][0]}`);
    pen.fillRect(x, y, size - 1, size - 1);
    if (own.has(block)) { pen.strokeStyle = style.getPropertyValue("--text"); pen.strokeRect(x + .5, y + .5, size - 2, size - 2); }
  }
  const left = blocks.left_out ? `; ${blocks.left_out} more are not drawn` : "";
  at("blocks-text").textContent = `${blocks.total} blocks of ${blocks.block_size} tokens, ${blocks.free} can be taken, ${blocks.published} hold a prefix that can be found${left}`;
  at("legend").textContent = Object.entries(KINDS).filter(([letter]) => counts[letter]).map(([letter, [, words]]) => `${counts[letter]} ${words}`).join(", ");
}

function showRequests(state) {
  const lines = state.requests.map(one => {
    const line = row([one.id, one.state, one.prompt_tokens, one.cached_tokens, one.output_tokens, one.max_tokens, one.blocks.length]);
    line.addEventListener("mouseenter", () => { chosen = one; showBlocks(last.blocks); });
    line.classList.toggle("chosen", chosen !== null && chosen.id === one.id);
    return line;
  });
  chosen = state.requests.find(one => chosen && one.id === chosen.id) || null;
  at("requests").replaceChildren(...lines);
  const more = state.requests_left_out ? `, ${state.requests_left_out} more` : "";
  at("requests-text").textContent = lines.length ? `${lines.length} requests${more}` : "none";
}

function show(state) {
  last = state;
  at("model").textContent = document.title = state.model;
  const word = state.failure || (state.ready ? "ready" : "draining");
  at("status").textContent = `degarble ${state.version}: ${word}, ${state.steps} steps`;
  at("status").className = state.failure ? "bad" : "";
  showRequests(state);
  showBlocks(state.blocks);
  at("counters").replaceChildren(...state.counters.map(one => row([one.name, one.of, one.value])));
}

async function refresh() {
  try {
    const response = await fetch("state", {headers: headers()});
    if (response.status === 401) {
      at("key-form").hidden = false;
      at("status").textContent = "a key is needed";
    } else if (response.ok) show(await response.json());
    else at("status").textContent = `/state: ${response.status}`;
  } catch {
    at("status").textContent = "the server does not answer";
    at("status").className = "bad";
  }
  setTimeout(refresh, document.hidden ? 10000 : 1000);
}

function addTurn(who, text) {
  const turn = Object.assign(document.createElement("div"), {className: `turn ${who}`});
  const said = document.createTextNode(text), end = Object.assign(document.createElement("span"), {className: "end"});
  turn.append(Object.assign(document.createElement("span"), {className: "who", textContent: who}), said, end);
  at("turns").append(turn);
  turn.scrollIntoView({block: "nearest"});
  return {said, end};
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

async function answer() {
  const {said, end} = addTurn("assistant", "");
  running = new AbortController();
  at("stop").disabled = false;
  at("send").disabled = true;
  let why = null;
  try {
    const body = {messages: turns, stream: true, max_tokens: Number(at("max-tokens").value), temperature: Number(at("temperature").value)};
    const response = await fetch("v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      for (const choice of chunk.choices) {
        said.data += choice.delta.content || "";
        why = choice.finish_reason || why;
      }
    }
    end.textContent = `ended: ${why}`;
  } catch (error) {
    end.textContent = error.name === "AbortError" ? "stopped" : `failed: ${error.message}`;
  }
  if (said.data) turns.push({role: "assistant", content: said.data});
  else turns.pop();
  running = null;
  at("stop").disabled = true;
  at("send").disabled = false;
}

at("chat").addEventListener("submit", event => {
  event.preventDefault();
  const text = at("message").value;
  if (running || !text.trim()) return;
  at("message").value = "";
  turns.push({role: "user", content: text});
  addTurn("user", text);
  answer();
});
at("message").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); at("chat").requestSubmit(); }
});
at("stop").addEventListener("click", () => running && running.abort());
at("reset").addEventListener("click", () => { if (!running) { turns.length = 0; at("turns").replaceChildren(); } });
at("key-form").addEventListener("submit", event => {
  event.preventDefault();
  key = at("key").value;
  at("key").value = "";
  at("key-form").hidden = true;
  refresh();
});
refresh();
