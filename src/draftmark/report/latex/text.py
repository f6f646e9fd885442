"""Any text as LaTeX that shows it and obeys none of it.

What is plain ASCII or has a command of its own is written as it is meant; every other character, controls and
marks of writing direction included, becomes a visible box, since pdfTeX's fonts do not have it.
"""

import re
from functools import lru_cache
from unicodedata import normalize

MISSING = r"\missing{}"
LONG = 14
"""Characters of a word from which on a line may break within it."""
LINES = 400
LINE = 2_000
"""Lines of a listing, and characters of one of its lines."""

_COMMANDS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}",
    "'": "{'}", "-": "{-}", ",": "{,}", "?": "{?}", "!": "{!}", "[": "{[}", "]": "{]}", "*": "{*}",
    "\u00a0": "~", "×": r"\texttimes{}", "÷": r"\textdiv{}", "±": r"\textpm{}", "·": r"\textperiodcentered{}",
    "–": r"\textendash{}", "—": r"\textemdash{}", "‘": r"\textquoteleft{}", "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}", "…": r"\textellipsis{}", "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}", "•": r"\textbullet{}", "°": r"\textdegree{}", "§": r"\textsection{}",
    "¶": r"\textparagraph{}", "©": r"\textcopyright{}", "®": r"\textregistered{}", "™": r"\texttrademark{}",
    "€": r"\texteuro{}", "£": r"\textsterling{}", "¥": r"\textyen{}", "¢": r"\textcent{}", "µ": r"$\mu$",
    "μ": r"$\mu$", "τ": r"$\tau$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$",
    "ε": r"$\varepsilon$", "λ": r"$\lambda$", "π": r"$\pi$", "σ": r"$\sigma$", "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$", "≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "≠": r"$\neq$", "∞": r"$\infty$",
    "−": r"$-$", "→": r"$\rightarrow$", "←": r"$\leftarrow$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
    "√": r"$\surd$", "∑": r"$\sum$", "«": r"\guillemotleft{}", "»": r"\guillemotright{}",
    "¡": r"\textexclamdown{}", "¿": r"\textquestiondown{}", "²": r"\texttwosuperior{}",
    "³": r"\textthreesuperior{}", "½": r"\textonehalf{}", "¼": r"\textonequarter{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "đ": r"\dj{}", "Đ": r"\DJ{}", "ð": r"\dh{}", "Ð": r"\DH{}", "þ": r"\th{}",
    "Þ": r"\TH{}", "ı": r"\i{}",
}  # fmt: skip
_ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0308": r'\"', "\u030a": r"\r",
    "\u030b": r"\H", "\u030c": r"\v", "\u0306": r"\u", "\u0307": r"\.", "\u0327": r"\c", "\u0328": r"\k",
    "\u0304": r"\=",
}  # fmt: skip
_BREAK = r"\brk{}"
_SPACES = re.compile(r"[^\S\u00a0]+")
_PIECE = re.compile(r"[^/_.,:;=&?+@\\-]{0,11}[/_.,:;=&?+@\\-]{1,4}|[^/_.,:;=&?+@\\-]{1,12}")


def escaped(text: str, limit: int = 400) -> str:
    """The text on one line, trimmed, breakable within long words."""
    line = _SPACES.sub(" ", text[: limit + LINE]).strip()
    if len(line) > limit:
        line = f"{line[:limit]} … ({len(text):,} characters)"
    return broken(line)


def broken(line: str) -> str:
    """The line's characters, with places to break in its long words."""
    parts = re.split(r"(\s+)", line)
    return "".join(
        _BREAK.join(map(characters, _PIECE.findall(part)))
        if len(part) >= LONG and not part.isspace()
        else characters(part)
        for part in parts
    )


def characters(text: str) -> str:
    """Each character as LaTeX."""
    return "".join(map(character, text))


@lru_cache(maxsize=4096)
def character(one: str) -> str:
    """One character as LaTeX."""
    if one in _COMMANDS:
        return _COMMANDS[one]
    if " " <= one <= "~":
        return one
    base, marks = (parts := normalize("NFD", one))[:1], parts[1:]
    if marks in _ACCENTS and base.isascii() and base.isalpha():
        return f"{_ACCENTS[marks]}{{{base}}}"
    plain = normalize("NFKC", one)
    return characters(plain) if plain != one and plain.isascii() and plain.isprintable() else MISSING


def listing(text: str) -> str:
    """Preformatted text as lines of a ``code`` environment; what is too much is counted."""
    lines = text.expandtabs(4).splitlines()
    shown = [code_line(line) for line in lines[:LINES]]
    if len(lines) > LINES:
        shown.append(f"[{len(lines) - LINES:,} more lines]")
    return "\\begin{code}\n" + "\n".join(shown) + "\n\\end{code}\n"


def code_line(line: str) -> str:
    """One line with its spaces kept and its quotes upright, as a paragraph."""
    more = f" [{len(line) - LINE:,} more characters]" if len(line) > LINE else ""
    body = broken(line[:LINE]).replace("{'}", r"\textquotesingle{}")
    indent = len(line) - len(line.lstrip(" "))
    kept = "~" * indent + re.sub("  +", lambda run: "~" * len(run[0]), body.lstrip(" "))
    return f"\\codeline{{{kept}{more}}}"
