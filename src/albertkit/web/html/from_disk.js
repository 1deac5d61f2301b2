// Browsers do not run modules of files that are opened from the disk. This script is not a module.

if (location.protocol === "file:") {
  const about = document.getElementById("about");
  about.textContent = "This page needs a web server. In its folder, run `python -m http.server`, and open http://localhost:8000.";
  about.classList.add("error");
  document.getElementById("download").hidden = true;
}
