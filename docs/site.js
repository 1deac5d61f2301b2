addEventListener("load", () => {
  // What the theme leaves out for keyboards and screen readers, in elements that it adds to a page.
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0
  // Copy buttons and parts of a table of contents are not landmarks.
  for (const nav of document.querySelectorAll(".md-code__nav, .md-nav--secondary .md-nav")) {
    nav.removeAttribute("aria-label")
    nav.setAttribute("role", "none")
  }
  // The download of a demonstration begins when it is opened.
  for (const shown of document.querySelectorAll("details.demonstration")) {
    shown.addEventListener("toggle", () => {
      const frame = shown.querySelector("iframe")
      frame.src ||= frame.dataset.src
    })
  }
})
