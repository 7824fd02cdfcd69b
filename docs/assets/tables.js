// Tables that are wider than the page can be scrolled by keys, too.
window.addEventListener("load", () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});
