"""Which app is in front, by what the window and the activity manager print from Android 8 to 15."""

from __future__ import annotations

import re

WINDOW = "dumpsys window | grep -E 'mCurrentFocus|mFocusedApp'"
"""Asks the window manager: quick, but between two screens nothing may have the focus."""
ACTIVITY = "dumpsys activity activities | grep -E 'ResumedActivity|mFocusedActivity'"
"""Asks the activity manager, for when the window manager names nobody."""
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
