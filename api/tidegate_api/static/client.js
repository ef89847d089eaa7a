// Requests to the API, with a token if it requires one.
let dialog = null, field = null, waiting = null;

export function onLogin(where, input) { dialog = where; field = input; }

function login() {
  waiting ??= new Promise((go) => {
    dialog.showModal();
    dialog.addEventListener("close", () => { sessionStorage.setItem("token", field.value.trim()); field.value = ""; waiting = null; go(); }, { once: true });
  });
  return waiting;
}

function headers(more = {}) {
  const token = sessionStorage.getItem("token");
  return token ? { authorization: `Bearer ${token}`, ...more } : more;
}

async function send(path, options) {
  for (;;) {
    const answer = await fetch(path, options());
    if (answer.status !== 401) return answer;
    await login();
  }
}

export async function ask(path, { method = "GET", body, signal } = {}) {
  const answer = await send(path, () => ({ method, signal, headers: headers(body === undefined ? {} : { "content-type": "application/json" }), body: body === undefined ? undefined : JSON.stringify(body) }));
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.detail ?? `status ${answer.status}`), { status: answer.status });
  return found;
}

// Server-sent events over fetch, since an EventSource cannot send a token. Reconnects until the signal aborts.
export async function watch(path, signal, hear) {
  while (!signal.aborted) {
    try {
      const answer = await send(path, () => ({ headers: headers({ accept: "text/event-stream" }), signal }));
      if (answer.ok) await listen(answer.body.getReader(), hear);
    } catch { /* aborted, or the worker is gone: reconnect */ }
    if (!signal.aborted) await new Promise((go) => setTimeout(go, 500));
  }
}

async function listen(reader, hear) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").filter((line) => line.includes(": ")).map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
      if (fields.data) hear(fields.event, JSON.parse(fields.data));
    }
  }
}
