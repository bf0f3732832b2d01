"""The docstrings' reStructuredText, roles and formulas, as Markdown and MathML.

A formula is a paragraph of one literal, in plain text, as an editor shows it; ``FORMULAS`` has its LaTeX.
"""

from __future__ import annotations

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

ROLE = re.compile(r":(?:func|class|meth|attr|mod|data|exc):`~?([^`]+)`")
FORMULA = re.compile(r"(?<=\n\n)( *)``([^`\n]+)``(?=\n\n|$)")
SESSION = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 +\S.*)*", re.MULTILINE)
LITERAL = re.compile(r"``([^`]+)``")

FORMULAS = {
    "g * c, with c = 1 if n + eps <= L else L / max(n + eps, min_divisor)": (
        r"g \mapsto g \cdot c, \qquad "
        r"c = \begin{cases} 1 & n + \mathrm{eps} \le L \\ L / \max(n + \mathrm{eps}, \mathrm{min\_divisor}) & \text{else} "
        r"\end{cases}"
    ),
    "g_i * min(1, max_norm / (n + 1e-6)), with n = norm(norm(g_1), ..., norm(g_k)) of order p": (
        r"g_i \cdot \min\left(1, \frac{\text{max\_norm}}{n + 10^{-6}}\right), \qquad "
        r"n = \lVert (\lVert g_1 \rVert_p, \ldots, \lVert g_k \rVert_p) \rVert_p"
    ),
    "max(min(g, clip_value), -clip_value)": r"g \mapsto \max(\min(g, \text{clip\_value}), -\text{clip\_value})",
    "g * clipnorm / max(norm(g), clipnorm)": r"g \cdot \frac{\text{clipnorm}}{\max(\lVert g \rVert_2, \text{clipnorm})}",
    "g_i * global_clipnorm / max(n, global_clipnorm), with n = norm(g_1, ..., g_k)": (
        r"g_i \cdot \frac{\text{global\_clipnorm}}{\max(n, \text{global\_clipnorm})}, \qquad "
        r"n = \sqrt{\sum_i \lVert g_i \rVert_2^2}"
    ),
    "max(min(g, clipvalue), -clipvalue)": r"g \mapsto \max(\min(g, \text{clipvalue}), -\text{clipvalue})",
    "g * clip_norm / max(norm(g), clip_norm)": r"g \cdot \frac{\text{clip\_norm}}{\max(\lVert g \rVert_2, \text{clip\_norm})}",
    "g_i * clip_norm / max(n, clip_norm), with n = norm(g_1, ..., g_k)": (
        r"g_i \cdot \frac{\text{clip\_norm}}{\max(n, \text{clip\_norm})}, \qquad "
        r"n = \sqrt{\sum_i \lVert g_i \rVert_2^2}"
    ),
    "max(min(g, upper), lower)": r"g \mapsto \max(\min(g, \text{max}), \text{min})",
    "g_i * min(1, max_norm / (n + 1e-6))": r"g_i \cdot \min\left(1, \frac{\text{max\_norm}}{n + 10^{-6}}\right)",
    "g_i if n < max_norm else g_i * max_norm / n, with n = norm(g_1, ..., g_k)": (
        r"g_i \cdot \begin{cases} 1 & n < \text{max\_norm} \\ \text{max\_norm} / n & \text{else} \end{cases}, \qquad "
        r"n = \sqrt{\sum_i \lVert g_i \rVert_2^2}"
    ),
    "max(min(g, max_delta), -max_delta)": r"g \mapsto \max(\min(g, \text{max\_delta}), -\text{max\_delta})",
    "g / max(1, rms(g) / threshold), with rms(g) = norm(g) / sqrt(size(g))": (
        r"g / \max(1, \mathrm{rms}(g) / \text{threshold}), \qquad "
        r"\mathrm{rms}(g) = \lVert g \rVert_2 / \sqrt{\text{size}(g)}"
    ),
    "g_u if norm(g_u) < L else g_u * L / max(norm(g_u), 1e-6), with L = clipping * max(norm(w_u), eps)": (
        r"g_u \cdot \begin{cases} 1 & \lVert g_u \rVert_2 < L_u \\ L_u / \max(\lVert g_u \rVert_2, 10^{-6}) & \text{else} "
        r"\end{cases}, \qquad "
        r"L_u = \text{clipping} \cdot \max(\lVert w_u \rVert_2, \text{eps})"
    ),
    "sum over b of g_ib * min(1, l2_norm_clip / n_b), with n_b = norm(g_1b, ..., g_kb)": (
        r"\sum_b g_{i,b} \cdot \min\left(1, \frac{\text{l2\_norm\_clip}}{n_b}\right), \qquad "
        r"n_b = \sqrt{\sum_i \lVert g_{i,b} \rVert_2^2}"
    ),
    "max(min(g, clip_value_max), clip_value_min)": r"g \mapsto \max(\min(g, \text{clip\_value\_max}), \text{clip\_value\_min})",
    "g_i * min(1, max_norm / (total_norm + 1e-6))": (
        r"g_i \cdot \min\left(1, \frac{\text{max\_norm}}{\text{total\_norm} + 10^{-6}}\right)"
    ),
    "t * clip_norm / max(norm(t), clip_norm)": r"t \cdot \frac{\text{clip\_norm}}{\max(\lVert t \rVert_2, \text{clip\_norm})}",
    "t_i * clip_norm / max(n, clip_norm), with n = norm(t_1, ..., t_k)": (
        r"t_i \cdot \frac{\text{clip\_norm}}{\max(n, \text{clip\_norm})}, \qquad "
        r"n = \sqrt{\sum_i \lVert t_i \rVert_2^2}"
    ),
    "norm(t_1, ..., t_k)": r"\sqrt{\sum_i \lVert t_i \rVert_2^2}",
    "max(min(t, clip_value_max), clip_value_min)": r"\max(\min(t, \text{clip\_value\_max}), \text{clip\_value\_min})",
    "mean' = alpha * mean + (1 - alpha) * n, variance' = alpha * variance + (1 - alpha) * (n - mean')**2": (
        r"\mu' = \alpha \mu + (1 - \alpha) n, \quad "
        r"\sigma'^2 = \alpha \sigma^2 + (1 - \alpha) (n - \mu')^2"
    ),
    "z_t = (n - mean) / (deviation + eps)": r"z_t = (n - \mu) / (\sigma + \mathrm{eps})",
}


class Docstrings(griffe.Extension):  # type: ignore[misc]  # mypy cannot read it
    """The extension that griffe calls for each object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite its docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring of this project as Markdown.

    >>> markdown("Like :func:`clip`, but ``in place``.")
    'Like `clip`, but `in place`.'
    >>> markdown("Once:\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Once:', '', '```pycon', '>>> 1 + 1', '2', '```']
    >>> markdown("The norm.\\n\\n``norm(t_1, ..., t_k)``")[:19]
    'The norm.\\n\\n<math xm'
    """
    parts: list[str] = []
    end = 0
    for session in SESSION.finditer(text):
        indent = session[1]
        parts += [_prose(text[end : session.start()]), f"{indent}```pycon\n{session[0]}\n{indent}```"]
        end = session.end()
    return "".join([*parts, _prose(text[end:])])


def _formula(found: re.Match[str]) -> str:
    latex = FORMULAS.get(found[2])  # else it is a command
    return found[0] if latex is None else found[1] + str(convert(latex, display="block"))


def _prose(text: str) -> str:
    text = FORMULA.sub(_formula, text)
    return LITERAL.sub(r"`\1`", ROLE.sub(r"`\1`", text))
