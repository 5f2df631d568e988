# SPDX-License-Identifier: Apache-2.0
# demo test test-slow build lint bench install clean
