"""Reports: HTML, Markdown and figures, all from `result.json` and the run directory."""
