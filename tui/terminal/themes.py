"""The console's two themes, with quiet backgrounds so that the curves stand out."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="console-dark",
    primary="#5ca7ff",
    secondary="#3d6d9e",
    accent="#7ab8ff",
    foreground="#d7dde5",
    background="#0f1318",
    surface="#171c23",
    panel="#1e252e",
    success="#5ed08c",
    warning="#f0b454",
    error="#ff6e6e",
    dark=True,
    variables={
        "footer-background": "#171c23",
        "footer-key-foreground": "#7ab8ff",
        "footer-description-foreground": "#a9b4c0",
    },
)

LIGHT = Theme(
    name="console-light",
    primary="#0058be",
    secondary="#4a7fb5",
    accent="#0058be",
    foreground="#1d242c",
    background="#f7f8fa",
    surface="#eceff3",
    panel="#e2e6ec",
    success="#0a6e3c",
    warning="#8a5a00",
    error="#b30018",
    dark=False,
    variables={
        "footer-background": "#e6eaf0",
        "footer-key-foreground": "#0058be",
        "footer-description-foreground": "#4a5561",
    },
)
