// Chapters are neighbours, so a link upwards leaves the book: it goes to the file in the repository. mdBook has renamed .md.
const repository = "https://github.com/warpsmith/warpsmith/blob/main/";
for (const link of document.querySelectorAll('main a[href^="../"]')) {
  link.href = repository + link.getAttribute("href").slice(3).replace(/\.html(?=#|$)/, ".md");
}
