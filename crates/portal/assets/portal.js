// The script of the portal. It replaces changed panels, shows a lost connection, shows times in the user's time zone, previews a
// schedule during editing, and copies commands. Every page works without it.
'use strict';

(() => {
  const body = document.body;

  // Times: the text is UTC, followed by the relative time; the title has the user's time zone.
  const near = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
  const own = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
  const steps = [[60, 'second', 1], [3600, 'minute', 60], [86400, 'hour', 3600], [Infinity, 'day', 86400]];
  function showTimes(root) {
    const now = Date.now();
    for (const time of root.querySelectorAll('time[datetime]')) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      const seconds = Math.round((at - now) / 1000);
      const [, unit, size] = steps.find(([limit]) => Math.abs(seconds) < limit);
      const text = near.format(Math.trunc(seconds / size), unit);
      if (time.dataset.near !== text) time.dataset.near = text;
      const title = own.format(at);
      if (time.title !== title) time.title = title;
    }
  }

  // The script's additions to a time are not part of the server's content.
  const ours = { TIME: ['title', 'data-near'], BUTTON: ['hidden'], DETAILS: ['open'] };

  // Updates a tree to match another and changes only the differences: focus, selection and input stay.
  function morph(from, to) {
    const kept = ours[from.nodeName] || [];
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && !kept.includes(name)) from.removeAttribute(name);
    }
    for (const { name, value } of [...to.attributes]) {
      if (from.getAttribute(name) !== value && !kept.includes(name)) from.setAttribute(name, value);
    }
    const is = (a, b) => a && a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || '') === (b.id || '');
    let at = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      if (wanted.nodeType === Node.ELEMENT_NODE && wanted.id && !is(at, wanted)) {
        const known = [...from.children].find((child) => child.id === wanted.id);
        if (known) {
          from.insertBefore(known, at);
          at = known;
        }
      }
      if (!is(at, wanted)) {
        from.insertBefore(wanted, at);
        continue;
      }
      if (at.nodeType === Node.ELEMENT_NODE) morph(at, wanted);
      else if (at.nodeValue !== wanted.nodeValue) at.nodeValue = wanted.nodeValue;
      at = at.nextSibling;
    }
    while (at) {
      const next = at.nextSibling;
      from.removeChild(at);
      at = next;
    }
  }

  function place(panels) {
    for (const { id, html } of panels) {
      const panel = document.getElementById(id);
      if (!panel) continue;
      const fresh = panel.cloneNode(false);
      fresh.innerHTML = html;
      morph(panel, fresh);
      enableCopyButtons(panel);
    }
    showTimes(document);
  }

  // The event stream: a lost connection is shown, retried and resumed.
  const lost = document.getElementById('lost');
  let stream = null;
  let seen = body.dataset.seen || '';
  let pause = 500;
  let again = 0;
  function showStatus(text) {
    if (!lost) return;
    if (lost.textContent !== text) lost.textContent = text;
    lost.hidden = !text;
  }
  function listen() {
    clearTimeout(again);
    if (stream || !body.dataset.at || !document.querySelector('[data-live]')) return;
    const query = new URLSearchParams({ at: body.dataset.at, seen });
    stream = new EventSource('/live?' + query);
    stream.onopen = () => { pause = 500; showStatus(''); };
    stream.addEventListener('panels', (event) => {
      seen = event.lastEventId;
      place(JSON.parse(event.data));
      body.dataset.news = String(Number(body.dataset.news || 0) + 1);
    });
    stream.onerror = () => {
      stream.close();
      stream = null;
      if (document.hidden) return;
      showStatus('The connection is lost. The page may be outdated; reconnecting.');
      again = setTimeout(reconnect, pause);
      pause = Math.min(pause * 2, 10000);
    };
  }
  // Reconnects, unless the session has ended.
  function reconnect() {
    fetch('/live?at=/x', { method: 'HEAD' }).then((response) => {
      if (response.status === 401) showStatus('You are signed out. Reload the page to sign in.');
      else listen();
    }, () => listen());
  }
  // A hidden page holds no connection: browsers limit connections per host.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      clearTimeout(again);
      if (stream) { stream.close(); stream = null; }
    } else {
      listen();
    }
  });

  // Copy buttons of commands.
  function enableCopyButtons(root) {
    if (!navigator.clipboard) return;
    for (const button of root.querySelectorAll('button.copy[hidden]')) button.hidden = false;
  }
  document.addEventListener('click', (event) => {
    const button = event.target.closest('button.copy');
    if (!button) return;
    navigator.clipboard.writeText(button.dataset.copy).then(() => {
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    }, () => {});
  });

  // Preview of a schedule during editing.
  const editor = document.querySelector('form.editor');
  const preview = document.getElementById('preview');
  let typing = 0;
  let requests = 0;
  function requestPreview() {
    const turn = ++requests;
    const form = new URLSearchParams(new FormData(editor));
    fetch('/preview/schedule', { method: 'POST', body: form }).then((response) => {
      if (!response.ok) throw new Error(String(response.status));
      return response.text();
    }).then((html) => {
      if (turn !== requests) return;
      preview.innerHTML = html;
      showTimes(preview);
      body.dataset.previews = String(turn);
    }, () => { if (turn === requests) preview.textContent = 'The preview is not available now.'; });
  }
  if (editor && preview) {
    editor.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(requestPreview, 300); });
  }

  // Filters apply when an option is selected.
  for (const form of document.querySelectorAll('form.filter[method="get"]')) {
    form.addEventListener('change', (event) => { if (event.target.matches('select')) form.requestSubmit(); });
  }

  // A drawing wider than the window is scrolled to the present.
  const drawing = document.querySelector('.drawing');
  const nowLine = drawing && drawing.querySelector('line.now');
  if (nowLine && drawing.scrollWidth > drawing.clientWidth) {
    drawing.scrollLeft = (nowLine.x1.baseVal.value / 1000) * drawing.scrollWidth - drawing.clientWidth * 0.45;
  }

  // Menus wider than the window are scrolled to the current entry.
  for (const here of document.querySelectorAll('nav [aria-current]')) here.scrollIntoView({ block: 'nearest', inline: 'center' });

  enableCopyButtons(document);
  showTimes(document);
  setInterval(() => { if (!document.hidden) showTimes(document); }, 10000);
  listen();
})();
