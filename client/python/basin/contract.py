# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The version of the arithmetic contract, which protocol/version.h defines; a test
compares them."""

CONTRACT_VERSION = 1
