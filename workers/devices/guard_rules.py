"""What the guard knows of Android's ways to call, to send SMS and to pay: globs over "package/activity"."""

from __future__ import annotations

CALLS: tuple[str, ...] = (
    "com.android.dialer/*",
    "com.google.android.dialer/*",
    "com.samsung.android.dialer/*",
    "com.oneplus.dialer/*",
    "com.simplemobiletools.dialer/*",
    "org.fossify.phone/*",
    "com.android.phone/*",
    "com.android.server.telecom/*",
    "*incallui*/*",
    "*/*incallactivity*",
    "*/*emergencydialer*",
    "com.android.contacts/*dialtacts*",
)
"""Dialers, the call screen, the telephony and telecom services' own activities."""

SMS: tuple[str, ...] = (
    "com.google.android.apps.messaging/*",
    "com.android.messaging/*",
    "com.android.mms/*",
    "com.samsung.android.messaging/*",
    "com.simplemobiletools.smsmessenger/*",
    "org.fossify.messages/*",
    "com.oneplus.mms/*",
)
"""Messengers that send SMS: from the compose screen, sending is one tap on a number that may cost."""

PURCHASES: tuple[str, ...] = (
    "com.android.vending/*billing*",
    "com.android.vending/*acquire*",
    "com.android.vending/*purchase*",
    "com.android.vending/*payment*",
    "com.google.android.gms/*wallet*",
    "com.google.android.gms/*payment*",
    "com.google.android.apps.walletnfcrel/*",
    "com.samsung.android.spay/*",
    "com.sec.android.app.samsungapps/*payment*",
    "com.sec.android.app.samsungapps/*billing*",
    "com.amazon.venezia/*purchase*",
    "com.amazon.venezia/*iap*",
    "com.huawei.appmarket/*pay*",
)
"""Payment sheets of the app stores, and wallets; the stores themselves may be looked at."""

SYSTEM: tuple[str, ...] = (
    "android/*",
    "com.android.systemui/*",
    "com.android.intentresolver/*",
    "com.android.permissioncontroller/*",
    "com.google.android.permissioncontroller/*",
    "com.android.documentsui/*",
    "com.google.android.documentsui/*",
)
"""What the system shows on behalf of an app: allowed beside every allow-list."""
