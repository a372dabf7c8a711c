"""Settings of the providers, in one file: `carriers.toml` in the user's configuration folder, or the file of `--settings`.

    provider = "openai"                 # recorded (the default), person, openai, anthropic
    turns = 3                           # repairs after the first answer
    [openai]
    model = "some-model"
    endpoint = "http://127.0.0.1:8000/v1"
    key = "OPENAI_API_KEY"              # the NAME of an environment variable; "" for a server that wants none
    max_tokens = 16000
    price = { input = 0.0, output = 0.0 }   # dollars per million tokens, where the price table knows none
    [openai.time]                       # seconds: to connect, between two pieces of a reply, and for the whole of it
    connect = 10
    silence = 60
    total = 600
    [retry]
    tries = 5
    first = 1.0
    most = 60.0
    [budget.run]                        # also budget.carrier and budget.call: dollars, tokens, seconds, attempts
    dollars = 2.0
"""
from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kir.base.diagnostic import Origin, did_you_mean, error, usage
from kir.lineage.carrier.providers.budget import Limits

PROVIDERS = ("recorded", "person", "openai", "anthropic")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Price(_Part):
    """Dollars for a million tokens."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)


class Time(_Part):
    """Seconds: to connect, between two pieces of a reply, and for one call as a whole."""

    connect: float = Field(default=10.0, gt=0)
    silence: float = Field(default=60.0, gt=0)
    total: float = Field(default=600.0, gt=0)


class Endpoint(_Part):
    """A model behind one of the two protocols. `key` names the environment variable that holds the key; the key itself is never in a file.
    `tokens_as` is the request's field for `max_tokens` (newer hosted models want `max_completion_tokens`)."""

    model: str = Field(min_length=1)
    endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")
    key: str = Field(default="", pattern=r"^([A-Z][A-Z0-9_]*)?$")
    max_tokens: int = Field(default=16_000, ge=1)
    tokens_as: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: float | None = Field(default=None, ge=0, le=2)
    price: Price | None = None
    time: Time = Time()


class Retry(_Part):
    """Tries of one call, with pauses that double from `first` to `most` seconds, each drawn anew between half of it and all of it."""

    tries: int = Field(default=5, ge=1)
    first: float = Field(default=1.0, ge=0)
    most: float = Field(default=60.0, ge=0)


DEFAULT_RETRY = Retry()


class Budgets(_Part):
    """Limits of one call, of one carrier (a hole with all its turns), and of a run."""

    call: Limits = Limits()
    carrier: Limits = Limits()
    run: Limits = Limits()


NO_BUDGETS = Budgets()


class Settings(_Part):
    """Everything in the settings file."""

    provider: Literal["recorded", "person", "openai", "anthropic"] = "recorded"
    turns: int = Field(default=3, ge=0)
    openai: Endpoint | None = None
    anthropic: Endpoint | None = None
    retry: Retry = Retry()
    budget: Budgets = Budgets()

    def endpoint(self, provider: str) -> Endpoint:
        """The endpoint of a provider. Raises UsageError KIR-H402 when the settings have none."""
        found: Endpoint | None = {"openai": self.openai, "anthropic": self.anthropic}.get(provider)
        if found is None:
            raise usage("KIR-H402", f"the settings name no model for '{provider}'", needs=f"a table [{provider}] with model = \"..\" in {default_file()}")
        return found


def default_file() -> Path:
    """Where the settings are kept."""
    import platformdirs
    return Path(platformdirs.user_config_dir("kir")) / "carriers.toml"


def read_settings(file: Path | None = None) -> Settings:
    """The settings of a file; without one those of the default file, or the defaults where there is none. Raises KirError KIR-H401, located."""
    path = file or default_file()
    if file is None and not path.is_file():
        return Settings()
    try:
        text = path.read_text(encoding="utf-8")
        return Settings.model_validate(tomllib.loads(text))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as bad:
        raise error("KIR-H401", f"{path}: {bad}") from bad
    except ValidationError as bad:
        first: Any = bad.errors()[0]
        name = str(first["loc"][-1])
        known = [*Settings.model_fields, *Endpoint.model_fields, *Limits.model_fields, *Retry.model_fields, *Time.model_fields]
        hint = did_you_mean(name, known) if first["type"] == "extra_forbidden" else ""
        if name.casefold() in ("api_key", "apikey", "token", "secret"):
            hint = "key = \"NAME_OF_AN_ENVIRONMENT_VARIABLE\"; a key itself is never kept in a file"
        at = max(0, text.find(name))
        raise error("KIR-H401", f"{'.'.join(map(str, first['loc']))}: {first['msg']}", attempt=hint,
                    origin=Origin.of(str(path), text, at, at + len(name))) from None
