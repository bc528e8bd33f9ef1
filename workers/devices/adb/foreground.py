"""What is in front, by what the window and the activity manager print from Android 8 to 15."""

from __future__ import annotations

import re

WINDOW = "dumpsys window | grep -E 'mCurrentFocus|mFocusedApp'"
"""Asks the window manager: quick, but between two screens nothing may have the focus."""
ACTIVITY = "dumpsys activity activities | grep -E 'ResumedActivity|mFocusedActivity'"
"""Asks the activity manager, for when the window manager names nobody."""
FLAGS = "dumpsys window | grep -E 'mAwake=|mCurrentFocus=|Window #| fl='"
"""Asks the window manager for each window's flags, which one has the focus, and whether the display is on."""
_FLAG_SECURE = 0x2000
_FORMS = (
    # mCurrentFocus=Window{8a1 u0 com.android.settings/com.android.settings.Settings}; a dialog, the shade or
    # an error window has another title, and the app below it counts.
    re.compile(r"mCurrentFocus=Window\{\S+ u\d+ ([\w.]+)/[\w.$]+"),
    # mFocusedApp=ActivityRecord{5d u0 com.a/.Main t12}; to Android 9 within AppWindowToken{… token=Token{…}}
    re.compile(r"mFocusedApp=[^\n]*?ActivityRecord\{\S+ u\d+ ([\w.]+)/"),
    # mResumedActivity: ActivityRecord{…}, from Android 10 topResumedActivity=ActivityRecord{…}
    re.compile(r"(?:[rR]esumedActivity|mFocusedActivity)[:=]\s*ActivityRecord\{\S+ u\d+ ([\w.]+)/"),
)


def package_in_front(text: str) -> str:
    """The package that `text`, an answer to `WINDOW` or `ACTIVITY`, names; "" if none."""
    for form in _FORMS:
        if (found := form.search(text)) is not None:
            return found[1]
    return ""


def is_secure(text: str) -> bool:
    """Whether, by `text`, an answer to `FLAGS`, the display is on and the focused window secure.

    Android leaves such a window (FLAG_SECURE: passwords, payments, films) out of screenshots: they are black
    where it is.
    """
    focus = re.search(r"mCurrentFocus=Window\{(\S+) ", text)
    if focus is None or ("mAwake=false" in text and "mAwake=true" not in text):
        return False
    for block in re.split(r"^\s*(?=Window #)", text, flags=re.MULTILINE):
        if re.match(rf"Window #\d+ Window\{{{re.escape(focus[1])} ", block):
            # By name, as in "fl=LAYOUT_IN_SCREEN SECURE …"; on old devices a number, as in "fl=#81812100".
            found = re.search(r"\bfl=(?:#([0-9a-f]+)|([^\n]*))", block)
            if found is None:
                return False
            return bool(int(found[1], 16) & _FLAG_SECURE) if found[1] else "SECURE" in found[2].split()
    return False
