// The one script of the portal. It puts changed panels in their place, tells when the connection is lost, shows times in the
// reader's own zone, looks ahead while a schedule is written, and copies commands. Without it every page works all the same.
'use strict';

(() => {
  const body = document.body;

  // Times: the text is UTC; beside it how long ago or ahead, and on demand the reader's own zone.
  const near = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
  const own = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
  const steps = [[60, 'second', 1], [3600, 'minute', 60], [86400, 'hour', 3600], [Infinity, 'day', 86400]];
  function tellTimes(root) {
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

  // What the script itself added to a time is no part of what the server says of it.
  const ours = { TIME: ['title', 'data-near'], BUTTON: ['hidden'], DETAILS: ['open'] };

  // Makes one tree like another, and touches only what is different: focus, selection and what was typed stay.
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
      offerCopies(panel);
    }
    tellTimes(document);
  }

  // The connection: what is lost is told, tried again and taken up where it was.
  const lost = document.getElementById('lost');
  let stream = null;
  let seen = body.dataset.seen || '';
  let pause = 500;
  let again = 0;
  function tell(text) {
    if (!lost) return;
    if (lost.textContent !== text) lost.textContent = text;
    lost.hidden = !text;
  }
  function listen() {
    clearTimeout(again);
    if (stream || !body.dataset.at || !document.querySelector('[data-live]')) return;
    const query = new URLSearchParams({ at: body.dataset.at, seen });
    stream = new EventSource('/live?' + query);
    stream.onopen = () => { pause = 500; tell(''); };
    stream.addEventListener('panels', (event) => {
      seen = event.lastEventId;
      place(JSON.parse(event.data));
      body.dataset.news = String(Number(body.dataset.news || 0) + 1);
    });
    stream.onerror = () => {
      stream.close();
      stream = null;
      if (document.hidden) return;
      tell('The connection is lost. What you see may be old; it is tried again by itself.');
      again = setTimeout(ask, pause);
      pause = Math.min(pause * 2, 10000);
    };
  }
  // Somebody who was signed out meanwhile is told so.
  function ask() {
    fetch('/live?at=/x', { method: 'HEAD' }).then((answer) => {
      if (answer.status === 401) tell('You are signed out. Load the page again to sign in.');
      else listen();
    }, () => listen());
  }
  // A page that nobody looks at holds no connection: browsers have few of them to give.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      clearTimeout(again);
      if (stream) { stream.close(); stream = null; }
    } else {
      listen();
    }
  });

  // Commands can be copied.
  function offerCopies(root) {
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

  // A schedule that is being written is looked ahead of.
  const editor = document.querySelector('form.editor');
  const preview = document.getElementById('preview');
  let typing = 0;
  let asked = 0;
  function lookAhead() {
    const turn = ++asked;
    const form = new URLSearchParams(new FormData(editor));
    fetch('/preview/schedule', { method: 'POST', body: form }).then((answer) => {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.text();
    }).then((html) => {
      if (turn !== asked) return;
      preview.innerHTML = html;
      tellTimes(preview);
      body.dataset.previews = String(turn);
    }, () => { if (turn === asked) preview.textContent = 'The look ahead could not be had now.'; });
  }
  if (editor && preview) {
    editor.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(lookAhead, 300); });
  }

  // Choices of a filter count at once.
  for (const form of document.querySelectorAll('form.filter[method="get"]')) {
    form.addEventListener('change', (event) => { if (event.target.matches('select')) form.requestSubmit(); });
  }

  // A drawing that is wider than the window begins near now.
  const drawing = document.querySelector('.drawing');
  const nowLine = drawing && drawing.querySelector('line.now');
  if (nowLine && drawing.scrollWidth > drawing.clientWidth) {
    drawing.scrollLeft = (nowLine.x1.baseVal.value / 1000) * drawing.scrollWidth - drawing.clientWidth * 0.45;
  }

  // Where one is stands in view, in menus that are wider than the window.
  for (const here of document.querySelectorAll('nav [aria-current]')) here.scrollIntoView({ block: 'nearest', inline: 'center' });

  offerCopies(document);
  tellTimes(document);
  setInterval(() => { if (!document.hidden) tellTimes(document); }, 10000);
  listen();
})();
