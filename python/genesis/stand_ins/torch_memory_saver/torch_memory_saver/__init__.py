"""``genesis.torch_memory_saver`` under another name: see its ``install``."""

import importlib
import sys

for _part in ("", ".entrypoint", ".hooks", ".hooks.mode_preload", ".testing_utils", ".utils"):
    sys.modules[__name__ + _part] = importlib.import_module("genesis.torch_memory_saver" + _part)
