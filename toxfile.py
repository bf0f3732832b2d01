"""tox skips an environment that needs a wheel which there is not yet for this Python, and says so."""

from __future__ import annotations

import sys
from typing import Any

from tox.plugin import impl
from tox.tox_env.errors import Skip


@impl
def tox_add_env_config(env_conf: Any, state: Any) -> None:
    text = "the newest Python that all deps have wheels for; a newer one skips the environment"
    env_conf.add_config("newest_python", str, "", text)


@impl
def tox_on_install(tox_env: Any, arguments: Any, section: str, of_type: str) -> None:
    newest = tox_env.conf["newest_python"].strip()
    if newest and sys.version_info[:2] > tuple(map(int, newest.split("."))):
        this = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Skip(f"a framework has no wheel for Python {this}: this environment needs Python {newest} or older")
