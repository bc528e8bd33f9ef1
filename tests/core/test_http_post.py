"""Requests that cannot be sent; replies are in the tests of judges and of prompted models."""

import pytest

from distrl.core.http_post import PostFailed, post_json


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://127.0.0.1:9/v1", "sk-private\n"),
        ("http://127.0.0.1:9/v1", "sk-private\N{HORIZONTAL ELLIPSIS}"),
        ("http://[::1:9/v1", "sk-private"),
    ],
)
def test_what_no_request_can_have_is_refused_for_good_and_no_key_is_shown(url: str, key: str) -> None:
    with pytest.raises(PostFailed, match="the URL or the key contains invalid") as caught:
        post_json(url, b"{}", {"Authorization": f"Bearer {key}"}, 5.0, key)
    assert not caught.value.may_pass
    assert "private" not in str(caught.value)
