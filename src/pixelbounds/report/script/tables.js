// What goes on beyond the edge of the screen says so, and on which side.
function node(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, x] of Object.entries(attributes)) if (x) element.setAttribute(name, x);
  element.append(...children);
  return element;
}

for (const box of document.querySelectorAll(".scroll")) {
  const cue = node("p", { class: "cue", "aria-hidden": "true" }, "");
  box.before(cue);
  const tellMore = () => {
    const left = box.scrollLeft > 2, right = box.scrollLeft + box.clientWidth < box.scrollWidth - 2;
    box.dataset.more = [left ? "left" : "", right ? "right" : ""].join(" ").trim();
    cue.hidden = box.scrollWidth <= box.clientWidth + 2;
    cue.textContent = right ? "More columns to the right →" : "← More columns to the left";
  };
  box.addEventListener("scroll", tellMore, { passive: true });
  new ResizeObserver(tellMore).observe(box);
}
