// The scripts of the console's pages. They get numbers and ids from the server, never text of a client.
function quirePreference(key, value) {
  const name = "quire_preferences=";
  const found = document.cookie.split("; ").find((part) => part.startsWith(name));
  let all = {};
  try { all = JSON.parse(decodeURIComponent(found.slice(name.length))); } catch { all = {}; }
  if (key.startsWith("columns.")) (all.columns ??= {})[key.slice(8)] = value;
  else all[key] = value;
  document.cookie = name + encodeURIComponent(JSON.stringify(all)) + "; path=/; max-age=31536000; samesite=lax";
}
function quireAddress(query) {
  const kept = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(query)) {
    if (value === null || value === "") kept.delete(key); else kept.set(key, value);
  }
  const text = kept.toString();
  history.replaceState(history.state, "", location.pathname + (text ? "?" + text : ""));
}
function quirePush(points) {
  for (const [id, at, values, keep] of points) {
    const chart = getElement(id)?.chart;
    if (!chart) continue;
    const series = chart.getOption().series.map((one, index) => {
      const data = one.data;
      if (values[index] !== undefined) data.push([at, values[index]]);
      while (data.length && data[0][0] < at - keep) data.shift();
      return { data };
    });
    chart.setOption({ series });
  }
}
document.addEventListener("visibilitychange", () => emitEvent("quire-seen", { seen: !document.hidden }));
document.addEventListener("keydown", (event) => {
  const typing = /INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    const search = document.querySelector(".quire-search input");
    if (search) { search.focus(); event.preventDefault(); }
  }
});
