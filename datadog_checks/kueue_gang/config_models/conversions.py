# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What an option may hold: conversions of raw values, and the texts with which others are refused.

A conversion takes the name of an option and its raw value. It gives back the value of the model, or raises
`ValueError` with a text that names the option, says what is wrong and what to do. The rules of the options, which are
made of these, stand in `validators` and `signals` beside this file.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

#: Makes of a raw value the value of the model, or raises `ValueError`. Called with the option's name and its value.
Convert = Callable[[str, object], T]

#: Options of the Agent's HTTP client that a mapping for one more target may hold beside `auth_token`.
TLS_FLAGS = frozenset({"tls_ignore_warning", "tls_use_host_header", "tls_validate_hostname", "tls_verify"})
TLS_FILES = frozenset({"tls_ca_cert", "tls_cert", "tls_private_key"})
TLS_OTHERS = frozenset(
    {"tls_ciphers", "tls_intermediate_ca_certs", "tls_private_key_password", "tls_protocols_allowed"},
)
HTTP_OPTIONS = TLS_FLAGS | TLS_FILES | TLS_OTHERS | {"auth_token"}

AUTH_EXAMPLE = (
    "auth_token: {reader: {type: file, path: /var/run/secrets/kubernetes.io/serviceaccount/token}, "
    "writer: {type: header, name: Authorization, value: Bearer <TOKEN>}}"
)

DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
_QUALIFIED = rf"({_DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
OBJECT_NAME = re.compile(_DNS_NAME)
LABEL_KEY = re.compile(_QUALIFIED)
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
DIGITS = re.compile(r"[0-9]{1,9}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that `name` was probably meant to be, None where none is near."""
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return matches[0] if matches else None


# How a value is refused.


def refusal(option: str, problem: str) -> ValueError:
    """Return the error that refuses an option; `problem` goes on after its name."""
    return ValueError(f"`{option}` {problem}")


def shown(value: object) -> str:
    """Quote a value for an error text, cut so that a wrong paste cannot flood the log."""
    limit = 60
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def hint_at(name: str, known: Iterable[str]) -> str:
    """Return the end of a text that tells which of `known` was probably meant; empty where none is near."""
    meant = nearest(name, known)
    return f"; did you mean {meant}?" if meant else ""


# Conversions: what an option may hold.


def boolean(option: str, value: object) -> bool:
    """Take what YAML and the Agent take for true and false."""
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    answer = words.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if answer is None:
        raise refusal(option, "must be true or false")
    return answer


def plain_text(option: str, value: object) -> str:
    """Take a text that is not empty and has no space around it."""
    if not isinstance(value, str):
        raise refusal(option, f"must be a string, and is of type {type(value).__name__}: put it in quotes")
    if not value.strip():
        raise refusal(option, "is empty: give it a value, or remove it")
    if value != value.strip():
        raise refusal(option, "begins or ends with a space: remove it")
    return value


def one_of(*words: str) -> Convert[str]:
    """Take one of `words`."""

    def convert(option: str, value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        hint = hint_at(str(value).lower(), words)
        raise refusal(option, f"must be one of {', '.join(words)}, and is {shown(value)}{hint}")

    return convert


def number(
    *, least: float | None = None, above: float | None = None, what: str = "a number of seconds", use: str
) -> Convert[float]:
    """Take a number from `least` on, or above `above`; `use` tells what to set in place of a smaller one."""

    def convert(option: str, value: object) -> float:
        try:
            # True is a number to Python, and surely none to who wrote it.
            found = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found):
            raise refusal(option, f"must be {what}, and is {shown(value)}")
        if (least is not None and found < least) or (above is not None and found <= above):
            raise refusal(option, f"must not be {shown(value)}: {use}")
        return found

    return convert


def whole_number(*, most: int | None = None, use: str) -> Convert[int]:
    """Take a whole number from 1 to `most`; `use` tells what to set in place of another one."""
    wanted = "1 or more" if most is None else f"from 1 to {most}"

    def convert(option: str, value: object) -> int:
        found = int(value) if isinstance(value, str) and DIGITS.fullmatch(value) else value
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, bool) or not isinstance(found, int):
            raise refusal(option, f"must be a whole number, and is {shown(value)}")
        if found < 1 or (most is not None and found > most):
            raise refusal(option, f"must be {wanted}, and is {shown(found)}: {use}")
        return found

    return convert


def http_url(option: str, value: object) -> str:
    """Take an absolute http or https URL without credentials. The URL is never quoted: it may hold a password."""
    url = plain_text(option, value)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise refusal(option, "is not a URL: check its host and port") from None
    if parts.scheme not in {"http", "https"}:
        raise refusal(option, "must begin with http:// or https://")
    if not host:
        raise refusal(option, "has no host: write it as https://HOST:PORT/PATH")
    if parts.username is not None or parts.password is not None:
        other = "`username` and `password`" if option == "openmetrics_endpoint" else "`auth_token`"
        raise refusal(option, f"holds credentials, which would end up in logs: use {other}")
    return url


def absolute_path(option: str, value: object) -> str:
    """Take a path from the root, or from the home of the Agent's user."""
    path = plain_text(option, value)
    if not path.startswith(("/", "~/")):
        raise refusal(option, f"must be an absolute path, and is {shown(path)}: the Agent has no folder of its own")
    return path


def listed(option: str, value: object, *, meaning_of_none: str) -> list[object]:
    """Take a list with at least one item, whatever it is; `meaning_of_none` ends the text on []."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise refusal(option, f"must be a list, and is of type {type(value).__name__}: write it as [first, second]")
    if not value:
        raise refusal(option, f"is an empty list: remove it {meaning_of_none}")
    return list(value)


def list_of(convert_item: Convert[T], *, meaning_of_none: str) -> Convert[list[T]]:
    """Take a list whose items pass `convert_item`, the same item once; `meaning_of_none` ends the text on [].

    An empty list is refused since it reads both as "none" and as "no limit".
    """

    def convert(option: str, value: object) -> list[T]:
        items = (convert_item(option, item) for item in listed(option, value, meaning_of_none=meaning_of_none))
        return list(dict.fromkeys(items))

    return convert


def matching(pattern: re.Pattern[str], what: str) -> Convert[str]:
    """Take a text that `pattern` matches as a whole; `what` describes it in the error."""

    def convert(option: str, value: object) -> str:
        text = plain_text(option, value)
        if not pattern.fullmatch(text):
            raise refusal(option, f"holds {shown(text)}: each entry must be {what}")
        return text

    return convert


def mapped(option: str, value: object, example: str) -> Mapping[object, object]:
    """Take a mapping; `example` shows one in the error."""
    if not isinstance(value, Mapping):
        raise refusal(option, f"must be a mapping, and is of type {type(value).__name__}: write it as {example}")
    return value


def auth_token(option: str, value: object) -> Mapping[object, object]:
    """Take where a token comes from and how it is sent, as the Agent's HTTP client wants it. Never quoted."""
    token = value if isinstance(value, Mapping) else {}
    if not all(isinstance(token.get(part), Mapping) for part in ("reader", "writer")):
        raise refusal(option, f"must hold a `reader` and a `writer`, such as {AUTH_EXAMPLE}")
    return token


def _as_it_is(option: str, value: object) -> object:
    del option  # whatever it is, it is no fault
    return value


#: What each option of the Agent's HTTP client may hold.
HTTP_CONVERSIONS: Mapping[str, Convert[object]] = {
    "auth_token": auth_token,
    **dict.fromkeys(TLS_FLAGS, boolean),
    **dict.fromkeys(TLS_FILES, plain_text),
    **dict.fromkeys(TLS_OTHERS, _as_it_is),
}


def refuse_old_token(option: str, key: object) -> None:
    """Refuse the older options for a token, by their full name `option`: in a mapping, nothing reads them."""
    if key in {"bearer_token_auth", "bearer_token_path"}:
        raise refusal(option, f"does nothing: use {AUTH_EXAMPLE}")


def http_options(option: str, value: object, *, example: str, with_url: bool) -> dict[str, object]:
    """Take a mapping of the Agent's options for one target; unknown keys are refused, since no one would miss them.

    Keys without a value are left out, so that the Agent's HTTP client uses its own default.
    """
    known: dict[str, Convert[object]] = {**HTTP_CONVERSIONS, **({"url": http_url} if with_url else {})}
    options: dict[str, object] = {}
    for key, item in mapped(option, value, example).items():
        name = f"{option}.{key}"
        refuse_old_token(name, key)
        if key not in known:
            wanted = "`url`, `auth_token` and `tls_*`" if with_url else "`auth_token` and `tls_*`"
            raise refusal(name, f"is not known: {option} takes {wanted}{hint_at(str(key), known)}")
        if item is not None:
            options[str(key)] = known[str(key)](name, item)
    return options
