"""A job for compute-sanitizer: what is packed comes back, and nothing heavy is imported to replay it."""

from __future__ import annotations

import subprocess
import sys

from kir.hardware.device.replay import pack, unpack


def test_a_job_comes_back_as_it_was_packed() -> None:
    opening, call = {"op": "open", "images": []}, {"op": "call", "salt": 2**61}
    first, second = unpack(pack((opening, [b"", b"\x00\xff"]), (call, [])))
    assert first == (opening, [bytearray(), bytearray(b"\x00\xff")])
    assert second == (call, [])


def test_replaying_imports_no_library() -> None:
    code = "import sys, kir.hardware.device.replay, kir.hardware.device.executor; print(sorted({'numpy', 'pydantic', 'torch', 'lark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
