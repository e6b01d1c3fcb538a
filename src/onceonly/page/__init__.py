"""What pages have in common: one offline HTML file, light and dark, printable, in which no text from data can act.

The audit page and the lab's report are rooms of their own, with templates that extend ``shell.html.j2``. Needs the
extra ``report``.
"""

from onceonly.page.drawing import Spec, Undrawable, svg
from onceonly.page.shell import Shell, Taken, clock, embedded, put

__all__ = ["Shell", "Spec", "Taken", "Undrawable", "clock", "embedded", "put", "svg"]
