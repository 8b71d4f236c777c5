"""Results for people: words, numbers, figures, pages, Markdown and the terminal.

Everything here reads results (and the take store); nothing here measures. Import what you need from its module:
this file imports none, so that a result can draw itself without importing a page.
"""
