// The OpenAPI document as a plain page.
const main = document.getElementById("docs");
const put = (parent, tag, text) => { const it = document.createElement(tag); it.textContent = text ?? ""; parent.append(it); return it; };
const answer = await fetch("/openapi.json", { headers: { authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` } });
const found = await answer.json();
put(main, "h1", answer.ok ? found.info.title : found.detail);
for (const [path, item] of Object.entries(found.paths ?? {})) {
  for (const [method, operation] of Object.entries(item)) {
    const details = put(main, "details");
    const summary = put(details, "summary");
    put(summary, "b", method.toUpperCase());
    put(summary, "code", path);
    put(details, "p", operation.description ?? operation.summary);
    for (const parameter of operation.parameters ?? []) put(details, "p", `${parameter.name}: ${parameter.description ?? ""}`).className = "muted";
    const body = operation.requestBody?.content?.["application/json"]?.schema;
    if (body) put(details, "pre", JSON.stringify(body, null, 2));
  }
}
