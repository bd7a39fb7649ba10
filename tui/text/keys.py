"""Every key of the console with its one meaning, which it has on all screens and in all dialogs.

Lower-case letters look and move; upper-case letters act on a run, and each asks first.
"""

from msgspec import Struct
from textual.binding import Binding


class Key(Struct, frozen=True):
    """One meaning."""

    keys: str  # the keys, as Textual names them
    help: str  # what they do
    label: str = ""  # the same in a word, for the footer; empty for keys that it never shows
    shown: str | None = None  # how they are displayed, if Textual's way is not good enough


_ZOOM = "Show a shorter or a longer part of the run."
_ZOOM_Y = "Show less or more of the vertical axis."
_PAN_Y = "Show higher or lower values."
_PAN = "Show an earlier or a later part of the run."
_NUMBER = "Go to the pane or chart with this number and zoom it, or go back."
_VERTICAL = "Move up or down, or scroll."
_PAGE = "Go to the page before or after."
_ENDS = "Go to the first or the last sample that the charts show."
_CURSOR = "Read the curves: move the cursor to the next sample. Elsewhere, move or scroll sideways."
_MOVE = "Move the focused chart one place up or down the order."

KEYS: dict[str, Key] = {
    # Acting on a run
    "stop": Key("K", "Stop training after this step or epoch, or kill it (asks first).", "Stop"),
    "pause": Key("P", "Pause training after the current steps, or continue it (asks first).", "Pause"),
    "checkpoint": Key("W", "Write a checkpoint now (asks first)."),
    "epochs": Key("E", "Train more or fewer epochs (asks first)."),
    "rate": Key("T", "Change the learning rate (asks first)."),
    "profile": Key("S", "Trace a few steps and show where their time goes (asks first)."),
    "resume": Key("R", "Continue the run from its newest checkpoint (asks first).", "Resume"),
    "predict": Key("N", "Predict new data with the model of the run (asks which).", "Predict"),
    "delete": Key("D,delete", "Move runs to the trash (asks first).", "Delete", "D"),
    # Moving
    "up": Key("up,k", _VERTICAL),
    "down": Key("down,j", _VERTICAL),
    "left": Key("left", _CURSOR, "Cursor", "←→"),
    "right": Key("right", ""),  # explained with the key before, like the next one but one
    "far left": Key("shift+left", "Move the cursor by a tenth of what is shown.", shown="shift+←→"),
    "far right": Key("shift+right", ""),
    "jump": Key("g", "Move the cursor to the next ★ or mark; after the last one, to the first."),
    "go to": Key("colon", "Move the cursor to a step, an epoch or a second, whichever the axis shows.", shown=":"),
    "page up": Key("pageup", _PAGE),
    "page down": Key("pagedown", _PAGE),
    "first": Key("home", _ENDS),
    "last": Key("end", _ENDS),
    "enter": Key("enter", "Open or choose what is under the cursor.", "Open"),
    "back": Key("escape", "Leave what was entered last: a cursor, a filter, a zoomed pane, this screen.", "Back"),
    "pane": Key("p", "Go to the next pane.", "Pane"),
    **{f"number {number}": Key(str(number), _NUMBER) for number in range(1, 10)},
    "host": Key("h", "Show the next of several hosts.", "Next"),
    # Looking
    "zoom": Key("z", "Zoom the focused pane; again or escape to go back.", "Zoom"),
    "info": Key("i", "Show details: settings, notices, versions, phases, files.", "Info"),
    "filter": Key("slash", "Show only the charts whose names match.", "Filter", "/"),
    "all": Key("a", "Show archived runs too.", "All"),
    "matrix": Key("m", "Show the confusion matrix and the scores of each class.", "Matrix"),
    "compare": Key("c", "Compare the selected runs, or this one with others of its preset.", "Compare"),
    "smooth": Key("s", "Smooth the curves more, then off again.", "Smooth"),
    "axis": Key("x", "Plot over steps, epochs or time.", "Axis"),
    "relative": Key("vertical_line", "Let all compared runs start at 0, or where they did.", shown="|"),
    "range": Key("v", "Fit the vertical range to the values that matter, or to all.", "Range"),
    "log scale": Key("l", "Switch the charts between linear and logarithmic scale.", "Log"),
    "follow": Key("f", "Follow the newest 50, 20 or 5% of the run, or show all of it.", "Follow"),
    "zoom in": Key("plus,equals_sign", _ZOOM),
    "zoom out": Key("minus", _ZOOM),
    "earlier": Key("comma", _PAN),
    "later": Key("full_stop", _PAN),
    "zoom in y": Key("shift+up", _ZOOM_Y),
    "zoom out y": Key("shift+down", _ZOOM_Y),
    "up y": Key("ctrl+up", _PAN_Y),
    "down y": Key("ctrl+down", _PAN_Y),
    "whole": Key("0", "Show the whole run and the whole vertical range."),
    "marker": Key("asterisk", "Draw curves with braille dots, blocks or ASCII.", "Dots", "*"),
    "chart first": Key("circumflex_accent", "Pin the focused chart to the front, in later runs too.", shown="^"),
    "chart before": Key("less_than_sign", _MOVE),
    "chart after": Key("greater_than_sign", _MOVE),
    "reload": Key("f5", "Read or check everything again.", "Reload"),
    # Lists
    "select": Key("space", "Hide the curves of the run, or show them again.", "Select"),
    "sort": Key("o", "Sort by start, name, preset, state, best, time, speed or size.", "Sort"),
    "tags": Key("number_sign", "Change the tags of the run, or add tags to the selected runs.", "Tag", "#"),
    "title": Key("t", "Give the run a title; its folder keeps its name.", "Title"),
    "note": Key("w", "Write a note on the run.", "Note"),
    "archive": Key("e", "Leave runs out of this list, or list them again.", "Archive"),
    "undo": Key("U", "Take back the last deletion or archiving.", "Undo"),
    "sweeps": Key("b", "List sweeps and open one.", "Sweeps"),
    "export": Key("percent_sign", "Write the run as code or in another format.", "Export", "%"),
    # Setting up
    "again": Key("r", "Set up a new run with the settings of this one.", "Again"),
    "new": Key("u", "Set up another run; this one continues.", "New"),
    "start": Key("ctrl+r", "Start what the form describes.", "Start"),
    "save": Key("ctrl+s,f2", "Save these settings as a preset.", "Save"),
    "copy": Key("ctrl+y,f3", "Copy the equivalent tpu-console run command.", "Copy"),
    "fields": Key("ctrl+o,f4", "Show all fields, or only the essential ones.", "Fields"),
    "reset": Key("f6", "Reset the form to the preset."),
    "watch": Key("ctrl+g,f10", "Watch the sweep or the run that trains at the moment.", "Watch"),
    "runs": Key("ctrl+l,f7", "List runs and open one.", "Runs"),
    "preflight": Key("f9", "Check these settings with the TPU compiler; needs no TPU.", "Preflight"),
    "doctor": Key("f8", "Check this machine: accelerators, packages, disks."),
    # Answering and leaving
    "yes": Key("y", "Do it; enter does what the marked button says.", "Yes"),
    "no": Key("n", "Leave everything as it is.", "No"),
    "help": Key("f1,question_mark", "Explain keys and figures.", "Help"),
    "detach": Key("d", "Leave the console; training continues.", "Detach"),
    "ask to quit": Key("q", "Quit, after a question; runs keep training."),
    "suspend": Key("ctrl+z", "Suspend the console; fg in the shell comes back to it."),
    "quit": Key("ctrl+q", "Quit at once; runs keep training.", "Quit"),
}

_TEXTS = [key.help for key in KEYS.values()]
MOVING = frozenset({"left", "far left"} | {name for name, key in KEYS.items() if _TEXTS.count(key.help) > 1})
"""Keys that share one sentence, such as `+` and `-`; a menu leaves them out, because it would show it twice."""


def bind(
    name: str, action: str = "", label: str = "", *, about: str = "", show: bool = True, priority: bool = False
) -> Binding:
    """Bind the keys with a meaning to an action, by default that of the same name.

    A label, and what the help says about it, replace the usual ones.
    """
    key = KEYS[name]
    return Binding(
        key.keys,
        action or name,
        label or key.label,
        show=show and bool(key.label),
        key_display=key.shown,
        tooltip=about or key.help,
        id=name,
        priority=priority,
    )
