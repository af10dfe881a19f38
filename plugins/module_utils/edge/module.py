# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every module of ours has: the option ``root``, check mode, and one way to end with an error.

Apart from reconcile.py, so that a module that only reads doesn't carry the code that writes: Ansible compiles all of it on each call.
"""

from __future__ import annotations

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule

from ..core.errors import GpufleetError

ROOT_OPTION = {"root": {"type": "path", "default": "/"}}


def new_module(options: Dict[str, Any], **arguments: Any) -> AnsibleModule:
    """An AnsibleModule with option ``root`` added; all of ours support check mode."""
    return AnsibleModule(argument_spec=dict(ROOT_OPTION, **options), supports_check_mode=True, **arguments)


def succeed(module: AnsibleModule, **result: Any) -> None:
    """End the module with its result."""
    module.exit_json(**_unicode(result))


def fail(module: AnsibleModule, error: GpufleetError) -> None:
    """End the module with the error's sentence, and its halves for programs."""
    module.fail_json(**_unicode({"msg": str(error), "problem": error.problem, "remedy": error.remedy}))


def _unicode(value: Any) -> Any:
    """The value with bytes that are no UTF-8 written as \\xNN: a file may hold any, and Ansible takes Unicode only."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, (list, tuple)) else value
