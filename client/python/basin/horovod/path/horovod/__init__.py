# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The package that `import horovod` finds when the folder above is in PYTHONPATH, where
`basin-run --horovod` puts it. It is only the way to basin.horovod."""

from basin.horovod import alias

alias.install()
