"use strict";
// The list of studies, which keeps itself up to date, and the form that exchanges a token for a cookie.

const JSON_TYPE = { "Content-Type": "application/json" };
const find = (id) => document.getElementById(id);

function signIn(form) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = JSON.stringify({ token: find("token").value.trim() });
    const response = await fetch("/v1/session", { method: "POST", headers: JSON_TYPE, body }).catch(() => null);
    if (response && response.ok) location.reload();
    else if (response) find("complaint").textContent = (await response.json()).error.text;
    else find("complaint").textContent = "The service cannot be reached.";
  });
  find("token").focus();
}

const REFRESH_INTERVAL = 2000; // milliseconds

async function listStudies() {
  const response = await fetch("/v1/studies").catch(() => null);
  if (response && response.status === 401) location.reload(); // the session has ended
  if (response && response.ok) showStudies((await response.json()).studies);
  find("connection").textContent = response && response.ok ? "" : "The service cannot be reached; trying again.";
  setTimeout(listStudies, REFRESH_INTERVAL);
}

// rows of the table are reused, so that a link keeps the focus
const rows = new Map(); // by name
function showStudies(studies) {
  for (const { name, completed, running, failed, created } of studies) {
    if (!rows.has(name)) rows.set(name, newRow(name, created));
    [completed, running, failed].forEach((count, i) => { rows.get(name).children[i + 1].textContent = count; });
  }
  find("no-studies").hidden = studies.length > 0;
}

function newRow(name, created) {
  const row = find("studies").insertRow(), link = document.createElement("a");
  link.href = `/studies/${encodeURIComponent(name)}`;
  link.textContent = name;
  row.insertCell().append(link);
  for (let i = 0; i < 3; i++) row.insertCell().className = "number";
  row.insertCell().textContent = new Date(created * 1000).toLocaleDateString();
  return row;
}

if (find("sign-in")) signIn(find("sign-in"));
else listStudies();
find("sign-out")?.addEventListener("click", async () => {
  await fetch("/v1/session", { method: "DELETE", headers: JSON_TYPE });
  location.reload();
});
